"""Announced intrusions: when the copy was made, whether the claim covers it, and the public record of it.

A refresh that adds noise covers the copy however late it comes. A refresh that freezes the state publishes it as it
then is, so that a row applied since the copy would show in the difference of the two (docs/proofs/joint-loss.md,
Theorem 3). Such a state is not refreshed, and the copy counts as the unannounced one that the claim covers.

Verdicts are public, so they depend on times only: a step of the clock counts as if it had applied rows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Self

from panstream.engine.planner.query_plan import QueryPlan
from panstream.engine.runtime.release_record import iso_timestamp, release_timestamp
from panstream.engine.runtime.state_backend import Slot, StateHandle
from panstream.errors import InvalidParameter, NotSupported
from panstream.privacy.claim import Claim, Intrusions, Refresh

_PRECISION = 1.0  # seconds: a copy "at 03:00:00" was made before 03:00:01


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyTime:
    """When the state was copied, as far as its owner knows.

    Attributes:
        at: Seconds since 1970, to the second; None if unknown or just now.
        just_now: The owner says that no row has been applied since.
    """

    at: float | None = None
    just_now: bool = False

    def __post_init__(self) -> None:
        if self.at is not None and self.just_now:
            raise InvalidParameter("give the time of the copy or say that it was just now, not both")
        if self.at is not None and not math.isfinite(self.at):
            raise InvalidParameter(f"the time of the copy must be a number of seconds, got {self.at}")

    @classmethod
    def parse(cls, name: str, text: str | None, *, just_now: bool = False) -> Self:
        """Parse a time in ISO 8601 with a time zone.

        Args:
            name: Name of the parameter, for error messages.
            text: For example "2026-03-08T03:00:00Z"; None if the time is unknown.
            just_now: The copy was made just now instead.

        Raises:
            InvalidParameter: The text is not such a time, or both were given.
        """
        if text is None:
            return cls(just_now=just_now)
        rule = f"{name} must be a date and time with a time zone, such as 2026-03-08T03:00:00Z"
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            raise InvalidParameter(f"{rule}, got {text[:64]!r}") from None
        if moment.tzinfo is None:
            raise InvalidParameter(f"{rule}; {text[:64]!r} has none")
        return cls(at=moment.timestamp(), just_now=just_now)

    def check_past(self, now: float) -> None:
        """Raise InvalidParameter if the copy was made later than ``now``."""
        if self.at is not None and self.at > now:
            raise InvalidParameter(
                f"the time of the copy, {release_timestamp(self.at)}, is in the future: it is "
                f"{release_timestamp(now)} by this machine's "
                "clock"
            )

    def rows_since(self, applied: float | None) -> bool | None:
        """Return whether rows were applied since the copy, given when the last were; None if unknown."""
        if self.just_now:
            return False
        return None if self.at is None or applied is None else self.at <= applied

    def is_before(self, moment: float | None) -> bool:
        """Return whether the copy was certainly made before ``moment``."""
        return self.at is not None and moment is not None and self.at + _PRECISION <= moment

    def may_be_before(self, moment: float) -> bool:
        """Return whether the copy has a known time that is not certainly after ``moment``."""
        return self.at is not None and self.at <= moment


NOT_KNOWN = CopyTime()


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The outcome for one state: whether it was refreshed, and whether its copy is covered as an announced one."""

    refreshed: bool
    covered: bool
    text: str


NOT_COPIED = Verdict(refreshed=False, covered=True, text="covered: it began later, so it was not copied")
ENDED_PHASE = Verdict(
    refreshed=False,
    covered=False,
    text="not covered: a refresh after that time was made for another copy; the claim no longer holds",
)


def refresh_state(
    monitor: StateHandle, often: Intrusions, *, rows_since_copy: bool | None, exposed: bool = False
) -> tuple[Verdict, bool]:
    """Refresh a copied state, if that makes another copy safe.

    Args:
        monitor: The state.
        often: Which intrusions its claim covers.
        rows_since_copy: Whether rows were applied since the copy; None if unknown.
        exposed: An earlier copy of the state was not followed by a refresh.

    Returns:
        The verdict, and whether this copy was not followed by a refresh.
    """
    if exposed and often.freezes:  # two copies of this phase exist, and the frozen state would be a third
        return Verdict(refreshed=False, covered=False, text=_SECOND_COPY), True
    try:
        outcome = monitor.refresh(rows_since_copy=rows_since_copy)
    except NotSupported:
        outcome = Refresh(False, "it cannot be refreshed")
    if exposed:
        return Verdict(refreshed=outcome.covered, covered=False, text=_SECOND_COPY), not outcome.covered
    if outcome.covered:
        both = ", unless both machines were copied in one epoch" if often.machines > 1 else ""
        return Verdict(refreshed=True, covered=True, text=f"covered{both}"), False
    means = _ONE_COPY if often.unannounced else "the claim covers no copy"
    return Verdict(refreshed=False, covered=False, text=f"{outcome}; {means}"), True


