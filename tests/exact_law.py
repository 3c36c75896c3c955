"""The exact distribution of a released integer, to check the errors and intervals that an algorithm reports.

A count of independent bits plus discrete Laplace noise is a convolution of a few arrays. Standard error, interval and
bound are computed for every possible release and weighted by its probability: no formula of the algorithm is used.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

__all__ = ["ReleaseLaw", "assert_exact_intervals", "bits", "laplace_sum", "sampled"]


def bits(counts: dict[float, int]) -> NDArray[np.float64]:
    """Return the distribution of the number of ones; ``counts`` has the number of bits of each probability."""
    law = np.ones(1)
    for chance, count in counts.items():
        law = np.convolve(law, stats.binom.pmf(np.arange(count + 1), count, chance))
    return law


def laplace_sum(draws: int, kappa: float) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return values and probabilities of a sum of discrete Laplace draws."""
    reach = math.ceil(40 / kappa)
    one = np.exp(-kappa * np.abs(np.arange(-reach, reach + 1)))
    law = np.ones(1)
    for _ in range(draws):
        law = np.convolve(law, one / one.sum())
    return np.arange(law.size) - law.size // 2, law


def assert_exact_intervals(answer: Any, draws: int, kappa: float, unit: float) -> None:
    """Check error and intervals of an answer whose noise is ``unit`` times a sum of so many discrete Laplace draws."""
    values, chances = laplace_sum(draws, kappa)
    assert answer.standard_error == pytest.approx(math.sqrt(float(chances @ values**2)) * unit, rel=1e-6)
    for level in (0.5, 0.9, 0.99):
        low, high = answer.interval_rule(level)
        assert answer.interval(level) == (max(low, 0.0), high)
        assert low + high == pytest.approx(2 * answer.value)
        steps = (high - low) / 2 / unit
        assert chances[np.abs(values) <= steps].sum() >= level - 1e-3
        assert chances[np.abs(values) <= steps - 2].sum() < level


def sampled(
    population: int, marked: int, sample: int, law: Callable[[int], NDArray[np.float64]]
) -> NDArray[np.float64]:
    """Return the mixture of ``law(k)`` over the number k of marked users in a sample without replacement."""
    chances = stats.hypergeom.pmf(np.arange(sample + 1), population, marked, sample)
    return np.sum([chance * law(k) for k, chance in enumerate(chances)], axis=0)


@dataclass(frozen=True)
class ReleaseLaw:
    """All releases of non-negligible probability, their estimates, and the truth."""

    chances: NDArray[np.float64]
    estimates: list[Any]
    truth: float

    @classmethod
    def of(cls, ones: NDArray[np.float64], kappa: float, decode: Callable[[int], Any], truth: float) -> ReleaseLaw:
        reach = math.ceil(25 / kappa)
        noise = np.exp(-kappa * np.abs(np.arange(-reach, reach + 1)))
        law = np.convolve(ones, noise / noise.sum())
        likely = np.flatnonzero(law > 1e-9)
        return cls(law[likely], [decode(int(index) - reach) for index in likely], truth)

    @property
    def values(self) -> NDArray[np.float64]:
        return np.array([estimate.unbiased for estimate in self.estimates])

    def bias(self) -> float:
        return float(self.chances @ self.values) / self.chances.sum() - self.truth

    def deviation(self) -> float:
        mean = self.chances @ self.values
        return math.sqrt(float(self.chances @ (self.values - mean) ** 2))

    def beyond(self, error: float) -> float:
        """Return the probability that the error of the estimate exceeds ``error``."""
        return float(self.chances[np.abs(self.values - self.truth) > error].sum())

    def coverage(self, level: float) -> float:
        """Return the probability that the interval contains the truth."""
        inside = [low <= self.truth <= high for low, high in (e.interval(level) for e in self.estimates)]
        return float(self.chances[inside].sum())

    def misses(self, level: float) -> tuple[float, float]:
        """Return the probabilities that the interval lies above the truth, and below it."""
        ends = np.array([e.interval(level) for e in self.estimates])
        return float(self.chances[ends[:, 0] > self.truth].sum()), float(self.chances[ends[:, 1] < self.truth].sum())

    def said_at_truth(self) -> float:
        """Return the standard error that is reported where the estimate equals the truth."""
        nearest = int(np.argmin(np.abs(self.values - self.truth)))
        return float(self.estimates[nearest].standard_error)
