"""Records of when rows were applied and states created, from which copies of the states are judged."""

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
    intrusion_record,
    refresh_forecast,
    refresh_state,
)
from panstream.engine.runtime.running_query import RunningQuery
from panstream.engine.runtime.state_backend import Slot


class Exposure:
    """Judge announced copies and record the verdicts.

    ``clock`` is the unguarded system clock, since the time of a copy is given by the same clock. Times are stored in
    whole seconds, rounded to the safe side, so that their length in the store never varies.
    """

    def __init__(
        self, checkpoint: EngineCheckpoint, queries: Mapping[str, RunningQuery], clock: Callable[[], float]
    ) -> None:
        self._checkpoint = checkpoint
        self._queries = queries
        self.clock = clock

    def note_applied(self) -> None:
        """Record that rows were, or may have been, applied up to now."""
        now = self.clock()
        last_applied = self._checkpoint.applied
        if last_applied is not None and now < last_applied:
            self.correct_starts(math.floor(now))
        self._checkpoint.applied = math.ceil(now) if last_applied is None else max(math.ceil(now), last_applied)

    def correct_starts(self, now: int) -> None:
        """Lower start times that lie ahead of the clock after it was set back: those states already exist."""
        for query in self._queries.values():
            query.started = {window: min(started, now) for window, started in query.started.items()}

    def outlook(self, plan: QueryPlan) -> tuple[bool, str]:
        """Return whether a query can be refreshed, and what announcing another intrusion would do."""
        query = self._queries[plan.config.name]
        used = 0 if query.windowed else len(query.refreshed.get(0, ()))
        return refresh_forecast(plan, used, exposed=bool(query.exposed))

    def announce(self, copy: CopyTime, *, live: bool) -> list[RefreshOutcome]:
        """Refresh every copied state that can be refreshed, and record the verdicts.

        Args:
            copy: When the state was copied. States that are refreshed by freezing them are covered only if no row was
                applied since.
            live: A step of a live stream is in progress. Whether rows were applied in it must stay hidden, so it
                counts as if they were.

        Returns:
            The verdict on each state.
        """
        now = math.ceil(self.clock())
        if live:
            self.note_applied()
        rows_since_copy = copy.rows_since(self._checkpoint.applied)
        states: list[RefreshOutcome] = []
        for query in self._queries.values():
            verdicts = {slot: _refresh(query, slot, copy, rows_since_copy) for slot in sorted(query.monitors)}
            for window in {slot[0] for slot, verdict in verdicts.items() if verdict.refreshed}:
                query.refreshed.setdefault(window, []).append(now)
            states += RefreshOutcome.states(query.plan, verdicts)
        self._checkpoint.expose_parked()
        self._checkpoint.intrusions.append(intrusion_record(now, copy, states))
        return states


def _refresh(query: RunningQuery, slot: Slot, copy: CopyTime, rows_since_copy: bool | None) -> Verdict:
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
