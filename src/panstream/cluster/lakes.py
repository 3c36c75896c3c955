"""Whole data sets on a cluster: a configuration over a Dask DataFrame, and the number of distinct users of a column."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.cluster.coordinator import ClusterEngine
from panstream.cluster.dask_link import DaskLink
from panstream.cluster.dask_setup import check_client
from panstream.cluster.reading import (
    MOST_NUMBERS,
    Job,
    Partition,
    Totals,
    can_read_apart,
    files_of,
    reader_of,
    stretches,
    tasks_of,
)
from panstream.divisible import Divisible
from panstream.engine.config import Config, read_config
from panstream.engine.plan import needed_columns
from panstream.engine.rows import RowSchema
from panstream.engine.run import Fed, Tick
from panstream.errors import BadRowError, ConfigError, FeedError, InvalidParameter, PanstreamError
from panstream.estimate import Estimate
from panstream.statistics import DistinctCount

__all__ = ["Ingested", "distinct", "feed_files", "ingest", "ingest_frame", "run"]


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


_AT_A_TIME = 2  # tasks under way for each worker: one is read while the shards take in the other

Task = Sequence[Partition]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reading:
    """How tasks are done by workers, and how by this process if they cannot."""

    submit: Callable[[Any, Task, dict[int, Any]], Any]
    here: Callable[[Task, dict[int, Any]], Ingested]


def run(config: Config, frame: Any, *, client: Any = None, shards: int | None = None, **options: Any) -> dict[str, Any]:
    """Run the queries of ``config`` over a Dask DataFrame and return the last answer of every query, by name.

    Workers take their own partitions; only cells travel. Queries must not need a clock (``every``, ``window``). ``client``
    is a Dask client made with ``direct_to_workers=True``, by default the current one. A frame made from data in this process
    (``from_pandas``) has that data in Dask's task graph, where the scheduler sees it: read from files instead.
    """
    if not can_read_apart(config):
        raise ConfigError("queries with every or window need the rows in order: use panstream run --cluster on files")
    chosen = _client(client)
    link = DaskLink(lambda: chosen, shards or max(1, len(chosen.ncores())))
    link.borrowed = True
    with ClusterEngine(config, link, **options) as engine:
        job = Job(name=uuid.uuid4().hex, config=config, shards=link.shards, zero_noise=bool(options.get("zero_noise")))
        feed_frame(engine, link, job, frame)
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

    The values are users' ids: whole numbers, strings or bytes. See :class:`panstream.statistics.DistinctCount` for the rest.
    """
    question = DistinctCount(epsilon, expected=expected, memory=memory, key=key)
    kind = _kind(frame, column)
    query: dict[str, Any] = {
        "name": "distinct",
        "sql": f'SELECT COUNT(DISTINCT "{column}") FROM lake',
        "epsilon": epsilon,
    }
    query |= {name: value for name, value in (("expected", expected), ("memory", memory), ("key", key)) if value}
    config = read_config({"stream": {"name": "lake", "user": column, "columns": {column: kind}}, "query": [query]})
    chosen = _client(client)
    link = DaskLink(lambda: chosen, shards or max(1, len(chosen.ncores())))
    link.borrowed = True
    with ClusterEngine(config, link) as engine:
        job = Job(name=uuid.uuid4().hex, config=config, shards=link.shards)
        feed_frame(engine, link, job, frame)
        estimate = engine.estimate("distinct")
    assert estimate.claim.epsilon <= question.claim().epsilon
    return estimate


def feed_frame(engine: ClusterEngine, link: DaskLink, job: Job, frame: Any) -> Fed:
    """Feed a Dask DataFrame: its Parquet files where it is just their rows, else its partitions as pandas frames."""
    from dask.delayed import delayed

    from panstream.engine.plan import needed_columns

    files = files_of(frame, sorted(needed_columns(job.config)))
    if files is not None:
        return feed_files(engine, link, job, [part for file in files for part in stretches(file)], None)
    parts = frame.to_delayed()
    names = [Partition(name=f"partition {number}") for number in range(len(parts))]
    by_name = dict(zip((name.name for name in names), parts, strict=True))

    def submit(client: Any, task: Task, actors: dict[int, Any]) -> Any:
        name = task[0].name
        made = delayed(ingest_frame, pure=False)(by_name[name], job, _addresses(actors), name)
        return client.compute(made, optimize_graph=True, retries=0)

    def here(task: Task, actors: dict[int, Any]) -> Ingested:
        return ingest_frame(by_name[task[0].name].compute(scheduler="sync"), job, actors, task[0].name)

    return feed_tasks(engine, link, [[name] for name in names], _Reading(submit=submit, here=here))


