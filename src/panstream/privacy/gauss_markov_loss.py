"""Loss of a count with one correlated noise, whose levels remember from one tick to the whole horizon.

An answer is the count, plus noise eta that is stored with it, plus the sum of autoregressive levels. One copy at any
time and all answers lose 1/Var eta + c of twice zCDP, where c is what the sums tell about a constant
(docs/proofs/gauss-markov.md, Theorem 1). Horizons are rounded up to a power of two, the ``order``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

from panstream.errors import InvalidParameter
from panstream.privacy.composition import zcdp_rho

LEAST_ORDER = 4
MOST_ORDER = 24
DRAW_BITS = 29  # the standard deviation of every draw is at least 2**29 units, far above what rounding shifts
_MARGIN = 1e-6  # for floating-point errors of the filter that has computed the table

# Information about a constant, for levels of variance 1 in the long run; for each order from the least on, as
# `constant_information` computes it. Ticks of several steps have one more answer that only the fresh level hides.
_INFORMATION = {
    False: (
        1.943289,
        2.036873,
        2.350998,
        2.431529,
        2.738532,
        2.820126,
        3.125391,
        3.208652,
        3.513518,
        3.597643,
        3.902428,
        3.986906,
        4.291677,
        4.376284,
        4.681054,
        4.765705,
        5.070475,
        5.15514,
        5.459911,
        5.544581,
        5.849351,
    ),
    True: (
        2.110567,
        1.941885,
        2.39188,
        2.300448,
        2.739686,
        2.677702,
        3.113823,
        3.062661,
        3.497918,
        3.450546,
        3.885572,
        3.839471,
        4.274438,
        4.228748,
        4.6637,
        4.618139,
        5.053087,
        5.007566,
        5.442513,
        5.397003,
        5.831951,
    ),
}
_FRESH = {False: 2.0, True: 0.25}  # variance of the level that is drawn afresh, nearly the best


@dataclass(frozen=True, slots=True)
class NoiseVariances:
    """Variances in events: of the noise in the count, of the fresh level, and of each slower level in the long run."""

    count: float
    fresh: float
    level: float


def order_of(ticks: int) -> int:
    """Return the order of a horizon: the power of two to which it is rounded up.

    >>> [order_of(ticks) for ticks in (1, 16, 17, 1 << 20)]
    [4, 4, 5, 20]
    """
    return max(LEAST_ORDER, (ticks - 1).bit_length())


def level_exponents(order: int, *, one_step_ticks: bool) -> tuple[int, ...]:
    """Return k for every level: it keeps 1 - 2**-k of its value from one tick to the next.

    >>> level_exponents(5, one_step_ticks=False), level_exponents(5, one_step_ticks=True)
    ((2, 4, 6), (1, 3, 5))
    """
    return tuple(range(1, order + 1, 2)) if one_step_ticks else tuple(range(2, order + 2, 2))


def constant_bound(order: int, *, one_step_ticks: bool) -> float:
    """Return the information about a constant, for levels of variance 1 and a fresh one of `fresh_variance`."""
    return _INFORMATION[one_step_ticks][order - LEAST_ORDER]


def fresh_variance(*, one_step_ticks: bool) -> float:
    """Return the variance of the fresh level where that of the others is 1."""
    return _FRESH[one_step_ticks]


@lru_cache(maxsize=256)
def gauss_markov_variances(
    epsilon: float, delta: float, order: int, contributions: int = 1, *, one_step_ticks: bool = False
) -> NoiseVariances:
    """Return the noise with the least mean squared error whose joint loss is (``epsilon``, ``delta``).

    With rho the zCDP of that and c·V the information times the variance of the sums, the count has
    (1 + sqrt(cV))/(2·rho) and the sums sqrt(cV) times as much (docs/proofs/gauss-markov.md, Theorem 2).

    Args:
        epsilon: Loss of one copy and all answers.
        delta: Its delta.
        order: The horizon as a power of two.
        contributions: Rows of one unit.
        one_step_ticks: Whether every slot is filled and closed in one step.

    >>> noise = gauss_markov_variances(1.0, 1e-6, 10)
    >>> round(noise.count), round(noise.count + noise.fresh + 5 * noise.level)
    (117, 662)
    """
    levels = len(level_exponents(order, one_step_ticks=one_step_ticks))
    rho = zcdp_rho(epsilon, delta)
    if math.isinf(rho):
        return NoiseVariances(0.0, 0.0, 0.0)
    root = math.sqrt(rho) - 2.0 * _rounding(order, levels)
    if root <= 0.0:
        raise InvalidParameter(f"epsilon must be larger, got epsilon={epsilon}")
    twice = 2.0 * root**2 / contributions**2 * (1.0 - _MARGIN)
    weight = levels + fresh_variance(one_step_ticks=one_step_ticks)
    information = constant_bound(order, one_step_ticks=one_step_ticks)
    product = math.sqrt(information * weight)
    count = (1.0 + product) / twice
    level = product * count / weight
    return NoiseVariances(count, level * fresh_variance(one_step_ticks=one_step_ticks), level)


def gauss_markov_losses(epsilon: float, delta: float, order: int, *, one_step_ticks: bool) -> tuple[float, float]:
    """Return the zCDP of one copy with all answers, and that of the answers alone, which is nearly half of it.

    >>> joint, answers = gauss_markov_losses(1.0, 1e-6, 20, one_step_ticks=False)
    >>> 0.5 < answers / joint < 0.501
    True
    """
    rho = zcdp_rho(epsilon, delta)
    if math.isinf(rho):
        return rho, rho
    rounding = 2.0 * _rounding(order, len(level_exponents(order, one_step_ticks=one_step_ticks)))
    alone = (math.sqrt(rho) - rounding) / math.sqrt(2.0) + rounding
    return rho, min(rho, alone**2 * (1.0 + _MARGIN))


def event_loss(epsilon: float, delta: float, order: int, contributions: int, *, one_step_ticks: bool) -> float:
    """Return the zCDP that one event loses where a user of at most ``contributions`` loses (epsilon, delta).

    >>> whole, third = (event_loss(1.0, 1e-6, 20, rows, one_step_ticks=False) for rows in (1, 3))
    >>> 1.0 < 9.0 * third / whole < 1.001
    True
    """
    rounding = 2.0 * _rounding(order, len(level_exponents(order, one_step_ticks=one_step_ticks)))
    return ((math.sqrt(zcdp_rho(epsilon, delta)) - rounding) / contributions + rounding) ** 2


def _rounding(order: int, levels: int) -> float:
    """Return the root of the zCDP between a level that is rounded and one that is not: half a unit at every draw."""
    return math.sqrt((levels << order) / 8.0) * 2.0**-DRAW_BITS
