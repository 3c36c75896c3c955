"""Files and Dask DataFrames that workers read themselves: `run`, `distinct`, `feed_files`.

A task reads some partitions, sends every shard its cells, and returns public totals. Shards take a partition once,
so a task whose outcome is unknown is repeated as a whole.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.algorithms.auto import DistinctCount
from panstream.core.estimate import Estimate
from panstream.distributed.sharded._coordinator import ClusterEngine
from panstream.distributed.sharded._dask_reading import DaskRunner
from panstream.distributed.sharded._dask_transport import (
    RETRY_DELAYS,
    TRANSIENT_ERRORS,
    DaskTransport,
    ShardAnswer,
    call_shard,
    failure_answer,
)
from panstream.distributed.sharded._ordered_feed import feed_in_order
from panstream.distributed.sharded._outgoing_queue import sends_rows
from panstream.distributed.sharded._worker_reading import (
    MAX_SKIPPED_NUMBERS,
    MIN_TASK_ROWS,
    Partition,
    ReadPlan,
    Totals,
    can_read_on_workers,
    needs_stream_time,
    plan_read_tasks,
)
from panstream.distributed.sharded.dask_setup import check_client
from panstream.engine.config.config import Config, read_config
from panstream.engine.rows.row_batch import RowSchema
from panstream.engine.runtime.ingest import IngestResult, Tick
from panstream.engine.sources.input_files import InputFile
from panstream.errors import BadRowError, ClusterError, ConfigError, InvalidParameter, PanstreamError, SourceError

_TASKS_PER_WORKER = 2  # one is read while the shards apply the other
# A shard whose call was lost has answered a status call before the task is repeated, and the second attempt is made
# from this process: only a fault that no retry can mend lasts this long.
_MAX_ATTEMPTS = 20

Task = Sequence[Partition]
Actors = Mapping[int, Any]


@dataclass(slots=True, kw_only=True)
class _TaskResult:
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


def _ingest(plan: ReadPlan, task: Task, actors: Actors, table: Any = None) -> _TaskResult:
    """Read partitions and send every shard its part; without ``lost`` or ``rejected``, all shards have it durable.

    ``actors`` are the shards', or their addresses and keys: a task that was given actors would wait for their workers.
    Errors are returned as text: an exception would carry rows in its traceback.
    """
    try:
        routed = plan.reader().route(task, table)
    except PanstreamError as error:
        return _TaskResult(refused=(type(error).__name__, str(error), getattr(error, "row", None)))
    except Exception as error:
        return _TaskResult(refused=(type(error).__name__, f"{task[0].name} cannot be read", None))
    try:
        names = [partition.name for partition in task]
        started = [_start_call(actors.get(shard), (names, shard_work)) for shard, shard_work in enumerate(routed.work)]
        _secede(actors)
        answers = {shard: _answer(call) for shard, call in enumerate(started)}
        failed = {shard: answer for shard, answer in answers.items() if answer[0] != "ok"}
        totals = [(name, total.copy(), events.copy()) for name, (total, events) in routed.totals.items()]
        result = _TaskResult(totals=[] if failed else totals)
        result.lost = [shard for shard, (word, _) in failed.items() if word == "lost" or word in TRANSIENT_ERRORS]
        result.rejected = next(
            ((shard, str(value)) for shard, (_, value) in failed.items() if shard not in result.lost), None
        )
        result.counts[:] = routed.rows, routed.skipped_count
        result.skipped[: len(routed.skipped)] = routed.skipped
        return result
    finally:
        routed.wipe()


def _ingest_frame(frame: Any, plan: ReadPlan, actors: Actors, name: str) -> _TaskResult:
    """Ingest one pandas partition of a Dask DataFrame."""
    import pyarrow as pa

    columns = list(RowSchema.of(plan.config.stream, plan.config.needed_columns).columns)
    table = pa.Table.from_pandas(frame[columns], preserve_index=False)
    return _ingest(plan, [Partition(name=name)], actors, table)


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


def run(config: Config, frame: Any, *, client: Any = None, shards: int | None = None, **options: Any) -> dict[str, Any]:
    """Run the queries of ``config`` over a Dask DataFrame and return the last release of every query, by name.

    Workers read their own partitions; only cells are sent between processes, or items of an open domain. A frame made
    from data in this process (``from_pandas``) has that data in Dask's task graph, where the scheduler sees it: read
    from files instead.

    Args:
        config: The queries; none may need a clock (``every``, ``window``).
        frame: The Dask DataFrame.
        client: A Dask client made with ``direct_to_workers=True``; by default the current one.
        shards: Number of shards; by default one per worker.
        options: Further arguments of the engine.
    """
    if not can_read_on_workers(config):
        raise ConfigError("queries with every or window need the rows in order: use panstream run --cluster on files")
    transport = _borrowed_transport(client, shards)
    with ClusterEngine(config, transport, **options) as engine:
        _feed_frame(engine, transport, frame, zero_noise=bool(options.get("zero_noise")))
        engine.finish()
        return {release.query: release for release in engine.log.history()}


def distinct(
    frame: Any,
    column: str,
    *,
    epsilon: float,
    expected: int | None = None,
    memory: int | None = None,
    key: int = 0,
    client: Any = None,
    shards: int | None = None,
) -> Estimate:
    """Count the different values in a column of a Dask DataFrame; the state on the workers is noisy throughout.

    The values are users' ids: whole numbers, strings or bytes. See `DistinctCount` for the other parameters.
    """
    question = DistinctCount(epsilon, expected=expected, memory=memory, key=key, mergeable=True)
    if column not in frame.columns:
        raise InvalidParameter(f"the frame has no column {column!r}")
    kind = "int" if getattr(frame[column].dtype, "kind", "") in "iu" else "string"
    query: dict[str, Any] = {
        "name": "distinct",
        "sql": f'SELECT COUNT(DISTINCT "{column}") FROM lake',
        "epsilon": epsilon,
    }
    query |= {name: value for name, value in (("expected", expected), ("memory", memory), ("key", key)) if value}
    config = read_config({"stream": {"name": "lake", "user": column, "columns": {column: kind}}, "query": [query]})
    transport = _borrowed_transport(client, shards)
    with ClusterEngine(config, transport) as engine:
        _feed_frame(engine, transport, frame)
        estimate = engine.estimate("distinct")
    assert estimate.claim.epsilon <= question.claim().epsilon
    return estimate


def _borrowed_transport(client: Any, shards: int | None) -> DaskTransport:
    """Return a transport to shards on the workers of the caller's client, which stays open."""
    from distributed import get_client

    chosen = get_client() if client is None else client
    if not chosen.direct_to_workers:
        raise InvalidParameter("client must be made with direct_to_workers=True: cells must not pass the scheduler")
    check_client(chosen)
    return DaskTransport(lambda: chosen, shards or max(1, len(chosen.ncores())), borrowed=True)


