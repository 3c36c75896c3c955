"""Starts the processes of a cluster by forking, which saves each the imports, and starts again those that die.

Commands on standard input: ``start NAME ROLE ARGUMENTS...`` and ``stop NAME``. On standard output: ``up NAME PID``, and
whatever a load or a server says. Roles: ``scheduler PORT [tls]``, ``worker ADDRESS SCRATCH [NETNS]``, ``load ADDRESS
DIRECTORY``, ``front ADDRESS DIRECTORY``, ``reader ADDRESS DIRECTORY LAKE NOISE`` and ``topic ADDRESS DIRECTORY
URL NOISE ROWS``, which read windows and say at which phase they are.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import select
import signal
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import distributed  # noqa: F401  (before the fork)
import numpy as np
import pyarrow as pa

from panstream.distributed.sharded import dataframes, session  # noqa: F401
from panstream.distributed.sharded._coordinator import ClusterEngine
from panstream.distributed.sharded._dask_reading import DaskRunner
from panstream.distributed.sharded._dask_transport import DaskTransport
from panstream.distributed.sharded._ordered_feed import feed_in_order
from panstream.distributed.sharded._transport import InProcessShardTransport
from panstream.distributed.sharded._worker_reading import Partition, ReadPlan
from panstream.distributed.sharded.dask_setup import apply_hardened_config, serve_worker
from panstream.engine.config.config import Config
from panstream.engine.rows.row_batch import QuerySelection, RowBatch, RowSchema
from panstream.testing.memory import allow_scan
from tests.distributed.sharded import ordered_tasks
from tests.engine.runtime.streams import config, question

USERS = 100_000
SIZE = 10
QUERIES = (
    question("distinct", "SELECT COUNT(DISTINCT user) FROM s", universe=USERS),
    question("visits", "SELECT CROPPED_SUM(user, w, 1000) FROM s", universe=USERS),
    question("sum", "SELECT SUM(value) FROM s", lower=0, upper=1, every=5, horizon=1_000_000),
    question("names", "SELECT region, COUNT(*) FROM s GROUP BY region", max_item_bytes=2, memory=300_000),
)


def batch(number: int) -> RowBatch:
    """Return batch k: users 10k .. 10k+9, each twice, in as many regions."""
    ids = np.repeat(np.arange(number * SIZE, (number + 1) * SIZE), 2)
    return RowBatch(
        count=ids.size,
        queries={
            "distinct": QuerySelection.select_all(ids.size),
            "visits": QuerySelection.select_all(ids.size, weights=np.ones(ids.size, np.int64)),
            "sum": QuerySelection.select_all(ids.size, values=np.ones(ids.size)),
            "names": QuerySelection.select_all(ids.size, names=pa.array([f"r{each % SIZE}" for each in ids.tolist()])),
        },
        ids=ids,
        times=np.full(ids.size, float(number)),
        producer="load",
        sequence=number,
    )


def settings(directory: Path) -> object:
    return config(*QUERIES, directory=directory, time="at")


def say(line: str) -> None:
    os.write(1, line.encode() + b"\n")


def scheduler(port: str, protocol: str = "tcp") -> None:
    from distributed import Scheduler, Security

    encrypted = protocol == "tls"

    async def serve() -> None:
        async with Scheduler(
            host="0.0.0.0" if encrypted else "127.0.0.1",
            port=int(port),
            protocol=protocol,
            security=Security(require_encryption=encrypted),
            dashboard=False,
        ) as server:
            await server.finished()

    asyncio.run(serve())


def worker(address: str, scratch: str, netns: str = "") -> None:
    if netns:
        with open(f"/var/run/netns/{netns}") as file:
            assert ctypes.CDLL(None, use_errno=True).setns(file.fileno(), 0) == 0
    asyncio.run(serve_worker(address, name=None, scratch=Path(scratch), listen=None))


def load(address: str, directory: str) -> None:
    from distributed import Client

    def connect() -> Client:
        return Client(address, direct_to_workers=True, timeout=5)

    def published(release: object) -> None:
        say(f"published {release.query} {release.number} {release.record['value']!r}")  # type: ignore[attr-defined]

    link = DaskTransport(connect, 2)
    with ClusterEngine(settings(Path(directory)), link, zero_noise=True, publish=published) as engine:
        say("open")
        for number in range(engine.last_sequence("load") + 1, USERS // SIZE):
            engine.apply(batch(number))
            say(f"applied {number}")


def served(directory: Path) -> object:
    """Return the questions of a served stream, which are asked by hand."""
    asked = [
        question("distinct", "SELECT COUNT(DISTINCT user) FROM s", universe=USERS, releases=5),
        question("visits", "SELECT CROPPED_SUM(user, w, 1000) FROM s", universe=USERS, releases=5),
        question("rows", "SELECT COUNT(*) FROM s", releases=5),
    ]
    return config(*asked, directory=directory)


def front(address: str, directory: str) -> None:
    from panstream.server.server import ServerSettings, make_server

    stream = served(Path(directory))
    with session.open_engines(stream, address=address, workers=1, shards=2, zero_noise=True) as engine:  # type: ignore[arg-type]
        server = make_server(stream, ServerSettings(port=0), on_started=lambda at: say(f"serving {at}"), engine=engine)  # type: ignore[arg-type]
        server.run_until_stopped()


READ = ("windowed", "steps", "sum", "mean", "by_region", "cropped", "counted")


def read_settings(directory: Path) -> Config:
    """Return the questions of a stream that workers read in order."""
    return config(
        *(ordered_tasks.QUERIES[name] for name in READ), directory=directory, time="at", lateness="20 minutes"
    )


class _SpeakingRunner(DaskRunner):
    """Says when it is about to do something."""

    def time_spans(self, partitions: Any, limit: float) -> Any:
        say("phase times")
        return super().time_spans(partitions, limit)

    def start(self, task: Any) -> Any:
        say("phase read")
        return _speaking(super().start(task), "summary", "section", "deliver", "close")

    def read_here(self, task: Any) -> Any:
        say("phase read-again")
        return _speaking(super().read_here(task), "summary", "section", "deliver", "close")


def _speaking(owner: Any, *names: str) -> Any:
    for name in names:
        setattr(owner, name, partial(_say_and_call, name, getattr(owner, name)))
    return owner


def _say_and_call(phase: str, work: Any, *arguments: Any, **options: Any) -> Any:
    say(f"phase {phase}")
    return work(*arguments, **options)


def reader(address: str, directory: str, lake: str, noise: str) -> None:
    from distributed import Client

    def connect() -> Client:
        return Client(address, direct_to_workers=True, timeout=5)

    def published(release: Any) -> None:
        say(f"published {release.query.replace(' ', '_')} {release.number} {release.record['value']!r}")

    link = DaskTransport(connect, 2)
    stream = read_settings(Path(directory))
    options = {"publish": published, "zero_noise": noise == "none", "clock": lambda: ordered_tasks.NOW}
    with ClusterEngine(stream, link, positions=True, **options) as engine:  # type: ignore[arg-type]
        engine.declare("files")
        _speaking(engine, "begin_task", "draw_before", "apply_section", "finish_task", "finish")
        plan = ReadPlan(config=engine.config, shards=2, zero_noise=noise == "none")
        partitions = Partition.of([lake], rows=100)
        result = feed_in_order(engine, _SpeakingRunner(plan, link), partitions, task_rows=1)
        assert not result.interrupted
        engine.finish()
        say("done")
        signal.pause()


TOPIC = ("windowed", "grouped", "cropped", "names", "count", "mean")


def topic_settings(directory: Path) -> Config:
    """Return the questions of a topic: no row is late, so that answers do not depend on the order of partitions."""
    return config(*(ordered_tasks.QUERIES[name] for name in TOPIC), directory=directory, time="at", lateness="3 hours")


def topic(address: str, directory: str, url: str, noise: str, rows: str) -> None:
    from distributed import Client

    from panstream.distributed.sharded._dask_ticks import DaskTickRunner
    from panstream.distributed.sharded._kafka_feed import feed_ticks
    from panstream.engine.sources.kafka_ranges import KafkaTicks

    def connect() -> Client:
        return Client(address, direct_to_workers=True, timeout=5)

    def published(release: Any) -> None:
        say(f"published {release.query.replace(' ', '_')} {release.number} {release.record['value']!r}")

    class Runner(DaskTickRunner):
        def start(self, task: Any) -> Any:
            say("phase read")
            return _speaking(super().start(task), "summary", "section", "deliver", "close")

        def read_here(self, task: Any) -> Any:
            say("phase read-again")
            return _speaking(super().read_here(task), "summary", "section", "deliver", "close")

    link = DaskTransport(connect, 2)
    options = {"publish": published, "zero_noise": noise == "none", "clock": lambda: ordered_tasks.NOW}
    with ClusterEngine(topic_settings(Path(directory)), link, positions=True, **options) as engine:  # type: ignore[arg-type]
        engine.declare("kafka")
        _speaking(engine, "begin_task", "draw_before", "apply_section", "finish_task", "finish")
        plan = ReadPlan(config=engine.config, shards=2, zero_noise=noise == "none")
        schema = RowSchema.of(engine.config.stream, engine.config.needed_columns)
        source = KafkaTicks(url, schema, batch_time=0.01, poll=0.01, batch_rows=80)
        _speaking(source, "_commit_marks")

        def stop(*_: Any) -> None:
            if sum(source._offsets.values()) >= int(rows):
                source.close()

        result = feed_ticks(engine, Runner(plan, url, link), source, stop)
        assert not result.interrupted
        engine.finish()
        say("done")
        signal.pause()


ROLES = {"topic": topic, "scheduler": scheduler, "worker": worker, "load": load, "front": front, "reader": reader}


def warm_up() -> None:
    """Load every kernel before the first fork."""
    with tempfile.TemporaryDirectory() as directory:
        engine = ClusterEngine(settings(Path(directory)), InProcessShardTransport(2), zero_noise=True)  # type: ignore[arg-type]
        with engine:
            for number in range(12):
                engine.apply(batch(number))
            engine.finish()
        partitions = ordered_tasks.write_lake(Path(directory) / "lake", files=1, rows=90)
        ordered_tasks.run_sharded(read_settings(Path(directory) / "read"), partitions, 2)


def main() -> None:
    allow_scan()  # a test reads the memory of what is started here
    apply_hardened_config()
    warm_up()
    wanted: dict[str, list[str]] = {}
    running: dict[int, str] = {}
    buffer = b""
    while True:
        for name, command in wanted.items():
            if name not in running.values():
                child = os.fork()
                if child == 0:
                    try:
                        ROLES[command[0]](*command[1:])
                    except BaseException as error:
                        print(name, repr(error), file=sys.stderr, flush=True)
                    finally:
                        os._exit(1)
                running[child] = name
                say(f"up {name} {child}")
        ready, _, _ = select.select([0], [], [], 0.02)
        if ready:
            data = os.read(0, 65536)
            if not data:
                break
            buffer += data
            *lines, buffer = buffer.split(b"\n")
            for line in lines:
                verb, name, *rest = line.decode().split()
                if verb == "start":
                    wanted[name] = rest
                else:
                    del wanted[name]
                    for child, known in running.items():
                        if known == name:
                            os.kill(child, signal.SIGKILL)
        while running:
            child, _ = os.waitpid(-1, os.WNOHANG)
            if not child:
                break
            gone = running.pop(child, None)
            if gone is not None:
                say(f"down {gone} {child}")
    for child in running:
        os.kill(child, signal.SIGKILL)
    deadline = time.monotonic() + 10
    while running and time.monotonic() < deadline:
        child, _ = os.waitpid(-1, os.WNOHANG)
        running.pop(child, None) if child else time.sleep(0.02)


if __name__ == "__main__":
    main()
