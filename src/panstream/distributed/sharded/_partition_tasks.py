"""Tasks whose rows do not depend on their order: a worker reads partitions and sends every shard its cells at once."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.distributed.sharded._dask_transport import TRANSIENT_ERRORS, ShardAnswer, call_shard, failure_answer
from panstream.distributed.sharded._worker_reading import MAX_SKIPPED_NUMBERS, Partition, ReadPlan, Totals
from panstream.engine.rows.row_batch import RowSchema
from panstream.errors import PanstreamError

Task = Sequence[Partition]
Actors = Mapping[int, Any]


@dataclass(slots=True, kw_only=True)
class TaskResult:
    """The outcome of a task; its size in bytes does not depend on the rows.

    Attributes:
        counts: Rows read, and rows that some query could not use.
        skipped: The first numbers of the latter, padded with -1.
        totals: What the task adds to states that the coordinator holds.
        lost: Shards that could not be reached; the task has to be repeated.
        rejected: A shard that cannot apply its part, and why.
        refused: Class and message of an error in the input, and the row's number if it has one.
    """

    counts: NDArray[np.int64] = field(default_factory=lambda: np.zeros(2, np.int64))
    skipped: NDArray[np.int64] = field(default_factory=lambda: np.full(MAX_SKIPPED_NUMBERS, -1))
    totals: Totals = field(default_factory=list)
    lost: list[int] = field(default_factory=list)
    rejected: tuple[int, str] | None = None
    refused: tuple[str, str, int | None] | None = None


def ingest_partitions(plan: ReadPlan, task: Task, actors: Actors, table: Any = None) -> TaskResult:
    """Read partitions and send every shard its part; without ``lost`` or ``rejected``, all shards have it durable.

    ``actors`` are the shards', or their addresses and keys: a task that was given actors would wait for their workers.
    Errors are returned as text: an exception would carry rows in its traceback.
    """
    try:
        routed = plan.reader().route(task, table)
    except PanstreamError as error:
        return TaskResult(refused=(type(error).__name__, str(error), getattr(error, "row", None)))
    except Exception as error:
        return TaskResult(refused=(type(error).__name__, f"{task[0].name} cannot be read", None))
    try:
        names = [partition.name for partition in task]
        started = [_start_call(actors.get(shard), (names, shard_work)) for shard, shard_work in enumerate(routed.work)]
        _secede(actors)
        answers = {shard: _answer(call) for shard, call in enumerate(started)}
        failed = {shard: answer for shard, answer in answers.items() if answer[0] != "ok"}
        totals = [(name, total.copy(), events.copy()) for name, (total, events) in routed.totals.items()]
        result = TaskResult(totals=[] if failed else totals)
        result.lost = [shard for shard, (word, _) in failed.items() if word == "lost" or word in TRANSIENT_ERRORS]
        result.rejected = next(
            ((shard, str(value)) for shard, (_, value) in failed.items() if shard not in result.lost), None
        )
        result.counts[:] = routed.rows, routed.skipped_count
        result.skipped[: len(routed.skipped)] = routed.skipped
        return result
    finally:
        routed.wipe()


def ingest_frame(frame: Any, plan: ReadPlan, actors: Actors, name: str) -> TaskResult:
    """Ingest one pandas partition of a Dask DataFrame."""
    import pyarrow as pa

    columns = list(RowSchema.of(plan.config.stream, plan.config.needed_columns).columns)
    table = pa.Table.from_pandas(frame[columns], preserve_index=False)
    return ingest_partitions(plan, [Partition(name=name)], actors, table)


def _start_call(actor: Any, arguments: tuple[Any, ...]) -> Any:
    """Start a shard's ``apply_partition``; return a future of its answer, or the answer if it could not be started."""
    try:
        if isinstance(actor, tuple):
            address, key = actor
            return _call_actor(address, key, arguments)
        return ("lost", "") if actor is None else actor.call("apply_partition", arguments)
    except Exception as error:
        return failure_answer(error)


def _answer(call: Any) -> ShardAnswer:
    """Return a shard's answer; ("lost", "") if the shard cannot be reached."""
    if isinstance(call, tuple):
        return call
    try:
        answer: ShardAnswer = call.result()
    except (Exception, asyncio.CancelledError) as error:
        return failure_answer(error)
    return answer


def _call_actor(address: str, key: str, arguments: tuple[Any, ...]) -> Any:
    """Call a shard from a task, which waits in another thread than the worker's event loop."""
    from distributed import get_worker

    worker = get_worker()
    call = call_shard(worker, address, key, "apply_partition", arguments)
    return asyncio.run_coroutine_threadsafe(call, worker.loop.asyncio_loop)  # type: ignore[attr-defined]


def _secede(actors: Actors) -> None:
    """Leave the worker's thread pool: from here on this task only waits, and the next one may read."""
    if any(isinstance(actor, tuple) for actor in actors.values()):
        from distributed import secede

        secede()  # type: ignore[no-untyped-call]
