"""What workers that read windows and ticks send and leave behind depends on times and row counts alone.

Streams with the same times and other contents are compared byte for byte; sums of the groups with rows only, as one
would send to save bytes, must be noticed.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from panstream.distributed.sharded import _ordered_reading
from panstream.distributed.sharded._coordinator import ClusterEngine
from panstream.distributed.sharded._ordered_feed import Reading, feed_in_order
from panstream.distributed.sharded._ordered_reading import OrderedTask, Section, SegmentSums
from panstream.distributed.sharded._worker_reading import Partition, ReadPlan
from panstream.engine.storage.snapshot_store import SnapshotStore
from tests.distributed.sharded.ordered_tasks import HOUR, NOW, REGIONS, LocalReading, LocalRunner
from tests.distributed.sharded.test_metadata import Listener, everything, size
from tests.engine.runtime.streams import config, question

WHERE = "FROM s WHERE w > 0"
QUERIES = (
    question("windowed", f"SELECT COUNT(DISTINCT user) {WHERE}", universe=700, window="1 hour"),
    question("cropped", f"SELECT CROPPED_SUM(user, w, 3) {WHERE}", universe=700, window="2 hours"),
    question(
        "steps", f"SELECT COUNT(DISTINCT user) {WHERE}", expected=200, memory=4000, every="1 hour", window="3 hours"
    ),
    question(
        "grouped",
        f"SELECT region, COUNT(DISTINCT user) {WHERE} GROUP BY region",
        expected=200,
        memory=4000,
        window="2 hours",
        groups={"region": REGIONS},
    ),
    question(
        "names", f"SELECT name, COUNT(*) {WHERE} GROUP BY name", max_item_bytes=4, memory=300_000, window="3 hours"
    ),
    question(
        "by_region",
        f"SELECT region, COUNT(*) {WHERE} GROUP BY region",
        every="1 hour",
        horizon=100,
        groups={"region": REGIONS},
    ),
    question("median", f"SELECT MEDIAN(value) {WHERE}", lower=0, upper=8, window="2 hours"),
)
ROWS = 600
NEIGHBOURS: dict[str, dict[str, Any]] = {
    "no hit": {},
    "a hit": {"row": 30, "user": 5, "region": "a"},
    "a hit in another window": {"row": 500, "user": 5, "region": "a"},
    "a hit of another shard and group": {"row": 30, "user": 6, "region": "b"},
    "a user that cannot be used": {"row": 30, "user": -1, "region": "a"},
    "everything": {"row": slice(None), "user": 9, "region": "c"},
}


def write(folder: Path, format: str, change: dict[str, Any]) -> list[Partition]:
    """Write two files with the same times, some of them late, whatever else they contain."""
    folder.mkdir(parents=True)
    draw = np.random.default_rng(7)
    times = np.sort(draw.uniform(0, 8 * HOUR, ROWS)) - draw.exponential(0.2 * HOUR, ROWS)
    users = np.arange(100, 100 + ROWS) % 600
    weights = np.zeros(ROWS, np.int64)
    regions = np.array(["none"] * ROWS)
    if change:
        users[change["row"]] = change["user"]
        weights[change["row"]] = 1
        regions[change["row"]] = change["region"]
    table = pa.table(
        {
            "user": users,
            "w": weights,
            "region": regions,
            "value": np.where(weights > 0, 3.0, 1.0),
            "name": [f"{user:03d}" for user in users.tolist()],
            "at": pa.array((times * 1e6).astype(np.int64) + 360_000_000_000, pa.timestamp("us")),
        }
    )
    for number, part in enumerate((table.slice(0, ROWS // 2), table.slice(ROWS // 2))):
        path = folder / f"part-{number}.{format}"
        if format == "parquet":
            pq.write_table(part, path, row_group_size=100)
        else:
            pyarrow.csv.write_csv(part, path)
    return [replace(part, name=part.name) for part in Partition.of([str(folder)], rows=200)]


class HeardReading(LocalReading):
    """Notes the size of everything that leaves a worker, as Dask would send it."""

    def summary(self) -> Any:
        found = super().summary()
        self._runner.heard.append(("summary", size(found)))  # type: ignore[attr-defined]
        return found

    def section(self, number: int) -> Section:
        found = super().section(number)
        self._runner.heard.append(("section", size(found)))  # type: ignore[attr-defined]
        return found


class HeardRunner(LocalRunner):
    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.heard: list[tuple[str, int]] = []

    def start(self, task: OrderedTask) -> Reading:
        self.heard.append(("task", size(task)))
        self.outstanding.append(HeardReading(self, task))
        return self.outstanding[-1]


class Crash(BaseException):
    """The end of the coordinator's process."""


