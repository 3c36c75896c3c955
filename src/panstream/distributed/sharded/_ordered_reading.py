"""Reading partitions of a stream with windows or ticks on a worker, apart from the rows before them.

What the order of the rows decides is their stream time: the newest time of all rows up to each of them. Given the
newest time before a partition, a worker computes it like the engine of one process, and with it the windows, steps and
late rows. The result is cut into *sections*: within one, no tick ends of a query whose cells are on the shards, so all
of its rows may be applied to them together.

All sizes depend on times, row counts and the configuration alone: a section has sums of every group for every window
that a row of it falls into, selected or not.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.algorithms.continual.tree_base import TreeBatch
from panstream.algorithms.continual_users.ones_counter import SetBitCounter
from panstream.distributed.sharded._divided_states import is_divided
from panstream.distributed.sharded._outgoing_queue import Message, wipe_messages
from panstream.distributed.sharded._worker_reading import (
    MAX_SKIPPED_NUMBERS,
    Partition,
    ReadPlan,
)
from panstream.engine.rows.row_batch import RowBatch
from panstream.engine.runtime.batch_preparation import prepare_batch, usable_times
from panstream.engine.runtime.clocks import StreamClock
from panstream.engine.runtime.running_query import PreparedBatch, RunningQuery
from panstream.engine.runtime.state_backend import Slot, state_name
from panstream.primitives.memory.scratch import wipe
from panstream.primitives.time_grid import TimeGrid

SECTION_BYTES = 1 << 26  # of sums, after which another section begins

TimeSpan = tuple[float, float]
"""The oldest and the newest usable time of a partition; (inf, -inf) if it has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderedTask:
    """Partitions that a worker reads together, and what is known of the rows before them; all of it is public.

    Attributes:
        partitions: In the order of the stream.
        start: The stream's time before the first row; None if no row before it had a time.
        steps: The open step of every query with a schedule, None before its first one.
        ends: From which step each query with a schedule and without windows answers no more, None if that is not known.
        now: The clock's time. Rows that are too far ahead of it are bad.
        span: The oldest and newest times of the partitions; None if they are not known.
    """

    partitions: tuple[Partition, ...]
    start: float | None
    steps: Mapping[str, int | None]
    now: float
    ends: Mapping[str, int | None] = field(default_factory=dict)
    span: TimeSpan | None = None

    @property
    def names(self) -> list[str]:
        """Return the names of the partitions."""
        return [partition.name for partition in self.partitions]

    @property
    def rows(self) -> int:
        """Return the number of rows, about."""
        return sum(partition.rows for partition in self.partitions)


@dataclass(slots=True, kw_only=True, eq=False)
class SegmentSums:
    """What rows add to a state that the coordinator holds, or the windows they are in, while the same steps are open.

    Attributes:
        step: The watermark's step; None for a query without a schedule.
        reached: The step of the stream's time.
        windows: The windows of all rows that are not late.
        totals: Per window (one without windows) and group; None where the state is with the shards.
        events: Number of rows, per window and group.
    """

    step: int | None
    reached: int | None
    windows: tuple[int, ...]
    totals: NDArray[np.int64] | None = field(default=None, repr=False)
    events: NDArray[np.int64] | None = field(default=None, repr=False)

    def to_prepared(self, *, windowed: bool) -> PreparedBatch:
        """Return the batch that a running query applies, with copies of the sums; every group has one."""
        batches: list[tuple[Slot, Any]] = []
        if self.totals is not None and self.events is not None:
            for number, window in enumerate(self.windows if windowed else (0,)):
                for group in range(self.totals.shape[1]):
                    batch = TreeBatch(self.totals[number, group].copy(), int(self.events[number, group]))
                    batches.append(((window, group), batch))
        return PreparedBatch(self.step, self.reached, self.windows, batches, [])

    def wipe(self) -> None:
        """Overwrite the sums."""
        for sums in (self.totals, self.events):
            if sums is not None:
                wipe(sums)


Section = dict[str, list[SegmentSums]]
"""Segments of every query, in the order of the stream."""


@dataclass(slots=True, kw_only=True, eq=False)
class SectionUpdates:
    """One section: sums for the coordinator, messages for the shards, and the windows that these need to have."""

    segments: Section
    messages: list[list[Message]] = field(default_factory=list, repr=False)  # of every shard
    opened: list[str] = field(default_factory=list)

    def wipe(self) -> None:
        """Overwrite everything that depends on what rows hold."""
        for segments in self.segments.values():
            for segment in segments:
                segment.wipe()
        for shard_messages in self.messages:
            wipe_messages(shard_messages)


