"""Sample size, accuracy and budget of the shipped density estimate, from its exact distribution.

The estimate is d = (N/m - p0)/(p1 - p0) with N = (ones among m sampled users) + DLap(kappa), p1 = R/(1+R), p0 = 1 - p1,
R = e**epsilon_state, and (epsilon_state, kappa) the optimal split of ``epsilon``. It *fails* if it is more than
``alpha`` away from the density of the universe; ``beta`` bounds the probability of that. Three determine the fourth:

==========================================  =================================
``failure_probability(epsilon, alpha, m)``  beta
``sample_size(epsilon, alpha, beta)``       the smallest m that suffices
``accuracy(epsilon, beta, m)``              the smallest alpha that holds
``epsilon_needed(alpha, beta, m)``          the smallest epsilon that suffices
==========================================  =================================

N is an integer, so the estimate is a multiple of 1/(m(p1-p0)) and beta is not quite monotone in m: one more user can
widen the distribution before another multiple comes within alpha. ``sample_size`` returns an m that suffices although
m - 1 does not, and searches for smaller ones over the last few steps.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from panstream.algorithms.planning._noisy_count_tails import NoisyCount, UpperTail
from panstream.core.estimate import normal_laplace_quantile
from panstream.errors import InvalidParameter
from panstream.primitives import validation as checks
from panstream.privacy.budget_split import density_split
from panstream.privacy.joint_loss import present_probability
from panstream.privacy.numeric_search import bisect, smallest_integer

__all__ = ["accuracy", "epsilon_needed", "failure_probability", "sample_size"]

MAX_EPSILON = 50.0
SCAN_ALL = 128  # the largest universe that is scanned at every density
_PERIODS = 3  # of the steps of the estimate, over which smaller sample sizes are tried
_JUST_BELOW = tuple(0.95 + 0.0025 * step for step in range(20))  # fractions of an epsilon that suffices
_COARSELY_BELOW = tuple(0.8**step for step in range(30))  # fractions of MAX_EPSILON
_FLOOR = 1e-9  # smallest alpha or epsilon that is tried


def failure_probability(epsilon: float, alpha: float, m: int, universe: int, density: float | None = None) -> float:
    """Return the probability that the estimate is more than ``alpha`` away from the density.

    With ``density`` it is the exact value there, of the estimate as it is released, moved into [0, 1]. Without, it is
    the largest over all densities: exact for universes of up to 128 users; above that a few densities are computed,
    each with the least favourable position of the estimate's steps and without clipping to [0, 1]. That is a few per
    cent above the exact maximum, more if a handful of steps spans alpha or alpha is above 1/2.

    >>> round(failure_probability(1.0, 0.01, 100_000, 100_000), 5)
    0.00195
    """
    _check(universe, epsilon=epsilon, alpha=alpha, m=m)
    if density is not None:
        checks.require_fraction(density=density)
        return _Deviation.at(epsilon, m, universe, round(density * universe), alpha).failure(alpha)
    return max(deviation.bound(alpha) for deviation in _scan(epsilon, m, universe, alpha))


def sample_size(epsilon: float, alpha: float, beta: float, universe: int) -> int:
    """Return how many users must be sampled so that the estimate fails with probability at most ``beta``.

    >>> sample_size(1.0, 0.05, 0.05, universe=1_000_000)
    2525
    """
    _check(universe, epsilon=epsilon, alpha=alpha, beta=beta)

    def half_suffices(m: int) -> bool:
        return _half(epsilon, m, universe, alpha).bound(alpha) <= beta

    def suffices(m: int) -> bool:
        return half_suffices(m) and failure_probability(epsilon, alpha, m, universe) <= beta

    def steps(m: int) -> float:
        return 2 * alpha * m * _gap(epsilon, m)

    tried = range(1, universe + 1) if universe <= SCAN_ALL else (universe, *_step_starts(steps, universe))
    enough = next((m for m in tried if suffices(m)), None)
    if enough is None:
        raise InvalidParameter(
            f"alpha={alpha} with beta={beta} needs more users than exist: with all {universe} of them the estimate "
            f"fails with probability {failure_probability(epsilon, alpha, universe, universe):.3g}"
        )
    if universe <= SCAN_ALL:
        return enough
    near = smallest_integer(lambda m: _approximate_accuracy(epsilon, beta, m, universe) <= alpha, 0, universe)
    seed = _smallest(half_suffices, near, enough)
    enough = _smallest(suffices, seed, enough)
    while better := [m for m in _step_starts(steps, enough) if suffices(m)]:
        enough = _smallest(suffices, better[0], better[0])
    return enough


def accuracy(epsilon: float, beta: float, m: int, universe: int) -> float:
    """Return the additive error that is exceeded with probability at most ``beta``.

    >>> round(accuracy(1.0, 0.05, 100_000, 100_000), 5)
    0.00632
    """
    _check(universe, epsilon=epsilon, beta=beta, m=m)
    high = _approximate_accuracy(epsilon, beta, m, universe)
    deviations = list(_scan(epsilon, m, universe, high))

    def fails(alpha: float) -> bool:
        return max(deviation.bound(alpha) for deviation in deviations) > beta

    while fails(high):
        high *= 1.1
    low = high
    while low > _FLOOR and not fails(low):
        high = low
        low = low * 0.9
    _, high = bisect(fails, low, high, 40)  # from a tenth apart to a relative 1e-13
    return min(high, 1.0)  # the released estimate lies in [0, 1]


def epsilon_needed(alpha: float, beta: float, m: int, universe: int) -> float:
    """Return the total loss at which the estimate fails with probability at most ``beta``.

    Where users are sampled, or few exist, beta is not quite monotone in epsilon either: the answer suffices, slightly
    less does not, and 20 values down to 5% below were tried.

    >>> round(epsilon_needed(0.01, 0.05, 100_000, 100_000), 4)
    0.6526
    """
    _check(universe, alpha=alpha, beta=beta, m=m)

    def nearly_suffices(epsilon: float) -> bool:
        return _approximate_accuracy(epsilon, beta, m, universe) <= alpha

    def half_suffices(epsilon: float) -> bool:
        return _half(epsilon, m, universe, alpha).bound(alpha) <= beta

    def suffices(epsilon: float) -> bool:
        return half_suffices(epsilon) and failure_probability(epsilon, alpha, m, universe) <= beta

    enough = next((part * MAX_EPSILON for part in _COARSELY_BELOW if suffices(part * MAX_EPSILON)), None)
    if enough is None:
        raise InvalidParameter(
            f"m={m} of universe={universe} does not reach alpha={alpha} with beta={beta} at any epsilon up to "
            f"{MAX_EPSILON:g}: the error of sampling alone is too large"
        )
    seed = _smallest_real(nearly_suffices, 1.0, 2.0, MAX_EPSILON) if nearly_suffices(MAX_EPSILON) else enough
    seed = _smallest_real(half_suffices, seed, 1.001, enough)
    smallest_epsilon = _smallest_real(suffices, seed, 1.0 + 1e-7, enough)
    while better := [part * smallest_epsilon for part in _JUST_BELOW if suffices(part * smallest_epsilon)]:
        smallest_epsilon = _smallest_real(suffices, better[0], 1.0 + 1e-4, better[0])
    return smallest_epsilon


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Deviation:
    """Both tails of N at one density, built for errors around one alpha."""

    law: NoisyCount
    upper: UpperTail
    lower: UpperTail

    @classmethod
    def at(cls, epsilon: float, m: int, universe: int, present: int, alpha: float) -> _Deviation:
        epsilon_state, kappa = density_split(epsilon, m)
        p1 = present_probability(epsilon_state)
        law = NoisyCount(present=present, sampled=m, universe=universe, p0=1.0 - p1, p1=p1, kappa=kappa)
        mirrored = law.mirrored()
        reach = alpha * m * (2 * p1 - 1)
        return cls(law=law, upper=law.upper_tail(law.mean + reach), lower=mirrored.upper_tail(mirrored.mean + reach))

    def _outside(self, lowest: int, highest: int) -> float:
        return min(1.0, self.upper.beyond(highest) + self.lower.beyond(self.law.sampled - lowest))

    def failure(self, alpha: float) -> float:
        """Return P(|clipped estimate - density| > alpha) at this density."""
        law = self.law
        reach = alpha * law.sampled * (law.p1 - law.p0)
        seen = law.present / law.universe
        above = self.upper.beyond(math.floor(law.mean + reach)) if seen + alpha < 1 else 0.0
        below = self.lower.beyond(law.sampled - math.ceil(law.mean - reach)) if seen - alpha > 0 else 0.0
        return min(1.0, above + below)

    def bound(self, alpha: float) -> float:
        """Return the failure probability: exact if a scan covers every density, else the worst near this one."""
        return self.failure(alpha) if self.law.universe <= SCAN_ALL else self.worst(alpha)

    def worst(self, alpha: float) -> float:
        """Return the failure probability if the integers may lie up to half a step from where they do.

        The fewest integers within ``reach`` of a centre are ``count``, and some centre less than half a step from the
        mean has that few; neighbouring densities have nearly the same law and take every such position.
        """
        law = self.law
        reach = alpha * law.sampled * (law.p1 - law.p0)
        count = math.floor(2 * reach)
        centre = law.mean
        worst = self._outside(math.ceil(centre - reach), math.floor(centre + reach))
        for lowest in range(math.ceil(centre - 0.5 - reach), math.ceil(centre + 0.5 - reach) + 1):
            # Centres that leave only these integers
            nearest = lowest - 1 + reach
            farthest = lowest + count - reach
            if max(nearest, centre - 0.5) < min(farthest, centre + 0.5):
                worst = max(worst, self._outside(lowest, lowest + count - 1))
        return worst


def _scan(epsilon: float, m: int, universe: int, alpha: float) -> Iterator[_Deviation]:
    """Yield deviations at densities up to 1/2 (the distribution is symmetric) that together include the worst case.

    Without sampling the variance is the same at every density, with sampling it is largest at 1/2; the rest depends on
    the skewness and on the position of the integers. The latter matters if the distribution is a few integers wide, so
    then four neighbours are taken whose means differ by quarters of an integer.
    """
    half = universe // 2
    if universe <= SCAN_ALL:
        present = set(range(half + 1))
    else:
        apart = max(1, round(universe / (4 * m * _gap(epsilon, m))))
        narrow = m * math.exp(-density_split(epsilon, m)[0]) < 1e4
        inward = [(start * half // 4, -1 if start == 4 else 1) for start in range(5)]
        present = {
            min(max(start + sign * shift * apart, 0), half)
            for start, sign in inward
            for shift in range(4 if narrow else 1)
        }
    for count in sorted(present):
        yield _Deviation.at(epsilon, m, universe, count, alpha)


def _half(epsilon: float, m: int, universe: int, alpha: float) -> _Deviation:
    """Return the deviation at density 1/2: nearly the worst, so searches use it first."""
    return _Deviation.at(epsilon, m, universe, universe // 2, alpha)


def _smallest(suffices: Callable[[int], bool], seed: int, enough: int) -> int:
    """Return m <= enough with suffices(m) but not suffices(m - 1), searching around ``seed`` first."""
    high = min(seed, enough)
    width = 1
    while high < enough and not suffices(high):
        high = min(enough, high + width)
        width = 2 * width
    low = high - 1
    width = 1
    while low > 0 and suffices(low):
        high = low
        low = max(0, low - width)
        width = 2 * width
    return smallest_integer(suffices, low, high)


def _smallest_real(suffices: Callable[[float], bool], seed: float, ratio: float, enough: float) -> float:
    """Return epsilon <= enough with suffices(epsilon) but not just below, searching around ``seed`` first."""
    high = min(seed, enough)
    step = ratio
    while high < enough and not suffices(high):
        high = min(high * step, enough)
        step = step * step
    low = high / ratio
    step = ratio
    while low > _FLOOR and suffices(low):
        high = low
        low = low / step
        step = step * step
    while high - low > 1e-8 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if suffices(middle) else (middle, high)
    return high


def _step_starts(steps: Callable[[int], float], m: int) -> list[int]:
    """Return the sizes below m at which one more integer comes within alpha: local minima of beta."""
    starts = set()
    for count in range(max(1, math.floor(steps(m)) - _PERIODS), math.floor(steps(m)) + 1):
        start = max(1, math.ceil(m * count / steps(m)))
        while start > 1 and steps(start - 1) >= count:
            start -= 1
        while steps(start) < count:
            start += 1
        starts.add(start)
    return sorted(start for start in starts if start < m)


def _approximate_accuracy(epsilon: float, beta: float, m: int, universe: int) -> float:
    """Return the accuracy for a normal distribution of the same variance at density 1/2, plus Laplace noise."""
    epsilon_state, kappa = density_split(epsilon, m)
    p1 = present_probability(epsilon_state)
    gap = _gap(epsilon, m)
    unsampled_fraction = (universe - m) / max(1, universe - 1)
    sigma = math.sqrt((p1 * (1 - p1) / gap**2 + unsampled_fraction / 4) / m)
    return normal_laplace_quantile(beta / 2, sigma, kappa * gap * m)


def _gap(epsilon: float, m: int) -> float:
    return math.tanh(density_split(epsilon, m)[0] / 2)


def _check(universe: int, *, epsilon: float = MAX_EPSILON, m: int = 1, **shares: float) -> None:
    checks.require_at_least(1, universe=universe)
    if not 0 < epsilon <= MAX_EPSILON:
        raise InvalidParameter(f"epsilon must be in (0, {MAX_EPSILON:g}], got epsilon={epsilon}")
    checks.require_probability(**shares)
    checks.require_integer_in_range(1, universe, m=m)
