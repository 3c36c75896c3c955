"""Workers read windows and ticks: record for record what one process answers, whatever is read first or is lost."""

import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from panstream.distributed.sharded._coordinator import ClusterEngine
from panstream.distributed.sharded._ordered_feed import HeldUpdates, Reading, TaskLost, feed_in_order
from panstream.distributed.sharded._ordered_reading import OrderedTask, TimeSpan
from panstream.distributed.sharded._time_forecast import spans_from_statistics
from panstream.distributed.sharded._transport import InProcessShardTransport
from panstream.distributed.sharded._worker_reading import Partition, ReadPlan, can_read_on_workers
from panstream.engine.planner.query_plan import plan_all
from panstream.errors import ClusterError, ConfigError, SourceError, StoreError
from tests.distributed.sharded.ordered_tasks import (
    NOW,
    QUERIES,
    LocalReading,
    LocalRunner,
    Records,
    records,
    run_alone,
    run_sharded,
    without_claims,
    write_lake,
)
from tests.engine.runtime.streams import config, question

SHUFFLE = random.Random(5)
ORDERS: dict[str, Callable[[int], Sequence[int]]] = {
    "first to last": range,
    "last to first": lambda count: range(count)[::-1],
    "shuffled": lambda count: SHUFFLE.sample(range(count), count),
}


def stream(*names: str, **more: Any) -> Any:
    chosen = names or tuple(QUERIES)
    return config(
        *(QUERIES[name] for name in chosen), time="at", time_zone="Pacific/Auckland", lateness="20 minutes", **more
    )


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Partition], Records, Any]:
    folder = tmp_path_factory.mktemp("lake")
    partitions = write_lake(folder)
    return folder, partitions, *run_alone(stream(), folder)


@pytest.mark.parametrize(("shards", "order"), [(1, "last to first"), (3, "shuffled")])
def test_answers_are_those_of_one_process(lake: Any, shards: int, order: str) -> None:
    _, partitions, expected, alone = lake
    found, result = run_sharded(stream(), partitions, shards, order=ORDERS[order], capacity=6)
    assert {query.split(" ")[0] for query, _ in found} == set(QUERIES)
    assert found == expected
    assert alone.late_count > 50
    assert (result.late, result.late_count) == (alone.late, alone.late_count)
    assert (result.skipped, result.skipped_count, result.rows) == (alone.skipped, alone.skipped_count, alone.rows)


@pytest.mark.slow
@pytest.mark.parametrize("format", ["parquet", "csv"])
@pytest.mark.parametrize("shards", [1, 2, 3, 7])
@pytest.mark.parametrize("order", ORDERS)
def test_answers_of_every_statistic_with_any_shards_and_order(
    tmp_path: Path, format: str, shards: int, order: str
) -> None:
    for seed in (1, 2):
        partitions = write_lake(tmp_path / str(seed), seed=seed, format=format)
        expected, alone = run_alone(stream(), tmp_path / str(seed))
        for capacity in (1, 3, 16):
            found, result = run_sharded(stream(), partitions, shards, order=ORDERS[order], capacity=capacity)
            assert found == expected
            assert result.late_count == alone.late_count


