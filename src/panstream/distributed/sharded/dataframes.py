"""Whole data sets on a cluster: a configuration over a Dask DataFrame, and the number of distinct users of a column."""

from __future__ import annotations

import contextlib
import uuid
from asyncio import CancelledError
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.algorithms.auto import DistinctCount
from panstream.core.estimate import Estimate
from panstream.distributed.sharded._coordinator import ClusterEngine
from panstream.distributed.sharded._dask_link import DaskTransport
from panstream.distributed.sharded._outgoing_queue import sends_rows
from panstream.distributed.sharded._worker_reading import (
    LEAST_ROWS,
    MOST_NUMBERS,
    Partition,
    ReadPlan,
    Totals,
    can_read_on_workers,
    plan_read_tasks,
)
from panstream.distributed.sharded.dask_setup import check_client
from panstream.engine.config.config import Config, read_config
from panstream.engine.rows.row_batch import RowSchema
from panstream.engine.runtime.ingest import IngestResult, Tick
from panstream.engine.sources.input_files import InputFile
from panstream.errors import BadRowError, ConfigError, InvalidParameter, PanstreamError, SourceError


@dataclass(slots=True, kw_only=True)
class _TaskResult:
    """What became of a task, in as many bytes whatever its rows hold.

    ``counts`` are the rows read and the rows that some query could not use, ``skipped`` the first numbers of these
    and then -1. ``totals`` is what the task adds to states that stay whole.
    """

    counts: NDArray[np.int64] = field(default_factory=lambda: np.zeros(2, np.int64))
    skipped: NDArray[np.int64] = field(default_factory=lambda: np.full(MOST_NUMBERS, -1))
    totals: Totals = field(default_factory=list)
    lost: list[int] = field(default_factory=list)  # shards that could not be reached: nothing counts yet
    refused: tuple[str, str, int | None] | None = None  # class and message of an error, and a row's number


def _ingest(plan: ReadPlan, task: Sequence[Partition], actors: Mapping[int, Any], table: Any = None) -> _TaskResult:
    """Read partitions and give every shard its part; when this returns without ``lost``, all have it durable.

    ``actors`` are the shards', or their addresses and keys: a task that was given actors would wait for their workers.
    Errors come back as words: an exception would carry rows in its traceback.
    """
    try:
        routed = plan.reader().cut(task, table)
    except PanstreamError as error:
        return _TaskResult(refused=(type(error).__name__, str(error), getattr(error, "row", None)))
    except Exception as error:
        return _TaskResult(refused=(type(error).__name__, f"{task[0].name} cannot be read", None))
    try:
        names = [partition.name for partition in task]
        started = [_start(actors.get(shard), (names, shard_work)) for shard, shard_work in enumerate(routed.work)]
        _secede(actors)
        lost = [shard for shard, future in enumerate(started) if not _acknowledged(future)]
        totals = [(name, total.copy(), events.copy()) for name, (total, events) in routed.totals.items()]
        answer = _TaskResult(totals=[] if lost else totals, lost=lost)
        answer.counts[:] = routed.rows, routed.skipped_count
        answer.skipped[: len(routed.skipped)] = routed.skipped
        return answer
    finally:
        routed.wipe()


def _ingest_frame(frame: Any, plan: ReadPlan, actors: Mapping[int, Any], name: str) -> _TaskResult:
    """Take one pandas partition of a Dask DataFrame."""
    import pyarrow as pa

    columns = list(RowSchema.of(plan.config.stream, plan.config.needed_columns).columns)
    table = pa.Table.from_pandas(frame[columns], preserve_index=False)
    return _ingest(plan, [Partition(name=name)], actors, table)


def _start(actor: Any, arguments: tuple[Any, ...]) -> Any:
    try:
        if isinstance(actor, tuple):
            address, key = actor
            return _call_actor(address, key, arguments)
        return None if actor is None else actor.call("apply_partition", arguments)
    except Exception:
        return None


