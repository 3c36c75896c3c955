"""Distinct counts under inserts and deletes: exact means, bias, spread, intervals, open universes, bad input."""

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from panstream import Monitor
from panstream.algorithms.turnstile.legendre_counter import LegendreCounter
from panstream.errors import BudgetExhausted, InvalidBatch, InvalidParameter
from panstream.primitives.noise import SeededSource
from tests.algorithms.turnstile.helpers import (
    assert_covers,
    assert_linear_law,
    assert_unbiased,
    churn,
    exact_counts,
    exact_plus,
    runs,
)

N = 250


@pytest.mark.parametrize("prime", [7, 11, 23])
def test_exact_mean_for_every_net_weight(prime: int) -> None:
    """Unbiased as rationals: P at multiples of p, w = 1/2 - P/(p-1) everywhere else, whatever the size of the
    weight.
    """
    counter = LegendreCounter(universe=1, epsilon=1.2, prime=prime)
    assert counter.law.start is not None
    plus = counter.law.start.plus.probability
    for weight in [*range(-prime - 2, prime + 3), 10**6, -(10**6)]:
        expected = plus if weight % prime == 0 else Fraction(1, 2) - plus / (prime - 1)
        assert exact_counts(counter, weight) == [expected]


@pytest.mark.slow
@pytest.mark.parametrize(("sample", "epsilon"), [(None, 1.0), (None, 0.2), (1500, 2.0)])
def test_unbiased_on_streams_with_deletes(sample: int | None, epsilon: float) -> None:
    rng = np.random.default_rng(7)
    net = rng.integers(-(10**6), 10**6, 4000) * (rng.random(4000) < 0.4)
    counter = LegendreCounter(universe=4000, sample=sample, epsilon=epsilon)
    values, errors, estimates = runs(counter, *churn(net, rng), repeat=N)
    assert_unbiased(values, _noiseless(counter, net))  # with a sample: what the fixed, public sample itself says
    assert_covers(estimates, float(np.count_nonzero(net)))
    if sample is None:
        assert values.std() == pytest.approx(errors.mean(), rel=0.15)


def _noiseless(counter: LegendreCounter, net: Any) -> float:
    monitor = replace(counter, epsilon=math.inf).start()
    monitor.update(np.arange(net.size), weight=net)
    return monitor.release().unbiased


def test_variance_formula() -> None:
    """1/tanh² for users away from zero, 1/sinh² for users at zero."""
    counter = LegendreCounter(universe=100_000, epsilon=1.0)
    half = counter.law.epsilon_state / 2
    noise = counter.law.noise.variance / counter.law.gap**2
    for share, factor in ((0.0, 1 / math.sinh(half) ** 2), (1.0, 1 / math.tanh(half) ** 2)):
        assert counter._linear().variance(share * 100_000) == pytest.approx(100_000 * factor, rel=1e-9)
    assert counter.error_bound(beta=0.05) > 1.96 * math.sqrt(100_000 / math.tanh(half) ** 2 + noise)


def test_without_noise_it_is_exact() -> None:
    net = np.array([3, -3, 0, 10**6, 0, -1])
    counter = LegendreCounter(universe=6, epsilon=math.inf)
    assert _noiseless(counter, net) == 4.0
    monitor = counter.start()
    monitor.update([0, 1, 1], weight=[5, -7, 7])
    estimate = monitor.release()
    assert (estimate.value, estimate.standard_error, estimate.claim.epsilon) == (1.0, 0.0, math.inf)


def test_net_weights_that_are_multiples_of_the_prime_count_as_zero() -> None:
    counter = LegendreCounter(universe=3, epsilon=math.inf, prime=11)
    monitor = counter.start()
    monitor.update([0, 1, 2], weight=[11, -22, 12])
    assert monitor.release().value == 1.0


@pytest.mark.slow
@pytest.mark.parametrize("independence", [None, 4, 5])
@pytest.mark.parametrize(("levels", "users"), [(1, 0), (1, 700), (6, 300), (6, 12_000)])
def test_open_universe(levels: int, users: int, independence: int | None) -> None:
    counter = LegendreCounter(buckets=1024, levels=levels, epsilon=2.0, independence=independence)
    names = [f"user-{i}" for i in range(2 * users)]
    weights = np.ones(2 * users, np.int64) * 5
    ids = names + names[:users]
    every = np.concatenate([weights, -weights[:users]])
    values, errors, estimates = runs(counter, ids, every, repeat=60)
    assert_covers(estimates, users, 0.9)
    spread = counter.occupancy.standard_error(max(users, 1))
    if users:
        hashing = math.sqrt(users) / 2  # the hash function is fixed over the runs; this much is its own luck
        assert abs(values.mean() - users) < 4 * values.std() / math.sqrt(values.size) + 2 * hashing + 0.02 * users
        assert values.std() < 1.3 * spread + hashing
        assert errors.mean() == pytest.approx(spread, rel=0.3)


def test_users_in_one_bucket_do_not_cancel() -> None:
    """Public multipliers: +1 for one user and -1 for another in the same bucket is not zero."""
    counter = LegendreCounter(buckets=1, epsilon=math.inf)
    monitor = counter.start()
    monitor.update(["ann"], weight=5)
    monitor.update(["bob"], weight=-5)
    assert monitor.state.counters[0] != 0
    monitor.update(["ann"], weight=-5)
    monitor.update(["bob"], weight=5)
    assert monitor.state.counters[0] == 0


