"""Numbers of users at every tick: the bits are on shards, the noisy tree over their numbers is with the coordinator."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from panstream.algorithms.continual_users.ones_counter import SetBitCounter
from panstream.distributed.sharded._coordinator import ClusterEngine
from panstream.distributed.sharded._ordered_feed import feed_in_order
from panstream.distributed.sharded._transport import InProcessShardTransport
from panstream.distributed.sharded._worker_reading import Partition, ReadPlan, can_read_on_workers
from panstream.distributed.sharded.explain import shard_locations
from panstream.engine.planner.query_plan import plan_all
from panstream.engine.runtime.engine import Engine
from panstream.engine.runtime.ingest import ingest, ingest_all, open_configured_source
from panstream.engine.runtime.selector import Selector
from panstream.errors import NotSupported
from tests.distributed.sharded.ordered_tasks import (
    NOW,
    USERS,
    LocalRunner,
    Records,
    records,
    without_claims,
    write_lake,
)
from tests.distributed.sharded.test_ordered_reading import ORDERS, Crash, CrashingTransport
from tests.engine.runtime.streams import config, question
from tests.zero_noise import ZeroNoiseSource

PEOPLE = "SELECT COUNT(DISTINCT user) FROM s"
QUERIES = {
    "tree": question("tree", PEOPLE, universe=USERS, every="30 minutes", horizon=100, unit="event"),
    "bitmap": question("bitmap", PEOPLE, expected=200, memory=4000, every="1 hour", horizon=100, unit="user"),
    "paid": question("paid", "SELECT DENSITY(user) FROM s", universe=USERS, every="2 hours", horizon=3, unit="user"),
    "soon_over": question("soon_over", PEOPLE, universe=USERS, every="1 hour", horizon=3, unit="event"),
    "within": question("within", PEOPLE, universe=USERS, every="1 hour", window="3 hours", unit="event"),
    "once": question("once", "SELECT DENSITY(user) FROM s", universe=USERS, expected=100, window="2 hours"),
    "groups": question(
        "groups",
        "SELECT region, COUNT(DISTINCT user) FROM s GROUP BY region",
        universe=USERS,
        every="1 hour",
        horizon=50,
        unit="event",
        groups={"region": ["a", "b"]},
    ),
    "sum": question("sum", "SELECT SUM(value) FROM s", lower=0, upper=8, every="30 minutes", horizon=100),
}


def stream(*names: str, **more: Any) -> Any:
    return config(*(QUERIES[name] for name in names or QUERIES), time="at", lateness="20 minutes", **more)


@pytest.fixture
def exact_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let shards draw no noise."""
    monkeypatch.setattr("panstream.distributed.sharded._shard.NoiseSource", ZeroNoiseSource)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Partition], Records]:
    folder = tmp_path_factory.mktemp("lake")
    partitions = write_lake(folder)
    with Engine(stream(), rng=ZeroNoiseSource(), clock=lambda: NOW) as engine:
        ingest(engine, [str(folder)])
        engine.finish()
        return folder, partitions, without_claims(records(engine))


def read(chosen: Any, transport: InProcessShardTransport, partitions: list[Partition], **options: Any) -> Records:
    """Return what a cluster answers whose tasks are read in a forced order."""
    with ClusterEngine(chosen, transport, positions=True, rng=ZeroNoiseSource(), clock=lambda: NOW) as engine:
        assert can_read_on_workers(engine.config, engine.plans)
        runner = LocalRunner(ReadPlan(config=engine.config, shards=transport.shards), transport, **options)
        engine.declare("files")
        feed_in_order(engine, runner, partitions, task_rows=1)
        engine.finish()
        return without_claims(records(engine))


def test_these_queries_count_cells_by_all_strategies() -> None:
    plans = {plan.config.name: plan.algorithm for plan in plan_all(stream())}
    counters = {name: algorithm for name, algorithm in plans.items() if isinstance(algorithm, SetBitCounter)}
    assert set(counters) == set(QUERIES) - {"sum"}
    assert {algorithm.strategy.method for algorithm in counters.values()} >= {"event", "paid"}
    assert "coordinator holds the noisy sums over ticks" in shard_locations(plan_all(stream("tree")), 2)[0]["why"]


SLOW = pytest.mark.slow
CASES = [
    (3, "last to first"),
    *(
        pytest.param(shards, order, marks=SLOW)
        for shards in (1, 2, 3, 7)
        for order in ORDERS
        if (shards, order) != (3, "last to first")
    ),
]


@pytest.mark.parametrize(("shards", "order"), CASES)
@pytest.mark.usefixtures("exact_shards")
def test_answers_are_those_of_one_process(lake: Any, shards: int, order: str) -> None:
    _, partitions, expected = lake
    found = read(stream(), InProcessShardTransport(shards), partitions, order=ORDERS[order], capacity=5)
    assert found == expected
    assert len([key for key in found if key[0] == "soon_over"]) == 3