@dataclass(slots=True, kw_only=True, eq=False)
class TaskUpdates:
    """What a worker read in a task."""

    sections: list[SectionUpdates] = field(default_factory=list)
    newest: float | None = None
    rows: int = 0
    skipped_count: int = 0
    late_count: int = 0
    skipped: list[int] = field(default_factory=list)
    late: list[int] = field(default_factory=list)

    def wipe(self) -> None:
        """Overwrite all sections."""
        for section in self.sections:
            section.wipe()


@dataclass(slots=True, eq=False)
class _OpenSegment:
    """A segment whose rows are still being added."""

    step: int | None
    reached: int | None
    windows: set[int] = field(default_factory=set)
    sums: dict[Slot, tuple[NDArray[np.int64], list[int]]] = field(default_factory=dict)

    def add(self, slot: Slot, batch: TreeBatch) -> None:
        if slot not in self.sums:
            self.sums[slot] = (np.zeros_like(batch.total), [0])
        total, events = self.sums[slot]
        total += batch.total
        events[0] += batch.events

    def close(self, query: RunningQuery, *, whole: bool) -> SegmentSums:
        """Return the segment with dense sums, and overwrite those of single groups."""
        windows = tuple(sorted(self.windows))
        segment = SegmentSums(step=self.step, reached=self.reached, windows=windows)
        if whole:
            numbers = {window: number for number, window in enumerate(windows if query.windowed else (0,))}
            groups = len(query.plan.groups)
            segment.totals = np.zeros((len(numbers), groups, getattr(query.plan.algorithm, "width", 1)), np.int64)
            segment.events = np.zeros((len(numbers), groups), np.int64)
            for (window, group), (total, events) in self.sums.items():
                segment.totals[numbers[window], group] = total
                segment.events[numbers[window], group] = events[0]
        self.wipe()
        return segment

    def wipe(self) -> None:
        for total, events in self.sums.values():
            wipe(total)
            events[0] = 0
        self.sums.clear()


def ticks_on_shards(query: RunningQuery) -> bool:
    """Return whether the rows of a query go tick by tick: shards hold its state, and more than its end is read.

    Several answers are drawn from one state, or what the coordinator holds of it depends on how it began.
    """
    plan = query.plan
    several = plan.config.every is not None or isinstance(plan.algorithm, SetBitCounter)
    return several and query.schedule is not None and is_divided(plan.algorithm)


