"""The published turnstile algorithms: a finite set of noise, and noise in floating point."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from panstream.algorithm import Monitor
from panstream.audit.case import Case, Measured, Trial
from panstream.papers.mir import PublishedCroppedSum
from panstream.papers.mir_distinct import PublishedDistinct

__all__ = ["turnstile_controls"]

_PAPER = "Pan-private Algorithms Via Statistics on Sketches"
_GRID = float(1 << 53)


@dataclass(frozen=True)
class FiniteNoise:
    """Algorithm 1's own enumeration of its noise."""

    sketch: PublishedDistinct

    def __call__(self) -> Measured:
        """Return its loss: a shift leads out of a finite set."""
        return Measured(
            loss=self.sketch.loss(), witness="a noise vector at the edge of the set, moved out of it by one user"
        )


def _rounded(algorithm: PublishedCroppedSum, first: bool) -> bool:
    monitor = Monitor(algorithm)
    if not first:
        monitor.update([0], weight=[12])
    counter = float(monitor.state.counters[0])
    return counter < 1 and int(counter * _GRID) % 8 != 0


def turnstile_controls() -> list[Case]:
    """Return Mir's algorithm 1 and its algorithm 2 in floating point."""
    finite = PublishedDistinct(rows=((1,), (3,)), largest=1, epsilon=1.0)
    real = PublishedCroppedSum(universe=1, epsilon=0.1, crop=8)
    return [
        Case(
            name="Mir's Algorithm 1 as printed",
            kind="control",
            claimed=1.0,
            exact=FiniteNoise(finite),
            stands_for=f"{_PAPER}, Algorithm 1: |c_i| ≤ 2Z is a finite set, which no translation leaves in place",
        ),
        Case(
            name="Mir's Algorithm 2 in floating point",
            kind="control",
            claimed=0.2,
            trial=Trial("a counter below 1 still has its last binary digits", partial(_rounded, real)),
            algorithm=real,
            stands_for=f"{_PAPER}, Algorithm 2, c := (c + w·d) mod 2τ over floats: an update rounds the last digits away",
            sampled=True,
            quick_runs=2_000,
        ),
    ]
