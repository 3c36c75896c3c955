"""One row of the table: our figure beside a peer's, measured in turns, and their ratio with its spread."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

ROUNDS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What was compared; ``ratio`` above 1 means that we are better."""

    group: str
    name: str
    peer: str
    ours: str
    theirs: str
    ratio: float
    low: float
    high: float
    target: float | None = None

    @property
    def passed(self) -> bool | None:
        """Whether the target is met, where there is one."""
        return None if self.target is None else self.ratio >= self.target

    def to_json(self) -> dict[str, Any]:
        """Return the row as plain values."""
        return {**asdict(self), "passed": self.passed}

    def __str__(self) -> str:
        spread = f"{self.ratio:.3g} ({self.low:.3g} to {self.high:.3g})"
        wanted = "" if self.target is None else f">= {self.target:g}"
        verdict = {None: "", True: "pass", False: "FAIL"}[self.passed]
        return f"{self.name:<42}{self.peer:<34}{self.ours:>15}{self.theirs:>15}  {spread:<24}{wanted:>8}  {verdict}"


def elapsed(call: Callable[[], object]) -> float:
    """Return the seconds a call takes by the wall clock."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def alternate(ours: Callable[[], object], theirs: Callable[[], object]) -> list[tuple[float, float]]:
    """Run both in turns and return the seconds of every round; a first round warms up and does not count."""
    return [(elapsed(ours), elapsed(theirs)) for _ in range(ROUNDS + 1)][1:]


def speed_row(
    group: str,
    name: str,
    peer: str,
    ours: tuple[Callable[[], object], int],
    theirs: tuple[Callable[[], object], int],
    target: float | None = None,
) -> Row:
    """Compare two calls that handle so many events each, in events per second."""
    rounds = alternate(ours[0], theirs[0])
    ratios = [(ours[1] / mine) / (theirs[1] / other) for mine, other in rounds]
    speeds = [statistics.median(side[1] / pair[i] for pair in rounds) for i, side in enumerate((ours, theirs))]
    row = Row(
        group=group,
        name=name,
        peer=peer,
        ours=per_second(speeds[0]),
        theirs=per_second(speeds[1]),
        ratio=statistics.median(ratios),
        low=min(ratios),
        high=max(ratios),
        target=target,
    )
    print(row, flush=True)
    return row


def per_second(speed: float) -> str:
    """Write a speed so that it can be read."""
    return f"{speed / 1e6:.3g} M/s" if speed >= 1e5 else f"{speed:,.0f} /s"
