"""The task of a worker that reads: cut its rows up, give every shard its part, and come back when all have it durable."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.cluster.partitions import Partition
from panstream.cluster.reading import MOST_NUMBERS, Job, Totals, reader_of
from panstream.engine.plan import needed_columns
from panstream.engine.rows import RowSchema
from panstream.errors import PanstreamError

__all__ = ["Ingested", "ingest", "ingest_frame"]


@dataclass(slots=True, kw_only=True)
class Ingested:
    """What became of a task, in as many bytes whatever its rows hold.

    ``counts`` are the rows read and the rows that some query could not use, ``skipped`` the first numbers of these and then -1.
    ``totals`` is what the task adds to states that stay whole.
    """

    counts: NDArray[np.int64] = field(default_factory=lambda: np.zeros(2, np.int64))
    skipped: NDArray[np.int64] = field(default_factory=lambda: np.full(MOST_NUMBERS, -1))
    totals: Totals = field(default_factory=list)
    lost: list[int] = field(default_factory=list)  # shards that could not be reached: nothing counts yet
    refused: tuple[str, str, int | None] | None = None  # class and message of an error, and a row's number


def ingest(job: Job, task: Sequence[Partition], actors: Mapping[int, Any], table: Any = None) -> Ingested:
    """Read partitions and give every shard its part; when this returns without ``lost``, all have it durable.

    ``actors`` are the shards', or their addresses and keys: a task that was given actors would wait for their workers.
    Errors come back as words: an exception would carry rows in its traceback.
    """
    try:
        found = reader_of(job).cut(task, table)
    except PanstreamError as error:
        return Ingested(refused=(type(error).__name__, str(error), getattr(error, "row", None)))
    except Exception as error:
        return Ingested(refused=(type(error).__name__, f"{task[0].name} cannot be read", None))
    try:
        names = [partition.name for partition in task]
        started = [_start(actors.get(shard), (names, own)) for shard, own in enumerate(found.work)]
        _let_others_read(actors)
        lost = [shard for shard, future in enumerate(started) if not _acknowledged(future)]
        totals = [(name, total.copy(), events.copy()) for name, (total, events) in found.totals.items()]
        answer = Ingested(totals=[] if lost else totals, lost=lost)
        answer.counts[:] = found.rows, found.skipped_count
        answer.skipped[: len(found.skipped)] = found.skipped
        return answer
    finally:
        found.wipe()


def ingest_frame(frame: Any, job: Job, actors: Mapping[int, Any], name: str) -> Ingested:
    """Take one pandas partition of a Dask DataFrame."""
    import pyarrow as pa

    columns = list(RowSchema.of(job.config.stream, needed_columns(job.config)).columns)
    table = pa.Table.from_pandas(frame[columns], preserve_index=False)
    return ingest(job, [Partition(name=name)], actors, table)


def _start(actor: Any, arguments: tuple[Any, ...]) -> Any:
    try:
        if isinstance(actor, tuple):
            address, key = actor
            return _told(address, key, arguments)
        return None if actor is None else actor.call("absorb", arguments)
    except Exception:
        return None


def _told(address: str, key: str, arguments: tuple[Any, ...]) -> Any:
    """Call an actor from a task. Dask's own proxy waits for ever where its worker is up but cannot be reached."""
    import asyncio

    import dask
    from dask.utils import parse_timedelta
    from distributed import get_worker
    from distributed.protocol.serialize import to_serialize

    worker = get_worker()
    patience = 2 * parse_timedelta(dask.config.get("distributed.comm.timeouts.tcp"))

    async def call() -> Any:
        given = [to_serialize(each) for each in ("absorb", arguments)]  # type: ignore[no-untyped-call]
        answer = await asyncio.wait_for(
            worker.rpc(address).actor_execute(function="call", actor=key, args=given, kwargs={}), patience
        )
        return answer["result"] if answer["status"] == "OK" else ("failed", "")

    return asyncio.run_coroutine_threadsafe(call(), worker.loop.asyncio_loop)  # type: ignore[attr-defined]


def _let_others_read(actors: Mapping[int, Any]) -> None:
    """Give up the worker's place for computing: from here on this task only waits, and the next one may read."""
    if any(isinstance(actor, tuple) for actor in actors.values()):
        from distributed import secede

        secede()  # type: ignore[no-untyped-call]


def _acknowledged(future: Any) -> bool:
    try:
        return future is not None and future.result()[0] == "ok"
    except Exception:
        return False
