"""Kafka on workers: every tick is one task, whose ranges of offsets several workers read.

The coordinator divides the partitions among the workers by number, without a consumer group: worker r of n reads the
partitions whose number modulo n is r. Each holds the messages of its ranges and reports the newest time in
them; then it gets the newest time before them, and decides as for files. So a tick counts in the order of workers,
partitions and offsets, exactly once: its mark is with the broker before it is begun, and after a crash the tick that
was begun is read again from the same ranges, in as many parts as before.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from panstream.distributed.sharded._coordinator import ClusterEngine
from panstream.distributed.sharded._ordered_feed import (
    HeldUpdates,
    OrderedFeed,
    Reading,
    TaskRunner,
    TaskSummary,
)
from panstream.distributed.sharded._ordered_reading import OrderedTask, Section, TimeSpan
from panstream.distributed.sharded._task_times import newest_time
from panstream.distributed.sharded._tick_names import tick_names, tick_of
from panstream.distributed.sharded._worker_reading import MAX_SKIPPED_NUMBERS, Partition, ReadPlan
from panstream.engine.rows.row_batch import RowBatch
from panstream.engine.runtime.ingest import IngestResult, Tick
from panstream.engine.sources.kafka_ranges import KafkaTicks, RangeReader, Ranges
from panstream.errors import NotSupported, PanstreamError, SourceError
from panstream.primitives.interrupts import INTERRUPTS


class Fetched(NamedTuple):
    """What a worker reports of its messages: the newest time in them, or why they cannot be read."""

    newest: float | None = None
    refused: str | None = None


_READERS: dict[str, RangeReader] = {}  # of this process, by address and plan: they stay connected between ticks


@dataclass(slots=True)
class TickPart:
    """One worker's part of a tick, in the process that reads it."""

    plan: ReadPlan
    url: str
    _rows: list[RowBatch] = field(default_factory=list)
    _held: HeldUpdates | None = None

    def fetch(self, ranges: Ranges, now: float) -> Fetched:
        """Read the messages and hold them. Errors are returned as text: an exception would carry rows."""
        key = f"{self.plan.name} {self.url}"
        try:
            if key not in _READERS:
                _READERS.clear()
                _READERS[key] = RangeReader(self.url, self.plan.reader().schema)
            self._rows = _READERS[key].read(ranges)
            return Fetched(newest_time(self.plan, self._rows, now))
        except PanstreamError as error:
            return Fetched(refused=str(error))
        except Exception as error:
            return Fetched(refused=f"messages cannot be read ({type(error).__name__})")

    def decide(self, task: OrderedTask) -> TaskSummary:
        """Turn the rows into sections; they are overwritten."""
        rows = self._rows
        self._rows = []
        self._held = HeldUpdates.read(self.plan, task, rows)
        return self._held.summary

    def section(self, number: int) -> Section:
        """Return what the coordinator needs of a section."""
        assert self._held is not None
        return self._held.section(number)

    def shard_arguments(
        self, number: int, names: Sequence[str], whole_number: int, last: bool
    ) -> list[tuple[Any, ...]]:
        """Return the arguments of `Shard.apply_section`; ``whole_number`` counts the sections of all parts."""
        assert self._held is not None
        arguments = self._held.shard_arguments(number, names, last=last)
        return [(own, whole_number, *rest) for own, _, *rest in arguments]

    def wipe(self) -> None:
        """Overwrite what was read."""
        for rows in self._rows:
            rows.wipe()
        self._rows = []
        if self._held is not None:
            self._held.updates.wipe()


class PartReading(ABC):
    """A part of a tick on a worker, as the coordinator sees it. Every method raises TaskLost if the worker is lost."""

    @abstractmethod
    def fetch(self, ranges: Ranges, now: float) -> Any:
        """Begin to read; return a function that waits for what was reported."""

    @abstractmethod
    def decide(self, task: OrderedTask) -> Any:
        """Begin to decide; return a function that waits for the summary."""

    @abstractmethod
    def section(self, number: int) -> Section:
        """Return what the coordinator needs of a section."""

    @abstractmethod
    def deliver(self, number: int, names: Sequence[str], whole_number: int, *, last: bool) -> None:
        """Send every shard its part of a section."""

    @abstractmethod
    def close(self) -> None:
        """Overwrite what was read."""