TIMES = st.one_of(
    st.none(),
    st.integers(0, 8 * 3600),
    st.sampled_from([hour * 3600 + offset for hour in range(8) for offset in (-1, 0, 1)]),
)


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    times=st.lists(TIMES, min_size=1, max_size=60),
    files=st.integers(1, 4),
    shards=st.integers(1, 3),
    lateness=st.sampled_from(["1 second", "1 minute", "90 minutes"]),
    ticks=st.sampled_from([("1 hour", None), ("30 minutes", "1 hour"), ("7 minutes", None), ("1 hour", "3 hours")]),
    seed=st.integers(0, 100),
)
def test_any_times_in_any_files(
    tmp_path_factory: pytest.TempPathFactory,
    times: list[int | None],
    files: int,
    shards: int,
    lateness: str,
    ticks: tuple[str, str | None],
    seed: int,
) -> None:
    folder = tmp_path_factory.mktemp("any")
    draw = np.random.default_rng(seed)
    for number, part in enumerate(np.array_split(np.arange(len(times)), files)):
        microseconds = [None if times[row] is None else times[row] * 1_000_000 for row in part]  # type: ignore[operator]
        table = pa.table({"user": draw.integers(0, 50, part.size), "at": pa.array(microseconds, pa.timestamp("us"))})
        pq.write_table(table, folder / f"{number}.parquet", row_group_size=7)
    every, window = ticks
    more = {"horizon": 200} if window is None else {"window": window}
    queries = [
        question("people", "SELECT COUNT(DISTINCT user) FROM s", universe=50, every=every, **more),
        question("rows", "SELECT COUNT(*) FROM s", every=every, **more),
        question("by_window", "SELECT COUNT(DISTINCT user) FROM s", universe=50, window="1 hour"),
    ]
    chosen = config(*queries, time="at", lateness=lateness)
    expected, alone = run_alone(chosen, folder)
    order = random.Random(seed)
    found, result = run_sharded(
        chosen,
        Partition.of([str(folder)], rows=7),
        shards,
        order=lambda count: order.sample(range(count), count),
        capacity=3,
    )
    assert found == expected
    assert result.late == alone.late


@pytest.mark.parametrize(
    "wrong",
    [
        (0.0, 1.0),
        pytest.param((np.inf, -np.inf), marks=pytest.mark.slow),
        pytest.param((0.0, 1e12), marks=pytest.mark.slow),
    ],
)
def test_a_wrong_forecast_of_times_costs_time_only(lake: Any, wrong: TimeSpan) -> None:
    """The statistics of a file are what its writer says: tasks that were read with a wrong start are read again."""
    _, partitions, expected, _ = lake
    found, _ = run_sharded(stream(), partitions, 2, spans=lambda spans: [wrong] * len(spans))
    assert found == expected


def test_times_come_from_statistics_where_a_file_has_them(lake: Any, tmp_path: Path) -> None:
    folder, partitions, _, _ = lake
    chosen = stream()
    plan = ReadPlan(config=chosen, shards=1)
    read = LocalRunner(plan, InProcessShardTransport(1)).time_spans(partitions, np.inf)
    told = spans_from_statistics(chosen, partitions, np.inf)
    assert [told[partition.name] for partition in partitions] == read
    assert spans_from_statistics(chosen, partitions, -1.0) == {}, "a time beyond the limit is a bad row's"
    table = pq.read_table(folder / "part-0.parquet")
    for unit in ("ms", "ns"):
        cast = table.set_column(5, "at", table["at"].cast(pa.timestamp(unit), safe=False))
        pq.write_table(cast, tmp_path / f"{unit}.parquet")
        (part,) = Partition.of([str(tmp_path / f"{unit}.parquet")])
        assert spans_from_statistics(chosen, [part], np.inf)[part.name] == pytest.approx(
            LocalRunner(plan, InProcessShardTransport(1)).time_spans([part], np.inf)[0], abs=0
        )
    pq.write_table(table, tmp_path / "none.parquet", write_statistics=False)
    assert spans_from_statistics(chosen, Partition.of([str(tmp_path / "none.parquet")]), np.inf) == {}


class Lost(LocalReading):
    """A task whose worker or shards are lost when it is asked the ``n``-th time."""

    countdown = 0

    def _count(self) -> None:
        Lost.countdown -= 1
        if not Lost.countdown:
            raise TaskLost([0])

    def summary(self) -> Any:
        self._count()
        return super().summary()

    def section(self, number: int) -> Any:
        self._count()
        return super().section(number)

    def deliver(self, number: int, names: Sequence[str], *, last: bool) -> None:
        self._count()
        if Lost.countdown == 1:  # one shard is reached
            Lost.countdown = 0
            arguments = self.read().shard_arguments(number, names, last=last)
            self._runner.transport.open_shards[1].apply_section(*arguments[1])
            raise TaskLost([0])
        super().deliver(number, names, last=last)


