"""Whole data sets on a cluster: a configuration over a Dask DataFrame, and the number of distinct users of a column."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from panstream.cluster.access import check_client
from panstream.cluster.coordinator import ClusterEngine
from panstream.cluster.dask_link import DaskLink
from panstream.cluster.ingest import Ingested, ingest, ingest_frame
from panstream.cluster.partitions import Partition, can_read_apart, files_of, stretches, tasks_of
from panstream.cluster.reading import Job
from panstream.divisible import Divisible
from panstream.engine.config import Config, read_config
from panstream.engine.run import Fed, Tick
from panstream.errors import BadRowError, ConfigError, FeedError, InvalidParameter
from panstream.estimate import Estimate
from panstream.statistics import DistinctCount

__all__ = ["distinct", "feed_files", "run"]

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
