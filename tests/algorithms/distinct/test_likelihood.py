"""Maximum likelihood from the exact law of the levels' counts: bias, error against the Fisher information, coverage."""

import math
import os
from typing import Any

import numpy as np
import pytest
from scipy import optimize, stats

from panstream import Monitor
from panstream.algorithms.distinct.bitmap import Bitmap
from panstream.algorithms.distinct.bitmap_base import BitmapCounter
from panstream.algorithms.distinct.likelihood import Likelihood, LikelihoodFit, critical_value
from panstream.primitives.noise import SeededSource
from panstream.privacy.bitmap_loss import Decoder, LevelMoments
from tests.algorithms.distinct.bitmap_cases import noisy_counts, occupied
from tests.statistical import ALPHA, assert_rate

RUNS = 200


def fits(algorithm: BitmapCounter, users: int, runs: int, seed: int) -> list[tuple[Likelihood, LikelihoodFit]]:
    rng = np.random.default_rng(seed)
    decoder = algorithm.law.decoder
    moments = algorithm.moments()
    found = []
    for _ in range(runs):
        ones = noisy_counts(rng, occupied(rng, users, algorithm.buckets, algorithm.levels), algorithm)
        likelihood = Likelihood(moments, algorithm.buckets * decoder.zero + ones * (decoder.one - decoder.zero))
        found.append((likelihood, likelihood.fit()))
    return found


def dense_deviance(moments: LevelMoments, empty: Any, users: float) -> float:
    """The normal law written out with a matrix, by SciPy."""
    mean, slope, variance = moments.at(users)
    covariance = np.diag(variance) - users * np.outer(slope, slope)
    return -2 * float(stats.multivariate_normal.logpdf(empty, mean, covariance)) - empty.size * math.log(2 * math.pi)


def dense_minimum(likelihood: Likelihood) -> tuple[float, float]:
    def at(log: float) -> float:
        return dense_deviance(likelihood.moments, likelihood.empty, math.exp(log))

    logs = np.linspace(0.0, math.log(1e8), 100)
    best = logs[np.argmin([at(log) for log in logs])]
    found = optimize.minimize_scalar(at, bounds=(best - 0.3, best + 0.3), method="bounded", options={"xatol": 1e-10})
    return math.exp(found.x), float(found.fun)


@pytest.mark.parametrize("users", [50, 3000, 200_000])
def test_likelihood_is_the_normal_law_and_its_maximum_is_found(users: int) -> None:
    algorithm = Bitmap(epsilon=2.0, buckets=512, levels=12)
    for likelihood, fit in fits(algorithm, users, 3, users):
        for n in (1.0, users / 2, users, 3.0 * users):
            assert likelihood.deviance(n) == pytest.approx(
                dense_deviance(likelihood.moments, likelihood.empty, n), rel=1e-8
            )
        best, least = dense_minimum(likelihood)
        if fit.users > 1.0:
            assert fit.users == pytest.approx(best, rel=1e-4)
        else:
            assert fit.unbiased <= 0.0
            assert likelihood.deviance(0.0) <= least


@pytest.mark.slow
@pytest.mark.parametrize("users", [200, 1500])
def test_moments_are_those_of_a_brute_force_simulation(users: int) -> None:
    """Mean and covariance of the decoded levels for a fixed number of users, cells that toggle included."""
    rng = np.random.default_rng(users)
    buckets = 256
    levels = 5
    p1 = 0.8
    runs = 3000
    samples: dict[int, list[Any]] = {1: [], 2: []}
    level = np.minimum(rng.geometric(0.5, (runs, users)) - 1, levels - 1)
    cells = level * buckets + rng.integers(0, buckets, (runs, users))
    for row in cells:
        loads = np.bincount(row, minlength=buckets * levels)
        coins = rng.random(loads.size)
        for turns, occupied_cells in ((1, loads > 0), (2, loads % 2 == 1)):
            bits = np.where(occupied_cells, coins < p1, coins < 1 - p1).reshape(levels, buckets)
            decoder = Decoder.redrawn(p1) if turns == 1 else Decoder.toggled(p1)
            samples[turns].append(np.where(bits, decoder.one, decoder.zero).sum(axis=1))
    for turns, found in samples.items():
        decoder = Decoder.redrawn(p1) if turns == 1 else Decoder.toggled(p1)
        moments = LevelMoments.of(decoder, buckets=buckets, levels=levels, noise=0.0, turns=turns)
        mean, slope, variance = moments.at(float(users))
        covariance = np.diag(variance) - users * np.outer(slope, slope)
        measured = np.cov(np.array(found).T)
        scale = np.sqrt(np.outer(np.diag(covariance), np.diag(covariance)))
        slack = float(stats.norm.isf(ALPHA / 100))
        assert np.all(np.abs(np.mean(found, axis=0) - mean) < slack * np.sqrt(variance / runs) + 0.005 * buckets)
        assert np.all(np.abs(measured - covariance) / scale < slack * math.sqrt(2 / runs))


