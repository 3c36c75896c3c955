"""Error bounds of the continual counters as Budaeva et al. 2013 state them, and their inverses.

The paper calls a mechanism (lambda, delta)-useful at time t if its error there is at most lambda with probability
1 - delta. Here lambda is what a function returns and the failure probability is ``beta``. Every O(...) is given with
the constants that its proof yields. The functions take ``draws_per_sum``: 1 for the published outputs, 2 for the
pan-private form with noise at the start and at the release of every sum (Corollary 2: a factor sqrt 2).

`epsilon_for` inverts each of them. For the tighter bounds of the shipped counters call their ``error_bound``.

>>> bound = binary_bound(1.0, horizon=1024, time=1023, beta=0.05)
>>> epsilon_for(binary_bound, bound, horizon=1024, time=1023, beta=0.05)
1.0
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from panstream.errors import InvalidParameter
from panstream.primitives import validation as checks
from panstream.privacy.continual_loss import binary_levels, segment_levels
from panstream.privacy.numeric_search import smallest_positive


def concentration(scale: float, draws: int, beta: float) -> float:
    """Return a bound for the sum of ``draws`` Laplace(``scale``) draws (Chan et al., Corollary 2.9).

    nu·sqrt(8·ln(2/beta)) with nu = scale·max(sqrt(draws), sqrt(ln(2/beta))).
    """
    log = _log(beta)
    return scale * math.sqrt(max(draws, log)) * math.sqrt(8.0 * log)


def corollary_one(scale: float, draws: int, beta: float) -> float:
    """Return the paper's simpler bound, scale·sqrt(8·draws)·ln(2/beta) (Corollary 1)."""
    return scale * math.sqrt(8.0 * draws) * _log(beta)


def event_counter_bound(epsilon: float, *, horizon: int, beta: float) -> float:
    """Return the error of Algorithm 1 at all times at once, 4·log(1/beta)·log(T)**2.5/epsilon (Theorem 1).

    Stated for T a power of two; logarithms to base 2. Too small where log(1/beta) is, so ``beta`` must be at most 1/2.
    """
    if not 0.0 < beta <= 0.5:
        raise InvalidParameter(f"beta must be in (0, 1/2], got beta={beta}")
    return 4.0 * math.log2(1.0 / beta) * math.pow(segment_levels(horizon), 2.5) / _positive(epsilon)


def binary_bound(
    epsilon: float, *, horizon: int, time: int, beta: float, bound: float = 1.0, draws_per_sum: int = 2
) -> float:
    """Return the error of the binary mechanism after ``time`` slots (Theorem 3).

    It is O(log T·sqrt(log t)·log(1/beta)/epsilon). Scale N·levels/epsilon, and at most floor(log2 t) + 1 sums in an
    answer.
    """
    _within(time, horizon)
    return concentration(bound * binary_levels(horizon) / _positive(epsilon), draws_per_sum * time.bit_length(), beta)


def unbounded_sum_bound(epsilon: float, *, time: int, beta: float, bound: float = 1.0, draws_per_sum: int = 2) -> float:
    """Return the error of the unbounded sum after ``time`` slots (Theorem 4): half of epsilon and beta for each part.

    The logarithmic mechanism at the last power of two, O(sqrt(log t)·log(1/beta)/epsilon), and a WindowSum since with
    noise of scale (log W + 1)/epsilon: log(W)**1.5·log(1/beta)**0.5 where log W >= log(1/beta), log W·log(1/beta) else,
    the two cases of ``concentration``.
    """
    # Of the window too: log W + 1
    scale = 2.0 * bound / _positive(epsilon)
    levels = max(1, time.bit_length())
    draws = draws_per_sum * levels
    rest = beta / 2.0
    return concentration(scale, draws, rest) + concentration(scale * levels, draws, rest)


def conjectured_bound(epsilon: float, *, horizon: int, time: int, beta: float, constant: float = 1.0) -> float:
    """Return constant·(2·log T)·sqrt(log t)·log(1/beta)/epsilon (Conjectures 1 and 2).

    Both conjectures are false as stated: see docs/explanation/continual.md and ``average_bound``.
    """
    _within(time, horizon)
    root = math.sqrt(max(1.0, math.log2(time)))
    return constant * 2.0 * math.log2(max(2, horizon)) * root * math.log(1.0 / beta) / _positive(epsilon)


def average_bound(
    epsilon: float, *, horizon: int, time: int, beta: float, bound: float, count: int, draws_per_sum: int = 2
) -> float:
    """Return the error of the average with epsilon/2 each for the count and the sum of values in [-bound, bound].

    It replaces Conjecture 1: with L the error of the count at epsilon/2 and beta/2 (the sum's is bound·L), the
    average is within 2·bound·L/(count - L); no finite bound holds unless the count exceeds its own error.
    """
    of_count = binary_bound(epsilon / 2.0, horizon=horizon, time=time, beta=beta / 2.0, draws_per_sum=draws_per_sum)
    return math.inf if count <= of_count else 2.0 * bound * of_count / (count - of_count)


def variance_bound(
    epsilon: float, *, horizon: int, time: int, beta: float, bound: float, count: int, draws_per_sum: int = 2
) -> float:
    """Return the error of the variance with budgets epsilon/3 for count, sum and sum of squares.

    It replaces Conjecture 2: with d the error of the average at these budgets, the mean square is within bound·d and
    the variance, mean square minus squared mean, within bound·d + d·(2·bound + d).
    """
    of_count = binary_bound(epsilon / 3.0, horizon=horizon, time=time, beta=beta / 3.0, draws_per_sum=draws_per_sum)
    if count <= of_count or count < 2:
        return math.inf
    mean = 2.0 * bound * of_count / (count - of_count)
    return mean * (3.0 * bound + mean)


def epsilon_for(bound: Callable[..., float], error: float, /, **parameters: Any) -> float:
    """Return the epsilon at which ``bound`` (any of the above) equals ``error``: all are proportional to 1/epsilon.

    ``average_bound`` and ``variance_bound`` are not, and are inverted by bisection.
    """
    checks.require_positive(error=error)
    if bound not in (average_bound, variance_bound):
        return bound(1.0, **parameters) / error
    high = 1.0
    while bound(high, **parameters) > error:
        high *= 2.0
    return smallest_positive(lambda epsilon: bound(epsilon, **parameters) <= error, 1e-12, high, 1e-15)


def _log(beta: float) -> float:
    checks.require_probability(beta=beta)
    return math.log(2.0 / beta)


def _positive(epsilon: float) -> float:
    checks.require_positive(epsilon=epsilon)
    return epsilon


def _within(time: int, horizon: int) -> None:
    if not 1 <= time <= horizon:
        raise InvalidParameter(f"time must be in 1..horizon={horizon}, got time={time}")
