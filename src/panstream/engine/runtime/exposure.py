"""What an engine must know to judge copies of its states: when rows were applied, and when states began."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from panstream.engine.planner.query_plan import QueryPlan
from panstream.engine.runtime.checkpoint import EngineCheckpoint
from panstream.engine.runtime.intrusions import (
    ENDED_PHASE,
    NOT_COPIED,
    CopyTime,
    RefreshOutcome,
    Verdict,
    recorded,
    refresh_forecast,
    refresh_state,
)
from panstream.engine.runtime.running_query import RunningQuery
from panstream.engine.runtime.state_backend import Slot


class Exposure:
    """Judges announced copies and records the verdicts.

    ``clock`` is the system's own, even while a stream does not believe it: a copy is dated by the same clock. Times are
    kept in whole seconds, rounded to the safe side, so that their length in the store is always the same.
    """

    def __init__(self, kept: EngineCheckpoint, queries: Mapping[str, RunningQuery], clock: Callable[[], float]) -> None:
        self._kept = kept
        self._queries = queries
        self.clock = clock

    def note_applied(self) -> None:
        """Note that rows were, or may have been, applied up to now."""
        now = self.clock()
        last_applied = self._kept.applied
        if last_applied is not None and now < last_applied:
            self.correct_starts(math.floor(now))
        self._kept.applied = math.ceil(now) if last_applied is None else max(math.ceil(now), last_applied)

    def correct_starts(self, now: int) -> None:
        """Correct starts that lie ahead of the clock, after it went back: those states are there already."""
        for query in self._queries.values():
            query.started = {window: min(started, now) for window, started in query.started.items()}

    def outlook(self, plan: QueryPlan) -> tuple[bool, str]:
        """Return whether a query can be refreshed, and what to say before another intrusion is announced."""
        query = self._queries[plan.config.name]
        used = 0 if query.windowed else len(query.refreshed.get(0, ()))
        return refresh_forecast(plan, used, exposed=bool(query.exposed))

    def announce(self, copy: CopyTime, *, live: bool) -> list[RefreshOutcome]:
        """Refresh every state that was copied and can be, and record the verdicts.

        Args:
            copy: When the state was copied. States that are refreshed by freezing them are covered only if no row was
                applied since.
            live: Whether a step of a live stream is under way: rows may be applied at any moment of it, and whether
                they were must not show.

        Returns:
            What became of each state.
        """
        now = math.ceil(self.clock())
        if live:
            self.note_applied()
        rows_since_copy = copy.rows_since(self._kept.applied)
        states: list[RefreshOutcome] = []
        for query in self._queries.values():
            verdicts = {slot: _refresh(query, slot, copy, rows_since_copy) for slot in sorted(query.monitors)}
            for window in {slot[0] for slot, verdict in verdicts.items() if verdict.refreshed}:
                query.refreshed.setdefault(window, []).append(now)
            states += RefreshOutcome.states(query.plan, verdicts)
        self._kept.expose_parked()
        self._kept.intrusions.append(recorded(now, copy, states))
        return states


def _refresh(query: RunningQuery, slot: Slot, copy: CopyTime, rows_since_copy: bool | None) -> Verdict:
    """Refresh one state, if it was copied and can be; return the verdict on it."""
    often = query.plan.claim.intrusions
    window = slot[0]
    if copy.is_before(query.started.get(window)):
        return NOT_COPIED
    if often.unannounced >= 0 and any(copy.may_be_before(moment) for moment in query.refreshed.get(window, ())):
        return ENDED_PHASE
    verdict, exposed = refresh_state(
        query.monitors[slot], often, rows_since_copy=rows_since_copy, exposed=slot in query.exposed
    )
    (query.exposed.add if exposed else query.exposed.discard)(slot)
    return verdict