def _call_actor(address: str, key: str, arguments: tuple[Any, ...]) -> Any:
    """Call an actor from a task. Dask's own proxy waits for ever where its worker is up but cannot be reached."""
    import asyncio

    import dask
    from dask.utils import parse_timedelta
    from distributed import get_worker
    from distributed.protocol.serialize import to_serialize

    worker = get_worker()
    patience = 2 * parse_timedelta(dask.config.get("distributed.comm.timeouts.tcp"))

    async def call() -> Any:
        serialized = [to_serialize(argument) for argument in ("apply_partition", arguments)]  # type: ignore[no-untyped-call]
        answer = await asyncio.wait_for(
            worker.rpc(address).actor_execute(function="call", actor=key, args=serialized, kwargs={}), patience
        )
        return answer["result"] if answer["status"] == "OK" else ("failed", "")

    return asyncio.run_coroutine_threadsafe(call(), worker.loop.asyncio_loop)  # type: ignore[attr-defined]


def _secede(actors: Mapping[int, Any]) -> None:
    """Give up the worker's place for computing: from here on this task only waits, and the next one may read."""
    if any(isinstance(actor, tuple) for actor in actors.values()):
        from distributed import secede

        secede()  # type: ignore[no-untyped-call]


def _acknowledged(future: Any) -> bool:
    try:
        return future is not None and future.result()[0] == "ok"
    except Exception:
        return False


_AT_A_TIME = 2  # tasks under way for each worker: one is read while the shards take in the other

Task = Sequence[Partition]
Actors = Mapping[int, Any]


def run(config: Config, frame: Any, *, client: Any = None, shards: int | None = None, **options: Any) -> dict[str, Any]:
    """Run the queries of ``config`` over a Dask DataFrame and return the last answer of every query, by name.

    Workers take their own partitions; only cells travel, or names where nobody listed them. Queries must not need a
    clock (``every``, ``window``). ``client`` is a Dask client made with ``direct_to_workers=True``, by default the
    current one. A frame made from data in this process (``from_pandas``) has that data in Dask's task graph, where the
    scheduler sees it: read from files instead.
    """
    if not can_read_on_workers(config):
        raise ConfigError("queries with every or window need the rows in order: use panstream run --cluster on files")
    link = _link(client, shards)
    with ClusterEngine(config, link, **options) as engine:
        _feed_frame(engine, link, frame, zero_noise=bool(options.get("zero_noise")))
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
    """Return how many different values a column of a Dask DataFrame has, with a noisy state on the workers meanwhile.

    The values are users' ids: whole numbers, strings or bytes. See `DistinctCount` for
    the rest.
    """
    question = DistinctCount(epsilon, expected=expected, memory=memory, key=key)
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
    link = _link(client, shards)
    with ClusterEngine(config, link) as engine:
        _feed_frame(engine, link, frame)
        estimate = engine.estimate("distinct")
    assert estimate.claim.epsilon <= question.claim().epsilon
    return estimate


def _link(client: Any, shards: int | None) -> DaskTransport:
    """Return the way to shards on the workers of a client that somebody else has made."""
    from distributed import get_client

    chosen = get_client() if client is None else client
    if not chosen.direct_to_workers:
        raise InvalidParameter("client must be made with direct_to_workers=True: cells must not pass the scheduler")
    check_client(chosen)
    return DaskTransport(lambda: chosen, shards or max(1, len(chosen.ncores())), borrowed=True)


