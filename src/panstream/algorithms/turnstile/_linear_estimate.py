"""Estimates that are linear in one released integer, with score intervals: the truths that it does not reject."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from panstream.core.estimate import Estimate, normal_laplace_quantile
from panstream.primitives import validation as checks
from panstream.privacy.claim import Claim
from panstream.privacy.numeric_search import bisect

_GRID = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearEstimator:
    """An estimate distributed as truth + Normal(0, variance(truth)) + Laplace(1/kappa), in multiples of ``step``."""

    support: tuple[float, float]
    variance: Callable[[float], float]
    kappa: float
    step: float

    def estimate(self, unbiased: float, *, claim: Claim, name: str, released: tuple[int, ...]) -> Estimate:
        """Return the estimate, clipped to the support, with its standard error and interval."""
        inside = min(max(unbiased, self.support[0]), self.support[1])
        noise = 0.0 if math.isinf(self.kappa) else 2.0 / self.kappa**2
        return Estimate.clipped(
            unbiased,
            self.support,
            standard_error=math.sqrt(self.variance(inside) + noise),
            claim=claim,
            name=name,
            released=released,
            interval_rule=lambda level: self.interval(unbiased, level),
        )

    def reach(self, truth: float, tail: float) -> float:
        """Return the deviation that is exceeded on one side with probability ``tail`` at ``truth``."""
        # Half a step more, since the estimate is discrete and the quantile that of a continuous distribution.
        return normal_laplace_quantile(tail, math.sqrt(self.variance(truth)), self.kappa) + self.step / 2

    def interval(self, unbiased: float, level: float) -> tuple[float, float]:
        """Return the smallest and largest truth that ``unbiased`` does not reject at ``level``."""
        return self._end(unbiased, self.support[0], level), self._end(unbiased, self.support[1], level)

    def _end(self, unbiased: float, outer: float, level: float) -> float:
        tail = (1 - level) / 2
        beyond = unbiased < outer if outer == self.support[0] else unbiased > outer
        if beyond or abs(unbiased - outer) <= self.reach(outer, tail):
            return outer
        inner = min(max(unbiased, self.support[0]), self.support[1])
        return bisect(lambda truth: abs(unbiased - truth) <= self.reach(truth, tail), inner, outer, 36)[1]

    def error(self, beta: float) -> float:
        """Return the error that is exceeded with probability at most ``beta``, whatever the truth."""
        checks.require_probability(beta=beta)
        low, high = self.support
        return max(self.reach(low + (high - low) * i / _GRID, beta / 2) for i in range(_GRID + 1))


def sampling_factor(sampled: int, population: int) -> float:
    """Return (U-m)/(U-1)/m: the variance of a mean of m drawn from U without replacement, per unit of variance."""
    return (population - sampled) / max(1, population - 1) / sampled