class TaskReader:
    """Reads one task.

    Args:
        plan: What is read for.
        task: The partitions, and what is known of the rows before them.
        held: Their rows, if they were read already; they are wiped.
    """

    def __init__(self, plan: ReadPlan, task: OrderedTask, held: Sequence[RowBatch] | None = None) -> None:
        self._held = held
        self._reader = plan.reader()
        self._task = task
        self._stream = self._reader.config.stream
        self._queries = self._reader.queries
        self._ticking = [query for query in self._queries.values() if ticks_on_shards(query)]
        self._updates = TaskUpdates()
        self._open: dict[str, list[_OpenSegment]] = {}
        self._sums_bytes = 0
        self._steps: tuple[int, ...] = ()  # that are open in the current section
        self._ends = dict(task.ends)

    def read(self) -> TaskUpdates:
        """Return the task's updates, which the caller wipes."""
        with self._reader.lock:
            return self._read()

    def _read(self) -> TaskUpdates:
        for name, query in self._queries.items():
            if query.schedule is not None:
                query.schedule.step = self._task.steps.get(name)
        clock = StreamClock(self._task.start)
        try:
            self._begin_section()
            for batch in self._batches():
                try:
                    self._add_batch(batch, clock)
                finally:
                    self._reader.select.wipe()
                    batch.wipe()
            self._end_section()
        except BaseException:
            self._reader.outgoing.wipe()
            for segments in self._open.values():
                for segment in segments:
                    segment.wipe()
            self._updates.wipe()
            raise
        self._updates.newest = clock.newest
        return self._updates

    def _batches(self) -> Iterator[RowBatch]:
        if self._held is not None:
            yield from self._held
            return
        for partition in self._task.partitions:
            yield from self._reader.batches(partition)

    def _add_batch(self, batch: RowBatch, clock: StreamClock) -> None:
        rows = self._reader.select(batch)
        queries = self._queries.values()
        has_time, times = usable_times(rows, self._stream, queries, lambda: self._task.now, clock.newest)
        assert times is not None
        if not has_time.all():
            rows = replace(rows, times=times)
        marks = clock.watermarks(times)
        bounds = [*self._cuts(marks), rows.count]
        for start, stop in zip([0, *bounds[:-1]], bounds, strict=True):
            if start:
                self._end_section()
                self._begin_section()
            if start < stop:
                some = slice(start, stop)
                piece = rows if stop - start == rows.count else rows.part(start, stop)
                self._add_piece(piece, has_time[some], times[some], marks[some])
        clock.reach(marks)
        if self._sums_bytes > SECTION_BYTES:
            self._end_section()
            self._begin_section()

    def _cuts(self, marks: NDArray[np.float64]) -> list[int]:
        """Return the rows, without the first, at which a step of a query with ticks on the shards begins."""
        if not self._ticking or not marks.size:
            return []
        steps = np.concatenate([query.watermark_steps(marks) for query in self._ticking])
        changed = np.flatnonzero((steps[:, 1:] != steps[:, :-1]).any(axis=0)) + 1
        before = self._steps
        self._steps = tuple(steps[:, -1].tolist())
        if before and before != tuple(steps[:, 0].tolist()):
            self._end_section()
            self._begin_section()
        cuts: list[int] = changed.tolist()
        return cuts

    def _add_piece(
        self,
        rows: RowBatch,
        has_time: NDArray[np.bool_],
        times: NDArray[np.float64],
        marks: NDArray[np.float64],
    ) -> None:
        work, skipped, late = prepare_batch(self._queries, self._stream, rows, has_time, times, marks)
        self._reader.outgoing.count(rows.count)
        try:
            for query, prepared in work:
                self._add_prepared(query, prepared)
        finally:
            for _, prepared in work:
                prepared.wipe()
        updates = self._updates
        updates.rows += rows.count
        for numbers, noted in ((rows.numbers(skipped), updates.skipped), (rows.numbers(late), updates.late)):
            noted += numbers[: max(0, MAX_SKIPPED_NUMBERS - len(noted))].tolist()
        updates.skipped_count += int(np.count_nonzero(skipped))
        updates.late_count += int(np.count_nonzero(late))

    def _add_prepared(self, query: RunningQuery, prepared: PreparedBatch) -> None:
        name = query.plan.config.name
        segments = self._open.setdefault(name, [])
        if not segments or (segments[-1].step, segments[-1].reached) != (prepared.step, prepared.reached):
            segments.append(_OpenSegment(prepared.step, prepared.reached))
        segment = segments[-1]
        known = len(segment.windows)
        segment.windows.update(prepared.windows)
        whole = name in self._reader.whole
        if whole:
            added = len(segment.windows) - known + (not query.windowed and not segment.sums)
            width = getattr(query.plan.algorithm, "width", 1)
            self._sums_bytes += 8 * added * len(query.plan.groups) * (width + 1)
        if name in self._task.ends and prepared.step is not None:
            if self._ends.get(name) is None:  # the stream begins here
                self._ends[name] = prepared.step + query.plan.releases
            if prepared.step >= (self._ends[name] or 0):
                return  # all answers are drawn: as on one machine, the state takes no more rows
        for slot, batch in prepared.batches:
            if whole:
                segment.add(slot, batch)
            else:
                self._reader.outgoing.add(name, slot, batch)

    def _begin_section(self) -> None:
        ticks = max([1, *(self._steps_between(query.schedule.grid) for query in self._ticking if query.schedule)])
        windows = {name: self._window_count(query, ticks) for name, query in self._queries.items() if query.windowed}
        self._reader.outgoing.choose_forms(self._task.rows // ticks, windows)

    def _end_section(self) -> None:
        slots = {name: self._slots(name, query) for name, query in self._queries.items()}
        segments = {
            name: [segment.close(self._queries[name], whole=name in self._reader.whole) for segment in segments]
            for name, segments in self._open.items()
        }
        opened = [
            state_name(name, slot)
            for name, query in self._queries.items()
            if query.windowed and name not in self._reader.whole
            for slot in slots[name]
        ]
        self._open = {}
        self._sums_bytes = 0
        section = SectionUpdates(segments=segments, opened=opened)
        self._updates.sections.append(section)
        section.messages = self._reader.outgoing.messages(slots)

    def _slots(self, name: str, query: RunningQuery) -> list[Slot]:
        """Return the states that rows of the section fall into, by their times alone."""
        windows = {0}
        if query.windowed:
            windows = set().union(*(segment.windows for segment in self._open.get(name, ())))
        return [(window, group) for window in sorted(windows) for group in range(len(query.plan.groups))]

    def _steps_between(self, grid: TimeGrid, lateness: float = 0.0) -> int:
        """Return about how many steps the task spans: at most as many as rows."""
        rows = max(1, self._task.rows)
        if self._task.span is None:
            return rows
        oldest, newest = self._task.span
        start = oldest if self._task.start is None else self._task.start
        if not math.isfinite(start) or newest <= start:
            return 1
        return min(grid.index(newest) - grid.index(start - lateness) + 1, rows)

    def _window_count(self, query: RunningQuery, sections: int) -> int:
        """Return about how many windows are open in a section."""
        grid = query.plan.config.window_grid
        assert grid is not None
        return -(-self._steps_between(grid, query.lateness) // sections) + (sections > 1)
