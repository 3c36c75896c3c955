"""The number of users behind noisy counts: maximum likelihood, Fisher information, and intervals with their coverage.

Each level's noisy count is decoded to a number of empty cells, whose distribution is taken as normal with the exact
mean and covariance for n users (`LevelMoments`). The only parameter is n, so the maximum is found by search on a line:
on a coarse grid over the bitmap's range, which is cached per bitmap, then on ever finer ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist

import numpy as np

from panstream.core.estimate import Estimate, bisect_decreasing
from panstream.errors import InvalidParameter
from panstream.primitives import validation as checks
from panstream.privacy.bitmap_loss import Floats, LevelMoments
from panstream.privacy.claim import Claim

_STEPS_PER_DOUBLING = 4
# Each round narrows the search sixteenfold
_ROUNDS = 3
_POINTS = 33
_LARGE = 16.0  # counts of at least this many standard errors get a log-normal interval from the Fisher information
_PARTS = np.linspace(0.0, 1.0, _POINTS)
_NORMAL = NormalDist()


@dataclass(frozen=True, slots=True, kw_only=True)
class LikelihoodFit:
    """The most likely number of users, the same without the bound at 0, and the standard error."""

    users: float
    unbiased: float
    standard_error: float


@dataclass(frozen=True, slots=True, eq=False)
class Likelihood:
    """The likelihood of a number of users, given the decoded number of empty cells on each level."""

    moments: LevelMoments
    empty: Floats
    coarse: LevelMoments | None = (
        None  # similar moments shared by many likelihoods; their cached grid starts the search
    )

    def deviance(self, users: float) -> float:
        """Return -2·log-likelihood at ``users``, up to a constant."""
        return float(_deviance(self.empty, users, *self.moments.at(users)))

    def fit(self) -> LikelihoodFit:
        """Return the n >= 0 with the largest likelihood.

        If that is 0, ``unbiased`` is the result of one Fisher scoring step from 0, which may be negative.
        """
        grid, mean, slope, variance = _grid(self.coarse or self.moments)
        best = int(np.argmin(_deviance(self.empty, grid, mean, slope, variance)))
        users = float(grid[best])
        if best + 1 < grid.size:
            reach = 1 if self.coarse is None else 2
            users = self._narrow(float(grid[max(best - reach, 0)]), float(grid[min(best + reach, grid.size - 1)]))
        unbiased = users
        if best <= 1 and self.deviance(0.0) <= self.deviance(users):
            weights = slope[0] / variance[0]
            unbiased = min(0.0, float(weights @ (self.empty - mean[0]) / (weights @ slope[0])))
            users = 0.0
        return LikelihoodFit(users=users, unbiased=unbiased, standard_error=math.sqrt(self.moments.variance(users)))

    def _narrow(self, low: float, high: float) -> float:
        """Return the minimum of the deviance between ``low`` and ``high``, by finer grids and a final parabola."""
        for _ in range(_ROUNDS):
            points = low + (high - low) * _PARTS
            values = _deviance(self.empty, points, *self.moments.at(points))
            best = min(max(int(np.argmin(values)), 1), _POINTS - 2)
            low, middle, high = points[best - 1 : best + 2]
        at_low, at_middle, at_high = values[best - 1 : best + 2]
        bend = at_low - 2.0 * at_middle + at_high
        shift = 0.5 * (at_low - at_high) / bend if bend > 0.0 else 0.0
        return float(middle + min(max(shift, -1.0), 1.0) * (high - middle))

    def estimate(self, claim: Claim, released: tuple[int, ...]) -> Estimate:
        """Return the most likely number of users as an estimate under ``claim``."""
        fit = self.fit()
        return Estimate.clipped(
            fit.unbiased,
            (0.0, math.inf),
            standard_error=fit.standard_error,
            claim=claim,
            name="distinct users",
            released=released,
            interval_rule=lambda level: self.interval(fit, level),
        )

    def interval(self, fit: LikelihoodFit, level: float) -> tuple[float, float]:
        """Return the interval at ``level``: from the Fisher information for a large count, else by likelihood ratio."""
        # On a logarithmic scale: the error grows with the count, so the upper end is farther away than the lower one.
        if math.isfinite(fit.standard_error) and fit.users >= _LARGE * fit.standard_error > 0.0:
            reach = math.exp(_NORMAL.inv_cdf((1 + level) / 2) * fit.standard_error / fit.users)
            return fit.users / reach, fit.users * reach
        min_deviance = self.deviance(fit.users)

        def allowed_rise(users: float) -> float:
            error = math.sqrt(self.moments.variance(users))
            distance = users / error if error > 0.0 else math.inf
            return critical_value(level, distance) - (self.deviance(users) - min_deviance)

        return self._lower(allowed_rise, fit), self._upper(allowed_rise, fit)

    def _lower(self, allowed_rise: Callable[[float], float], fit: LikelihoodFit) -> float:
        if allowed_rise(0.0) >= 0.0:
            return 0.0
        return fit.users - bisect_decreasing(lambda gap: allowed_rise(fit.users - gap), 0.0, fit.users, 1e-6)

    def _upper(self, allowed_rise: Callable[[float], float], fit: LikelihoodFit) -> float:
        error = fit.standard_error if math.isfinite(fit.standard_error) else fit.users
        limit = float(_grid(self.coarse or self.moments)[0][-1])
        step = max(error, 1e-9)
        while allowed_rise(fit.users + step) > 0.0:
            if fit.users + step > limit:
                return math.inf  # every cell is full: the counts cannot rule out any larger number
            step *= 2.0
        return bisect_decreasing(allowed_rise, fit.users, fit.users + step, 1e-6)


def count_error_bound(relative_error: Callable[[float], float], users: float | None, beta: float) -> float:
    """Return the error that a count of up to ``users`` users exceeds with probability at most ``beta``.

    The logarithm of the count is taken as normal, as in the interval of a large count.

    Args:
        relative_error: Standard error at a number of users, divided by that number.
        users: Largest number of users that the bound is for.
        beta: Probability that the bound is exceeded.
    """
    checks.require_probability(beta=beta)
    if users is None or not users > 0:
        raise InvalidParameter(f"the error depends on the count: give expected= or a positive users=, got {users}")
    reach = _NORMAL.inv_cdf(1 - beta / 2) * relative_error(users)
    return users * math.expm1(reach) if reach < 700 else math.inf  # exp(709) is the largest double


def critical_value(level: float, distance: float) -> float:
    """Return how far the deviance may rise at a truth ``distance`` standard errors above 0 before it is rejected.

    Far from 0 this is the chi-square quantile. Near 0, where the estimate cannot be negative, the value is smaller, so
    that the truth is covered with probability ``level`` and no interval is empty (Feldman and Cousins 1998, with normal
    tails).

    >>> round(critical_value(0.95, 10.0), 3), round(critical_value(0.95, 0.0), 3)
    (3.841, 2.706)
    """
    tail = 1.0 - level
    two_sided = _NORMAL.inv_cdf(1.0 - tail / 2)
    if distance >= two_sided:
        return two_sided**2
    one_sided = _NORMAL.inv_cdf(1.0 - tail)
    if distance <= 1e-9:
        return max(one_sided, 0.0) ** 2

    def missed(root: float) -> float:
        below = (root**2 + distance**2) / (2.0 * distance)
        return math.log((_NORMAL.cdf(-root) + _NORMAL.cdf(-below)) / tail)

    return bisect_decreasing(missed, max(one_sided, distance), two_sided, 1e-7) ** 2


def _deviance(empty: Floats, users: float | Floats, mean: Floats, slope: Floats, variance: Floats) -> Floats:
    """Return d'V⁻¹d + ln det V for V = diag(variance) - users·slope·slope', by Sherman and Morrison."""
    difference = empty - mean
    weighted = slope / variance
    # A user falls into one level only, so the levels' empty cells are negatively correlated: the covariance matrix is
    # diagonal minus rank one (bitmap.md, Lemma 3), which is inverted in linear time.
    determinant = np.maximum(1.0 - users * (weighted * slope).sum(-1), 1e-12)
    across = (weighted * difference).sum(-1)
    deviance: Floats = (
        (difference**2 / variance + np.log(variance)).sum(-1) + users * across**2 / determinant + np.log(determinant)
    )
    return deviance


@lru_cache(maxsize=64)
def _grid(moments: LevelMoments) -> tuple[Floats, Floats, Floats, Floats]:
    """Return a geometric grid of numbers of users over the bitmap's range, and the moments at its points."""
    # From an eighth of the standard error of an empty bitmap to 64 users per cell of the last level, where it is full.
    first = max(math.sqrt(moments.variance(0.0)) / 8.0, 0.125)
    last = max(64.0 / float(moments.rates.min()), 2.0 * first)
    count = math.ceil(_STEPS_PER_DOUBLING * math.log2(last / first)) + 1
    grid = first * np.exp2(np.arange(-1, count) * (math.log2(last / first) / (count - 1)))
    grid[0] = 0.0
    return grid, *moments.at(grid)