@dataclass(frozen=True, slots=True, kw_only=True)
class RefreshOutcome:
    """The verdict on one state of a query; ``window`` is the start of its window, None without windows."""

    query: str
    verdict: Verdict
    window: str | None = None
    group: str | None = None

    @classmethod
    def states(cls, plan: QueryPlan, verdicts: Mapping[Slot, Verdict]) -> list[RefreshOutcome]:
        """Return the outcomes for all states of a query."""
        grid = plan.config.window_grid
        return [
            cls(
                query=plan.config.name,
                verdict=verdict,
                window=None if grid is None else iso_timestamp(grid.start(window)),
                group=plan.group_name(plan.groups[group]) or None,
            )
            for (window, group), verdict in verdicts.items()
        ]

    @property
    def done(self) -> bool:
        """Return whether the state was refreshed."""
        return self.verdict.refreshed

    def __str__(self) -> str:
        location = [] if self.window is None else [f"window from {self.window}"]
        location += [] if self.group is None else [self.group]
        name = f"{self.query} ({'; '.join(location)})" if location else self.query
        return f"{name}: {'refreshed' if self.done else 'not refreshed'}, {self.verdict.text}"

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "query": self.query,
            "window": self.window,
            "group": self.group,
            "refreshed": self.done,
            "covered": self.verdict.covered,
            "verdict": self.verdict.text,
        }


_ONE_COPY = "it counts as the one unannounced copy that the claim covers; another one is not covered"
_SECOND_COPY = "not covered: an earlier copy was not followed by a refresh; the claim no longer holds"


def intrusion_record(time: float, copy: CopyTime, states: Sequence[RefreshOutcome]) -> dict[str, Any]:
    """Return the public record of an announced intrusion as JSON values, one verdict for all groups of a window."""
    verdicts = {
        (state.query, state.window): {
            "query": state.query,
            "window": state.window,
            "covered": state.verdict.covered,
            "verdict": state.verdict.text,
        }
        for state in states
    }
    return {
        "announced": release_timestamp(time),
        "copied": "just now" if copy.just_now else None if copy.at is None else release_timestamp(copy.at),
        "verdicts": list(verdicts.values()),
    }


def describe_record(record: Mapping[str, Any]) -> str:
    """Return an announced intrusion as one line of text."""
    copied = {None: "copied at an unknown time", "just now": "copied just then"}.get(
        record["copied"], f"copied at {record['copied']}"
    )
    bad = sorted({verdict["query"] for verdict in record["verdicts"] if not verdict["covered"]})
    return f"{record['announced']} ({copied}; {'not covered: ' + ', '.join(bad) if bad else 'covered'})"


def refresh_forecast(plan: QueryPlan, used: int, *, exposed: bool = False) -> tuple[bool, str]:
    """Return whether a query's state can be refreshed, and what announcing another intrusion would do.

    Args:
        plan: The query.
        used: How many refreshes its state has had.
        exposed: An earlier copy of the state was not followed by a refresh.
    """
    often = plan.claim.intrusions
    if often.machines > 1:
        return True, _ON_MACHINES[min(often.together, 1)]
    if exposed and plan.config.window is None:
        return False, "was copied before and not refreshed: another copy is not covered"
    if often.announced < 0:
        return True, "is refreshed, however late, which costs no epsilon but more error from here on"
    if often.announced > used or (often.announced and plan.config.window is not None):
        window = " per window" if plan.config.window else ""
        when = "only if no row was applied since the copy" if often.freezes else "however late"
        return True, f"is refreshed, {when}, as paid for in advance ({often.announced} at most{window})"
    reason = "cannot be refreshed, since announced is not declared"
    if often.announced:
        reason = "all that were paid for are used up"
    return False, f"{reason}: this is the one intrusion that its claim covers; a second one is not covered"


_ON_MACHINES = (
    "the shares are re-randomised, which costs nothing: any number of copies of one machine at a time is covered; if "
    "both were copied in one epoch, the copies show the exact state, and the claim no longer holds",
    "the shares are re-randomised, which costs nothing: any number of copies of one machine at a time is covered, and "
    "copies of both in one epoch are covered once",
)


def covered_intrusions_text(claim: Claim) -> str:
    """Return which intrusions a claim covers, for readers who are not engineers."""
    often = claim.intrusions
    where = " and ".join(claim.locations)
    if often.machines > 1 and often.unannounced < 0:
        both = ", and both at once one time" if often.together else ""
        return f"any number, at one machine at a time{both} ({where})"
    if not often.unannounced and not often.announced:
        return "none"
    if not often.announced:
        return f"{often.unannounced}, even if unnoticed ({where})"
    reported = "any number, if reported" if often.announced < 0 else f"{often.announced}, if reported"
    reported += " before another row is counted" if often.freezes else ""
    if not often.unannounced:
        return f"{reported} ({where})"
    when = "between any two reports" if often.per_phase else "after the last report"
    return f"{reported}, and {often.unannounced} unnoticed {when} ({where})"
