"""A stream on a cluster from start to end: connect, open the engine, ingest, disconnect."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from panstream.distributed.sharded._coordinator import ClusterEngine
from panstream.distributed.sharded._dask_transport import DaskTransport
from panstream.distributed.sharded._resharding import read_shard_count
from panstream.distributed.sharded._tick_names import tick_of
from panstream.distributed.sharded._worker_reading import (
    MIN_TASK_ROWS,
    Partition,
    ReadPlan,
    can_read_on_workers,
    needs_stream_time,
)
from panstream.distributed.sharded.dask_setup import apply_hardened_config, local_cluster, security_for
from panstream.distributed.sharded.dataframes import feed_files
from panstream.engine.config.config import Config
from panstream.engine.planner.public_facts import ingestion_paths
from panstream.engine.rows.row_batch import RowSchema
from panstream.engine.runtime.ingest import IngestResult, Tick, ingest_all, open_configured_source
from panstream.engine.runtime.release_record import iso_timestamp
from panstream.engine.runtime.selector import Selector
from panstream.engine.sources.input_files import expand_paths
from panstream.engine.sources.kafka_ranges import KafkaTicks
from panstream.errors import InvalidParameter, NotSupported

_KAFKA_TICK = 0.2  # seconds at least: every tick asks the broker for the end of every partition, and is committed
_LIVE_SOURCES = ("redis://", "rediss://", "unix://", "kafka://")


def ingest(
    engine: ClusterEngine,
    inputs: Sequence[str],
    *,
    follow: bool = False,
    format: str | None = None,
    on_batch: Tick | None = None,
) -> IngestResult:
    """Ingest files on the workers, or in this process where workers cannot."""
    config = engine.config
    transport = engine.transport
    if any("://" in path and not path.startswith(_LIVE_SOURCES) for path in inputs):
        raise NotSupported(
            "a cluster reads files of local and shared disks, standard input, Redis and Kafka; read object stores and "
            "MQTT on one machine, or serve them"
        )
    by_partitions = len(inputs) == 1 and inputs[0].startswith("kafka://") and _can_read_kafka_on_workers(engine)
    source = open_configured_source(config, inputs, follow=follow, format=format)  # refuses what cannot be read
    engine.declare(*ingestion_paths(inputs, follow=follow))
    if by_partitions:
        from panstream.distributed.sharded._dask_ticks import DaskTickRunner
        from panstream.distributed.sharded._kafka_feed import feed_ticks

        assert isinstance(transport, DaskTransport)
        source.close()
        runner = DaskTickRunner(ReadPlan(config=config, shards=transport.shards), inputs[0], transport)
        return feed_ticks(engine, runner, _kafka_ticks(config, inputs[0]), on_batch)
    refuse_other_reader(engine)
    partitions = _partitions_for_workers(engine, inputs, follow=follow, format=format)
    if partitions:
        assert isinstance(transport, DaskTransport)
        source.close()
        plan = ReadPlan(config=config, shards=transport.shards)
        return feed_files(engine, transport, plan, partitions, on_batch)
    with Selector(config) as select:
        return ingest_all(engine, source, select, on_batch=on_batch)


def _can_read_kafka_on_workers(engine: ClusterEngine) -> bool:
    """Return whether workers may read partitions of a topic: rows bring their times, and none stops the stream."""
    stream = engine.config.stream
    return stream.time is not None and stream.on_bad_row == "skip" and can_read_on_workers(engine.config, engine.plans)


def refuse_other_reader(engine: ClusterEngine) -> None:
    """Raise NotSupported if workers were reading a topic when the last run ended: its tick must be read to its end."""
    begun = engine.task_in_progress
    if begun is not None and tick_of(begun["names"][0]) is not None:
        raise NotSupported(
            "workers were reading a topic when the last run ended: read it again with the same configuration first"
        )


def _kafka_ticks(config: Config, url: str) -> KafkaTicks:
    schema = RowSchema.of(config.stream, config.needed_columns)
    seconds = max(_KAFKA_TICK, config.step or 0.0, config.batch_time)
    return KafkaTicks(url, schema, batch_time=seconds, poll=seconds, batch_rows=config.batch_rows or MIN_TASK_ROWS)


def _partitions_for_workers(
    engine: ClusterEngine, inputs: Sequence[str], *, follow: bool, format: str | None
) -> list[Partition]:
    """Return what workers are to read; nothing where the coordinator reads.

    Workers record partitions, the coordinator rows of files, and neither knows what the other has read. So a stream
    goes on as it began.

    Raises:
        NotSupported: Workers have read some of the files, and cannot go on.
    """
    if any("://" in path for path in inputs):
        return []
    names = {file.name for file in expand_paths(list(inputs), format=format, must_exist=False)}  # type: ignore[arg-type]
    positions = engine.positions()
    by_workers = names & {name.rsplit("#", 1)[0] for name in positions if "#" in name}
    if follow or not can_read_on_workers(engine.config, engine.plans):
        if by_workers:
            raise NotSupported(
                f"workers have read {min(by_workers)}, and its rows would count again: read it without --follow and "
                'with on_bad_row = "skip", or start in a new directory'
            )
        return []
    if needs_stream_time(engine.config) and names & {*positions}:
        return []
    return Partition.of(inputs, format=format)


def describe_progress(engine: ClusterEngine) -> str:
    """Return the stream's name, tasks that are done, workers, and up to when windows are over; all of it is public."""
    parts = [engine.config.stream.name]
    done, count = engine.task_progress
    if count:
        parts.append(f"task {done} of {count}")
        assert isinstance(engine.transport, DaskTransport)
        parts.append(f"{engine.transport.worker_count} workers")
    if engine.closed_until is not None:
        parts.append(f"closed until {iso_timestamp(engine.closed_until)}")
    return ", ".join(parts)


