"""Reading where the workers are: rows are read, checked, hashed and cut up by one worker, and only cells move on.

What leaves a task has as many bytes whatever its rows hold: see messages.py for what goes to the shards. What goes back to the
coordinator has a place for every group and for the most row numbers that are told.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.cluster.messages import CellMessage, Outgoing, wipe_messages
from panstream.cluster.partitions import Partition
from panstream.continual.tree_base import TreeBatch
from panstream.divisible import Divisible
from panstream.engine.config import Config
from panstream.engine.feeds import typed
from panstream.engine.feeds.coalesce import Coalescer
from panstream.engine.feeds.layouts import check_types
from panstream.engine.feeds.parquet import ParquetFile
from panstream.engine.plan import QueryPlan, needed_columns, plan_all
from panstream.engine.rows import Rows, RowSchema
from panstream.engine.running import RunningQuery
from panstream.engine.select import Selector
from panstream.errors import BadRowError
from panstream.scratch import wipe

__all__ = ["MOST_NUMBERS", "Cut", "Job", "Reader", "Totals", "reader_of"]

MOST_NUMBERS = 1000  # of rows that could not be used
_ROWS_AT_ONCE = 1 << 17
_MARKED = 8  # a byte for each cell, until the task is read, where there are at most so many cells a row
Totals = list[tuple[str, NDArray[np.int64], NDArray[np.int64]]]  # of every query: totals and events of all its groups


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What workers must know to read for a stream: all of it public. ``name`` tells jobs in one process apart."""

    name: str
    config: Config
    shards: int
    zero_noise: bool = False


@dataclass(slots=True, kw_only=True)
class Cut:
    """What the rows of a task mean for every shard, and for states that stay whole; and what was wrong with some."""

    totals: dict[str, tuple[NDArray[np.int64], NDArray[np.int64]]]
    work: list[list[CellMessage]] = field(default_factory=list)  # of every shard
    rows: int = 0
    skipped_count: int = 0
    skipped: list[int] = field(default_factory=list)

    def wipe(self) -> None:
        """Overwrite all of it."""
        for own in self.work:
            wipe_messages(own)
        for total, events in self.totals.values():
            wipe(total)
            wipe(events)


class Reader:
    """What a process keeps of a job between tasks: compiled expressions and checks, no rows."""

    def __init__(self, job: Job) -> None:
        config = job.config
        plans = plan_all(config, zero_noise=job.zero_noise)
        self.config, self.shards = config, job.shards
        self.schema = RowSchema.of(config.stream, needed_columns(config))
        self.select = Selector(config)
        self.queries = {plan.config.name: RunningQuery(plan) for plan in plans}
        self.whole = {plan.config.name: plan for plan in plans if not isinstance(plan.algorithm, Divisible)}
        queries = {plan.config.name: (plan.algorithm, len(plan.groups)) for plan in plans}
        self._outgoing = Outgoing(queries, job.shards, marked=_MARKED)
        self._slots = {name: [(0, group) for group in range(groups)] for name, (_, groups) in queries.items()}

    def cut(self, partitions: Iterable[Partition], table: Any = None) -> Cut:
        """Return what every shard must do for the rows of a task."""
        task = list(partitions)
        rows = sum(partition.rows for partition in task) if table is None else table.num_rows
        found = Cut(totals={name: _zeros(plan) for name, plan in self.whole.items()})
        self._outgoing.expect(rows)
        try:
            for partition in task:
                for batch in self._read(partition, table):
                    try:
                        self._cut(batch, found)
                    finally:
                        self.select.wipe()
                        batch.wipe()
            self._outgoing.expect(max(0, found.rows - rows))  # of text, rows are only known now
            found.work = self._outgoing.messages(self._slots)
        except BaseException:
            self._outgoing.wipe()
            found.wipe()
            raise
        return found

    def _read(self, partition: Partition, table: Any) -> Iterator[Rows]:
        if table is None and partition.format != "parquet":
            from panstream.engine.run import feed_of

            assert partition.path is not None
            source = feed_of(self.config, [partition.path], format=partition.format)
            yield from (batch for batch in source.batches() if batch is not None)
            source.close()
            return
        turns = max(1, -(-partition.rows // _ROWS_AT_ONCE))
        size = max(1, -(-partition.rows // turns)) if table is None else _ROWS_AT_ONCE
        coalescer = Coalescer(
            self.schema,
            rows=size,
            producer=partition.name,
            place=partition.name,
            skip=partition.before,
            start=partition.before,
        )
        try:
            for piece in self._stretch(partition, size) if table is None else self._pieces(partition, table):
                yield from coalescer.add(piece)
            yield from coalescer.flush()
        finally:
            coalescer.close()

    def _stretch(self, partition: Partition, size: int) -> Iterator[Rows]:
        """Yield the rows of some row groups."""
        assert partition.path is not None
        left = partition.rows
        file = ParquetFile(Path(partition.path), self.schema, rows=size, ahead=False)
        try:
            file.skip(partition.before)
            for piece in file.pieces():
                yield _first(piece, left)
                left -= len(piece)
                if left <= 0:
                    return
        finally:
            file.close()

    def _pieces(self, partition: Partition, table: Any) -> Iterator[Rows]:
        check_types(table.schema, self.schema, partition.name)
        for batch in table.to_batches(max_chunksize=_ROWS_AT_ONCE):
            yield typed.from_arrow(batch, self.schema, owned=False)

    def _cut(self, batch: Rows, found: Cut) -> None:
        rows = self.select(batch)
        useless = rows.bad
        if rows.times is not None:
            useless = useless | ~np.isfinite(rows.times)
        skipped = useless.copy()
        for name, query in self.queries.items():
            bad = query.unusable(rows, rows.queries[name])
            skipped |= bad
            usable = ~(useless | bad)
            for prepared in query.prepare(rows, rows.queries[name], usable, None):
                for slot, checked in prepared.batches:
                    if name in self.whole:
                        _add_up(found.totals[name], slot[1], checked)
                    else:
                        self._outgoing.add(name, slot, checked)
                prepared.wipe()
        numbers = batch.numbers(skipped)
        if numbers and self.config.stream.on_bad_row == "stop":
            raise BadRowError(f'row {numbers[0]} cannot be used, and on_bad_row is "stop"', row=numbers[0])
        found.rows += len(batch)
        found.skipped_count += len(numbers)
        found.skipped += numbers[: max(0, MOST_NUMBERS - len(found.skipped))]


def _first(piece: Rows, rows: int) -> Rows:
    """Return at most the first rows of a piece, and overwrite the rest."""
    if len(piece) <= rows:
        return piece
    first, rest = piece.split(rows)
    rest.wipe()
    return first


def _zeros(plan: QueryPlan) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    width, groups = getattr(plan.algorithm, "width", 1), len(plan.groups)
    return np.zeros((groups, width), np.int64), np.zeros(groups, np.int64)


def _add_up(found: tuple[NDArray[np.int64], NDArray[np.int64]], group: int, checked: Any) -> None:
    assert isinstance(checked, TreeBatch)
    total, events = found
    total[group] += checked.total
    events[group] += checked.events


_READERS: dict[str, Reader] = {}


def reader_of(job: Job) -> Reader:
    """Return this process's reader of a job."""
    if job.name not in _READERS:
        _READERS.clear()
        _READERS[job.name] = Reader(job)
    return _READERS[job.name]
