"""Reading partitions on the workers: a worker reads, checks and hashes rows, and routes the updates to the shards.

The size of a task's messages does not depend on its rows: see _outgoing_queue.py for those to the shards. The answer
to the coordinator has one entry per group, and a fixed number of entries for numbers of skipped rows.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.algorithms.continual.gauss_markov import GaussMarkovCount
from panstream.algorithms.continual.tree_base import Tree
from panstream.distributed.sharded._divided_states import divided_part, is_divided
from panstream.distributed.sharded._outgoing_queue import Message, OutgoingQueue, wipe_messages
from panstream.engine.config.config import Config
from panstream.engine.planner.query_plan import QueryPlan, plan_all
from panstream.engine.rows.row_batch import RowBatch, RowSchema
from panstream.engine.runtime.ingest import ROWS_OF_FILES, open_configured_source
from panstream.engine.runtime.running_query import RunningQuery
from panstream.engine.runtime.selector import Selector
from panstream.engine.sources.coalescer import Coalescer
from panstream.engine.sources.error_guard import translate_reader_errors
from panstream.engine.sources.formats.arrow_columns import check_types, from_arrow
from panstream.engine.sources.formats.parquet.file import ParquetFile
from panstream.engine.sources.input_files import InputFile, expand_paths
from panstream.errors import BadRowError, SourceError
from panstream.primitives.inputs.parquet_footer import read_footer
from panstream.primitives.memory.scratch import wipe

_TEXT_ROW_BYTES = 32  # of a row of text, about: only for tasks of similar size
MIN_TASK_ROWS = 1 << 20
_MAX_TASK_ROWS = 1 << 23
TASKS_PER_WORKER = 2  # that are handed out: one is read while the other is applied
_TASK_SHARES = 3  # per worker, into which the remaining rows would be split: tasks shrink, and workers finish together


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """Rows that can be read again: a file, or some row groups of a Parquet file.

    Attributes:
        name: Their producer.
        path: The file; None for a partition of a Dask DataFrame.
        format: The file's format.
        before: Number of rows of the file before them.
        rows: Number of rows; an estimate unless they are row groups.
    """

    name: str
    path: str | None = None
    format: str | None = None
    before: int = 0
    rows: int = 0

    @classmethod
    def of(cls, inputs: Iterable[str], *, format: str | None = None, rows: int = MIN_TASK_ROWS) -> list[Partition]:
        """Return the partitions of inputs, of about ``rows`` rows where the format allows; none if one is a pipe."""
        files = expand_paths(list(inputs), format=format)  # type: ignore[arg-type]
        if any(file.path is None for file in files):
            return []
        return [partition for file in files for partition in cls.of_file(file, rows)]

    @classmethod
    def of_file(cls, file: InputFile, rows: int = MIN_TASK_ROWS) -> Iterator[Partition]:
        """Yield a file as a whole, or a Parquet file in ranges of row groups."""
        path = file.path
        if not isinstance(path, Path) or file.table is not None:
            raise SourceError(
                f"{file.name}: workers read files of a local or shared disk; read object stores and tables of "
                "a lake in one process, or send their rows from Spark"
            )
        where = str(path.absolute())
        if file.format != "parquet":
            size = path.stat().st_size // _TEXT_ROW_BYTES
            yield cls(name=f"{file.name}#", path=where, format=file.format, rows=size)
            return
        footer = translate_reader_errors(lambda: read_footer(path), label=file.name, what="a Parquet file")
        rows_before = size = start = 0
        for group, group_rows in enumerate(footer.rows):
            size += group_rows
            if size >= rows or group == len(footer.rows) - 1:
                name = f"{file.name}#{start}-{group}"
                yield cls(name=name, path=where, format="parquet", before=rows_before, rows=size)
                rows_before = rows_before + size
                size = 0
                start = group + 1


def needs_stream_time(config: Config) -> bool:
    """Return whether a query has a schedule or windows: then rows are not independent of those before them."""
    return any(query.every is not None or query.window is not None for query in config.queries)


def can_read_on_workers(config: Config, plans: Sequence[QueryPlan]) -> bool:
    """Return whether workers may read partitions.

    With a schedule or windows they need times in the rows, and go on at a row that cannot be used: the coordinator
    alone knows the time of arrival, and whether an earlier row has stopped the stream. A state that the coordinator
    holds must consist of sums: for RETENTION and for moments in many answers, the coordinator needs the ids.
    """
    if not needs_stream_time(config):
        return True
    if config.stream.time is None or config.stream.on_bad_row == "stop":
        return False
    return all(is_divided(plan.algorithm) or isinstance(plan.algorithm, Tree | GaussMarkovCount) for plan in plans)


def plan_read_tasks(
    partitions: Sequence[Partition],
    workers: int,
    *,
    large: bool,
    alone: Iterable[str] = (),
    min_rows: int = MIN_TASK_ROWS,
) -> list[list[Partition]]:
    """Group partitions into tasks: large ones first, small ones last, so that workers finish together.

    Args:
        partitions: What is to be read.
        workers: Number of workers.
        large: Whether tasks may exceed ``min_rows``: only where no rows are sent to the shards.
        alone: Partitions that some shards have already. A shard takes a task as a whole or not at all, so each of
            these is a task of its own.
        min_rows: Rows of a task, if there are so many.
    """
    apart = set(alone)
    tasks: list[list[Partition]] = [[partition] for partition in partitions if partition.name in apart]
    task: list[Partition] = []
    size = 0
    remaining = sum(partition.rows for partition in partitions)
    for partition in partitions:
        if partition.name in apart:
            remaining -= partition.rows
            continue
        task.append(partition)
        size += partition.rows
        share = remaining // (_TASK_SHARES * max(1, workers))
        if size >= min(max(min_rows, share), _MAX_TASK_ROWS if large else min_rows):
            tasks.append(task)
            remaining -= size
            task = []
            size = 0
    return [*tasks, task] if task else tasks


MAX_SKIPPED_NUMBERS = 1000
_CELLS_PER_ROW = 8  # marks take a byte per cell until the task is read: fewer than in a step of the coordinator
Totals = list[tuple[str, NDArray[np.int64], NDArray[np.int64]]]  # of every query: totals and events of all its groups


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadPlan:
    """What workers need to read for a stream, all of it public; ``name`` identifies the plan within a process."""

    config: Config
    shards: int
    zero_noise: bool = False
    name: str = field(default_factory=lambda: uuid.uuid4().hex)

    def reader(self) -> PartitionReader:
        """Return this process's reader of the plan; the reader of an earlier plan is dropped."""
        if self.name not in _READERS:
            _READERS.clear()
            _READERS[self.name] = PartitionReader(self)
        return _READERS[self.name]


