"""Noise of continual counters: how it is drawn, and tails of its sums for intervals and error bounds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from panstream.primitives import validation as checks
from panstream.primitives.noise import DiscreteGaussian, DiscreteLaplace, NoiseSource
from panstream.privacy.numeric_search import bisect, minimise

Law = DiscreteLaplace | DiscreteGaussian
NoiseParts = Sequence[tuple[float, Law]]
"""Numbers of draws, each with its distribution, in an answer; a draw of weight w <= 1 counts as w**2 draws."""


@lru_cache(maxsize=1024)
def laplace_at_rate(rate: Fraction | float) -> DiscreteLaplace:
    """Return the discrete Laplace distribution of a rate, rounded down to one that is drawn exactly."""
    return DiscreteLaplace.at_most(rate)


def add_noise(values: NDArray[np.int64], law: Law, rng: NoiseSource) -> None:
    """Add one draw of ``law`` to every element of ``values``, in place."""
    if isinstance(law, DiscreteGaussian):
        rng.add_discrete_gaussian(values, law)
    else:
        rng.add_discrete_laplace(values, law)


def noise_variance(parts: NoiseParts) -> float:
    """Return the variance of the sum of all draws."""
    return math.fsum(draws * law.variance for draws, law in parts)


def _laplace_sum_tail(x: float, draws: int) -> float:
    """Return P(X_1 + ... + X_n > x) for independent Laplace(1) draws and x >= 0.

    The sum is a difference of two Gamma(n) variables, so the tail is e**-x times a polynomial with positive
    coefficients: sum_j x**j/j! · sum_(r < n-j) C(n+r-1, r)·2**-(n+r).
    """
    if x > 700.0 + 8.0 * draws:
        return 0.0
    total = 0.0
    log_x = math.log(x) if x > 0 else -math.inf
    for power, weight in enumerate(_tail_weights(draws)):
        exponent = power * log_x - math.lgamma(power + 1) if power else 0.0
        total += weight * math.exp(exponent - x)
    return total


@lru_cache(maxsize=256)
def _tail_weights(draws: int) -> tuple[float, ...]:
    term = 2.0**-draws
    partial = 0.0
    sums = []
    for r in range(draws):
        partial += term
        sums.append(partial)
        term *= (draws + r) / (2.0 * (r + 1))
    return tuple(reversed(sums))


@lru_cache(maxsize=4096)
def _unit_quantile(tail: float, draws: int) -> float:
    """Return x with P(S > x) = ``tail``, S the sum of ``draws`` equal Laplace draws with total variance 1."""
    high = 1.0
    while _laplace_sum_tail(high, draws) > tail:
        high *= 2.0
    return bisect(lambda x: _laplace_sum_tail(x, draws) > tail, 0.0, high, 60)[1] / math.sqrt(2.0 * draws)


def half_width(level: float, parts: NoiseParts, normal: float = 0.0) -> float:
    """Return half the width of a two-sided interval at ``level`` for the sum of these draws and a normal error.

    Draws of different scales are replaced by fewer equal ones with the same variance and at least the same kurtosis,
    which makes the interval a little wider, never narrower than the normal one. Gaussian draws sum to a normal error.

    Args:
        level: Coverage of the interval.
        parts: The draws.
        normal: Variance of the normal error.
    """
    variance = noise_variance(parts) + normal
    if variance == 0.0:
        return 0.0
    # Half a step more in either case, since the draws are integers and the quantile is that of continuous draws.
    squares = [draws * law.sigma**2 for draws, law in parts if draws and isinstance(law, DiscreteGaussian)]
    if squares:  # sigma² exceeds the variance where sigma is small and tails are heavier than those of a normal error
        return NormalDist().inv_cdf((1.0 + level) / 2.0) * math.sqrt(max(math.fsum(squares) + normal, variance)) + 0.5
    fourth = math.fsum(draws * law.variance**2 for draws, law in parts)
    equal = max(1, min(200, math.floor(variance**2 / fourth + 1e-9))) if fourth else 200
    return _unit_quantile((1.0 - level) / 2.0, equal) * math.sqrt(variance) + 0.5


def error_bound(beta: float, parts: NoiseParts) -> float:
    """Return an error that the sum of these draws exceeds with probability at most ``beta`` (Chernoff's bound).

    P(|S| >= x) <= 2·exp(-theta·x)·prod E exp(theta·X) for every theta below the smallest kappa, with
    E exp(theta·X) = (cosh kappa - 1)/(cosh kappa - cosh theta). All even cumulants of X are positive, so
    log E exp(theta·w·X) <= w**2·log E exp(theta·X) for w <= 1: weighted draws may be counted by their squared weights.
    A discrete Gaussian has log E exp(theta·X) <= theta²·sigma²/2 (Canonne, Kamath, Steinke 2020, Corollary 17).
    """
    checks.require_probability(beta=beta)
    noisy = [(draws, law.kappa) for draws, law in parts if draws and isinstance(law, DiscreteLaplace)]
    noisy = [(draws, kappa) for draws, kappa in noisy if math.isfinite(kappa)]
    square = math.fsum(draws * law.sigma**2 for draws, law in parts if isinstance(law, DiscreteGaussian))
    if not noisy:
        return math.sqrt(2.0 * square * math.log(2.0 / beta))
    smallest = min(kappa for _, kappa in noisy)

    def bound(theta: float) -> float:
        moment = math.fsum(draws * _log_moment(theta, kappa) for draws, kappa in noisy)
        return (moment + 0.5 * square * theta**2 + math.log(2.0 / beta)) / theta

    return bound(minimise(bound, 1e-9 * smallest, smallest * (1.0 - 1e-12)))


def _log_moment(theta: float, kappa: float) -> float:
    return 2.0 * _log_sinh(kappa / 2.0) - _log_sinh((kappa + theta) / 2.0) - _log_sinh((kappa - theta) / 2.0)


def _log_sinh(x: float) -> float:
    return x + math.log(-math.expm1(-2.0 * x)) - math.log(2.0)


def half_width_of_sum(level: float, standard_errors: Sequence[float]) -> float:
    """Return half the width of an interval for the sum of answers whose noise is independent.

    Each error is a sum of discrete Laplace or Gaussian draws, so its kurtosis is at most that of one Laplace draw with
    its variance. As in `half_width`, fewer equal draws take their place.

    Args:
        level: Coverage of the interval.
        standard_errors: The standard error of each answer.
    """
    variances = [error**2 for error in standard_errors]
    total = math.fsum(variances)
    if total == 0.0:
        return 0.0
    equal = max(1, min(200, math.floor(total**2 / math.fsum(variance**2 for variance in variances) + 1e-9)))
    return _unit_quantile((1.0 - level) / 2.0, equal) * math.sqrt(total) + 0.5
