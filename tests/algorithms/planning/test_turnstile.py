"""Which counter, what error: plans against the counters themselves and against simulation."""

import json
import math
from typing import Any

import numpy as np
import pytest

from panstream.algorithms.planning.tables import PlanTable
from panstream.algorithms.planning.turnstile import (
    counter_epsilon,
    counter_error,
    turnstile_plan,
)
from panstream.algorithms.turnstile.block_counter import BlockCounter
from panstream.algorithms.turnstile.heavy_hitter_count import HeavyHitterCount
from panstream.algorithms.turnstile.legendre_counter import LegendreCounter
from panstream.algorithms.turnstile.modular_counter import ModularCounter
from panstream.algorithms.turnstile.profile_sketch import ProfileSketch
from panstream.errors import InvalidParameter
from panstream.primitives.noise import SeededSource

COUNTERS: list[tuple[ModularCounter, int | None]] = [
    (LegendreCounter(universe=5000, epsilon=1.0), None),
    (LegendreCounter(buckets=512, levels=4, epsilon=1.0), 2000),
    (BlockCounter(universe=5000, epsilon=1.0, crop=8, largest=80), None),
    (HeavyHitterCount(universe=5000, epsilon=1.0, threshold=100, largest=1000), None),
    (ProfileSketch(universe=5000, epsilon=1.0, largest=20), None),
]


@pytest.mark.parametrize(("counter", "users"), COUNTERS, ids=lambda value: type(value).__name__)
def test_error_and_epsilon_are_inverse(counter: ModularCounter, users: int | None) -> None:
    error = counter_error(counter, 0.05, users=users)
    assert counter_epsilon(counter, error * (1 + 1e-6), 0.05, users=users) == pytest.approx(1.0, rel=1e-3)
    assert counter_epsilon(counter, 2 * error, 0.05, users=users) < 1.0
    with pytest.raises(InvalidParameter, match="not reached"):
        counter_epsilon(counter, 1e-6, 0.05, users=users)


@pytest.mark.slow
def test_planned_error_is_kept_in_simulation() -> None:
    beta = 0.2
    runs = 200
    rng = np.random.default_rng(3)
    counter = BlockCounter(universe=2000, epsilon=1.0, crop=8, largest=80)
    net = rng.integers(-80, 81, 2000)
    truth = float(np.minimum(abs(net), 8).sum())
    source = SeededSource(9)
    batch = counter.batch(np.arange(2000), weight=net)
    outside = 0
    for _ in range(runs):
        with source:
            state = counter.initial_state(source)
            counter.update(state, batch, source)
            outside += abs(counter.release(state, source).unbiased - truth) > counter_error(counter, beta)
    assert outside <= runs * beta + 5 * math.sqrt(runs * beta * (1 - beta))
    assert outside >= 0.3 * runs * beta  # and the plan does not just promise too much


def plan(question: Any, **given: Any) -> PlanTable:
    return turnstile_plan(question, **{"epsilon": 1.0, "users": 20_000, "universe": 20_000, **given})


def test_dedicated_counters_come_first_and_rows_are_ordered() -> None:
    for found, best in (
        (plan("distinct", largest=500), "LegendreCounter"),
        (plan("cropped sum", crop=16, largest=160), "BlockCounter"),
        (plan("heavy hitters", threshold=100, total_weight=1_000_000, largest=1000), "HeavyHitterCount"),
    ):
        totals = [row.error + row.bias for row in found.rows]
        assert totals == sorted(totals)
        assert found.rows[0].name == best and found.rows[0].useful
        assert {row.name for row in found.rows} >= {best, "ProfileSketch"}


def test_few_users_of_a_large_universe_belong_in_buckets() -> None:
    found = plan("distinct", users=1500, universe=2_000_000)
    assert found.rows[0].setting.startswith("buckets=")
    assert [row.useful for row in found.rows] == [True, False]
    assert found.rows[0].error == pytest.approx(
        LegendreCounter(buckets=int(found.rows[0].setting.split(",")[0][8:]), epsilon=1.0).error_at(1500, beta=0.05),
        rel=0.2,
    )


def test_it_says_when_heavy_hitters_drown() -> None:
    found = plan("heavy hitters", threshold=10_000, total_weight=100_000, largest=10_000)
    assert found.asked["largest_answer"] == 10
    assert not any(row.useful for row in found.rows)
    assert all("useless" in row.note and "sqrt(k)/epsilon" in row.note for row in found.rows)


def test_net_weights_below_zero_cost_readings_and_need_a_known_universe() -> None:
    above, below = (plan("heavy hitters", threshold=4, largest=20, min_net_weight=least) for least in (None, -9))
    assert [row.name for row in below.rows] == ["HeavyHitterCount", "ProfileSketch"]
    readings = HeavyHitterCount(universe=20_000, epsilon=1.0, threshold=4, min_net_weight=-9, largest=20)
    assert below.rows[0].error == counter_error(readings) > 1.5 * above.rows[0].error
    with pytest.raises(InvalidParameter, match="universe must be given where net weights may end below 0"):
        plan("heavy hitters", threshold=4, universe=None, total_weight=1000, min_net_weight=-9)


def test_table_and_json() -> None:
    found = plan("heavy hitters", threshold=50, universe=None, total_weight=100_000)
    text = found.table()
    assert text.splitlines()[0].startswith("heavy hitters, 20,000 users, epsilon 1 in total")
    assert all(row.setting in text for row in found.rows)
    again = json.loads(json.dumps(found.to_json()))
    assert again["rows"][0]["name"] == found.rows[0].name and again["question"] == "heavy hitters"
    assert again["largest_answer"] == found.asked["largest_answer"]


def test_replace_adjacency_and_more_releases_cost_accuracy() -> None:
    base = plan("distinct").rows[0].error
    assert plan("distinct", adjacency="replace").rows[0].error > 1.8 * base
    assert plan("distinct", releases=10).rows[0].error > base


@pytest.mark.parametrize(
    ("question", "given", "message"),
    [
        ("cropped sum", {}, "crop must be given"),
        ("heavy hitters", {}, "threshold must be given"),
        ("median", {}, "question must be"),
        ("distinct", {"users": 30_000}, "users must be"),
        ("distinct", {"users": 0}, "users must be"),
    ],
)
def test_questions_are_checked(question: Any, given: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidParameter, match=message):
        plan(question, **given)