class CrashingListener(Listener):
    """Ends the process at a call, after the first shard has had it."""

    def send(self, calls: Any) -> list[Any]:
        try:
            return super().send(calls)
        except KeyboardInterrupt:
            raise Crash from None


def observe(folder: Path, partitions: Sequence[Partition], *, crash: int = -1) -> dict[str, Any]:
    """Return what an intruder and a listener see beside the cells."""
    settings = config(*QUERIES, directory=folder / "state", time="at", lateness="20 minutes")
    heard: list[Any] = []
    read: list[Any] = []
    for cut_at in (crash, -1):
        link = CrashingListener(2)
        link.heard = heard
        with ClusterEngine(settings, link, clock=lambda: NOW) as engine:
            link.cut_at = cut_at
            plan = ReadPlan(name=str(folder), config=settings, shards=2)
            runner = HeardRunner(plan, link, capacity=2)
            runner.heard = read
            try:
                feed_in_order(engine, runner, partitions, task_rows=1)
            except Crash:
                continue
            engine.commit()
        break
    return {**everything(folder / "state", link), "read": read}


def compare(tmp_path: Path, format: str, names: Sequence[str], *, crash: int = -1) -> list[str]:
    """Return the places that differ between neighbours."""
    found = {}
    for number, name in enumerate(names):
        folder = tmp_path / f"{number}"  # names of equal length: a worker is sent the paths of files
        found[name] = observe(folder, write(folder / "lake", format, NEIGHBOURS[name]), crash=crash)
    first = found[names[0]]
    assert len(first["heard"]) > 20
    assert sum(kind == "section" for kind, _ in first["read"]) > 6
    return [
        f"{place} shows: {name}"
        for name, other in found.items()
        for place, seen in first.items()
        if other[place] != seen
    ]


def test_contents_show_nowhere(tmp_path: Path) -> None:
    assert compare(tmp_path, "parquet", ("no hit", "a hit in another window", "everything")) == []


@pytest.mark.slow
@pytest.mark.parametrize("format", ["parquet", "csv"])
@pytest.mark.parametrize("crash", [-1, 4, 7, 12])
def test_contents_show_nowhere_whatever_they_are(tmp_path: Path, format: str, crash: int) -> None:
    assert compare(tmp_path, format, tuple(NEIGHBOURS), crash=crash) == []


def test_sparse_sums_are_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative control: a segment that leaves out windows without selected rows, which saves bytes."""
    close = _ordered_reading._OpenSegment.close

    def sparse(segment: Any, query: Any, *, whole: bool) -> SegmentSums:
        dense = close(segment, query, whole=whole)
        if dense.totals is not None and dense.events is not None and query.windowed:
            kept = dense.events.any(axis=1)
            dense.windows = tuple(np.array(dense.windows)[kept].tolist())
            dense.totals = dense.totals[kept]
            dense.events = dense.events[kept]
        return dense

    monkeypatch.setattr(_ordered_reading._OpenSegment, "close", sparse)
    assert "read shows: a hit" in compare(tmp_path, "parquet", ("no hit", "a hit"))


def test_stores_name_no_window_without_times(tmp_path: Path) -> None:
    """A shard that stopped between sections holds their number and the names of the partitions, and nothing more."""
    partitions = write(tmp_path / "lake", "parquet", {})
    settings = config(*QUERIES, directory=tmp_path / "state", time="at", lateness="20 minutes")
    link = CrashingListener(2)
    with pytest.raises(Crash), ClusterEngine(settings, link, clock=lambda: NOW) as engine:
        link.cut_at = 7
        feed_in_order(engine, LocalRunner(ReadPlan(config=settings, shards=2), link), partitions, task_rows=1)
    with SnapshotStore(tmp_path / "state/shards-2/shard-0") as store:
        parts = store.load()
    assert parts is not None
    assert b'"reading"' in parts["meta"]
