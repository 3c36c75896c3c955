"""A running query: its states by window and group, its schedule, and validated batches.

Work is in two phases. ``prepare`` validates rows and changes no state; ``apply`` runs only after every query has
prepared its part, so that a batch is applied to all queries or to none.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.core.estimate import Estimate
from panstream.engine.planner.query_plan import QueryPlan
from panstream.engine.planner.sender_bounds import limits_users
from panstream.engine.rows.row_batch import QuerySelection, RowBatch
from panstream.engine.rows.row_gather import take_rows
from panstream.engine.rows.wiping import wipe_array
from panstream.engine.runtime.clocks import UNKNOWN, Schedule
from panstream.engine.runtime.coverage import ALL_DATA, Coverage
from panstream.engine.runtime.id_check import IdValidator
from panstream.engine.runtime.row_routing import RowRoute, Segment, WindowRule
from panstream.engine.runtime.state_backend import LocalBackend, PendingAnswer, Slot, StateBackend, StateHandle
from panstream.engine.sql.parser import Aggregate, Output
from panstream.errors import BudgetExhausted, NotSupported
from panstream.primitives.memory.scratch import Scratch, wipe

Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class DrawnAnswer:
    """A drawn, not yet published answer of one group.

    It counts the rows that arrived before the stream's time reached ``until``. The last answer of a window counts the
    window's rows that arrived before the watermark reached the window's end.

    Attributes:
        estimate: Returns the estimate, once the backend has flushed; for local states, at any time.
        until: End of its slot, in seconds since 1970.
    """

    group: int
    number: int
    estimate: Callable[[], Estimate]
    window: int | None = None
    until: float | None = None
    output: int = 0


@dataclass(slots=True, eq=False)
class PreparedBatch:
    """A query's validated part of a micro-batch; applying it cannot fail because of the data."""

    step: int | None  # the watermark's step: windows that end before it accept no more rows
    reached: int | None  # the step of the stream's time: ``step``, or up to the lateness ahead of it
    windows: tuple[int, ...]
    batches: list[tuple[Slot, Any]]
    copies: list[Any]

    def wipe(self) -> None:
        """Overwrite the copies of rows."""
        for _, batch in self.batches:
            batch.wipe()
        for copy in self.copies:
            wipe_array(copy)