class LosingRunner(LocalRunner):
    def start(self, task: OrderedTask) -> Reading:
        self.tasks.append(task)
        self.outstanding.append(Lost(self, task))
        return self.outstanding[-1]


@pytest.mark.parametrize(
    "countdown", [2, 10, *(pytest.param(point, marks=pytest.mark.slow) for point in range(3, 60, 5))]
)
def test_a_task_whose_worker_is_lost_is_read_again_and_counts_once(lake: Any, countdown: int) -> None:
    _, partitions, expected, _ = lake
    transport = InProcessShardTransport(2)
    with ClusterEngine(stream(), transport, zero_noise=True, clock=lambda: NOW) as engine:
        engine.declare("files")
        Lost.countdown = countdown
        plan = ReadPlan(config=engine.config, shards=2, zero_noise=True)
        feed_in_order(engine, LosingRunner(plan, transport, capacity=3), partitions, task_rows=1)
        assert Lost.countdown <= 0
        engine.finish()
        assert records(engine) == expected


def test_it_gives_up_on_a_task_that_is_always_lost(lake: Any) -> None:
    _, partitions, _, _ = lake

    class Never(LocalReading):
        def summary(self) -> Any:
            raise TaskLost

    class Runner(LocalRunner):
        def start(self, task: OrderedTask) -> Reading:
            return Never(self, task)

    transport = InProcessShardTransport(1)
    with ClusterEngine(stream("windowed"), transport, zero_noise=True, clock=lambda: NOW) as engine:
        plan = ReadPlan(config=engine.config, shards=1, zero_noise=True)
        with pytest.raises(ClusterError, match="after 20 attempts"):
            feed_in_order(engine, Runner(plan, transport), partitions, task_rows=1)


def test_new_files_continue_the_stream_and_old_ones_do_not_count_again(tmp_path: Path) -> None:
    names = ("windowed", "sum", "steps", "mean", "all")
    whole = tmp_path / "whole"
    write_lake(whole, files=5)
    expected, alone = run_alone(stream(*names), whole)
    late = 0
    lake = tmp_path / "lake"
    lake.mkdir()
    for day, numbers in enumerate(([0, 1], [2], [3, 4])):
        for number in numbers:
            (whole / f"part-{number}.parquet").rename(lake / f"part-{number}.parquet")
        chosen = stream(*names, directory=tmp_path / "state")
        found, result = run_sharded(chosen, Partition.of([str(lake)], rows=133), 2, finish=day == 2)
        late += result.late_count
    assert without_claims(found) == without_claims(expected)
    assert late == alone.late_count


def test_after_the_end_of_an_input_its_windows_accept_no_rows(tmp_path: Path) -> None:
    """`finish` closes windows whose end the rows have not reached: the next input is late there, as in one process."""
    names = ("windowed", "count", "steps")
    partitions = write_lake(tmp_path / "lake")
    again = write_lake(tmp_path / "again", seed=2)
    transport = InProcessShardTransport(2)
    with ClusterEngine(stream(*names), transport, zero_noise=True, clock=lambda: NOW) as engine:
        plan = ReadPlan(config=engine.config, shards=2, zero_noise=True)
        feed_in_order(engine, LocalRunner(plan, transport), partitions, task_rows=1)
        engine.finish()
        other = [Partition(**{**_fields(part), "name": f"again/{part.name}"}) for part in again]
        result = feed_in_order(engine, LocalRunner(plan, transport), other, task_rows=1)
        assert result.late_count > 1000


def _fields(partition: Partition) -> dict[str, Any]:
    return {name: getattr(partition, name) for name in ("path", "format", "before", "rows")}