def _feed_frame(engine: ClusterEngine, link: DaskTransport, frame: Any, *, zero_noise: bool = False) -> IngestResult:
    """Feed a Dask DataFrame: its Parquet files where it is just their rows, else its partitions as pandas frames."""
    from dask.delayed import delayed

    plan = ReadPlan(config=engine.config, shards=link.shards, zero_noise=zero_noise)
    files = _files_of(frame, sorted(plan.config.needed_columns))
    if files is not None:
        return feed_files(engine, link, plan, [part for file in files for part in Partition.of_file(file)], None)
    by_name = {f"partition {number}": part for number, part in enumerate(frame.to_delayed())}

    def submit(client: Any, task: Task, actors: Actors) -> Any:
        name = task[0].name
        delayed_task = delayed(_ingest_frame, pure=False)(by_name[name], plan, _addresses(actors), name)
        return client.compute(delayed_task, optimize_graph=True, retries=0)

    def here(task: Task, actors: Actors) -> _TaskResult:
        return _ingest_frame(by_name[task[0].name].compute(scheduler="sync"), plan, actors, task[0].name)

    return _feed_tasks(engine, link, [[Partition(name=name)] for name in by_name], submit, here)


def feed_files(
    engine: ClusterEngine, link: DaskTransport, plan: ReadPlan, partitions: Sequence[Partition], tick: Tick | None
) -> IngestResult:
    """Feed files and stretches of row groups."""

    def submit(client: Any, task: Task, actors: Actors) -> Any:
        key = f"panstream-read-{uuid.uuid4().hex[:12]}"
        return client.submit(_ingest, plan, task, _addresses(actors), key=key, pure=False, retries=0)

    def here(task: Task, actors: Actors) -> _TaskResult:
        return _ingest(plan, task, actors)

    large = not any(sends_rows(plan.algorithm, link.shards, LEAST_ROWS) for plan in engine.plans)
    fresh = [partition for partition in partitions if not engine.partition_is_applied(partition.name)]
    tasks = plan_read_tasks(fresh, link.shards, large=large, alone=engine.partitions_in_progress())
    return _feed_tasks(engine, link, tasks, submit, here, tick)


def _feed_tasks(
    engine: ClusterEngine,
    link: DaskTransport,
    tasks: Iterable[Task],
    submit: Callable[[Any, Task, Actors], Any],
    here: Callable[[Task, Actors], _TaskResult],
    tick: Tick | None = None,
) -> IngestResult:
    """Have workers do tasks, or this process where they could not; each counts once, whatever is lost on the way."""
    fed = IngestResult()
    waiting = [(task, True) for task in tasks if not all(engine.partition_is_applied(part.name) for part in task)]
    count = len(waiting)
    done = 0
    running: list[tuple[Task, Any]] = []
    while waiting or running:
        actors = link.actors
        client = link.client
        while waiting and len(running) < _AT_A_TIME * max(1, len(actors)):
            task, first = waiting.pop(0)
            future = None
            with contextlib.suppress(OSError, RuntimeError, TimeoutError):
                # Workers that cannot reach each other may both reach us.
                future = submit(client, task, actors) if first else here(task, actors)
            running.append((task, future))
        task, future = running.pop(
            next((index for index, (_, task_future) in enumerate(running) if _is_done(task_future)), 0)
        )
        result = _result(future)
        if result is None or result.lost:
            for shard in () if result is None else result.lost:
                link.check(shard)
            waiting.append((task, False))
            continue
        if result.refused is not None:
            name, message, row = result.refused
            raise SourceError(message) if name != "BadRowError" or row is None else BadRowError(message, row=row)
        engine.record_partitions([part.name for part in task], result.totals)
        done += 1
        rows, skipped = result.counts.tolist()
        numbers = result.skipped[result.skipped >= 0]
        fed.rows = fed.rows + rows
        fed.batches = fed.batches + 1
        fed.note(numbers, numbers[:0])
        fed.skipped_count += skipped - len(numbers)
        if tick is not None:
            tick(fed.rows, done / count)
    engine.commit()
    return fed


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
    except (Exception, CancelledError):
        return None
    finally:
        future.release()


def _files_of(frame: Any, columns: Sequence[str]) -> list[InputFile] | None:
    """Return the local Parquet files that a Dask DataFrame consists of, None if it is anything else than their rows."""
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
