"""Redis and Kafka on a cluster: each row counts once on every shard, wherever the coordinator ends."""

from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from panstream.distributed.sharded._coordinator import ClusterEngine
from panstream.distributed.sharded._transport import InProcessShardTransport
from panstream.engine.config.config import Config
from panstream.engine.planner.public_facts import ingestion_paths
from panstream.engine.runtime.ingest import ingest_all, open_configured_source
from panstream.engine.runtime.selector import Selector
from tests.distributed.sharded.ordered_tasks import HOUR, NOW, Records, records, run_alone, without_claims
from tests.distributed.sharded.test_ordered_reading import Crash, CrashingTransport
from tests.engine.runtime.streams import config, question
from tests.engine.sources.kafka_broker import Broker
from tests.engine.sources.test_redis import STREAM, Server

USERS = 60
ROWS = 240
QUERIES = (
    question("windowed", "SELECT COUNT(DISTINCT user) FROM s", universe=USERS, window="1 hour"),
    question("visits", "SELECT CROPPED_SUM(user, w, 3) FROM s", universe=USERS, every="2 hours", horizon=20),
    question("sum", "SELECT SUM(value) FROM s", lower=0, upper=8, every="30 minutes", horizon=100),
    question("names", "SELECT name, COUNT(*) FROM s GROUP BY name", max_item_bytes=2, memory=60_000, window="3 hours"),
)


def stream(directory: Path | None, **more: Any) -> Config:
    """Return a stream that is committed with every batch, so that its steps do not depend on a clock."""
    chosen = config(*QUERIES, directory=directory, time="at", lateness="20 minutes", batch_rows=37, **more)
    return replace(chosen, step=0.0, batch_time=0.001)


def rows() -> list[dict[str, Any]]:
    draw = np.random.default_rng(5)
    times = np.sort(draw.uniform(0, 6 * HOUR, ROWS)) - draw.exponential(0.2 * HOUR, ROWS)
    return [
        {
            "user": int(draw.integers(0, USERS)),
            "name": f"{draw.integers(0, 12):02d}",
            "value": float(draw.integers(0, 8)),
            "w": int(draw.integers(1, 4)),
            "at": f"1970-01-02T{int(time // 3600) % 24:02d}:{int(time % 3600 // 60):02d}:{time % 60:09.6f}Z",
        }
        for time in np.maximum(times, 0.0)
    ]


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> Records:
    folder = tmp_path_factory.mktemp("rows")
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows()))
    return run_alone(stream(None), folder)[0]


def read(engine: ClusterEngine, url: str, is_over: Callable[[], bool]) -> None:
    """Read a live source until all of it is counted."""
    source = open_configured_source(engine.config, [url])
    engine.declare(*ingestion_paths([url], follow=False))
    idle = 0
    real = source.batches

    def until_the_end() -> Iterator[Any]:
        nonlocal idle
        for batch in real():
            idle = idle + 1 if batch is None or not len(batch) else 0
            yield batch
            if idle > 2 and is_over():
                return

    source.batches = until_the_end  # type: ignore[method-assign]
    with Selector(engine.config) as select:
        ingest_all(engine, source, select)


def crash_at(countdown: int, chosen: Config, url: str, is_over: Callable[[], bool]) -> tuple[bool, Records]:
    """Read until a crash before a call of a shard, then to the end; return whether it crashed, and all answers.

    After the crash batches are larger: rows come again in others.
    """
    transport: InProcessShardTransport = CrashingTransport(2, countdown)
    crashed = False
    clock = partial(next, itertools.count(NOW, 0.001))  # so that some batches share a commit where an interval is set
    while True:
        try:
            with ClusterEngine(chosen, transport, positions=True, zero_noise=True, clock=clock) as engine:
                read(engine, url, is_over)
                engine.finish()
                return crashed, records(engine)
        except Crash:
            crashed = True
            chosen = replace(chosen, batch_rows=53)
            transport = InProcessShardTransport(2)


POINTS = [(7, "batch"), (24, "interval"), *((point, "batch") for point in range(9, 60, 4))]
MANY = [pytest.param(*own, marks=pytest.mark.slow) if number > 1 else own for number, own in enumerate(POINTS)]


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    if shutil.which("redis-server") is None:
        pytest.skip("redis-server is needed")
    running = Server(tmp_path_factory.mktemp("redis"))
    yield running
    running.stop()


@pytest.mark.parametrize(("countdown", "durability"), MANY)
def test_redis_entries_count_once_wherever_the_coordinator_ends(
    redis: Server, expected: Records, tmp_path: Path, countdown: int, durability: str
) -> None:
    with redis.client() as peer:
        peer.flushall()
        for row in rows():
            peer.xadd(STREAM, row)
        address = f"{redis.url}#{STREAM}"
        crashed, found = crash_at(
            countdown, stream(tmp_path, durability=durability, interval="5 ms"), address, lambda: peer.xlen(STREAM) == 0
        )
    assert crashed
    assert without_claims(found) == without_claims(expected)


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    running = Broker()
    yield running
    running.stop()


@pytest.mark.parametrize(("countdown", "durability"), MANY)
def test_kafka_messages_count_once_wherever_the_coordinator_ends(
    broker: Broker, expected: Records, tmp_path: Path, countdown: int, durability: str
) -> None:
    topic = broker.topic()
    broker.publish(topic, map(json.dumps, rows()), partition=2)
    chosen = stream(tmp_path, durability=durability, interval="5 ms")
    crashed, found = crash_at(
        countdown, chosen, broker.url(topic), lambda: sum(broker.committed(topic, "panstream")) == ROWS
    )
    assert crashed
    assert without_claims(found) == without_claims(expected)