def feed_files(
    engine: ClusterEngine, link: DaskLink, job: Job, partitions: Sequence[Partition], tick: Tick | None
) -> Fed:
    """Feed files and stretches of row groups."""

    def submit(client: Any, task: Task, actors: dict[int, Any]) -> Any:
        key = f"panstream-read-{uuid.uuid4().hex[:12]}"
        return client.submit(ingest, job, task, _addresses(actors), key=key, pure=False, retries=0)

    def here(task: Task, actors: dict[int, Any]) -> Ingested:
        return ingest(job, task, actors)

    algorithms = [plan.algorithm for plan in engine.plans]
    large = all(not isinstance(algorithm, Divisible) or algorithm.only_touched for algorithm in algorithms)
    fresh = [partition for partition in partitions if not engine.seen_apart(partition.name)]
    tasks = tasks_of(fresh, link.shards, large=large, alone=engine.begun_apart())
    return feed_tasks(engine, link, tasks, _Reading(submit=submit, here=here), tick)


def feed_tasks(
    engine: ClusterEngine, link: DaskLink, tasks: Iterable[Task], reading: _Reading, tick: Tick | None = None
) -> Fed:
    """Have workers do tasks; each counts once, whatever is lost on the way."""
    fed = Fed()
    waiting = [(task, 1) for task in tasks if not all(engine.seen_apart(part.name) for part in task)]
    count, done = len(waiting), 0
    running: list[tuple[Task, int, Any]] = []
    while waiting or running:
        actors, client = link.actors, link.client
        while waiting and len(running) < _AT_A_TIME * max(1, len(actors)):
            task, attempt = waiting.pop(0)
            running.append((task, attempt, _submitted(reading, client, task, actors, attempt)))
        task, attempt, future = running.pop(_ready(running))
        result = _result(future)
        if result is None or result.lost:
            for shard in () if result is None else result.lost:
                link.check(shard)
            waiting.append((task, attempt + 1))
            continue
        if result.refused is not None:
            raise _error(*result.refused)
        engine.absorbed([part.name for part in task], result.totals)
        done += 1
        rows, skipped = result.counts.tolist()
        numbers = result.skipped[result.skipped >= 0].tolist()
        fed.rows, fed.batches = fed.rows + rows, fed.batches + 1
        fed.note(numbers, ())
        fed.skipped_count += skipped - len(numbers)
        if tick is not None:
            tick(fed.rows, done / count)
    engine.commit()
    return fed


def _ready(running: list[tuple[Task, int, Any]]) -> int:
    """Return which of the tasks under way is done, the first if none is."""
    for place, (_, _, future) in enumerate(running):
        if future is None or isinstance(future, Ingested) or future.done():
            return place
    return 0


def _submitted(reading: _Reading, client: Any, task: Task, actors: dict[int, Any], attempt: int) -> Any:
    try:
        # Workers that cannot reach each other may both reach us.
        return reading.here(task, actors) if attempt > 1 else reading.submit(client, task, actors)
    except (OSError, RuntimeError, TimeoutError):
        return None


def _addresses(actors: dict[int, Any]) -> dict[int, tuple[str, str]]:
    return {shard: (actor._address, actor.key) for shard, actor in actors.items()}


def _result(future: Any) -> Ingested | None:
    if future is None or isinstance(future, Ingested):
        return future
    from asyncio import CancelledError

    try:
        found: Ingested = future.result()
        return found
    except (Exception, CancelledError):
        return None
    finally:
        future.release()


def _error(name: str, message: str, row: int | None) -> Exception:
    if name == "BadRowError" and row is not None:
        return BadRowError(message, row=row)
    return FeedError(message)


def _client(client: Any) -> Any:
    from distributed import get_client

    chosen = get_client() if client is None else client
    if not chosen.direct_to_workers:
        raise InvalidParameter("client must be made with direct_to_workers=True: cells must not pass the scheduler")
    check_client(chosen)
    return chosen


def _kind(frame: Any, column: str) -> str:
    if column not in frame.columns:
        raise InvalidParameter(f"the frame has no column {column!r}")
    dtype = frame[column].dtype
    return "int" if getattr(dtype, "kind", "") in "iu" else "string"