def check_error_and_coverage(epsilon: float, users: int, runs: int) -> None:
    """Root mean squared error within 10% (and sampling error), bias below 5 standard errors, coverage 95% +- 1%."""
    algorithm = Bitmap(epsilon=9.0, epsilon_state=epsilon)
    found = fits(algorithm, users, runs, int(10 * epsilon) + users)
    values = np.array([fit.unbiased for _, fit in found])
    expected = algorithm.relative_error(users) * users
    low, high = stats.chi2.ppf([ALPHA / 2, 1 - ALPHA / 2], runs)
    ratio = float(np.square(values - users).mean()) / expected**2
    assert 0.81 * low / runs < ratio < 1.21 * high / runs, f"mean square {ratio:.3f} of that expected"
    assert abs(values.mean() - users) < 5 * expected / math.sqrt(runs)
    covered = sum(low <= users <= high for low, high in (likelihood.interval(fit, 0.95) for likelihood, fit in found))
    assert_rate(covered, runs, min(max(covered / runs, 0.94), 0.96), "coverage")


CASES = [
    (epsilon, users, RUNS)
    for epsilon, users in (
        (0.5, 100), (4.0, 100), (1.0, 1000), (1.0, 10_000), (4.0, 10_000), (1.0, 10**6), (0.5, 10**7), (2.0, 10**8),
    )
]  # fmt: skip
if os.environ.get("PANSTREAM_FULL"):
    CASES += [(epsilon, users, 4 * RUNS) for epsilon in (0.5, 1.0, 2.0, 4.0) for users in (10**3, 10**4, 10**6)]


@pytest.mark.slow
@pytest.mark.parametrize(("epsilon", "users", "runs"), CASES)
def test_error_is_that_of_the_fisher_information(epsilon: float, users: int, runs: int) -> None:
    check_error_and_coverage(epsilon, users, runs)


def test_plateaus_of_the_design() -> None:
    for epsilon, plateau in ((0.5, 0.053), (1.0, 0.0274), (2.0, 0.0157), (4.0, 0.0112)):
        moments = LevelMoments.of(
            Bitmap(epsilon=9.0, epsilon_state=epsilon).law.decoder, buckets=4096, levels=24, noise=0.0
        )
        for users in (1e6, 1e7, 1e8):
            assert moments.relative_error(users) == pytest.approx(plateau, rel=0.01)


def test_end_to_end_with_real_hashes() -> None:
    """The same through Monitor, hashing and coins: below 10,000 users there is nothing to extrapolate."""
    rng = SeededSource(12)
    errors = []
    covered = 0
    for key in range(RUNS // 2):
        monitor = Monitor[Any](Bitmap(epsilon=1.0, key=key), rng=rng)
        monitor.update(np.arange(3000) * 7919 + key)
        estimate = monitor.release()
        errors.append(estimate.unbiased - 3000)
        low, high = estimate.interval()
        covered += low <= 3000 <= high
    expected = Bitmap(epsilon=1.0).relative_error(3000) * 3000
    chi = float(np.square(errors).sum()) / expected**2
    low, high = stats.chi2.ppf([ALPHA / 2, 1 - ALPHA / 2], RUNS // 2)
    assert 0.81 * low < chi < 1.21 * high
    assert_rate(covered, RUNS // 2, min(max(covered / (RUNS // 2), 0.94), 0.96), "coverage")


@pytest.mark.parametrize("level", [0.5, 0.9, 0.95])
def testcritical_value_gives_the_level_everywhere(level: float) -> None:
    """For a normal estimate with a boundary at 0, by integration over the estimate."""
    points = np.linspace(-9, 12, 400_001)
    for distance in (0.0, 0.3, 1.0, 1.7, 3.0):
        best = np.maximum(points, 0.0)
        rise = (points - distance) ** 2 - (points - best) ** 2
        inside = rise <= critical_value(level, distance) + 1e-9
        covered = np.trapezoid(stats.norm.pdf(points, distance) * inside, points)
        assert covered == pytest.approx(level, abs=2e-4)


@pytest.mark.slow
@pytest.mark.parametrize("users", [0, 20, 150])
def test_coverage_at_the_boundary(users: int) -> None:
    """Fewer users than one standard error: the interval is never empty and keeps its level."""
    algorithm = Bitmap(epsilon=1.0)
    inside = 0
    for likelihood, fit in fits(algorithm, users, RUNS, users):
        low, high = likelihood.interval(fit, 0.9)
        assert 0 <= low < high
        inside += low <= users <= high
    assert_rate(inside, RUNS, min(max(inside / RUNS, 0.89), 0.91), "coverage")


def test_a_full_table_has_no_upper_end() -> None:
    algorithm = Bitmap(epsilon=math.inf, buckets=8, levels=2)
    monitor = algorithm.start()
    monitor.update(range(100_000))
    estimate = monitor.release()
    assert estimate.interval()[1] == math.inf
    assert estimate.value > 100


def test_an_empty_stream_without_noise_is_zero() -> None:
    estimate = Bitmap(epsilon=math.inf).start().release()
    assert estimate.value == 0.0
    assert estimate.interval()[0] == 0.0


def test_intervals_shrink_with_the_level_and_hold_the_value() -> None:
    for likelihood, fit in fits(Bitmap(epsilon=1.0), 700, 20, 3):
        wide = likelihood.interval(fit, 0.99)
        narrow = likelihood.interval(fit, 0.5)
        assert wide[0] <= narrow[0] <= fit.users <= narrow[1] <= wide[1]
