"""Reading where the workers are: a partition is read, checked, hashed and cut up by one worker, and only cells move on.

Only for queries that are answered at the end or when asked: rows of partitions have no common order, and clocks need one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.cluster import division
from panstream.cluster.division import Piece
from panstream.cluster.ownership import Ownership
from panstream.cluster.shard import label, wipe_pieces
from panstream.continual.tree_base import TreeBatch
from panstream.engine.config import Config
from panstream.engine.plan import needed_columns, plan_all
from panstream.engine.rows import BadRowError, MicroBatch, RowSchema
from panstream.engine.running import RunningQuery
from panstream.engine.select import Selector
from panstream.engine.sources.coalesce import Coalescer
from panstream.engine.sources.inputs import expand
from panstream.engine.sources.typed import check_types, from_arrow
from panstream.errors import PanstreamError
from panstream.scratch import wipe

__all__ = ["Ingested", "Job", "Partition", "can_read_apart", "ingest", "partitions_of"]

_MOST_NUMBERS = 1000
_ROWS_AT_ONCE = 1 << 17
Totals = list[tuple[str, tuple[int, int], NDArray[np.int64], int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What workers must know to read for a stream: all of it public. ``name`` tells jobs in one process apart."""

    name: str
    config: Config
    shards: int
    zero_noise: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """Some rows that can be read again: a file, or some row groups of a Parquet file. ``name`` is their producer."""

    name: str
    path: str | None = None
    format: str | None = None
    row_groups: tuple[int, ...] | None = None


@dataclass(slots=True, kw_only=True)
class Ingested:
    """What became of a partition. ``totals`` is what it adds to states that stay whole."""

    rows: int = 0
    skipped_count: int = 0
    skipped: list[int] = field(default_factory=list)
    totals: Totals = field(default_factory=list)
    lost: list[int] = field(default_factory=list)  # shards that could not be reached: nothing counts yet
    refused: tuple[str, str, int | None] | None = None  # class and message of an error, and a row's number


def can_read_apart(config: Config) -> bool:
    """Return whether no query answers by a clock, so that partitions may be read in any order."""
    return all(query.every is None and query.window is None for query in config.queries)


def partitions_of(inputs: Iterable[str], *, rows: int, format: str | None = None) -> list[Partition]:
    """Return files, and Parquet files in stretches of row groups of about ``rows`` rows."""
    found: list[Partition] = []
    for file in expand(list(inputs), format=format):  # type: ignore[arg-type]
        if file.path is None:
            return []
        where = str(file.path.absolute())
        if file.format != "parquet":
            found.append(Partition(name=f"{file.name}#", path=where, format=file.format))
            continue
        from pyarrow import parquet

        metadata = parquet.read_metadata(file.path)
        groups: list[int] = []
        size = 0
        for group in range(metadata.num_row_groups):
            groups.append(group)
            size += metadata.row_group(group).num_rows
            if size >= rows or group == metadata.num_row_groups - 1:
                name = f"{file.name}#{groups[0]}-{groups[-1]}"
                found.append(Partition(name=name, path=where, format="parquet", row_groups=tuple(groups)))
                groups, size = [], 0
    return found


class _Reader:
    """What a process keeps of a job between partitions: compiled expressions and checks, no rows."""

    def __init__(self, job: Job) -> None:
        config = job.config
        plans = plan_all(config, zero_noise=job.zero_noise)
        self.config, self.shards = config, job.shards
        self.schema = RowSchema.of(config.stream, needed_columns(config))
        self.select = Selector(config)
        self.queries = {plan.config.name: RunningQuery(plan) for plan in plans}
        self.divided = {plan.config.name: division.division_of(plan.algorithm) for plan in plans}

    def read(self, partition: Partition, table: Any) -> Iterator[MicroBatch]:
        """Yield the rows of a partition."""
        if table is None and partition.format != "parquet":
            from panstream.engine.run import source_of

            assert partition.path is not None
            source = source_of(self.config, [partition.path], format=partition.format)
            yield from (batch for batch in source.batches() if batch is not None)
            source.close()
            return
        coalescer = Coalescer(
            self.schema, rows=_ROWS_AT_ONCE, producer=partition.name, place=partition.name, owned=table is None
        )
        for batch in self._arrow(partition, table):
            yield from coalescer.add(from_arrow(batch, self.schema, owned=table is None))
        yield from coalescer.flush()

    def _arrow(self, partition: Partition, table: Any) -> Iterator[Any]:
        if table is not None:
            check_types(table.schema, self.schema, partition.name)
            yield from table.to_batches(max_chunksize=_ROWS_AT_ONCE)
            return
        from pyarrow import parquet

        with parquet.ParquetFile(partition.path, pre_buffer=False) as file:
            check_types(file.schema_arrow, self.schema, partition.name)
            yield from file.iter_batches(
                _ROWS_AT_ONCE,
                row_groups=list(partition.row_groups or ()),
                columns=list(self.schema.columns),
                use_threads=False,
            )

    def cut(self, batches: Iterable[MicroBatch], found: Ingested) -> list[dict[str, list[Piece]]]:
        """Return what every shard must do for these rows; note the rest in ``found``."""
        work: list[dict[str, list[Piece]]] = [{} for _ in range(self.shards)]
        totals: dict[tuple[str, tuple[int, int]], tuple[NDArray[np.int64], int]] = {}
        for batch in batches:
            try:
                self._cut(batch, work, totals, found)
            finally:
                self.select.wipe()
                batch.wipe()
        found.totals = [(name, slot, total, events) for (name, slot), (total, events) in totals.items()]
        return work

    def _cut(
        self,
        batch: MicroBatch,
        work: list[dict[str, list[Piece]]],
        totals: dict[tuple[str, tuple[int, int]], tuple[NDArray[np.int64], int]],
        found: Ingested,
    ) -> None:
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
                    if self.divided[name] is None:
                        _add_up(totals, (name, slot), checked)
                    else:
                        self._split(work, name, slot, checked)
                prepared.wipe()
        numbers = [bad.row for bad in batch.bad_rows]
        if skipped is not None and skipped.any():
            numbers += batch.row_numbers()[skipped].tolist()
        if numbers and self.config.stream.on_bad_row == "stop":
            raise BadRowError(f'row {numbers[0]} cannot be used, and on_bad_row is "stop"', row=numbers[0])
        found.rows += batch.rows_read
        found.skipped_count += len(numbers)
        found.skipped += numbers[: max(0, _MOST_NUMBERS - len(found.skipped))]

    def _split(self, work: list[dict[str, list[Piece]]], name: str, slot: tuple[int, int], checked: Any) -> None:
        algorithm, divided = self.queries[name].plan.algorithm, self.divided[name]
        assert divided is not None
        ownership = Ownership(cells=divided.cells, shards=self.shards)
        for target, pieces in zip(work, division.split(algorithm, checked, ownership), strict=True):
            if pieces:
                _merge(target.setdefault(label(name, slot), []), pieces)