# Crashes


class Crash(BaseException):
    """The end of the process."""


class CrashingTransport(InProcessShardTransport):
    """Ends the process before the ``countdown``-th call of a shard."""

    def __init__(self, shards: int, countdown: int) -> None:
        super().__init__(shards)
        self.countdown = countdown

    def send(self, calls: Any) -> list[Any]:
        found = []
        for call in calls:
            self.countdown -= 1
            if self.countdown == 0:
                raise Crash
            found += super().send([call])
        return found


CRASHING = ("windowed", "steps", "sum", "mean", "names")


def crash_at(countdown: int, directory: Path, partitions: list[Partition]) -> tuple[bool, Records]:
    """Run until a crash, then to the end; return whether it crashed, and all answers.

    Noise is drawn: an answer that was published before the crash must be the same afterwards.
    """
    chosen = stream(*CRASHING, directory=directory)
    published: Records = {}
    transport: InProcessShardTransport = CrashingTransport(2, countdown)
    for attempt in range(2):
        try:
            with ClusterEngine(chosen, transport, clock=lambda: NOW) as engine:
                engine.declare("files")
                plan = ReadPlan(config=engine.config, shards=2)
                result = feed_in_order(engine, LocalRunner(plan, transport, capacity=2), partitions, task_rows=1)
                assert not result.interrupted
                engine.finish()
                found = records(engine)
                assert all(found[key] == value for key, value in published.items()), "drawn twice"
                return attempt > 0, found
        except Crash:
            with ClusterEngine(chosen, InProcessShardTransport(2), clock=lambda: NOW) as engine:
                published = records(engine)
            transport = InProcessShardTransport(2)
    raise AssertionError


def crash_points(folder: Path, points: Sequence[int]) -> Iterator[tuple[int, bool, Records]]:
    partitions = write_lake(folder / "lake", files=2, rows=90)
    for point in points:
        yield point, *crash_at(point, folder / f"state-{point}", partitions)


