"""Loss by naming the categories of a column that stand out from noise: replace-one, up to K records of one person.

Counts get discrete Laplace noise with rate kappa = epsilon/(2K), and categories whose noisy count is below a threshold
are not named, present or not. What is named in one table and does not occur in the other has a probability of at most
delta (docs/proofs/networks.md, Categories that nobody listed).
"""

from __future__ import annotations

import math
from fractions import Fraction

from panstream.errors import InvalidParameter
from panstream.primitives import validation as checks
from panstream.primitives.noise import DiscreteLaplace
from panstream.privacy.table_loss import TABLE_L1

_MARGIN = 1e-9  # above all rounding errors of the tails below


def category_noise(epsilon: float, contributions: int = 1) -> DiscreteLaplace:
    """Return the noise of the counts.

    Args:
        epsilon: Loss of a person.
        contributions: Records of one person at most.
    """
    checks.require_finite(epsilon=epsilon)
    checks.require_at_least(1, contributions=contributions)
    return DiscreteLaplace.at_most(Fraction(epsilon) / (TABLE_L1 * contributions))


def chance_of_naming(count: int, threshold: int, noise: DiscreteLaplace) -> float:
    """Return the probability that a category of ``count`` records reaches the threshold.

    Args:
        count: Its number of records.
        threshold: The least noisy count that is named.
        noise: The noise.
    """
    distance = threshold - count
    decay = math.exp(-noise.kappa)
    if distance > 0:
        return math.exp(-noise.kappa * distance) / (1 + decay)
    return 1 - math.exp(-noise.kappa * (1 - distance)) / (1 + decay)


def naming_delta(threshold: int, noise: DiscreteLaplace, contributions: int = 1) -> float:
    """Return the largest probability that a category which only one person has is named.

    Her records are in one category or in several; a category of j of them costs j/K of the bound at most.

    Args:
        threshold: The least noisy count that is named.
        noise: The noise.
        contributions: Records of one person at most.
    """
    worst = max(chance_of_naming(count, threshold, noise) / count for count in range(1, contributions + 1))
    return min(contributions * worst * (1 + _MARGIN), 1.0)


def category_threshold(epsilon: float, delta: float, contributions: int = 1) -> int:
    """Return the least threshold with which naming categories loses (``epsilon``, ``delta``).

    Args:
        epsilon: Loss of a person.
        delta: Probability that a category is named which only this person has.
        contributions: Records of one person at most.

    >>> category_threshold(0.5, 1e-6)
    54
    """
    checks.require_probability(delta=delta)
    noise = category_noise(epsilon, contributions)
    if delta > -math.expm1(-noise.kappa):
        raise InvalidParameter(
            f"delta must be at most 1 - exp(-epsilon/(2·contributions)) = {-math.expm1(-noise.kappa):.3g}"
        )
    low = contributions
    high = contributions + 1
    while naming_delta(high, noise, contributions) > delta:
        low = high
        high *= 2
    while high - low > 1:
        middle = (low + high) // 2
        if naming_delta(middle, noise, contributions) > delta:
            low = middle
        else:
            high = middle
    return high
