"""Cropped means over two phases: loss of a copy in each and of the releases, variance, and the best split.

Proof: docs/proofs/joint-loss.md, Theorem 4.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache

from panstream.primitives import validation as checks
from panstream.privacy.budget_split import laplace_variance
from panstream.privacy.joint_loss import kappa_for_approx, max_mixture_exponent, present_probability
from panstream.privacy.numeric_search import minimise
from panstream.privacy.rounding import round_down

_POINTS = 8


def decode_reading(p1: float, crop: int, seen: int, bit: int, fits: int) -> float:
    """Return the decoded value of one user after the announced copy; its mean is min(arrivals, crop)."""
    gap = 2 * p1 - 1
    before = (seen - 1 + p1) / gap
    after = (bit - 1 + p1) / gap
    return crop * before * p1 / gap + crop * after - crop**2 / gap * before * fits * bit


def _reading_variance(p1: float, crop: int, before: int, after: int) -> float:
    """Return the variance of the reading of a user with ``before`` arrivals up to the copy and ``after`` since."""
    p0 = 1 - p1
    gap = 2 * p1 - 1
    before = min(before, crop)
    after = min(after, crop)
    spread = p1 * p0 / gap**2
    both = max(before + after - crop, 0)
    fits = (crop * spread * p0 + spread * gap * after + p0 * before + gap * both) / crop**2
    ones = p1 / gap * (p0 * before + gap * both) / crop**2
    square = (crop * p1 / gap) ** 2 * (spread + before / crop) + crop**2 * (spread + after / crop)
    square += crop**4 / gap**2 * fits + 2 * p1 / gap * before * after
    square -= 2 * crop**3 * p1 / gap**2 * fits + 2 * crop**3 / gap * ones
    return float(square - (before + after - both) ** 2)


def worst_variance(p1: float, crop: int) -> float:
    """Return the largest variance of a reading, over any numbers of arrivals in both phases."""
    points = {round(step * crop / _POINTS) for step in range(_POINTS + 1)}
    return max(_reading_variance(p1, crop, before, after) for before in points for after in points)


def noise_weights(p1: float, crop: int) -> tuple[float, float]:
    """Return the factors of the variances of the noise of ones and of pairs, for the sum over users."""
    gap = 2 * p1 - 1
    return 2 * (crop / gap) ** 2, (crop / gap) ** 4 * (p1**2 + (1 - p1) ** 2)


@lru_cache(maxsize=256)
def paired_split(epsilon: float, cells: int, crop: int, releases: int = 1) -> tuple[float, float, float]:
    """Return (epsilon_state, kappa, kappa_pairs) with the smallest error after the copy; the kappas are rounded down.

    The joint loss of one announced copy, one unannounced copy after it, and n releases stays at most epsilon:
    2·epsilon_state + n·kappa_pairs + ln(1 - p1 + p1·e**(n·kappa)) (joint-loss.md, Theorem 4).

    >>> round(paired_split(2.0, 10_000, 3)[0], 2)
    0.91
    """
    checks.require_positive(epsilon=epsilon)
    if math.isinf(epsilon):
        return math.inf, math.inf, math.inf

    def noise(state: float, share: float) -> float:
        ones, pairs = noise_weights(present_probability(state), crop)
        pair_epsilon = share * (epsilon - 2 * state)
        return ones * laplace_variance(
            kappa_for_approx(epsilon - pair_epsilon, state, releases, 1)
        ) + pairs * laplace_variance(pair_epsilon / releases)

    def share_of(state: float) -> float:
        return minimise(lambda share: noise(state, share), 1e-6, 1 - 1e-6, 1e-6)

    def error(state: float) -> float:
        return cells * worst_variance(present_probability(state), crop) + noise(state, share_of(state))

    state = minimise(error, 1e-6 * epsilon, epsilon / 2 * (1 - 1e-9), 1e-9)
    remaining = Fraction(epsilon) - 2 * Fraction(state)
    pairs = round_down(remaining * Fraction(share_of(state)) / releases)
    return state, round_down(max_mixture_exponent(remaining - releases * Fraction(pairs), state) / releases), pairs