@dataclass(slots=True, kw_only=True)
class _RoutedRows:
    """The updates of a task for every shard and for the coordinator's states, and the rows that were skipped."""

    totals: dict[str, tuple[NDArray[np.int64], NDArray[np.int64]]]
    work: list[list[Message]] = field(default_factory=list)  # of every shard
    rows: int = 0
    skipped_count: int = 0
    skipped: list[int] = field(default_factory=list)

    def wipe(self) -> None:
        """Wipe all updates."""
        for shard_work in self.work:
            wipe_messages(shard_work)
        for total, events in self.totals.values():
            wipe(total)
            wipe(events)


class PartitionReader:
    """Compiled expressions and checks of a plan, which a process reuses between tasks. Holds no rows."""

    def __init__(self, read_plan: ReadPlan) -> None:
        config = read_plan.config
        self.config = config
        self.lock = threading.Lock()  # a worker may have several threads
        plans = plan_all(config, zero_noise=read_plan.zero_noise)
        self.schema = RowSchema.of(config.stream, config.needed_columns)
        self.select = Selector(config)
        lateness = config.stream.lateness if config.stream.time is not None else 0.0
        self.queries = {plan.config.name: RunningQuery(plan, lateness=lateness) for plan in plans}
        self.whole = {plan.config.name: plan for plan in plans if not is_divided(plan.algorithm)}
        queries = {plan.config.name: (divided_part(plan.algorithm), len(plan.groups)) for plan in plans}
        self.outgoing = OutgoingQueue(queries, read_plan.shards, cells_per_row=_CELLS_PER_ROW)
        self._slots = {name: [(0, group) for group in range(groups)] for name, (_, groups) in queries.items()}

    def route(self, task: Sequence[Partition], table: Any = None) -> _RoutedRows:
        """Read a task's rows, from ``table`` if given; return the updates of every shard, which the caller wipes."""
        with self.lock:
            return self._route(task, table)

    def _route(self, task: Sequence[Partition], table: Any) -> _RoutedRows:
        rows = sum(partition.rows for partition in task) if table is None else table.num_rows
        routed = _RoutedRows(totals={name: _zeros(plan) for name, plan in self.whole.items()})
        self.outgoing.expect(rows)
        try:
            for partition in task:
                for batch in self.batches(partition, table):
                    try:
                        self._route_batch(batch, routed)
                    finally:
                        self.select.wipe()
                        batch.wipe()
            self.outgoing.expect(max(0, routed.rows - rows))  # the number of rows of text was an estimate
            routed.work = self.outgoing.messages(self._slots)
        except BaseException:
            self.outgoing.wipe()
            routed.wipe()
            raise
        return routed

    def batches(self, partition: Partition, table: Any = None, schema: RowSchema | None = None) -> Iterator[RowBatch]:
        """Yield the rows of a partition, of ``table`` if given, with the columns of ``schema`` if given."""
        schema = self.schema if schema is None else schema
        if table is None and partition.format != "parquet":
            assert partition.path is not None
            source = open_configured_source(self.config, [partition.path], format=partition.format, schema=schema)
            yield from (batch for batch in source.batches() if batch is not None)
            source.close()
            return
        coalescer = Coalescer(
            schema,
            rows=ROWS_OF_FILES,
            producer=partition.name,
            label=partition.name,
            skip=partition.before,
            start=partition.before,
            uncut=True,
        )
        try:
            pieces = self._row_groups(partition, schema) if table is None else self._table_batches(partition, table)
            for piece in pieces:
                yield from coalescer.add(piece)
            yield from coalescer.flush()
        finally:
            coalescer.close()

    def _row_groups(self, partition: Partition, schema: RowSchema) -> Iterator[RowBatch]:
        assert partition.path is not None
        remaining = partition.rows
        file = ParquetFile(Path(partition.path), schema, rows=ROWS_OF_FILES)
        try:
            file.skip(partition.before)
            for piece in file.pieces():
                first, rest = (piece, None) if len(piece) <= remaining else piece.split(remaining)
                if rest is not None:
                    rest.wipe()
                yield first
                remaining -= len(first)
                if remaining <= 0:
                    return
        finally:
            file.close()

    def _table_batches(self, partition: Partition, table: Any) -> Iterator[RowBatch]:
        check_types(table.schema, self.schema, partition.name)
        for batch in table.to_batches(max_chunksize=ROWS_OF_FILES):
            yield from_arrow(batch, self.schema, owned=False)

    def _route_batch(self, batch: RowBatch, routed: _RoutedRows) -> None:
        rows = self.select(batch)
        unusable = rows.bad
        if rows.times is not None:
            unusable = unusable | ~np.isfinite(rows.times)
        skipped = unusable.copy()
        for name, query in self.queries.items():
            bad = query.unusable(rows, rows.queries[name])
            skipped |= bad
            usable = ~(unusable | bad)
            for prepared in query.prepare(rows, rows.queries[name], usable, None):
                for slot, checked in prepared.batches:
                    if name in self.whole:
                        total, events = routed.totals[name]
                        total[slot[1]] += checked.total
                        events[slot[1]] += checked.events
                    else:
                        self.outgoing.add(name, slot, checked)
                prepared.wipe()
        numbers = batch.numbers(skipped).tolist()
        if numbers and self.config.stream.on_bad_row == "stop":
            raise BadRowError(f'row {numbers[0]} cannot be used, and on_bad_row is "stop"', row=numbers[0])
        routed.rows += len(batch)
        routed.skipped_count += len(numbers)
        routed.skipped += numbers[: max(0, MAX_SKIPPED_NUMBERS - len(routed.skipped))]


def _zeros(plan: QueryPlan) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    width = getattr(plan.algorithm, "width", 1)
    groups = len(plan.groups)
    return np.zeros((groups, width), np.int64), np.zeros(groups, np.int64)


_READERS: dict[str, PartitionReader] = {}