@dataclass(slots=True, eq=False)
class RunningQuery:
    """One query's states and counts.

    Without windows there is one state per group, under window 0. With windows, each has its own states, created for
    all groups at once and dropped when the window is over. A window opens with the first row of the stream in it or,
    where arrival time counts, by the clock.
    """

    plan: QueryPlan
    backend: StateBackend = field(default_factory=LocalBackend)
    lateness: float = 0.0  # seconds that windows wait for late rows after their end
    monitors: dict[Slot, StateHandle] = field(default_factory=dict)
    schedule: Schedule | None = None
    release_count: int = 0  # releases so far, over all windows
    prior_releases: int = 0  # releases of earlier starts whose state was not stored
    starts: int = 1
    ticks_by_window: dict[int, int] = field(default_factory=dict)  # per open window: number of slots that are over
    coverage: Coverage = ALL_DATA
    clock: Callable[[], float] = time.time
    started: dict[int, int] = field(default_factory=dict)  # per window: its states did not exist before this time
    refreshed: dict[int, list[int]] = field(default_factory=dict)  # per window: when its states were refreshed
    exposed: set[Slot] = field(default_factory=set)  # states copied in an announced intrusion and not refreshed
    _ids: IdValidator | None = None
    has_batch: bool = False

    def __post_init__(self) -> None:
        grid = self.plan.config.step_grid
        self.schedule = None if grid is None else Schedule(grid)
        self._ids = IdValidator.for_plan(self.plan)

    @property
    def windowed(self) -> bool:
        """Return whether the query has windows, each with its own states."""
        return self.plan.config.window is not None

    @property
    def finished(self) -> bool:
        """Return whether all paid releases were made; never with windows, which pay for each one separately."""
        return not self.windowed and self.release_count >= self.plan.releases

    @property
    def next_answer(self) -> float | None:
        """Return when the open slot of the schedule ends; None if nothing is scheduled, or no row had a time yet."""
        return None if self.schedule is None or self.finished else self.schedule.open_until

    def start(self) -> None:
        """Create the states of all groups of a query without windows: which groups have rows must stay hidden."""
        if not self.windowed:
            self._open(0)

    def _open(self, window: int) -> None:
        self.started.setdefault(window, math.floor(self.clock()))
        for group in range(len(self.plan.groups)):
            if (window, group) not in self.monitors:
                started = self.backend.start(self.plan.config.name, (window, group), self.plan.algorithm)
                self.monitors[window, group] = started

    # Phase 1: validation, no state changes.

    def unusable(self, rows: RowBatch, chosen: QuerySelection) -> Mask:
        """Return which of the chosen rows have an id, value or weight that this query cannot use."""
        kind = self.plan.config.parsed.aggregate
        bad = chosen.unusable.copy()
        if kind.of_users or limits_users(self.plan.config):
            assert self._ids is not None
            bad |= self._ids.unusable(rows.ids, rows.count)
        if chosen.weights is not None and kind.of_users:
            bad |= _unusable_weights(chosen.weights, self.plan.algorithm)
        if chosen.values is not None and self._reads_values:
            bad |= ~np.isfinite(chosen.values)
        return bad & chosen.rows

    @property
    def _reads_values(self) -> bool:
        parsed = self.plan.config.parsed
        return parsed.value is not None or not parsed.aggregate.of_users

    def prepare(
        self, rows: RowBatch, chosen: QuerySelection, usable: Mask, route: RowRoute | None
    ) -> list[PreparedBatch]:
        """Validate a batch and split it by slot of the schedule.

        Args:
            rows: The micro-batch.
            chosen: What the query selects of it.
            usable: Which rows may be used.
            route: How the rows fall into windows by `window_rule`; None where nothing depends on their times.
        """
        keep = chosen.rows & usable
        segments: tuple[Segment, ...] = (Segment.whole(rows.count),)
        if route is not None and self.schedule is not None:
            segments = route.segments
            if chosen.counted is not None:
                keep = keep & chosen.admitted(route.row_windows() if self.windowed else None)
        prepared: list[PreparedBatch] = []
        try:
            for segment in segments:
                opened = segment.windows if self.windowed and segment.step is not None else ()
                prepared.append(PreparedBatch(segment.step, segment.reached, opened, [], []))
                self._fill(prepared[-1], rows, chosen, keep, segment)
        except BaseException:
            for prepared_part in prepared:
                prepared_part.wipe()
            raise
        return prepared

    def prepare_usability(self, rows: RowBatch, skipped: Mask) -> list[PreparedBatch]:
        """Prepare the counts of usable and unusable rows, one group each; empty for any other query."""
        if not self.plan.config.of_unusable:
            return []
        groups = skipped.astype(np.int64)
        chosen = QuerySelection.select_all(rows.count, groups=groups)
        try:
            return self.prepare(rows, chosen, chosen.rows, None)
        finally:
            wipe(groups)

    def watermark_steps(self, marks: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return, per row, the watermark's step and the step of the stream's time.

        They differ only for windows with lateness > 0. Ticks without a window, and those inside one, do not wait for
        late rows, since they would count rows of later slots meanwhile; a late row counts in the next answer.
        """
        assert self.schedule is not None
        if not self.windowed or not self.lateness:
            reached = self.schedule.steps(marks)
            return reached, reached
        over = self.schedule.steps(marks - self.lateness)
        return over, over if self.ticks_per_window == 1 else self.schedule.steps(marks)

    @property
    def window_rule(self) -> WindowRule | None:
        """How rows fall into windows and steps now; None without a schedule."""
        if self.schedule is None:
            return None
        step = UNKNOWN if self.schedule.step is None else self.schedule.step
        lateness = self.lateness if self.windowed else 0.0
        query = self.plan.config
        every = self.schedule.grid.longest
        window = query.window or query.retention_window
        return WindowRule(every, window, lateness, self.ticks_per_window, step, query.calendar)

    @property
    def ticks_per_window(self) -> int:
        """Return the number of slots of the schedule per window."""
        query = self.plan.config
        return 1 if query.every is None or query.window is None else round(query.window / query.every)

    def _fill(
        self, prepared: PreparedBatch, rows: RowBatch, chosen: QuerySelection, keep: Mask, segment: Segment
    ) -> None:
        """Validate the selected rows of a segment, of every window and group."""
        with Scratch() as scratch:
            selected, parts = segment.slots(keep, chosen.groups, len(self.plan.groups), scratch)
            if not parts:
                return
            needed = self._needed_columns(rows, chosen)
            if len(parts) > 1 or selected.size < segment.stop - segment.start:
                taken = {}
                for name, column in needed.items():
                    taken[name], owned = take_rows(column, selected)
                    prepared.copies += [taken[name]] if owned else []
            else:  # the rows are used in place
                taken = {name: column[segment.start : segment.stop] for name, column in needed.items()}
            for slot, start, stop in parts:
                own = {name: column[start:stop] for name, column in taken.items()}
                state = slot if self.windowed else (0, slot[1])  # one state, also where rows of windows that are over
                prepared.batches.append((state, self._batch(stop - start, **own)))  # are dropped as late

    def _needed_columns(self, rows: RowBatch, chosen: QuerySelection) -> dict[str, Any]:
        kind = self.plan.config.parsed.aggregate
        columns: dict[str, Any] = {"values": chosen.values if self._reads_values else None}
        columns |= {"weights": chosen.weights} if kind.of_users else {"names": chosen.names}
        if kind.of_users or (limits_users(self.plan.config) and not self.plan.config.of_unusable):
            columns["ids"] = rows.ids
        return {name: column for name, column in columns.items() if column is not None}

    def _batch(self, count: int, ids: Any = None, weights: Any = None, names: Any = None, values: Any = None) -> Any:
        algorithm = self.plan.algorithm
        if self.plan.config.parsed.aggregate.of_users:
            numbers = [column for column in (weights, values) if column is not None]  # one of them at most
            return algorithm.batch(ids, *numbers)
        if names is not None:
            return algorithm.batch(names)
        if self.plan.config.parsed.aggregate is Aggregate.COUNT:
            return algorithm.batch(count) if ids is None else algorithm.batch(np.ones(count, np.int64), users=ids)
        return algorithm.batch(values) if ids is None else algorithm.batch(values, users=ids)

    # Phase 2: state changes, after every query has validated its part.

    def apply(self, prepared: PreparedBatch, draw: Callable[[DrawnAnswer], None]) -> None:
        """Draw the releases due before these rows, then apply the rows and wipe them."""
        if prepared.step is not None:
            self.advance_to(prepared.step, draw, prepared.reached)
        self.open_windows(prepared.windows, prepared.reached)
        for slot, batch in prepared.batches:
            answered = self.windowed and self.ticks_by_window[slot[0]] >= self.plan.releases
            if not self.finished and not answered:
                self.monitors[slot].apply(batch)
        prepared.wipe()
        self.has_batch = True

    def open_windows(self, windows: Iterable[int], reached: int | None) -> None:
        """Open windows that rows fall into, when the stream's time is in the step ``reached``."""
        for window in windows:
            self._open(window)
            passed = 0 if reached is None else reached - window * self.ticks_per_window
            self.ticks_by_window.setdefault(window, min(max(passed, 0), self.ticks_per_window - 1))

    def open_window(self, step: int) -> None:
        """Open the window that contains a step of the clock, even without rows in it; no-op without windows."""
        if self.windowed:
            window = step // self.ticks_per_window
            self._open(window)
            self.ticks_by_window.setdefault(window, step - window * self.ticks_per_window)

    def advance_to(self, step: int, draw: Callable[[DrawnAnswer], None], reached: int | None = None) -> None:
        """Close every slot before ``step``, draw its answers, and drop windows that are over.

        Windows that still wait for late rows answer their slots up to ``reached``, except the last slot.
        """
        assert self.schedule is not None
        previous_step = self.schedule.step
        self.schedule.advance_to(step)
        if not self.windowed:
            for closed in range(previous_step if previous_step is not None else step, step):
                if self.finished:
                    break
                self._draw(0, draw, until=self.schedule.grid.start(closed + 1))
            return
        for window in sorted(self.ticks_by_window):
            first = window * self.ticks_per_window
            over = step >= first + self.ticks_per_window
            now = step if reached is None else reached
            due = self.ticks_per_window if over else min(now - first, self.ticks_per_window - 1)
            while self.ticks_by_window[window] < due:
                self.ticks_by_window[window] += 1
                if self.ticks_by_window[window] <= self.plan.releases:
                    end = self.schedule.grid.start(first + self.ticks_by_window[window])
                    self._draw(window, draw, until=end)
            if over:
                self._drop(window)

    def finish(self, draw: Callable[[DrawnAnswer], None], newest: float | None) -> None:
        """Close open slots and windows at the end of the input; slots that never began are not answered."""
        if self.schedule is None:
            if not self.finished:
                self._draw(0, draw)
            return
        if self.schedule.step is None or (self.windowed and not self.ticks_by_window):
            return  # no window has begun: the schedule continues with the next input
        open_step = self.schedule.step if newest is None else max(self.schedule.step, self.schedule.at(newest))
        self.advance_to(open_step + 1, draw)
        if self.ticks_by_window:
            self.schedule.advance_to((max(self.ticks_by_window) + 1) * self.ticks_per_window)
            for window in list(self.ticks_by_window):
                self._drop(window)

    def _drop(self, window: int) -> None:
        del self.ticks_by_window[window]
        self.started.pop(window, None)
        self.refreshed.pop(window, None)
        for slot in [slot for slot in self.monitors if slot[0] == window]:
            del self.monitors[slot]
            self.exposed.discard(slot)

    def require_on_demand(self) -> None:
        """Raise NotSupported if the query has a schedule, BudgetExhausted if all paid releases were made."""
        name = self.plan.config.name
        if self.finished:
            raise BudgetExhausted(f"query {name!r} has no release left (releases={self.plan.releases})")
        if self.schedule is not None:
            raise NotSupported(f"query {name!r} answers by its schedule, not when asked")

    def draw_now(self, draw: Callable[[DrawnAnswer], None]) -> None:
        """Draw the answers of a query without schedule."""
        self._draw(0, draw)

    def _draw(self, window: int, draw: Callable[[DrawnAnswer], None], until: float | None = None) -> None:
        self.release_count += 1
        for group in range(len(self.plan.groups)):
            monitor = self.monitors[window, group]
            state_estimate = monitor.tick() if self.plan.continual else monitor.release()
            for output_index, output in enumerate(self.plan.outputs):
                estimate = self._estimate(output, monitor, state_estimate)
                number = self.prior_releases + self.release_count
                draw(DrawnAnswer(group, number, estimate, window if self.windowed else None, until, output_index))

    def _estimate(
        self, output: Output, monitor: Any, state_estimate: Estimate | PendingAnswer
    ) -> Callable[[], Estimate]:
        """Return a function that computes an answer; a local answer is computed now, before the state changes."""
        if isinstance(state_estimate, PendingAnswer):
            return lambda: self.plan.answer(output, state_estimate.estimate(), state_estimate.at)
        # Further aggregates are computed from numbers that this release makes public, so they cost nothing more.
        estimate = self.plan.answer(output, state_estimate, lambda what: monitor.algorithm.at(monitor.state, what))
        return lambda: estimate


def _unusable_weights(weights: NDArray[np.int64], algorithm: Any) -> Mask:
    """Return where weights are outside the declared range; algorithms without one accept +1 and -1 only."""
    max_weight = getattr(algorithm, "max_weight", 1)
    bad: Mask = (weights > max_weight) | (weights < getattr(algorithm, "min_weight", -max_weight))
    if not hasattr(algorithm, "max_weight"):
        bad |= weights == 0
    return bad
