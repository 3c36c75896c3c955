"""Cropped sums: exact means, the published target, wrap-around, buckets and levels."""

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from panstream.algorithms.turnstile.block_counter import FILL_LIMIT, BlockCounter
from panstream.errors import InvalidParameter
from panstream.privacy.turnstile_loss import _counter_variance
from tests.algorithms.turnstile.helpers import (
    assert_covers,
    assert_linear_law,
    assert_sampling_errs,
    assert_unbiased,
    churn,
    exact_counts,
    exact_plus,
    runs,
)

N = 200


@pytest.mark.parametrize(("prime", "crop"), [(3, 4), (7, 2), (7, 3), (11, 1), (19, 2)])
def test_exact_mean_for_every_net_weight(prime: int, crop: int) -> None:
    """w + (P-w)(1 - min(|a|, crop)/crop) as rationals up to the largest |a|; beyond, the distance to a multiple of
    q.
    """
    largest = (prime - 1) * crop
    counter = BlockCounter(universe=1, epsilon=1.2, crop=crop, largest=largest)
    assert (counter.prime, counter.modulus) == (prime, prime * crop)
    assert counter.law.start is not None
    plus = counter.law.start.plus.probability
    other = Fraction(1, 2) - plus / (prime - 1)
    for weight in [*range(-counter.modulus - 3, counter.modulus + 4), 10**6 + 1]:
        distance = min(weight % counter.modulus, -weight % counter.modulus)
        if abs(weight) <= largest:
            assert min(distance, crop) == min(abs(weight), crop)
        assert exact_counts(counter, weight) == [other + (plus - other) * (1 - Fraction(min(distance, crop), crop))]


@pytest.mark.parametrize("sample", [None, 2000])
def test_unbiased_on_streams_with_deletes(sample: int | None) -> None:
    rng = np.random.default_rng(3)
    net = rng.geometric(0.05, 5000) * rng.choice([-1, 0, 1], 5000)
    counter = BlockCounter(universe=5000, sample=sample, epsilon=1.0, crop=16, largest=1_000_000)
    values, errors, estimates = runs(counter, *churn(net, rng), repeat=N)
    exact = BlockCounter(universe=5000, sample=sample, epsilon=math.inf, crop=16, largest=1_000_000).start()
    exact.update(np.arange(5000), weight=net)
    truth = float(np.minimum(abs(net), 16).sum())
    inner = exact.release().unbiased
    assert inner == truth or sample is not None
    assert_unbiased(values, inner)
    assert_covers(estimates, truth)
    if sample is None:
        assert values.std() == pytest.approx(errors.mean(), rel=0.15)


def test_target_of_the_design() -> None:
    """Total epsilon 1, crop 16, 20,000 users: sd below 5,000 for every stream with |a| up to 160."""
    counter = BlockCounter(universe=20_000, epsilon=1.0, crop=16, largest=160)
    worst = 16 * math.sqrt(_counter_variance(counter.law.epsilon_state, counter.law.kappa, 20_000, counter.prime))
    assert worst == pytest.approx(4731, abs=2)
    rng = np.random.default_rng(5)
    net = rng.integers(-160, 161, 20_000)
    values, errors, _ = runs(counter, np.arange(20_000), net, repeat=150)
    assert errors.max() < 5000
    assert values.std() < 5000 * 1.2
    assert_unbiased(values, float(np.minimum(abs(net), 16).sum()))


def test_state_noise_of_the_reference_design() -> None:
    """epsilon_state 1: between the sd with nobody and with everybody at the crop (4,424 and 4,366 lie between)."""
    for prime, quoted in ((31, 4424), (23, 4366)):
        ends = []
        for total in (0.0, 20_000 * 16.0):
            plus = (prime - 1) * math.e / ((prime - 1) * math.e + prime + 1)
            other = 0.5 - plus / (prime - 1)
            chance = other + (plus - other) * (1 - total / 320_000)
            ends.append(16 * math.sqrt(20_000 * chance * (1 - chance)) / (plus - other))
        assert ends[0] < quoted < ends[1]


def test_without_noise_it_is_exact_and_wraps_as_documented() -> None:
    counter = BlockCounter(universe=4, epsilon=math.inf, crop=4, largest=24)
    assert counter.modulus == 28
    monitor = counter.start()
    monitor.update([0, 1, 2, 3], weight=[-24, 3, 27, 28])
    estimate = monitor.release()
    assert estimate.value == 4 + 3 + 1 + 0
    assert 0 <= estimate.value <= 16


