"""The cropped mean that goes on after an announced intrusion: exact loss, unbiased, sabotage caught."""

import itertools
import math
import os
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from scipy import integrate, stats

from panstream import Monitor
from panstream.algorithms.density import RefreshableCroppedMean
from panstream.errors import NotSupported
from panstream.primitives.noise import DiscreteLaplace, NoiseSource, SeededSource
from panstream.primitives.packed_bits import draw_packed_bits
from panstream.privacy import two_phase_loss as paired
from panstream.privacy.joint_loss import log_mixture
from panstream.privacy.two_phase_loss import (
    _reading_variance,
    decode_reading,
    noise_weights,
    paired_split,
    worst_variance,
)
from panstream.testing.enumeration import Enumerator, enumerate_streams, refresh, release, update
from tests.statistical import assert_mean, assert_rate

PHASES: list[Any] = [None, refresh(), None, release(), None]
LOOKS = (None, 2, 3, 4, 5)  # in the last phase; the first was seen when it was announced
ACTIONS = [update([0] * times) for times in range(3)]
FULL = os.environ.get("PANSTREAM_FULL") == "1"


def paired_loss(epsilon_state: float, kappa: float, kappa_pairs: float, releases: int = 1) -> float:
    """The joint loss of one announced look, one unannounced look after it, and some releases: Theorem 4."""
    return 2 * epsilon_state + releases * kappa_pairs + log_mixture(epsilon_state, releases * kappa)


def loss(algorithm: RefreshableCroppedMean, slots: list[Any] = PHASES, looks: Any = LOOKS) -> float:
    return Enumerator(algorithm, window=(-1, 2)).joint_loss(enumerate_streams(slots, ACTIONS), looks).epsilon


@pytest.mark.slow
def test_claim_is_the_enumerated_joint_loss() -> None:
    algorithm = RefreshableCroppedMean(universe=1, epsilon=2.0, crop=2)
    assert loss(algorithm) == pytest.approx(2.0, rel=1e-9)
    assert algorithm.claim().epsilon == 2.0 and algorithm.claim().intrusions.announced == 1
    law = algorithm.law
    assert paired_loss(law.epsilon_state, law.noise.kappa, algorithm.pair_noise.kappa) == pytest.approx(2.0, rel=1e-9)


@pytest.mark.slow
def test_other_orders_lose_no_more() -> None:
    algorithm = RefreshableCroppedMean(universe=1, epsilon=2.0, crop=2)
    assert 1.8 < loss(algorithm, [None, refresh(), None, None, release()]) < 2.0
    assert 1.8 < loss(RefreshableCroppedMean(universe=1, epsilon=2.0, crop=1)) < 2.0
    two = RefreshableCroppedMean(universe=1, epsilon=2.0, crop=2 if FULL else 1, releases=2)
    assert 1.0 < loss(two, [None, release(), refresh(), None, release()], (None, 3, 4, 5)) <= 2.0 + 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class _KeepsCounters(RefreshableCroppedMean):
    """Sabotage: counters go on after they were seen."""

    def refresh_shard(self, state: Any, count: int, rng: NoiseSource) -> None:
        state.seen_counters = state.counters[np.newaxis].copy()
        state.seen_bits = state.bits[np.newaxis].copy()
        draw_packed_bits(self.law.absent, count, rng, state.bits)


@dataclass(frozen=True, slots=True, kw_only=True)
class _PairsUnpaid(RefreshableCroppedMean):
    """Sabotage: pairs are published with half their noise."""

    def __post_init__(self) -> None:
        RefreshableCroppedMean.__post_init__(self)
        object.__setattr__(self, "pair_noise", DiscreteLaplace.at_most(2 * self.pair_noise.kappa))


@pytest.mark.slow
def test_sabotage_is_caught() -> None:
    assert loss(_KeepsCounters(universe=1, epsilon=2.0, crop=2)) == math.inf
    assert loss(_PairsUnpaid(universe=1, epsilon=2.0, crop=2)) > 2.1


@pytest.mark.parametrize(("crop", "p1"), [(1, 0.8), (3, 0.7), (4, 0.9)])
def test_mean_and_variance_of_a_reading_are_those_of_all_coins(crop: int, p1: float) -> None:
    worst = 0.0
    for before, after in itertools.product(range(crop + 2), repeat=2):
        first = square = 0.0
        for one, two, seen, bit in itertools.product(range(crop), range(crop), (0, 1), (0, 1)):
            wrapped = p1 if one < before else 1 - p1, p1 if two < after else 1 - p1
            chance = (wrapped[0] if seen else 1 - wrapped[0]) * (wrapped[1] if bit else 1 - wrapped[1]) / crop**2
            value = decode_reading(p1, crop, seen, bit, one + two == crop - 1)
            first = first + chance * value
            square = square + chance * value**2
        assert first == pytest.approx(min(before + after, crop), abs=1e-9)
        assert _reading_variance(p1, crop, before, after) == pytest.approx(square - first**2)
        worst = max(worst, square - first**2)
    assert worst_variance(p1, crop) == pytest.approx(worst)


