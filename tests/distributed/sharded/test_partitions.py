"""Partitions in tasks: every row counts once, also where a run that was cut short comes again with other tasks."""

import contextlib
from pathlib import Path
from typing import Any

import dask.dataframe as dd
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from panstream.distributed.sharded import dataframes
from panstream.distributed.sharded._coordinator import ClusterEngine
from panstream.distributed.sharded._partition_tasks import ingest_partitions
from panstream.distributed.sharded._transport import InProcessShardTransport
from panstream.distributed.sharded._worker_reading import Partition, ReadPlan, plan_read_tasks
from panstream.distributed.sharded.dataframes import _files_of
from panstream.engine.runtime.engine import Engine
from panstream.engine.runtime.ingest import ingest
from panstream.errors import ClusterError, StoreError
from tests.engine.runtime.streams import config, question

USERS = 3000
FILES = 5
QUERIES = (
    question("bits", "SELECT COUNT(DISTINCT user) FROM s", universe=USERS),
    question("bitmap", "SELECT COUNT(DISTINCT user) FROM s", expected=1000, memory=2500),
    question("some", "SELECT COUNT(DISTINCT user) FROM s WHERE w > 1", universe=USERS),
    question("visits", "SELECT CROPPED_SUM(user, w, 9) FROM s", universe=USERS),
    question("rows", "SELECT COUNT(*) FROM s"),
)


class Actor:
    """A shard in this process, called as Dask calls an actor."""

    def __init__(self, shard: Any) -> None:
        self._shard = shard

    def call(self, method: str, arguments: Any) -> Any:
        getattr(self._shard, method)(*arguments)
        return self

    def result(self) -> tuple[str, None]:
        return "ok", None


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    draw = np.random.default_rng(1)
    folder = tmp_path_factory.mktemp("lake")
    for number in range(FILES):
        table = pa.table({"user": draw.integers(0, USERS, 1000), "w": draw.integers(1, 4, 1000)})
        pq.write_table(table, folder / f"part-{number}.parquet", row_group_size=[300, 1000][number % 2])
    return folder


def settings(directory: Path | None = None) -> Any:
    return config(*QUERIES, directory=directory)


def answers(engine: Engine) -> dict[str, Any]:
    engine.finish()
    return {release.query: release.record["value"] for release in engine.log.history()}


def expected(lake: Path) -> dict[str, Any]:
    with Engine(settings(), zero_noise=True) as engine:
        ingest(engine, [str(lake)])
        return answers(engine)


def absorb(
    engine: ClusterEngine, link: InProcessShardTransport, task: list[Partition], shards: range = range(2)
) -> None:
    job = ReadPlan(name=str(id(engine)), config=engine.config, shards=2, zero_noise=True)
    actors = {shard: Actor(link.open_shards[shard]) for shard in shards}
    found = ingest_partitions(job, task, actors)
    assert found.refused is None
    assert found.lost == [shard for shard in range(2) if shard not in shards]
    if not found.lost:
        engine.record_partitions([part.name for part in task], found.totals)


def grouped(parts: list[Partition], size: int) -> list[list[Partition]]:
    return [parts[at : at + size] for at in range(0, len(parts), size)]


@pytest.mark.parametrize("size", [1, 2, 7])
def test_tasks_of_any_size_count_as_one_machine_does(lake: Path, size: int) -> None:
    link = InProcessShardTransport(2)
    parts = Partition.of([str(lake)], rows=300)
    assert len(parts) == 3 * 4 + 2
    with ClusterEngine(settings(), link, zero_noise=True) as engine:
        for task in grouped(parts, size):
            absorb(engine, link, task)
        assert answers(engine) == expected(lake)