class TickReading(Reading):
    """A tick whose parts are read by several workers."""

    def __init__(self, task: OrderedTask, ranges: Ranges, parts: Sequence[PartReading]) -> None:
        self._task = task
        self._parts = parts
        count = len(parts)
        own = [{number: ends for number, ends in ranges.items() if number % count == rank} for rank in range(count)]
        self._fetching = [part.fetch(own_ranges, task.now) for part, own_ranges in zip(parts, own, strict=True)]
        self._summaries: list[TaskSummary] = []

    def summary(self) -> TaskSummary:
        """Wait for the messages, give every worker the newest time before its own, and join what they decide."""
        if not self._summaries:
            self._summaries = self._decide()
        summaries = self._summaries
        for summary in summaries:
            summary.check_readable()
        unnumbered = np.full(MAX_SKIPPED_NUMBERS, -1)  # row numbers of parts say nothing to the sender
        counts = np.sum([summary.counts for summary in summaries], axis=0)
        sections = sum(summary.sections for summary in summaries)
        return TaskSummary(
            counts=counts, skipped=unnumbered, late=unnumbered, sections=sections, newest=summaries[-1].newest
        )

    def _decide(self) -> list[TaskSummary]:
        start = self._task.start
        deciding = []
        for part, fetching in zip(self._parts, self._fetching, strict=True):
            fetched: Fetched = fetching()
            if fetched.refused is not None:
                raise SourceError(fetched.refused)
            deciding.append(part.decide(replace(self._task, start=start)))
            start = max((time for time in (start, fetched.newest) if time is not None), default=None)
        return [wait() for wait in deciding]

    def _part_of(self, number: int) -> tuple[PartReading, int]:
        for part, summary in zip(self._parts, self._summaries, strict=True):
            if number < summary.sections:
                return part, number
            number -= summary.sections
        raise IndexError(number)

    def section(self, number: int) -> Section:
        """Return what the coordinator needs of a section."""
        part, own = self._part_of(number)
        return part.section(own)

    def deliver(self, number: int, names: Sequence[str], *, last: bool) -> None:
        """Let a worker send every shard its part of a section."""
        part, own = self._part_of(number)
        part.deliver(own, names, number, last=last)

    def close(self) -> None:
        """Overwrite what was read."""
        for part in self._parts:
            part.close()


class TickRunner(TaskRunner):
    """Reads ticks on workers; subclasses say how a part gets there.

    Args:
        plan: What is read for.
        url: The topic's address.
    """

    def __init__(self, plan: ReadPlan, url: str) -> None:
        self.plan = plan
        self.url = url
        self.ranges: Ranges = {}  # of the tick that is being read

    @property
    @abstractmethod
    def workers(self) -> int:
        """Return the number of workers that read the next tick."""

    @property
    def capacity(self) -> int:
        """Return 1: the next tick begins when this one is over."""
        return 1

    def time_spans(self, partitions: Sequence[Partition], limit: float) -> list[TimeSpan]:
        """Return that nothing is known of messages that have not come."""
        return [(math.inf, -math.inf)] * len(partitions)

    def start(self, task: OrderedTask) -> Reading:
        """Begin to read a tick on the workers."""
        return TickReading(task, self.ranges, [self._remote_part(rank) for rank in range(len(task.partitions))])

    def read_here(self, task: OrderedTask) -> Reading:
        """Read a tick in this process."""
        return TickReading(task, self.ranges, [self._local_part() for _ in task.partitions])

    @abstractmethod
    def _remote_part(self, rank: int) -> PartReading: ...

    @abstractmethod
    def _local_part(self) -> PartReading: ...


def feed_ticks(engine: ClusterEngine, runner: TickRunner, source: KafkaTicks, tick: Tick | None = None) -> IngestResult:
    """Apply the ticks of a topic until the source is closed or the user interrupts; each counts once.

    Raises:
        NotSupported: The coordinator was reading the topic itself when the last run ended.
    """
    begun = None if engine.task_in_progress is None else tick_of(engine.task_in_progress["names"][0])
    if source.producer in engine.positions_ahead() or (engine.task_in_progress is not None and begun is None):
        raise NotSupported(
            "shards are ahead of the coordinator in another input: continue with the earlier settings until it is "
            "committed"
        )
    source.resume(engine.positions(), {} if begun is None else {source.producer: [begun.position]})
    feed = OrderedFeed(engine=engine, runner=runner, tick=None, task_rows=0)
    try:
        with INTERRUPTS.handling():
            for position, ranges in source.ticks():
                _apply_tick(engine, feed, runner, source, position, ranges)
                if tick is not None:
                    tick(feed.ingested.rows, None)
    except KeyboardInterrupt:
        feed.ingested.interrupted = True
        INTERRUPTS.forget()
    finally:
        feed.close()
    return feed.ingested


def _apply_tick(
    engine: ClusterEngine, feed: OrderedFeed, runner: TickRunner, source: KafkaTicks, position: int, ranges: Ranges
) -> None:
    in_progress = engine.task_in_progress
    now = engine.clock_time if in_progress is None else in_progress["now"]
    names = tick_names(source.producer, position, runner.workers) if in_progress is None else in_progress["names"]
    runner.ranges = ranges
    rows = sum(end - start for start, end in ranges.values())
    parts = tuple(Partition(name=name, format="kafka", rows=-(-rows // len(names))) for name in names)
    with INTERRUPTS.step():
        engine.begin_task(names, now)
    feed.apply_next(OrderedTask(partitions=parts, start=None, steps={}, now=now))
    source.acknowledge(position >> 64)