@pytest.mark.slow
@pytest.mark.parametrize("shards", [1, 2, 3, 7])
@pytest.mark.usefixtures("exact_shards")
def test_answers_are_those_of_one_process_where_the_coordinator_reads(lake: Any, shards: int) -> None:
    folder, _, expected = lake
    transport = InProcessShardTransport(shards)
    with ClusterEngine(stream(), transport, positions=True, rng=ZeroNoiseSource(), clock=lambda: NOW) as engine:
        engine.declare("files")
        source = open_configured_source(engine.config, [str(folder)])
        with Selector(engine.config) as select:
            ingest_all(engine, source, select)
        engine.finish()
        assert without_claims(records(engine)) == expected


@pytest.mark.parametrize("points", [(9,), pytest.param(range(3, 200, 7), marks=SLOW)])
@pytest.mark.usefixtures("exact_shards")
def test_a_crash_at_any_call_loses_and_doubles_nothing(lake: Any, tmp_path: Path, points: Any) -> None:
    _, partitions, _ = lake
    names = ("tree", "bitmap", "within", "sum")
    few = partitions[:4]
    expected = read(stream(*names), InProcessShardTransport(2), few)
    crashed = 0
    for point in points:
        chosen = stream(*names, directory=tmp_path / str(point))
        try:
            found = read(chosen, CrashingTransport(2, point), few, capacity=2)
        except Crash:
            crashed += 1
            found = read(chosen, InProcessShardTransport(2), few, capacity=2)
        assert found == expected, point
    assert crashed


@pytest.mark.usefixtures("exact_shards")
def test_rows_after_the_last_answer_reach_no_shard(lake: Any) -> None:
    """They are refused on one machine, too: the claim is about the rows up to the last tick."""
    folder, partitions, _ = lake
    transport = InProcessShardTransport(2)
    chosen = stream("soon_over")
    with ClusterEngine(chosen, transport, rng=ZeroNoiseSource(), clock=lambda: NOW) as engine:
        runner = LocalRunner(ReadPlan(config=engine.config, shards=2), transport, order=ORDERS["last to first"])
        engine.declare("files")
        feed_in_order(engine, runner, partitions, task_rows=1)
        ones = [int(np.bitwise_count(shard._states["0/0/soon_over"].bits).sum()) for shard in transport.open_shards]
    with Engine(chosen, rng=ZeroNoiseSource(), clock=lambda: NOW) as alone:
        ingest(alone, [str(folder)])
        state: Any = alone.running_query("soon_over").monitors[0, 0]
        assert sum(ones) == int(np.bitwise_count(state.state.bits).sum())


def test_the_coordinator_holds_no_bits_and_no_number_of_them() -> None:
    """Its open nodes are a number of ones and a draw: over many starts, they have the spread of that draw."""
    chosen = stream("tree")
    spread: list[float] = []
    for _ in range(60):
        transport = InProcessShardTransport(2)
        with ClusterEngine(chosen, transport, clock=lambda: NOW) as engine:
            counter: Any = engine.running_query("tree").monitors[0, 0]
            ones = sum(int(np.bitwise_count(shard._states["0/0/tree"].bits).sum()) for shard in transport.open_shards)
            assert counter.state.bits.size == 0
            spread.append(float(counter.state.open[0, 0]) + ones)
    draw = engine.plans[0].algorithm.engine.law().variance
    ratio = float(np.mean(np.square(spread))) / draw
    # Of 60 squared Laplace draws (fourth moment 6 times the squared variance) the mean has a relative standard
    # deviation of sqrt(5 / 60) = .29; without the draw it is 0, with half of it .25. Errs less than once in 1e4.
    assert 0.3 < ratio < 2.6


def test_announced_copies_are_refused_as_on_one_machine() -> None:
    with ClusterEngine(stream("tree"), InProcessShardTransport(2), rng=ZeroNoiseSource()) as engine:
        counter: Any = engine.running_query("tree").monitors[0, 0]
        with pytest.raises(NotSupported, match="one intrusion"):
            counter.refresh()


@pytest.mark.slow
def test_with_noise_the_answers_have_the_law_of_one_machine(lake: Any) -> None:
    """The last answers of 120 runs on each side: means and spreads agree within four standard errors."""
    _, partitions, _ = lake
    chosen = stream("tree")
    found: dict[str, list[float]] = {"one": [], "many": []}
    shuffle = random.Random(1)
    for _ in range(120):
        for kind in found:
            transport = InProcessShardTransport(3)
            engine: Engine = (
                Engine(chosen, clock=lambda: NOW)
                if kind == "one"
                else ClusterEngine(chosen, transport, clock=lambda: NOW)
            )
            with engine:
                if isinstance(engine, ClusterEngine):
                    plan = ReadPlan(config=engine.config, shards=3)
                    runner = LocalRunner(plan, transport, order=lambda count: shuffle.sample(range(count), count))
                    engine.declare("files")
                    feed_in_order(
                        engine, runner, [part for part in partitions if part.path == partitions[0].path], task_rows=1
                    )
                else:
                    ingest(engine, [partitions[0].path])
                engine.finish()
                found[kind].append([*engine.log.history()][-1].record["unclipped"])
    one, many = (np.array(values) for values in found.values())
    assert abs(one.mean() - many.mean()) < 4 * np.sqrt((one.var() + many.var()) / 120)
    assert 0.55 < many.std() / one.std() < 1.8