@pytest.mark.parametrize("points", [(9, 31), pytest.param(range(1, 260, 7), marks=pytest.mark.slow)])
def test_a_crash_of_the_coordinator_at_any_call_loses_and_doubles_nothing(
    tmp_path: Path, points: Sequence[int]
) -> None:
    expected, _ = run_alone(stream(*CRASHING), _written(tmp_path))
    crashed = 0
    for point in points:
        ended, found = crash_at_without_noise(point, tmp_path / f"plain-{point}", tmp_path)
        assert without_claims(found) == without_claims(expected), f"crash {point}"
        crashed += ended
    assert crashed
    for point, ended, found in crash_points(tmp_path / "noisy", list(points)[:: max(1, len(points) // 7)]):
        assert {key: len(value) for key, value in found.items()} == {k: len(v) for k, v in expected.items()}, point
        crashed += ended


def _written(folder: Path) -> Path:
    write_lake(folder / "lake", files=2, rows=90)
    return folder / "lake"


def crash_at_without_noise(countdown: int, directory: Path, folder: Path) -> tuple[bool, Records]:
    chosen = stream(*CRASHING, directory=directory)
    partitions = Partition.of([str(folder / "lake")], rows=30)
    transport: InProcessShardTransport = CrashingTransport(2, countdown)
    for attempt in range(2):
        try:
            return attempt > 0, run_sharded(chosen, partitions, 2, transport=transport, capacity=2)[0]
        except Crash:
            transport = InProcessShardTransport(2)
    raise AssertionError


def test_what_was_begun_comes_first_and_must_be_there(tmp_path: Path) -> None:
    folder = _written(tmp_path)
    partitions = Partition.of([str(folder)], rows=30)
    chosen = stream("often", directory=tmp_path / "state")
    transport: InProcessShardTransport = CrashingTransport(2, 12)
    with pytest.raises(Crash):
        run_sharded(chosen, partitions, 2, transport=transport)
    transport = InProcessShardTransport(2)
    with ClusterEngine(chosen, transport, positions=True, zero_noise=True, clock=lambda: NOW) as engine:
        begun = engine.task_in_progress
        assert begun is not None
        plan = ReadPlan(config=engine.config, shards=2, zero_noise=True)
        runner = LocalRunner(plan, transport)
        others = [partition for partition in partitions if partition.name not in begun["names"]]
        with pytest.raises(SourceError, match="was being read when the last run ended"):
            feed_in_order(engine, runner, others, task_rows=1)
        feed_in_order(
            engine, runner, [*others, *(part for part in partitions if part.name in begun["names"])], task_rows=1
        )
        assert runner.tasks[0].names == begun["names"]


def test_a_shard_takes_sections_in_order_and_once(lake: Any) -> None:
    _, partitions, _, _ = lake
    transport = InProcessShardTransport(1)
    with ClusterEngine(stream("often"), transport, zero_noise=True, clock=lambda: NOW) as engine:
        task = OrderedTask(partitions=tuple(partitions[:4]), start=None, steps={}, now=NOW)
        updates = HeldUpdates.read(ReadPlan(config=engine.config, shards=1, zero_noise=True), task)
        assert updates.summary.sections > 2
        (shard,) = transport.open_shards
        arguments = [
            updates.shard_arguments(number, task.names, last=number == updates.summary.sections - 1)[0]
            for number in range(updates.summary.sections)
        ]
        with pytest.raises(StoreError, match="lacks what comes before"):
            shard.apply_section(*arguments[1])
        shard.apply_section(*arguments[0])
        state = shard.gather("0/0/often")
        shard.apply_section(*arguments[0])
        assert shard.gather("0/0/often") == state
        with pytest.raises(StoreError, match="lacks what comes before"):
            shard.apply_section(["another"], 0, True, [], [])
        for own in arguments[1:]:
            shard.apply_section(*own)
        assert shard.status().reading is None
        assert set(task.names) <= {*shard.status().absorbed}


def test_which_streams_workers_read() -> None:
    def readable(chosen: Any) -> bool:
        return can_read_on_workers(chosen, plan_all(chosen))

    assert readable(stream())
    returning = question("back", "SELECT RETENTION(user, 2) FROM s", window="7 days", expected=30_000, horizon=40)
    assert not readable(config(returning, time="at")), "the coordinator follows users over several windows"
    assert not readable(stream("windowed", on_bad_row="stop"))
    assert not readable(config(QUERIES["windowed"])), "arrival times"
    assert readable(config(QUERIES["all"], on_bad_row="stop"))


def test_sums_of_many_windows_are_cut_into_sections(lake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    _, partitions, expected, _ = lake
    monkeypatch.setattr("panstream.distributed.sharded._ordered_reading.SECTION_BYTES", 1000)
    found, _ = run_sharded(stream(), partitions, 2)
    assert found == expected


def test_shards_are_not_moved_while_a_task_is_applied_in_part(tmp_path: Path) -> None:
    partitions = Partition.of([str(_written(tmp_path))], rows=30)
    chosen = stream("steps", directory=tmp_path / "state")
    with pytest.raises(Crash):
        run_sharded(chosen, partitions, 2, transport=CrashingTransport(2, 16))
    with ClusterEngine(chosen, InProcessShardTransport(2), zero_noise=True, clock=lambda: NOW) as engine:
        assert engine.task_in_progress is not None
    with pytest.raises(ConfigError, match="start once with the old number of shards, 2"):
        ClusterEngine(chosen, InProcessShardTransport(3), zero_noise=True, clock=lambda: NOW)
    expected, _ = run_alone(stream("steps"), tmp_path / "lake")
    assert without_claims(run_sharded(chosen, partitions, 2)[0]) == without_claims(expected)
