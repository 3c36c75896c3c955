"""Apply partitions that workers read, in the order of the stream, whichever worker is done first.

A worker keeps what it read until its turn. Then the coordinator goes through its sections: it draws the answers that
are due before one, lets the worker send the shards their cells, and adds the sums to its own states. So the shards are
never ahead of it by more than a section, and no answer is drawn from a state with rows that come after it.

Nothing that a worker read counts before its turn, so where the stream's time before a task was forecast wrongly, or a
worker is lost, the task is read again.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.distributed.sharded._coordinator import ClusterEngine
from panstream.distributed.sharded._divided_states import divided_part, is_divided
from panstream.distributed.sharded._ordered_reading import (
    OrderedTask,
    Section,
    TaskReader,
    TaskUpdates,
    TimeSpan,
)
from panstream.distributed.sharded._outgoing_queue import sends_rows
from panstream.distributed.sharded._task_times import read_time_span
from panstream.distributed.sharded._worker_reading import (
    MAX_SKIPPED_NUMBERS,
    MIN_TASK_ROWS,
    Partition,
    ReadPlan,
    plan_read_tasks,
)
from panstream.engine.rows.row_batch import RowBatch
from panstream.engine.runtime.ingest import IngestResult, Tick
from panstream.errors import BadRowError, ClusterError, PanstreamError, SourceError
from panstream.primitives.interrupts import INTERRUPTS

_MAX_ATTEMPTS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSummary:
    """What a worker read, without its sections; the size in bytes does not depend on the rows.

    Attributes:
        counts: Rows, rows that some query could not use, and late rows.
        skipped: The first numbers of the second, padded with -1.
        late: The first numbers of the third, padded with -1.
        sections: Number of sections.
        newest: The stream's time after the last row.
        refused: Class and message of an error in the input, and the row's number if it has one.
    """

    counts: NDArray[np.int64] = field(default_factory=lambda: np.zeros(3, np.int64))
    skipped: NDArray[np.int64] = field(default_factory=lambda: np.full(MAX_SKIPPED_NUMBERS, -1))
    late: NDArray[np.int64] = field(default_factory=lambda: np.full(MAX_SKIPPED_NUMBERS, -1))
    sections: int = 0
    newest: float | None = None
    refused: tuple[str, str, int | None] | None = None

    @classmethod
    def of(cls, updates: TaskUpdates) -> TaskSummary:
        """Return the summary of what was read."""
        padded = []
        for numbers in (updates.skipped, updates.late):
            padded.append(np.full(MAX_SKIPPED_NUMBERS, -1))
            padded[-1][: len(numbers)] = numbers
        return cls(
            counts=np.array([updates.rows, updates.skipped_count, updates.late_count]),
            skipped=padded[0],
            late=padded[1],
            sections=len(updates.sections),
            newest=updates.newest,
        )

    def check_readable(self) -> None:
        """Raise the error of the input, if there was one."""
        if self.refused is not None:
            name, message, row = self.refused
            raise SourceError(message) if name != "BadRowError" or row is None else BadRowError(message, row=row)


class TaskLost(Exception):
    """A worker or a shard was lost: the task has to be read again.

    Attributes:
        shards: The shards that could not be reached.
    """

    def __init__(self, shards: Sequence[int] = ()) -> None:
        super().__init__("a task was lost")
        self.shards = shards


class Reading(ABC):
    """What a worker read, or is reading, and keeps until its turn."""

    @abstractmethod
    def summary(self) -> TaskSummary:
        """Wait until the task was read, and return its summary.

        Raises:
            TaskLost: The worker was lost. The other methods raise it too.
        """

    @abstractmethod
    def section(self, number: int) -> Section:
        """Return what the coordinator needs of a section."""

    @abstractmethod
    def deliver(self, number: int, names: Sequence[str], *, last: bool) -> None:
        """Send every shard its part of a section; it is durable on all of them when this returns.

        Raises:
            ClusterError: A shard cannot apply it.
        """

    @abstractmethod
    def close(self) -> None:
        """Overwrite what was read."""


class TaskRunner(ABC):
    """Reads tasks on workers.

    Attributes:
        plan: What is read for.
    """

    plan: ReadPlan

    @property
    @abstractmethod
    def capacity(self) -> int:
        """Return how many tasks may be read or wait for their turn."""

    @abstractmethod
    def time_spans(self, partitions: Sequence[Partition], limit: float) -> list[TimeSpan]:
        """Return the oldest and newest times of partitions, up to ``limit``: a forecast."""

    @abstractmethod
    def start(self, task: OrderedTask) -> Reading:
        """Begin to read a task."""

    @abstractmethod
    def read_here(self, task: OrderedTask) -> Reading:
        """Read a task in this process, after a failure."""

    @abstractmethod
    def recover(self, attempts: int, shards: Sequence[int]) -> None:
        """Wait until lost shards answer again."""


@dataclass(slots=True)
class HeldUpdates:
    """A task that was read in this process: its updates, or the error that prevented it."""

    summary: TaskSummary
    updates: TaskUpdates = field(default_factory=TaskUpdates)

    @classmethod
    def read(cls, plan: ReadPlan, task: OrderedTask, held: Sequence[RowBatch] | None = None) -> HeldUpdates:
        """Read a task. Errors are stored as text: an exception would carry rows in its traceback."""
        try:
            updates = TaskReader(plan, task, held).read()
        except PanstreamError as error:
            refused = (type(error).__name__, str(error), getattr(error, "row", None))
            return cls(TaskSummary(refused=refused))
        except Exception as error:
            return cls(TaskSummary(refused=(type(error).__name__, f"{task.names[0]} cannot be read", None)))
        return cls(TaskSummary.of(updates), updates)

    def section(self, number: int) -> Section:
        """Return what the coordinator needs of a section."""
        return self.updates.sections[number].segments

    def shard_arguments(self, number: int, names: Sequence[str], *, last: bool) -> list[tuple[Any, ...]]:
        """Return the arguments of `Shard.apply_section` for every shard."""
        section = self.updates.sections[number]
        return [([*names], number, last, section.opened, messages) for messages in section.messages]


def feed_in_order(
    engine: ClusterEngine,
    runner: TaskRunner,
    partitions: Sequence[Partition],
    tick: Tick | None = None,
    *,
    task_rows: int = MIN_TASK_ROWS,
) -> IngestResult:
    """Apply the partitions that the engine does not have yet; each counts once.

    Args:
        engine: The engine.
        runner: Reads tasks.
        partitions: All partitions of the inputs, in the order of the stream.
        tick: Called after each task with the number of rows, and the share of the tasks that are done.
        task_rows: Rows of a task, if there are so many.

    Raises:
        ClusterError: A shard cannot apply a task, or a task failed too often.
        SourceError: A partition cannot be read, or is missing that was applied in part.
    """
    feed = OrderedFeed(engine=engine, runner=runner, tick=tick, task_rows=task_rows)
    try:
        with INTERRUPTS.handling():
            feed.plan(partitions)
            feed.run()
    except KeyboardInterrupt:
        feed.ingested.interrupted = True
        INTERRUPTS.forget()
    finally:
        feed.close()
    engine.commit()
    return feed.ingested


@dataclass(slots=True, kw_only=True)
class OrderedFeed:
    """Applies tasks in order."""

    engine: ClusterEngine
    runner: TaskRunner
    tick: Tick | None
    task_rows: int
    ingested: IngestResult = field(default_factory=IngestResult)
    _waiting: deque[OrderedTask] = field(default_factory=deque)  # still without what is known of the rows before
    _running: deque[tuple[OrderedTask, Reading]] = field(default_factory=deque)
    _count: int = 0

    def plan(self, partitions: Sequence[Partition]) -> None:
        """Group partitions into tasks: first the one that was interrupted, the same as before, then all others."""
        engine = self.engine
        by_name = {partition.name: partition for partition in partitions}
        interrupted = engine.task_in_progress
        first = [] if interrupted is None else interrupted["names"]
        for name in first:
            if name not in by_name:
                raise SourceError(
                    f"{name.rsplit('#', 1)[0]} was being read when the last run ended, and is not among the inputs as "
                    "it was: give it again, so that it can be read to its end"
                )
        new = [
            partition
            for partition in partitions
            if partition.name not in first and not engine.partition_is_applied(partition.name)
        ]
        shards = engine.transport.shards
        large = not any(sends_rows(divided_part(plan.algorithm), shards, MIN_TASK_ROWS) for plan in engine.plans)
        groups = [[by_name[name] for name in first]] if first else []
        groups += plan_read_tasks(new, shards, large=large, min_rows=self.task_rows)
        now = engine.clock_time
        clocks = [now] * len(groups)
        if interrupted is not None:
            clocks[0] = interrupted["now"]
        ahead = engine.config.stream.max_ahead
        limit = math.inf if ahead is None else now + ahead
        # Nothing depends on the times of the last task, beside how its updates are collected.
        forecast = [partition for group in groups[:-1] for partition in group]
        spans = dict(
            zip([partition.name for partition in forecast], self.runner.time_spans(forecast, limit), strict=True)
        )
        for group, clock in zip(groups, clocks, strict=True):
            known = [spans[partition.name] for partition in group if partition.name in spans]
            span = (min(oldest for oldest, _ in known), max(newest for _, newest in known)) if known else None
            self._waiting.append(OrderedTask(partitions=tuple(group), start=None, steps={}, now=clock, span=span))
        self._count = len(groups)
        engine.task_progress = (0, self._count)

    def run(self) -> None:
        """Apply all tasks."""
        while self._waiting or self._running:
            while self._waiting and len(self._running) < max(1, self.runner.capacity):
                task = self._informed(self._waiting.popleft(), self._forecast())
                self._running.append((task, self.runner.start(task)))
            task, reading = self._running[0]
            if task.start != self.engine.stream_time:  # the forecast was wrong: its times decide nothing
                reading.close()
                task = self._informed(task, self.engine.stream_time)
                reading = self.runner.start(task)
                self._running[0] = (task, reading)
            with INTERRUPTS.step():
                self.engine.begin_task(task.names, task.now)
            summary = self._apply(task)
            self._running.popleft()
            self._note(summary)

    def apply_next(self, task: OrderedTask) -> None:
        """Apply a task that was begun."""
        task = self._informed(task, self.engine.stream_time)
        self._running.append((task, self.runner.start(task)))
        summary = self._apply(task)
        self._running.popleft()
        self._note(summary)

    def close(self) -> None:
        """Overwrite what was read and not applied."""
        for _, reading in self._running:
            reading.close()

    def _forecast(self) -> float | None:
        """Return the stream's time after all tasks that were handed out."""
        known = [] if self.engine.stream_time is None else [self.engine.stream_time]
        newest = max([*known, *(task.span[1] for task, _ in self._running if task.span is not None)], default=-math.inf)
        return None if newest == -math.inf else newest

    def _informed(self, task: OrderedTask, start: float | None) -> OrderedTask:
        begun = self.engine.task_in_progress
        is_begun = begun is not None and begun["names"] == task.names
        steps = begun["steps"] if begun and is_begun else self.engine.open_steps
        return replace(task, start=start, steps=steps, ends=self.engine.last_steps)

    def _outlasts(self, task: OrderedTask, newest: float | None) -> bool:
        """Return whether a query has its last answer within a task that was read without knowing that."""
        late = [
            (name, end)
            for name, end in self.engine.last_steps.items()
            if end is not None and task.ends.get(name) is None and task.start is not None
        ]
        grids = {plan.config.name: plan.config.step_grid for plan in self.engine.plans}
        return newest is not None and any(grids[name].index(newest) >= end for name, end in late)  # type: ignore[union-attr]

    def _apply(self, task: OrderedTask) -> TaskSummary:
        """Apply a task section by section; where a worker or shard is lost, read it again and go on."""
        for attempts in range(_MAX_ATTEMPTS):
            reading = self._running[0][1]
            try:
                summary = reading.summary()
                summary.check_readable()
                if self._outlasts(task, summary.newest):
                    reading.close()
                    task = self._informed(task, task.start)
                    self._running[0] = (task, self.runner.start(task))
                    continue
                in_progress: Mapping[str, Any] = self.engine.task_in_progress or {}
                for number in range(in_progress["sections"], summary.sections):
                    with INTERRUPTS.step():
                        self._apply_section(task, reading, number, last=number == summary.sections - 1)
                with INTERRUPTS.step():
                    self.engine.finish_task(summary.newest)
                reading.close()
            except TaskLost as lost:
                self.runner.recover(attempts, lost.shards)
                reading.close()
                self._running[0] = (task, self.runner.read_here(task))
            else:
                return summary
        raise ClusterError(f"{task.names[0]} was not ingested after {_MAX_ATTEMPTS} attempts")

    def _apply_section(self, task: OrderedTask, reading: Reading, number: int, *, last: bool) -> None:
        section = reading.section(number)
        try:
            self.engine.draw_before(section)
            if any(is_divided(plan.algorithm) for plan in self.engine.plans):
                reading.deliver(number, task.names, last=last)
            self.engine.apply_section(section)
        finally:
            for segments in section.values():
                for segment in segments:
                    segment.wipe()

    def _note(self, summary: TaskSummary) -> None:
        rows, skipped, late = summary.counts.tolist()
        self.ingested.rows += rows
        self.ingested.batches += 1
        skipped_numbers = summary.skipped[summary.skipped >= 0]
        late_numbers = summary.late[summary.late >= 0]
        self.ingested.note(skipped_numbers, late_numbers)
        self.ingested.skipped_count += skipped - len(skipped_numbers)
        self.ingested.late_count += late - len(late_numbers)
        if self._count:
            self.engine.task_progress = (self.ingested.batches, self._count)
        if self.tick is not None:
            self.tick(self.ingested.rows, self.ingested.batches / self._count)


def read_spans_here(plan: ReadPlan, partitions: Sequence[Partition], limit: float) -> list[TimeSpan]:
    """Return the oldest and newest times of partitions, read in this process."""
    return [read_time_span(plan, partition, limit) for partition in partitions]
