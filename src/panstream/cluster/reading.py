"""Reading where the workers are: rows are read, checked, hashed and cut up by one worker, and only cells move on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.cluster import division
from panstream.cluster.division import Piece
from panstream.cluster.ownership import Ownership
from panstream.cluster.partitions import Partition
from panstream.cluster.shard import label, wipe_pieces
from panstream.continual.tree_base import TreeBatch
from panstream.engine.config import Config
from panstream.engine.plan import needed_columns, plan_all
from panstream.engine.rows import BadRowError, MicroBatch, RowSchema, wipe_array
from panstream.engine.running import RunningQuery
from panstream.engine.select import Selector
from panstream.engine.sources import typed
from panstream.engine.sources.coalesce import Coalescer
from panstream.engine.sources.parquet import ParquetFile
from panstream.scratch import wipe

__all__ = ["Cut", "Job", "Reader", "Totals", "reader_of"]

_MOST_NUMBERS = 1000
_ROWS_AT_ONCE = 1 << 17
_MARKED = 8  # a byte for each cell, until the task is read, where there are at most so many cells a row
Totals = list[tuple[str, tuple[int, int], NDArray[np.int64], int]]


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

    work: list[dict[str, list[Piece]]]
    totals: dict[tuple[str, tuple[int, int]], tuple[NDArray[np.int64], int]] = field(default_factory=dict)
    rows: int = 0
    skipped_count: int = 0
    skipped: list[int] = field(default_factory=list)
    marks: dict[tuple[str, tuple[int, int]], NDArray[np.uint8]] = field(default_factory=dict)

    def wipe(self) -> None:
        """Overwrite all of it."""
        for own in self.work:
            for pieces in own.values():
                wipe_pieces(pieces)
        for marks in self.marks.values():
            wipe(marks)
        for total, _ in self.totals.values():
            wipe(total)
        self.marks.clear()


class Reader:
    """What a process keeps of a job between tasks: compiled expressions and checks, no rows."""

    def __init__(self, job: Job) -> None:
        config = job.config
        plans = plan_all(config, zero_noise=job.zero_noise)
        self.config, self.shards = config, job.shards
        self.schema = RowSchema.of(config.stream, needed_columns(config))
        self.select = Selector(config)
        self.queries = {plan.config.name: RunningQuery(plan) for plan in plans}
        self.divided = {plan.config.name: division.division_of(plan.algorithm) for plan in plans}

    def cut(self, partitions: Iterable[Partition], table: Any = None) -> Cut:
        """Return what every shard must do for the rows of a task."""
        task = list(partitions)
        rows = sum(partition.rows for partition in task) if table is None else table.num_rows
        found = Cut(work=[{} for _ in range(self.shards)])
        try:
            for partition in task:
                for batch in self._read(partition, table):
                    try:
                        self._cut(batch, rows, found)
                    finally:
                        self.select.wipe()
                        batch.wipe()
            self._deal_out(found)
        except BaseException:
            found.wipe()
            raise
        return found

    def _read(self, partition: Partition, table: Any) -> Iterator[MicroBatch]:
        if table is None and partition.format != "parquet":
            from panstream.engine.run import source_of

            assert partition.path is not None
            source = source_of(self.config, [partition.path], format=partition.format)
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
            owned=table is None,
        )
        try:
            for piece in self._stretch(partition, size) if table is None else self._pieces(partition, table):
                yield from coalescer.add(piece)
            yield from coalescer.flush()
        finally:
            coalescer.close()

    def _stretch(self, partition: Partition, size: int) -> Iterator[typed.Piece]:
        """Yield the rows of some row groups."""
        assert partition.path is not None
        left = partition.rows
        file = ParquetFile(Path(partition.path), self.schema, rows=size, ahead=False)
        try:
            file.skip(partition.before)
            for piece in file.pieces():
                yield _first(piece, left)
                left -= piece.rows
                if left <= 0:
                    return
        finally:
            file.close()

    def _pieces(self, partition: Partition, table: Any) -> Iterator[typed.Piece]:
        typed.check_types(table.schema, self.schema, partition.name)
        for batch in table.to_batches(max_chunksize=_ROWS_AT_ONCE):
            yield typed.from_arrow(batch, self.schema, owned=False)

    def _cut(self, batch: MicroBatch, task_rows: int, found: Cut) -> None:
        rows = self.select(batch)
        known = None if rows.times is None else np.isfinite(rows.times)
        skipped = None if known is None or known.all() else ~known
        for name, query in self.queries.items():
            bad = query.unusable(rows, rows.queries[name])
            usable = None if skipped is None else ~skipped
            if bad is not None:
                usable = ~bad if usable is None else usable & ~bad
                skipped = bad if skipped is None else skipped | bad
            for prepared in query.prepare(rows, rows.queries[name], usable, None):
                for slot, checked in prepared.batches:
                    self._take(found, name, slot, checked, task_rows)
                prepared.wipe()
        numbers = [bad.row for bad in batch.bad_rows]
        if skipped is not None and skipped.any():
            numbers += batch.row_numbers()[skipped].tolist()
        if numbers and self.config.stream.on_bad_row == "stop":
            raise BadRowError(f'row {numbers[0]} cannot be used, and on_bad_row is "stop"', row=numbers[0])
        found.rows += batch.rows_read
        found.skipped_count += len(numbers)
        found.skipped += numbers[: max(0, _MOST_NUMBERS - len(found.skipped))]

    def _take(self, found: Cut, name: str, slot: tuple[int, int], checked: Any, task_rows: int) -> None:
        query, divided = self.queries[name], self.divided[name]
        if divided is None:
            _add_up(found.totals, (name, slot), checked)
        elif divided.markable and divided.cells * len(query.plan.groups) <= _MARKED * task_rows:
            if (name, slot) not in found.marks:
                found.marks[name, slot] = np.zeros(divided.cells, np.uint8)
            division.mark(query.plan.algorithm, checked, found.marks[name, slot])
        else:
            parts = division.split(query.plan.algorithm, checked, self._ownership(name))
            for own, pieces in zip(found.work, parts, strict=True):
                if pieces:
                    own.setdefault(label(name, slot), []).extend(pieces)

    def _deal_out(self, found: Cut) -> None:
        """Turn the marks of the whole task into one bit for each cell of every shard."""
        for (name, slot), marks in found.marks.items():
            ownership = self._ownership(name)
            for shard, own in enumerate(found.work):
                own.setdefault(label(name, slot), []).append(division.packed(marks, ownership, shard))
            wipe(marks)
        found.marks.clear()

    def _ownership(self, name: str) -> Ownership:
        divided = self.divided[name]
        assert divided is not None
        return Ownership(cells=divided.cells, shards=self.shards)


def _first(piece: typed.Piece, rows: int) -> typed.Piece:
    """Return at most the first rows of a piece, and overwrite the rest."""
    if piece.rows <= rows:
        return piece
    bad = [each for each in piece.bad if each[0] < rows]
    kept = rows - len(bad)
    for column in piece.columns.slice(kept).columns:
        wipe_array(column)
    return typed.Piece(piece.columns.slice(0, kept), rows, bad)


def _add_up(totals: dict[Any, tuple[NDArray[np.int64], int]], key: Any, checked: Any) -> None:
    assert isinstance(checked, TreeBatch)
    total, events = totals.get(key, (np.zeros_like(checked.total), 0))
    totals[key] = (total + checked.total, events + checked.events)
    wipe(total)


_READERS: dict[str, Reader] = {}


def reader_of(job: Job) -> Reader:
    """Return this process's reader of a job."""
    if job.name not in _READERS:
        _READERS.clear()
        _READERS[job.name] = Reader(job)
    return _READERS[job.name]