@pytest.mark.parametrize("users", [40, 4_000])
def test_levels_read_the_first_that_is_not_crowded(users: int) -> None:
    counter = BlockCounter(buckets=512, levels=8, epsilon=3.0, crop=8, largest=4000)
    ids = [f"user-{i}" for i in range(users)]
    net = np.random.default_rng(2).integers(1, 20, users)
    truth = float(np.minimum(net, 8).sum())
    values, errors, estimates = runs(counter, ids, net, repeat=100)
    assert_covers(estimates, truth, 0.9)
    spread = errors.mean()
    # Hashing is fixed over the runs, so the mean is off by its luck and by collisions, not only by the noise.
    luck = math.sqrt(8 * truth * 2 ** max(0.0, math.log2(truth / (512 * 8 * FILL_LIMIT))))
    assert abs(values.mean() - truth) < 4 * spread / 10 + 3 * luck + 0.07 * truth
    assert values.std() < 1.3 * spread


def test_collisions_hide_at_most_what_is_stated() -> None:
    """Lemma 3: with weights of one sign the sum is between the sum read and -ln(1-x)/x times it, on average over
    keys.
    """
    rng = np.random.default_rng(4)
    net = rng.geometric(0.2, 600)
    truth = float(np.minimum(net, 8).sum())
    read = []
    for key in range(60):
        counter = BlockCounter(buckets=1024, epsilon=math.inf, crop=8, largest=10_000, key=key)
        monitor = counter.start()
        monitor.update(np.arange(600), weight=net)
        read.append(monitor.release().unbiased)
    mean = float(np.mean(read))
    slack = 4 * float(np.std(read)) / math.sqrt(60)
    assert mean - slack <= truth <= mean * counter.collision_factor(mean) + slack
    assert truth - mean > 10 * slack / 4  # there is something to hide in this table
    assert counter.collision_factor(0.0) == 1.0
    assert counter.collision_factor(1024 * 8) == math.inf


def test_error_bounds_and_bad_parameters() -> None:
    counter = BlockCounter(buckets=256, levels=4, epsilon=1.0, crop=4)
    assert counter.error_bound(beta=0.01) > counter.error_bound(beta=0.1) > 0
    bad: list[tuple[dict[str, Any], str]] = [
        ({"crop": 0}, "crop must be"),
        ({"crop": 2, "largest": 0}, "largest and crop"),
        ({"crop": 1 << 61}, "largest and crop"),
    ]
    for parameters, message in bad:
        with pytest.raises(InvalidParameter, match=message):
            BlockCounter(universe=10, epsilon=1.0, **parameters)
    with pytest.raises(InvalidParameter, match="beta must be"):
        counter.error_bound(beta=0.0)


@pytest.mark.parametrize("crop", [1, 3])
def test_the_error_of_one_user_is_that_of_a_bit(crop: int) -> None:
    counter = BlockCounter(universe=1, epsilon=1.2, crop=crop, largest=6 * crop)
    assert_linear_law(
        counter, counter._linear(), {float(load): float(exact_counts(counter, load)[0]) for load in range(crop + 1)}
    )


def test_without_noise_only_the_sample_errs() -> None:
    whole = BlockCounter(universe=5, epsilon=math.inf, crop=4, largest=8)
    assert_sampling_errs(whole, replace(whole, sample=2), top=4)
    assert whole._decode((whole.cells * 4,)).standard_error == 0.0


def test_a_bucket_is_full_at_most_once() -> None:
    """Where more is said to have come than a level can hold, all its counters are elsewhere: their bits have that
    chance.
    """
    counter = BlockCounter(buckets=64, levels=3, epsilon=2.0, crop=4, largest=40)
    # As much as the last level can tell; twice as much as the first
    law = counter.law
    total = 64.0 * 4 * 4
    weights = np.array([0.25, 0.0625, 0.0625]) / 0.375
    bits = 64 * law.elsewhere * (1 - law.elsewhere) + law.noise.variance
    shares = np.array([0.5, 0.25, 0.25])
    exact = ((weights / shares) ** 2).sum() * (4 / law.gap) ** 2 * bits
    thinned = 4 * total * ((weights**2 / shares).sum() - 1)
    assert counter._level_law(0).variance(total) == pytest.approx(exact + thinned, rel=1e-9)


@pytest.mark.parametrize(("crop", "users"), [(2, 0), (2, 130), (3, 400)])
def test_what_is_foreseen_is_what_users_at_the_crop_give_on_average(crop: int, users: int) -> None:
    """The exact means of one user at the crop and at 0, from the first test here."""
    counter = BlockCounter(universe=400, epsilon=1.2, crop=crop, largest=2 * crop)
    plus, other = exact_plus(counter)
    found = counter.expected_estimate(users * crop)
    assert found.released == (round(users * other + (400 - users) * plus),)
    assert found.unbiased == pytest.approx(users * crop, abs=crop / counter.law.gap)


def test_what_is_foreseen_of_an_open_universe_is_the_total_where_few_share_buckets() -> None:
    counter = BlockCounter(epsilon=1.2, crop=2, largest=4, buckets=1 << 12, levels=10)
    for users in (50, 300):
        assert counter.expected_estimate(users * 2).unbiased == pytest.approx(
            users * 2, rel=0.05, abs=8 / counter.law.gap
        )