def _merge(target: list[Piece], pieces: list[Piece]) -> None:
    """Add pieces; marks of the same cells become one."""
    for kind, columns in pieces:
        if kind == "marks":
            for other, theirs in target:
                if other == "marks":
                    np.bitwise_or(theirs[0], columns[0], out=theirs[0])
                    wipe(columns[0])
                    break
            else:
                target.append((kind, columns))
        else:
            target.append((kind, columns))


def _add_up(totals: dict[Any, tuple[NDArray[np.int64], int]], key: Any, checked: Any) -> None:
    assert isinstance(checked, TreeBatch)
    total, events = totals.get(key, (np.zeros_like(checked.total), 0))
    totals[key] = (total + checked.total, events + checked.events)
    wipe(total)


_READERS: dict[str, _Reader] = {}


def reader_of(job: Job) -> _Reader:
    """Return this process's reader of a job."""
    if job.name not in _READERS:
        _READERS.clear()
        _READERS[job.name] = _Reader(job)
    return _READERS[job.name]


def ingest(job: Job, partition: Partition, actors: Mapping[int, Any], table: Any = None) -> Ingested:
    """Read a partition and give every shard its part; when this returns without ``lost``, all have it durable.

    ``actors`` are the shards', or their addresses and keys: a task that was given actors would wait for their workers.
    Errors come back as words: an exception would carry rows in its traceback.
    """
    found = Ingested()
    try:
        reader = reader_of(job)
        work = reader.cut(reader.read(partition, table), found)
    except PanstreamError as error:
        found.refused = (type(error).__name__, str(error), getattr(error, "row", None))
        return found
    except Exception as error:
        found.refused = (type(error).__name__, f"{partition.name} cannot be read", None)
        return found
    started: list[tuple[int, Any]] = []
    for shard, own in enumerate(work):
        part = (partition.name, 0, (), [*own.items()])
        started.append((shard, _start(actors.get(shard), part)))
    for shard, future in started:
        if not _acknowledged(future):
            found.lost.append(shard)
    for own in work:
        for pieces in own.values():
            wipe_pieces(pieces)
    if found.lost:
        found.totals = []
    return found


def _start(actor: Any, part: Any) -> Any:
    try:
        if isinstance(actor, tuple):
            address, key = actor
            return _told(address, key, part)
        return None if actor is None else actor.call("absorb", ([part],))
    except Exception:
        return None


def _told(address: str, key: str, part: Any) -> Any:
    """Call an actor from a task. Dask's own proxy waits for ever where its worker is up but cannot be reached."""
    import asyncio

    import dask
    from dask.utils import parse_timedelta
    from distributed import get_worker
    from distributed.protocol.serialize import to_serialize

    worker = get_worker()
    patience = 2 * parse_timedelta(dask.config.get("distributed.comm.timeouts.tcp"))

    async def call() -> Any:
        arguments = [to_serialize(each) for each in ("absorb", ([part],))]  # type: ignore[no-untyped-call]
        answer = await asyncio.wait_for(
            worker.rpc(address).actor_execute(function="call", actor=key, args=arguments, kwargs={}), patience
        )
        return answer["result"] if answer["status"] == "OK" else ("failed", "")

    return asyncio.run_coroutine_threadsafe(call(), worker.loop.asyncio_loop)  # type: ignore[attr-defined]


def _acknowledged(future: Any) -> bool:
    try:
        return future is not None and future.result()[0] == "ok"
    except Exception:
        return False


def ingest_frame(frame: Any, job: Job, actors: Mapping[int, Any], name: str) -> Ingested:
    """Take one pandas partition of a Dask DataFrame."""
    import pyarrow as pa

    columns = list(RowSchema.of(job.config.stream, needed_columns(job.config)).columns)
    table = pa.Table.from_pandas(frame[columns], preserve_index=False)
    return ingest(job, Partition(name=name), actors, table)