def test_kinds_of_ids_agree() -> None:
    """Strings, bytes, dictionaries and chunks of integers reach the same cells as one array of them."""
    counter = LegendreCounter(buckets=64, levels=4, epsilon=math.inf)
    texts = [f"u{i % 50}" for i in range(70_000)]
    weights = np.arange(70_000) % 7 - 3
    states = []
    for ids in (texts, [t.encode() for t in texts], pa.array(texts).dictionary_encode(), np.array(texts)):
        monitor = counter.start()
        monitor.update(ids, weight=weights)
        states.append(monitor.state.counters.tolist())
    assert all(state == states[0] for state in states)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"universe": 10, "buckets": 5}, "either universe"),
        ({}, "either universe"),
        ({"universe": 10, "sample": 11}, "sample must be"),
        ({"universe": 0}, "universe must be"),
        ({"universe": 10, "levels": 2}, "levels= and independence="),
        ({"buckets": 5, "sample": 2}, "sample= belongs"),
        ({"buckets": 5, "levels": 40}, "levels must be"),
        ({"buckets": 5, "levels": 30, "independence": 3}, "levels must be"),
        ({"buckets": 5, "independence": 1}, "independence must be"),
        ({"universe": 10, "epsilon": 0.0}, "epsilon must be positive"),
        ({"universe": 10, "max_weight": 0}, "max_weight must be"),
        ({"universe": 10, "releases": 0}, "releases must be"),
        ({"universe": 10, "adjacency": "nearby"}, "adjacency must be"),
        ({"universe": 10, "prime": 13}, "prime must be"),
        ({"universe": 10, "key": -1}, "key must be"),
        ({"universe": 1 << 40}, "fewer than 2\\*\\*32 counters"),
    ],
)
def test_parameters_that_contradict_each_other(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidParameter, match=message):
        LegendreCounter(**{"epsilon": 1.0, **parameters})


@pytest.mark.parametrize(
    ("ids", "weight", "row"),
    [
        ([0, 1, 2], [1, -1001, 1], 1),
        ([0, 1, 2], 1001, 0),
        ([0, 1, 2], [1, 1001, -1001], 1),
        ([0, 10, 2], 1, 1),
        ([0, 1], [1, 2, 3], None),
        ([0, 1], [1.5, 2.0], 0),
        ([0, 1], True, None),
        ([0, None], 1, 1),
    ],
)
def test_a_bad_row_refuses_the_batch_and_changes_nothing(ids: Any, weight: Any, row: int | None) -> None:
    monitor = LegendreCounter(universe=10, epsilon=1.0, max_weight=1000).start()
    before = monitor.state.counters.copy()
    with pytest.raises(InvalidBatch) as caught:
        monitor.update(ids, weight=weight)
    assert caught.value.row == row
    assert "1001" not in str(caught.value)
    assert (monitor.state.counters == before).all()


def test_copies_of_the_input_are_wiped_when_a_batch_is_refused() -> None:
    counter = LegendreCounter(universe=10, epsilon=1.0)
    batch = counter.batch([1, 2, 3], weight=[4, 5, 6])
    batch.wipe()
    assert not batch.weights.any() and not np.asarray(batch.ids).any()


def test_releases_are_counted_and_bytes_remember() -> None:
    counter = LegendreCounter(universe=200, epsilon=1.0, releases=2, sample=64)
    monitor = counter.start()
    monitor.update(range(100), weight=2)
    monitor.release()
    again = Monitor(counter, state=monitor.state, rng=SeededSource(1))
    again.release()
    with pytest.raises(BudgetExhausted):
        again.release()
    assert counter.claim().releases == 2 and counter.layout()["counters"].below == counter.prime


def test_error_of_an_open_universe() -> None:
    counter = LegendreCounter(buckets=1024, levels=6, epsilon=2.0)
    assert counter.error_at(1000, beta=0.05) == pytest.approx(1.96 * counter.occupancy.standard_error(1000), rel=1e-3)
    assert counter.error_bound(beta=0.05) > counter.error_at(1000, beta=0.05)
    with pytest.raises(InvalidParameter, match="occupancy belongs"):
        _ = LegendreCounter(universe=10, epsilon=1.0).occupancy


def test_the_split_is_for_the_counters_that_one_release_adds_up() -> None:
    """Levels are released one by one, so a counter of many levels splits like one with a single level of its size."""
    many, one = (LegendreCounter(buckets=256, levels=levels, epsilon=1.0) for levels in (8, 1))
    assert many.law == one.law


@pytest.mark.parametrize(("users", "sample"), [(0, None), (130, None), (400, None), (130, 200)])
def test_what_is_foreseen_is_what_users_give_on_average(users: int, sample: int | None) -> None:
    """The exact means of one user with a net weight and of one without, from the first test here."""
    counter = LegendreCounter(universe=400, epsilon=1.2, sample=sample)
    plus, other = exact_plus(counter)
    mean = (users * other + (400 - users) * plus) * Fraction(sample or 400, 400)
    assert counter.expected_estimate(users).released == (round(mean),)
    assert counter.expected_estimate(500).released == counter.expected_estimate(400).released  # there are no more users


def test_the_error_of_one_user_is_that_of_a_bit() -> None:
    counter = LegendreCounter(universe=1, epsilon=1.2, prime=11)
    assert_linear_law(counter, counter._linear(), {float(net): float(exact_counts(counter, net)[0]) for net in (0, 1)})


def test_the_error_at_a_number_of_users_is_that_of_a_normal_law() -> None:
    counter = LegendreCounter(buckets=64, levels=3, epsilon=2.0)
    for users in (1.0, 100.0):
        spread = counter.occupancy.standard_error(users)
        for beta in (0.3, 0.01):
            assert counter.error_at(users, beta=beta) == pytest.approx(spread * stats.norm.isf(beta / 2), rel=1e-6)
