"""Whole data sets on a cluster: a configuration over a Dask DataFrame, and the number of distinct users of a column."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from panstream.cluster.coordinator import ClusterEngine
from panstream.cluster.dask_link import DaskLink
from panstream.cluster.reading import Ingested, Job, Partition, can_read_apart, ingest, ingest_frame
from panstream.engine import rows as row_errors
from panstream.engine.config import Config, ConfigError, read_config
from panstream.engine.run import Fed, Tick
from panstream.errors import InvalidParameter
from panstream.estimate import Estimate
from panstream.statistics import DistinctCount

__all__ = ["distinct", "feed_partitions", "run"]

_AT_A_TIME = 2  # partitions under way for each worker
_PARTS = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reading:
    """How partitions are read by workers, and how by this process if they cannot."""

    submit: Callable[[Any, Partition, dict[int, Any]], Any]
    here: Callable[[Partition, dict[int, Any]], Ingested]


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
    """Feed the partitions of a Dask DataFrame."""
    from dask.delayed import delayed

    parts = frame.to_delayed()
    names = [Partition(name=f"partition {number}") for number in range(len(parts))]
    by_name = dict(zip((name.name for name in names), parts, strict=True))

    def submit(client: Any, partition: Partition, actors: dict[int, Any]) -> Any:
        task = delayed(ingest_frame, pure=False)(by_name[partition.name], job, _addresses(actors), partition.name)
        return client.compute(task, optimize_graph=True, retries=0)

    def here(partition: Partition, actors: dict[int, Any]) -> Ingested:
        return ingest_frame(by_name[partition.name].compute(scheduler="sync"), job, actors, partition.name)

    return feed_partitions(engine, link, names, _Reading(submit=submit, here=here))


def feed_files(
    engine: ClusterEngine, link: DaskLink, job: Job, partitions: Sequence[Partition], tick: Tick | None
) -> Fed:
    """Feed files and stretches of row groups."""

    def submit(client: Any, partition: Partition, actors: dict[int, Any]) -> Any:
        key = f"panstream-read-{uuid.uuid4().hex[:12]}"
        return client.submit(ingest, job, partition, _addresses(actors), key=key, pure=False, retries=0)

    def here(partition: Partition, actors: dict[int, Any]) -> Ingested:
        return ingest(job, partition, actors)

    return feed_partitions(engine, link, partitions, _Reading(submit=submit, here=here), tick)


def feed_partitions(
    engine: ClusterEngine, link: DaskLink, partitions: Iterable[Partition], reading: _Reading, tick: Tick | None = None
) -> Fed:
    """Have workers read all partitions that were not read before; each counts once, whatever is lost on the way."""
    fed = Fed()
    everything = list(partitions)
    waiting = [partition for partition in everything if not engine.seen_apart(partition.name)]
    done, tries = len(everything) - len(waiting), {partition.name: 0 for partition in waiting}
    running: list[tuple[Partition, Any]] = []
    while waiting or running:
        actors, client = link.actors, link.client
        while waiting and len(running) < _AT_A_TIME * max(1, len(actors)):
            partition = waiting.pop(0)
            tries[partition.name] += 1
            running.append((partition, _submitted(reading, client, partition, actors, tries[partition.name])))
        partition, future = running.pop(0)
        result = _result(future)
        if result is None or result.lost:
            for shard in () if result is None else result.lost:
                link.check(shard)
            waiting.append(partition)
            continue
        if result.refused is not None:
            raise _error(*result.refused)
        engine.absorbed(partition.name, result.totals)
        done += 1
        fed.rows, fed.batches = fed.rows + result.rows, fed.batches + 1
        fed.note(result.skipped, ())
        fed.skipped_count += result.skipped_count - len(result.skipped)
        if tick is not None:
            tick(fed.rows, done / len(everything))
    engine.commit()
    return fed


def _submitted(reading: _Reading, client: Any, partition: Partition, actors: dict[int, Any], attempt: int) -> Any:
    try:
        # Workers that cannot reach each other may both reach us.
        return reading.here(partition, actors) if attempt > 1 else reading.submit(client, partition, actors)
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
        return row_errors.BadRowError(message, row=row)
    return row_errors.SourceError(message)


def _client(client: Any) -> Any:
    from distributed import get_client

    chosen = get_client() if client is None else client
    if not chosen.direct_to_workers:
        raise InvalidParameter("client must be made with direct_to_workers=True: cells must not pass the scheduler")
    return chosen


def _kind(frame: Any, column: str) -> str:
    if column not in frame.columns:
        raise InvalidParameter(f"the frame has no column {column!r}")
    dtype = frame[column].dtype
    return "int" if getattr(dtype, "kind", "") in "iu" else "string"