@contextlib.contextmanager
def open_engines(
    config: Config,
    *,
    address: str | None = None,
    workers: int | None = None,
    shards: int | None = None,
    on_wait: Callable[[str], None] = lambda message: None,
    **options: Any,
) -> Iterator[Callable[..., ClusterEngine]]:
    """Yield a function that opens an engine on a cluster; call it again only after closing the engine it returned.

    Args:
        config: The stream's configuration.
        address: The scheduler; None for a local cluster of ``workers`` processes.
        workers: Number of local workers, or the number to wait for at ``address``.
        shards: Number of shards; by default as many as the directory has, else one per worker.
        on_wait: Called with a message when a shard has not answered for two seconds.
        options: Further arguments of the engine.
    """
    apply_hardened_config()
    from distributed import Client
    from distributed.utils import LoopRunner

    with contextlib.ExitStack() as stack:
        # All clients share one event loop: one that cannot connect would leave its own, and a thread, behind.
        runner = LoopRunner()
        runner.start()  # type: ignore[no-untyped-call]
        stack.callback(runner.stop)
        if address is None:
            if workers is None or not 1 <= workers <= 256:
                raise InvalidParameter(f"workers must be in 1..256, got workers={workers}")
            scheduler = stack.enter_context(local_cluster(workers))
            how = {}
        else:
            scheduler = address
            how = {"timeout": 10, "security": security_for(address, "client")}

        def connect() -> Any:
            return Client(scheduler, direct_to_workers=True, loop=runner.loop, **how)  # type: ignore[no-untyped-call]

        with connect() as first:
            if address is not None:
                first.wait_for_workers(workers or 1, timeout=60)
            count = len(first.ncores())
        old_shard_count = None if config.directory is None else read_shard_count(config.directory)

        def opened(**more: Any) -> ClusterEngine:
            return ClusterEngine(
                config, DaskTransport(connect, shards or old_shard_count or count, on_wait=on_wait), **options, **more
            )

        yield opened