def _feed_frame(
    engine: ClusterEngine, transport: DaskTransport, frame: Any, *, zero_noise: bool = False
) -> IngestResult:
    """Ingest a Dask DataFrame: its Parquet files where it is just their rows, else its partitions as pandas frames."""
    from dask.delayed import delayed

    plan = ReadPlan(config=engine.config, shards=transport.shards, zero_noise=zero_noise)
    files = _files_of(frame, sorted(plan.config.needed_columns))
    if files is not None:
        return feed_files(engine, transport, plan, [part for file in files for part in Partition.of_file(file)], None)
    by_name = {f"partition {number}": part for number, part in enumerate(frame.to_delayed())}

    def submit(client: Any, task: Task, actors: Actors) -> Any:
        name = task[0].name
        delayed_task = delayed(_ingest_frame, pure=False)(by_name[name], plan, _addresses(actors), name)
        return client.compute(delayed_task, optimize_graph=True, retries=0)

    def here(task: Task, actors: Actors) -> _TaskResult:
        return _ingest_frame(by_name[task[0].name].compute(scheduler="sync"), plan, actors, task[0].name)

    return _feed_tasks(engine, transport, [[Partition(name=name)] for name in by_name], submit, here)


def feed_files(
    engine: ClusterEngine, transport: DaskTransport, plan: ReadPlan, partitions: Sequence[Partition], tick: Tick | None
) -> IngestResult:
    """Ingest files and ranges of row groups, without those that the engine has."""
    if needs_stream_time(engine.config):
        return feed_in_order(engine, DaskRunner(plan, transport), partitions, tick)

    def submit(client: Any, task: Task, actors: Actors) -> Any:
        key = f"panstream-read-{uuid.uuid4().hex[:12]}"
        return client.submit(_ingest, plan, task, _addresses(actors), key=key, pure=False, retries=0)

    def here(task: Task, actors: Actors) -> _TaskResult:
        return _ingest(plan, task, actors)

    large = not any(sends_rows(plan.algorithm, transport.shards, MIN_TASK_ROWS) for plan in engine.plans)
    fresh = [partition for partition in partitions if not engine.partition_is_applied(partition.name)]
    tasks = plan_read_tasks(fresh, transport.shards, large=large, alone=engine.partitions_in_progress())
    return _feed_tasks(engine, transport, tasks, submit, here, tick)