def test_tasks_that_reached_some_shards_only_are_not_counted_twice(lake: Path, tmp_path: Path) -> None:
    parts = Partition.of([str(lake)], rows=300)
    link = InProcessShardTransport(2)
    with ClusterEngine(settings(tmp_path), link, zero_noise=True) as engine:
        absorb(engine, link, parts[:3])
        absorb(engine, link, parts[3:6], range(1))
        with pytest.raises(StoreError, match="some of these"):
            link.open_shards[0].apply_partition([part.name for part in parts[5:7]], [])
    link = InProcessShardTransport(2)
    with ClusterEngine(settings(tmp_path), link, zero_noise=True) as engine:
        assert engine.partitions_in_progress() == {part.name for part in parts[:6]}
        for task in plan_read_tasks(parts, 2, large=True, alone=engine.partitions_in_progress()):
            assert len(task) == 1 or not {part.name for part in task} & engine.partitions_in_progress()
            absorb(engine, link, task)
        assert answers(engine) == expected(lake)


class FlakyActor(Actor):
    """Fails the first ``failures`` calls."""

    def __init__(self, shard: Any, error: Exception, failures: float) -> None:
        super().__init__(shard)
        self._error = error
        self._failures = failures

    def call(self, method: str, arguments: Any) -> Any:
        self._failures -= 1
        if self._failures >= 0:
            raise self._error
        return super().call(method, arguments)


class Transport:
    """Hands out actors of this process; its client cannot submit tasks, so that every attempt is made here."""

    shards = 2

    def __init__(self, actors: dict[int, Actor]) -> None:
        self.actors = actors
        self.checked: list[int] = []

    @property
    def client(self) -> Any:
        return self

    def submit(self, *arguments: Any, **options: Any) -> Any:
        raise OSError

    def check(self, shard: int) -> None:
        self.checked.append(shard)


@pytest.mark.parametrize(
    ("error", "failures", "message", "checks"),
    [
        (AttributeError("apply_partition"), 1, "shard 1 cannot apply .*: AttributeError", 0),
        (OSError("connection reset"), np.inf, "after 20 attempts: shard 1 did not acknowledge", 18),
        (OSError("connection reset"), 3, None, 3),
    ],
)
def test_only_lost_calls_are_repeated_and_not_for_ever(
    lake: Path,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    failures: float,
    message: str | None,
    checks: int,
) -> None:
    monkeypatch.setattr(dataframes, "RETRY_DELAYS", (0.0,))
    monkeypatch.setattr(dataframes, "_addresses", lambda actors: {})
    link = InProcessShardTransport(2)
    with ClusterEngine(settings(), link, zero_noise=True) as engine:
        actors = {0: Actor(link.open_shards[0]), 1: FlakyActor(link.open_shards[1], error, failures)}
        transport = Transport(actors)
        plan = ReadPlan(config=engine.config, shards=2, zero_noise=True)
        with contextlib.ExitStack() as stack:
            if message is not None:
                stack.enter_context(pytest.raises(ClusterError, match=message))
            dataframes.feed_files(engine, transport, plan, Partition.of([str(lake)]), None)  # type: ignore[arg-type]
            assert answers(engine) == expected(lake)
        assert transport.checked == [1] * checks


def test_tasks_become_smaller_towards_the_end() -> None:
    small = [Partition(name=str(number), rows=1 << 17) for number in range(320)]
    sizes = [len(task) for task in plan_read_tasks(small, 2, large=True)]
    assert sizes[0] == 54  # a sixth
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-4:-1] == [8, 8, 8]
    assert sum(sizes) == 320
    assert max(len(task) for task in plan_read_tasks(small * 20, 2, large=True)) == 64
    assert {len(task) for task in plan_read_tasks(small, 2, large=False)} == {8}
    assert plan_read_tasks([], 2, large=True) == []


def test_files_behind_a_frame_are_read_themselves(lake: Path) -> None:
    frame = dd.read_parquet(lake)
    files = sorted(str(path) for path in lake.iterdir())
    for plain in (frame, frame[["user"]], dd.read_parquet(lake, filesystem="arrow")):
        found = _files_of(plain, ["user"])
        assert found is not None
        assert sorted(str(file.path) for file in found) == files
    changed = [
        frame[frame.user > 3],
        frame.rename(columns={"user": "w", "w": "user"}),
        frame.partitions[0],
        dd.read_parquet(lake, filters=[("user", ">", 3)]),
        frame.assign(user=frame.user + 1),
    ]
    assert [_files_of(other, ["user"]) for other in changed] == [None] * len(changed)
