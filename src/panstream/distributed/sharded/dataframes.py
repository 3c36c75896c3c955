"""Files and Dask DataFrames that workers read themselves: `run`, `distinct`, `feed_files`.

A task reads some partitions, sends every shard its cells, and returns public totals. Shards take a partition once,
so a task whose outcome is unknown is repeated as a whole.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from panstream.algorithms.auto import DistinctCount
from panstream.core.estimate import Estimate
from panstream.distributed.sharded._coordinator import ClusterEngine
from panstream.distributed.sharded._dask_reading import DaskRunner
from panstream.distributed.sharded._dask_transport import (
    RETRY_DELAYS,
    DaskTransport,
)
from panstream.distributed.sharded._divided_states import divided_part
from panstream.distributed.sharded._ordered_feed import feed_in_order
from panstream.distributed.sharded._outgoing_queue import sends_rows
from panstream.distributed.sharded._partition_tasks import (
    Actors,
    Task,
    TaskResult,
    ingest_frame,
    ingest_partitions,
)
from panstream.distributed.sharded._worker_reading import (
    MIN_TASK_ROWS,
    TASKS_PER_WORKER,
    Partition,
    ReadPlan,
    can_read_on_workers,
    needs_stream_time,
    plan_read_tasks,
)
from panstream.distributed.sharded.dask_setup import check_client
from panstream.engine.config.config import Config, read_config
from panstream.engine.planner.person_division import load_divided_config
from panstream.engine.runtime.ingest import IngestResult, Tick
from panstream.engine.sources.input_files import InputFile
from panstream.errors import BadRowError, ClusterError, ConfigError, InvalidParameter, SourceError

# A shard whose call was lost has answered a status call before the task is repeated, and the second attempt is made
# from this process: only a fault that no retry can mend lasts this long.
_MAX_ATTEMPTS = 20


def run(
    config: Config | str | Path,
    frame: Any,
    *,
    client: Any = None,
    shards: int | None = None,
    history: bool = False,
    **options: Any,
) -> dict[str, Any]:
    """Run the queries of ``config`` over a Dask DataFrame and return the last release of every query, by name.

    Workers read their own partitions; only cells are sent between processes, or items of an open domain. A frame made
    from data in this process (``from_pandas``) has that data in Dask's task graph, where the scheduler sees it: read
    from files instead.

    Args:
        config: The configuration, or the path of its file. For queries with ``every`` or ``window`` the stream needs a
            ``time`` column, and the frame must consist of Parquet files, which are read in its order.
        frame: The Dask DataFrame.
        client: A Dask client made with ``direct_to_workers=True``; by default the current one.
        shards: Number of shards; by default one per worker.
        history: Return a list of all releases of every query, first to last, as those of windows.
        options: Further arguments of the engine.

    Raises:
        ConfigError: A query needs the rows in order, and workers cannot restore it.
    """
    loaded = config if isinstance(config, Config) else load_divided_config(config)
    files = _files_of(frame, sorted(loaded.needed_columns))
    timed = needs_stream_time(loaded)
    if timed and loaded.stream.time is None:
        raise ConfigError("queries with every or window need [stream] time, the column of event times, on a cluster")
    if timed and files is None:
        raise ConfigError(
            "queries with every or window need the rows in order, which this frame does not tell: pass "
            "dask.dataframe.read_parquet(...) of local files as it is, or use panstream run --cluster on files"
        )
    transport = _borrowed_transport(client, shards)
    with ClusterEngine(loaded, transport, **options) as engine:
        if not can_read_on_workers(loaded, engine.plans):
            raise ConfigError(
                'workers cannot restore the order of rows for these queries: [stream] on_bad_row must be "skip", and '
                "RETENTION, or moments in many answers, need panstream run --cluster on files"
            )
        engine.declare("files")
        _feed_frame(engine, transport, frame, zero_noise=bool(options.get("zero_noise")))
        engine.finish()
        releases: dict[str, list[Any]] = {}
        for release in engine.log.history():
            releases.setdefault(release.query, []).append(release)
        return releases if history else {query: answers[-1] for query, answers in releases.items()}


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

    Args:
        frame: The data frame.
        column: The column of ids.
        epsilon: Total privacy loss.
        expected: About how many different values there are.
        memory: Bytes that the cells may take.
        key: Public number that chooses the hash function.
        client: The Dask client; the current one by default.
        shards: Number of shards of the state; one per worker by default.
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
        delayed_task = delayed(ingest_frame, pure=False)(by_name[name], plan, _addresses(actors), name)
        return client.compute(delayed_task, optimize_graph=True, retries=0)

    def here(task: Task, actors: Actors) -> TaskResult:
        return ingest_frame(by_name[task[0].name].compute(scheduler="sync"), plan, actors, task[0].name)

    return _feed_tasks(engine, transport, [[Partition(name=name)] for name in by_name], submit, here)


def feed_files(
    engine: ClusterEngine, transport: DaskTransport, plan: ReadPlan, partitions: Sequence[Partition], tick: Tick | None
) -> IngestResult:
    """Ingest files and ranges of row groups, without those that the engine has."""
    if needs_stream_time(engine.config):
        return feed_in_order(engine, DaskRunner(plan, transport), partitions, tick)

    def submit(client: Any, task: Task, actors: Actors) -> Any:
        key = f"panstream-read-{uuid.uuid4().hex[:12]}"
        return client.submit(ingest_partitions, plan, task, _addresses(actors), key=key, pure=False, retries=0)

    def here(task: Task, actors: Actors) -> TaskResult:
        return ingest_partitions(plan, task, actors)

    large = not any(sends_rows(divided_part(plan.algorithm), transport.shards, MIN_TASK_ROWS) for plan in engine.plans)
    fresh = [partition for partition in partitions if not engine.partition_is_applied(partition.name)]
    tasks = plan_read_tasks(fresh, transport.shards, large=large, alone=engine.partitions_in_progress())
    return _feed_tasks(engine, transport, tasks, submit, here, tick)


def _feed_tasks(
    engine: ClusterEngine,
    transport: DaskTransport,
    tasks: Iterable[Task],
    submit: Callable[[Any, Task, Actors], Any],
    here: Callable[[Task, Actors], TaskResult],
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
        while waiting and len(running) < TASKS_PER_WORKER * max(1, len(actors)):
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
        engine.task_progress = (ingested.batches, count)
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
    return future is None or isinstance(future, TaskResult) or future.done()


def _result(future: Any) -> TaskResult | None:
    if future is None or isinstance(future, TaskResult):
        return future
    try:
        result: TaskResult = future.result()
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