@pytest.mark.parametrize("crop", [5, 8])
def test_the_worst_variance_is_looked_for_between_the_ends_too(crop: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for before, after in itertools.product(range(crop + 1), repeat=2):
        at = (0.8, crop, before, after)
        monkeypatch.setattr(paired, "_reading_variance", lambda *given, at=at: 2.0 if given == at else 1.0)
        assert worst_variance(0.8, crop) == 2.0


def weights(p1: float, crop: int, seen: int) -> tuple[float, float]:
    """Return by how much the sum of all readings moves with a one, and with a pair that fits, of users seen so."""
    neither, one, pair = (decode_reading(p1, crop, seen, *shown) for shown in ((0, 0), (1, 0), (1, 1)))
    return one - neither, pair - one


@pytest.mark.parametrize(("crop", "p1"), [(1, 0.8), (3, 0.7), (4, 0.9)])
def test_noise_counts_as_the_readings_are_weighed(crop: int, p1: float) -> None:
    ones, pairs = zip(*(weights(p1, crop, seen) for seen in (0, 1)), strict=True)
    assert noise_weights(p1, crop) == pytest.approx((np.square(ones).sum(), np.square(pairs).sum()))


@pytest.mark.parametrize("sample", [None, 30])
def test_the_planned_error_is_a_quantile_of_normal_bits_and_the_larger_noise(sample: int | None) -> None:
    """The noise of pairs of users seen as 1 as a Laplace law of its own, all else as a normal one; by integration."""
    algorithm = RefreshableCroppedMean(universe=60, epsilon=3.0, crop=2, sample=sample)
    p1 = algorithm.law.p1
    cells = algorithm.cells
    crop = 2
    (one, pair), (other, larger) = (weights(p1, crop, seen) for seen in (0, 1))
    noise = (one**2 + other**2) * algorithm.law.noise.variance + pair**2 * algorithm.pair_noise.variance
    left_out = (crop / 2) ** 2 / cells * (60 - cells) / 59
    sigma = math.sqrt(worst_variance(p1, crop) / cells + left_out + noise / cells**2)
    rate = algorithm.pair_noise.kappa * cells / abs(larger)
    for beta in (0.3, 0.01):
        error = algorithm.error_bound(beta=beta)

        def part(x: float, error: float = error) -> float:
            return float(stats.norm.pdf(x, 0, sigma) * stats.laplace.sf(error - x, 0, 1 / rate))

        above, _ = integrate.quad(part, -9 * sigma, 9 * sigma, points=[min(error, 8 * sigma)], limit=200)
        assert above == pytest.approx(beta / 2, rel=1e-5)


@pytest.mark.parametrize("sample", [None, 300])
def test_unbiased_with_honest_standard_errors(sample: int | None) -> None:
    rng = SeededSource(5)
    values = []
    errors = []
    covered = 0
    runs = 300
    first = [i for i in range(400) for _ in range(i % 3)]
    second = [i for i in range(400) for _ in range(i % 5)]
    truth = sum(min(i % 3 + i % 5, 3) for i in range(400)) / 400
    for key in range(runs):
        algorithm = RefreshableCroppedMean(universe=400, epsilon=8.0, crop=3, sample=sample, key=key)
        monitor = Monitor(algorithm, rng=rng)
        monitor.update(first)
        monitor.refresh(rows_since_copy=False)
        monitor.update(second)
        estimate = monitor.release()
        values.append(estimate.unbiased)
        errors.append(estimate.standard_error)
        covered += estimate.interval()[0] <= truth <= estimate.interval()[1]
    assert_mean(np.array(values), truth, "the mean")
    assert 0.85 < np.std(values) / np.mean(errors) < 1.1  # a bound where users differ; 400 runs: 3.5%
    assert_rate(covered, runs, 0.93, "intervals")


def test_before_a_refresh_it_is_a_cropped_mean_and_a_second_refresh_is_refused() -> None:
    algorithm = RefreshableCroppedMean(universe=2_000, epsilon=8.0, crop=2)
    monitor = Monitor(algorithm, rng=SeededSource(1))
    monitor.update([*range(1_000), *range(1_000)])
    again = Monitor[Any].from_bytes(monitor.to_bytes(), rng=SeededSource(2))
    again.refresh(rows_since_copy=False)
    again = Monitor[Any].from_bytes(again.to_bytes(), rng=SeededSource(3))
    with pytest.raises(NotSupported, match="covers one announced intrusion"):
        again.refresh(rows_since_copy=False)
    for each in (monitor, again):
        assert abs(each.release().value - 1.0) < 5 * algorithm.error_bound(beta=0.05)


@pytest.mark.parametrize(("cells", "crop", "releases"), [(50, 2, 1), (5_000, 3, 2)])
def test_no_other_split_has_a_smaller_error(cells: int, crop: int, releases: int) -> None:
    """Over a grid of all that lose 2 together: 2·state + n·pairs + ln(p0 + p1·e**(n·kappa)) = 2."""

    def error(state: float, kappa: float, pairs: float) -> float:
        p1 = 1 / (1 + math.exp(-state))
        noise = (DiscreteLaplace.at_most(each).variance for each in (kappa, pairs))
        return cells * worst_variance(p1, crop) + float(np.dot(noise_weights(p1, crop), list(noise)))

    tried = []
    for state, share in itertools.product(np.arange(1, 60) / 60, np.arange(1, 40) / 40):
        p1 = 1 / (1 + math.exp(-state))
        left = 2 - 2 * state
        kappa = math.log((math.exp(left * (1 - share)) - 1 + p1) / p1) / releases
        tried.append(error(state, kappa, left * share / releases))
    assert error(*paired_split(2.0, cells, crop, releases)) <= min(tried)


def test_the_split_spends_the_budget_and_prefers_bits_where_there_are_many_users() -> None:
    for releases in (1, 3):
        split = paired_split(2.0, 10_000, 3, releases)
        assert 2.0 - 1e-9 < paired_loss(*split, releases) <= 2.0
    assert paired_split(2.0, 1_000_000, 3)[0] > paired_split(2.0, 100, 3)[0]
    assert paired_split(math.inf, 10, 3) == (math.inf,) * 3
