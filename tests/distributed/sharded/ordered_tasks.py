"""Streams with windows and ticks, read task by task in this process: for the tests of reading in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from panstream.distributed.sharded._coordinator import ClusterEngine
from panstream.distributed.sharded._ordered_feed import (
    HeldUpdates,
    Reading,
    TaskRunner,
    TaskSummary,
    feed_in_order,
    read_spans_here,
)
from panstream.distributed.sharded._ordered_reading import OrderedTask, Section, TimeSpan
from panstream.distributed.sharded._transport import InProcessShardTransport, ShardCall
from panstream.distributed.sharded._worker_reading import Partition, ReadPlan
from panstream.engine.config.config import Config
from panstream.engine.planner.public_facts import ingestion_paths
from panstream.engine.runtime.engine import Engine
from panstream.engine.runtime.ingest import IngestResult, ingest
from panstream.engine.storage.release_log import ReleaseLog
from tests.engine.runtime.streams import question

HOUR = 3600.0
USERS = 300
REGIONS = ["a", "b", "c"]
NOW = 1e6
Records = dict[tuple[str, int], Any]

QUERIES: dict[str, dict[str, Any]] = {
    "windowed": question("windowed", "SELECT COUNT(DISTINCT user) FROM s", universe=USERS, window="1 hour"),
    "grouped": question(
        "grouped",
        "SELECT region, COUNT(DISTINCT user) FROM s WHERE w > 1 GROUP BY region",
        expected=200,
        memory=4000,
        window="2 hours",
        groups={"region": REGIONS},
    ),
    "density": question("density", "SELECT DENSITY(user) FROM s", universe=USERS, window="1 hour"),
    "cropped": question("cropped", "SELECT CROPPED_SUM(user, w, 3) FROM s", universe=USERS, window="1 hour"),
    "names": question(
        "names",
        "SELECT name, COUNT(*) FROM s GROUP BY name",
        max_item_bytes=2,
        memory=300_000,
        window="3 hours",
    ),
    "count": question("count", "SELECT COUNT(*) FROM s WHERE w > 1", window="1 hour"),
    "sum": question("sum", "SELECT SUM(value) FROM s", lower=0, upper=8, every="30 minutes", horizon=100),
    "mean": question("mean", "SELECT AVG(value) FROM s", lower=0, upper=8, every="1 hour", window="2 hours"),
    "spread": question("spread", "SELECT VARIANCE(value) FROM s", lower=0, upper=8, every="1 hour", horizon=100),
    "median": question("median", "SELECT MEDIAN(value) FROM s", lower=0, upper=8, window="2 hours"),
    "by_region": question(
        "by_region",
        "SELECT region, COUNT(*) FROM s GROUP BY region",
        every="1 hour",
        horizon=100,
        groups={"region": REGIONS},
    ),
    "daily": question("daily", "SELECT COUNT(DISTINCT user) FROM s", universe=USERS, window="day"),
    "all": question("all", "SELECT COUNT(DISTINCT user) FROM s", universe=USERS),
    "total": question("total", "SELECT COUNT(*) FROM s"),
    "often": question("often", "SELECT COUNT(DISTINCT user) FROM s", universe=USERS, every="1 hour", horizon=100),
    "counted": question(
        "counted", "SELECT COUNT(DISTINCT user) FROM s", universe=USERS, every="1 hour", horizon=100, unit="event"
    ),
    "steps": question(
        "steps", "SELECT COUNT(DISTINCT user) FROM s", expected=200, memory=4000, every="1 hour", window="3 hours"
    ),
}
TICKING = ("often", "steps")


def write_lake(
    folder: Path,
    *,
    files: int = 4,
    rows: int = 400,
    seed: int = 1,
    format: str = "parquet",
    contents: int = 0,
) -> list[Partition]:
    """Write files in which times are out of order, within a file and between files, some of them missing or too far
    ahead of the clock; return partitions of some row groups each.

    ``contents`` changes everything but the times.
    """
    folder.mkdir(parents=True, exist_ok=True)
    draw = np.random.default_rng(seed)
    other = np.random.default_rng((seed, contents))
    span = 9 * HOUR
    for number in range(files):
        times = np.sort(draw.uniform(number - 0.4, number + 1, rows)) * span / files
        times -= draw.exponential(0.2 * HOUR, rows) * (draw.uniform(size=rows) < 0.3)
        microseconds = pa.array((times * 1e6).astype(np.int64) + 360_000_000_000, pa.int64(), mask=times % 97 < 1)
        times_column = microseconds.cast(pa.timestamp("us"))
        table = pa.table(
            {
                "user": other.integers(0, USERS, rows),
                "name": pa.array([f"{name:02d}" for name in other.integers(0, 12, rows)]),
                "value": other.uniform(0, 8, rows),
                "region": pa.array(np.array([*REGIONS, "none"])[other.integers(0, 4, rows)]),
                "w": other.integers(1, 4, rows),
                "at": times_column,
            }
        )
        if format == "parquet":
            pq.write_table(table, folder / f"part-{number}.parquet", row_group_size=rows // 3)
        else:
            pyarrow.csv.write_csv(table, folder / f"part-{number}.csv")
    return Partition.of([str(folder)], rows=rows // 3)


class LocalReading(Reading):
    """A task that is read when it is asked for, or before."""

    def __init__(self, runner: LocalRunner, task: OrderedTask) -> None:
        self._runner = runner
        self._task = task
        self.updates: HeldUpdates | None = None

    def read(self) -> HeldUpdates:
        if self.updates is None:
            self.updates = HeldUpdates.read(self._runner.plan, self._task)
        return self.updates

    def summary(self) -> TaskSummary:
        self._runner.read_others(self)
        return self.read().summary

    def section(self, number: int) -> Section:
        return self.read().section(number)

    def deliver(self, number: int, names: Sequence[str], *, last: bool) -> None:
        arguments = self.read().shard_arguments(number, names, last=last)
        calls = [ShardCall(shard, "apply_section", own) for shard, own in enumerate(arguments)]
        self._runner.transport.send(calls)

    def close(self) -> None:
        if self.updates is not None:
            self.updates.updates.wipe()
        self._runner.outstanding = [other for other in self._runner.outstanding if other is not self]


class LocalRunner(TaskRunner):
    """Reads tasks in this process, in an order that ``order`` chooses among those that were handed out."""

    def __init__(
        self,
        plan: ReadPlan,
        transport: InProcessShardTransport,
        *,
        capacity: int = 4,
        order: Callable[[int], Sequence[int]] = range,
        spans: Callable[[list[TimeSpan]], list[TimeSpan]] = lambda spans: spans,
    ) -> None:
        self.plan = plan
        self.transport = transport
        self.outstanding: list[LocalReading] = []
        self.tasks: list[OrderedTask] = []
        self._capacity = capacity
        self._order = order
        self._spans = spans

    @property
    def capacity(self) -> int:
        return self._capacity

    def time_spans(self, partitions: Sequence[Partition], limit: float) -> list[TimeSpan]:
        return self._spans(read_spans_here(self.plan, partitions, limit))

    def start(self, task: OrderedTask) -> Reading:
        self.tasks.append(task)
        self.outstanding.append(LocalReading(self, task))
        return self.outstanding[-1]

    def read_here(self, task: OrderedTask) -> Reading:
        return self.start(task)

    def read_others(self, first: LocalReading) -> None:
        """Read all tasks that were handed out, ``first`` among them, in the forced order."""
        readings = [reading for reading in self.outstanding if reading.updates is None]
        for index in self._order(len(readings)):
            readings[index].read()

    def recover(self, attempts: int, shards: Sequence[int]) -> None:
        pass


def records(engine: Engine) -> Records:
    """Return every release of an engine without what depends on when it was drawn."""
    return records_of(engine.log)


def records_of(log: ReleaseLog) -> Records:
    """Return every release of a log without what depends on when it was drawn."""
    found: Records = {}
    for release in log.history():
        record = {key: value for key, value in release.record.items() if key not in ("time", "published")}
        key = (release.query, release.number)
        found.setdefault(key, []).append(record)
    return found


def without_claims(found: Records) -> Records:
    """Return records without their claims, which name the store and its commits."""
    return {
        key: [{name: value for name, value in record.items() if name != "claim"} for record in group]
        for key, group in found.items()
    }


def run_alone(config: Config, folder: Path, *, finish: bool = True) -> tuple[Records, IngestResult]:
    """Return what one process answers."""
    with Engine(config, zero_noise=True, clock=lambda: NOW) as engine:
        result = ingest(engine, [str(folder)])
        if finish:
            engine.finish()
        return records(engine), result


def run_sharded(
    config: Config,
    partitions: Sequence[Partition],
    shards: int,
    *,
    transport: InProcessShardTransport | None = None,
    finish: bool = True,
    **options: Any,
) -> tuple[Records, IngestResult]:
    """Return what a cluster in this process answers."""
    is_resumed = transport is not None
    transport = InProcessShardTransport(shards) if transport is None else transport
    with ClusterEngine(config, transport, positions=True, zero_noise=True, clock=lambda: NOW) as engine:
        plan = ReadPlan(config=engine.config, shards=shards, zero_noise=True)
        engine.declare(*ingestion_paths(["part.parquet"], follow=False))
        runner = LocalRunner(plan, transport, **options)
        result = feed_in_order(engine, runner, partitions, task_rows=1)
        assert is_resumed or len(partitions) < 4 or len(runner.tasks) != 1
        if finish:
            engine.finish()
        return records(engine), result