def _feed_tasks(
    engine: ClusterEngine,
    transport: DaskTransport,
    tasks: Iterable[Task],
    submit: Callable[[Any, Task, Actors], Any],
    here: Callable[[Task, Actors], _TaskResult],
    tick: Tick | None = None,
) -> IngestResult:
    """Run tasks on the workers, or in this process where a worker failed; each partition counts once.

    Raises:
        ClusterError: If a shard cannot apply a partition, or a task failed _MAX_ATTEMPTS times.
        SourceError: If a partition cannot be read.
    """
    ingested = IngestResult()
    waiting = [(task, 0) for task in tasks if not all(engine.partition_is_applied(part.name) for part in task)]
    count = len(waiting)
    running: list[tuple[Task, int, Any]] = []
    while waiting or running:
        actors = transport.actors
        client = transport.client
        while waiting and len(running) < _TASKS_PER_WORKER * max(1, len(actors)):
            task, attempts = waiting.pop(0)
            future = None
            with contextlib.suppress(OSError, RuntimeError, TimeoutError):
                # Workers that cannot reach each other may both be reachable from this process.
                future = here(task, actors) if attempts else submit(client, task, actors)
            running.append((task, attempts, future))
        task, attempts, future = running.pop(
            next((index for index, (_, _, task_future) in enumerate(running) if _is_done(task_future)), 0)
        )
        result = _result(future)
        if result is not None and result.rejected is not None:
            shard, reason = result.rejected
            raise ClusterError(f"shard {shard} cannot apply {task[0].name}: {reason}")
        if result is None or result.lost:
            lost = [] if result is None else result.lost
            _wait_before_retry(transport, task, attempts, lost)
            waiting.append((task, attempts + 1))
            continue
        if result.refused is not None:
            name, message, row = result.refused
            raise SourceError(message) if name != "BadRowError" or row is None else BadRowError(message, row=row)
        engine.record_partitions([part.name for part in task], result.totals)
        rows, skipped = result.counts.tolist()
        numbers = result.skipped[result.skipped >= 0]
        ingested.rows += rows
        ingested.batches += 1
        ingested.note(numbers, numbers[:0])
        ingested.skipped_count += skipped - len(numbers)
        if tick is not None:
            tick(ingested.rows, ingested.batches / count)
    engine.commit()
    return ingested


def _wait_before_retry(transport: DaskTransport, task: Task, attempts: int, lost: Sequence[int]) -> None:
    """Wait until the lost shards answer again, or raise ClusterError after the last attempt."""
    if attempts + 1 >= _MAX_ATTEMPTS:
        reason = f"shard {lost[0]} did not acknowledge it" if lost else "its task ended without a result"
        raise ClusterError(f"{task[0].name} was not ingested after {_MAX_ATTEMPTS} attempts: {reason}")
    for shard in lost:
        transport.check(shard)
    if attempts:
        time.sleep(RETRY_DELAYS[min(attempts, len(RETRY_DELAYS)) - 1])


def _addresses(actors: Actors) -> dict[int, tuple[str, str]]:
    return {shard: (actor._address, actor.key) for shard, actor in actors.items()}


def _is_done(future: Any) -> bool:
    return future is None or isinstance(future, _TaskResult) or future.done()


def _result(future: Any) -> _TaskResult | None:
    if future is None or isinstance(future, _TaskResult):
        return future
    try:
        result: _TaskResult = future.result()
        return result
    except (Exception, asyncio.CancelledError):
        return None  # whatever the worker lacked, this process may have: the next attempt is made here
    finally:
        future.release()


def _files_of(frame: Any, columns: Sequence[str]) -> list[InputFile] | None:
    """Return the local Parquet files that a Dask DataFrame consists of; None if it is anything else than their rows."""
    expression = frame.optimize(fuse=False).expr
    kind = type(expression).__name__
    if kind not in ("ReadParquetFSSpec", "ReadParquetPyarrowFS"):
        return None
    if expression.operand("filters") or expression.operand("_partitions") is not None:
        return None
    if kind == "ReadParquetFSSpec":
        dataset_info = expression._dataset_info
        local = type(dataset_info["fs"]).__name__ == "LocalFileSystem"
        schema = dataset_info["physical_schema"]
        files = list(dataset_info["ds"].files)
    else:
        local = type(expression.fs).__name__ == "LocalFileSystem"
        fragments = expression.fragments
        schema = fragments[0].physical_schema
        files = sorted(fragment.path for fragment in fragments)
    if not local or not all(name in schema.names for name in columns):
        return None
    return [InputFile(path=Path(file), format="parquet", name=file) for file in files]
