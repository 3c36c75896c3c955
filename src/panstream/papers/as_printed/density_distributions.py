"""The distributions of a stored value in the published density estimators, for absent and for present users.

Draws come from a `NoiseSource`, so a `SeededSource` repeats a run. Levels are drawn by exact coins; real
values by inverting 53-bit uniforms, as the papers' floating-point code does.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from panstream.algorithms.planning.stored_values import (
    StoredValues,
    quantised_values,
    truncated_gaussian_values,
    truncated_laplace_values,
)
from panstream.primitives.noise import Coin, NoiseSource

Floats = NDArray[np.float64]
Uniform = Callable[[int], Floats]


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelDistribution:
    """A finite distribution: ``points[i]`` has probability ``absent[i]`` or ``present[i]``. Two levels are a bit."""

    points: tuple[float, ...]
    absent: tuple[float, ...]
    present: tuple[float, ...]

    @classmethod
    def bit(cls, p0: float, p1: float) -> LevelDistribution:
        """Return Bernoulli(p0) and Bernoulli(p1)."""
        return cls(points=(0.0, 1.0), absent=(1 - p0, p0), present=(1 - p1, p1))

    @classmethod
    @lru_cache(maxsize=64)
    def quantised_laplace(cls, epsilon: float, levels: int) -> LevelDistribution:
        """Return Laplace(±ε/2, 1) rounded to the nearest of Lloyd and Max's points."""
        stored = quantised_values(epsilon, levels)
        points, absent, present = (tuple(array.tolist()) for array in (stored.values, stored.absent, stored.present))
        return cls(points=points, absent=absent, present=present)

    def chances(self, present: bool) -> tuple[float, ...]:
        """Return the probabilities of the levels."""
        return self.present if present else self.absent

    def draw(self, present: bool, size: int, rng: NoiseSource) -> NDArray[np.uint8]:
        """Return levels, by one coin for each step from a level to the next."""
        levels = np.zeros(size, np.uint8)
        climbing = np.ones(size, np.uint8)
        for coin in self._coins(present):
            climbing &= rng.bernoulli(coin, size)
            levels += climbing
        return levels

    @lru_cache(maxsize=64)  # noqa: B019  (an instance is a few numbers)
    def _coins(self, present: bool) -> tuple[Coin, ...]:
        """Return for each level but the last the probability that a value is above it, given that it is not below."""
        chances = self.chances(present)
        above = [math.fsum(chances[level:]) for level in range(1, len(chances))]
        return tuple(
            Coin.at_most(min(more / (more + equal), 1.0)) for more, equal in zip(above, chances[:-1], strict=True)
        )

    def values(self, stored: NDArray[Any]) -> Floats:
        """Return the points of the levels."""
        return np.asarray(np.array(self.points)[stored], np.float64)

    def mean(self, present: bool) -> float:
        """Return the mean of the points."""
        return math.fsum(p * x for p, x in zip(self.chances(present), self.points, strict=True))

    def variance(self, present: bool) -> float:
        """Return the variance of the points."""
        square = math.fsum(p * x * x for p, x in zip(self.chances(present), self.points, strict=True))
        return square - self.mean(present) ** 2


@dataclass(frozen=True, slots=True, kw_only=True)
class RealDistribution(ABC):
    """Base class of distributions of real values; moments by quadrature of the density that ``cut`` tabulates."""

    cut: ClassVar[Callable[[float], StoredValues]]

    epsilon: float

    @abstractmethod
    def sample(self, present: bool, size: int, uniform: Uniform) -> Floats:
        """Return draws, computed from uniform numbers."""

    def draw(self, present: bool, size: int, rng: NoiseSource) -> Floats:
        """Return draws, computed from 53-bit uniform numbers of ``rng``."""
        return self.sample(present, size, lambda count: uniforms(rng, count))

    def values(self, stored: NDArray[Any]) -> Floats:
        """Return the stored numbers themselves."""
        return stored

    def mean(self, present: bool) -> float:
        """Return the mean of a stored number."""
        return _moments(self, present)[0]

    def variance(self, present: bool) -> float:
        """Return the variance of a stored number."""
        return _moments(self, present)[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class LaplaceDistribution(RealDistribution):
    """Laplace((1 ∓ ε)/2, 1), the means and scale of Digalakis 2018, Figure 4.6."""

    def sample(self, present: bool, size: int, uniform: Uniform) -> Floats:
        """Return draws, by the inverse distribution function."""
        return self.mean(present) + laplace_quantile(uniform(size))

    def mean(self, present: bool) -> float:
        """Return μ_upd or μ_init."""
        return 0.5 + (self.epsilon if present else -self.epsilon) / 2

    def variance(self, present: bool) -> float:
        """Return 2b²."""
        return 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TruncatedLaplaceDistribution(RealDistribution):
    """Laplace((1 ∓ ε)/2, 1) truncated to [0, 1]."""

    cut: ClassVar[Callable[[float], StoredValues]] = staticmethod(truncated_laplace_values)

    def sample(self, present: bool, size: int, uniform: Uniform) -> Floats:
        """Return draws, by the inverse distribution function."""
        centre = 0.5 + (self.epsilon if present else -self.epsilon) / 2
        low = 0.5 * math.exp(-centre)
        high = 1.0 - 0.5 * math.exp(centre - 1.0)
        return np.clip(centre + laplace_quantile(low + uniform(size) * (high - low)), 0.0, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class TruncatedGaussianDistribution(RealDistribution):
    """Normal(0, 1/(2ε)) and Normal(1, 1/(2ε)) on [0, 1]: densities proportional to e^(-εx²) and e^(-ε(1-x)²)."""

    cut: ClassVar[Callable[[float], StoredValues]] = staticmethod(truncated_gaussian_values)

    def sample(self, present: bool, size: int, uniform: Uniform) -> Floats:
        """Return draws, by rejection: x is accepted with probability e^(-εx²)."""
        drawn = np.empty(size)
        done = 0
        while done < size:
            tried = uniform(size - done)
            accepted = tried[uniform(size - done) < np.exp(-self.epsilon * tried**2)]
            drawn[done : done + accepted.size] = accepted
            done += accepted.size
        return 1.0 - drawn if present else drawn


StoredDistribution = LevelDistribution | RealDistribution
"""The distributions of a stored value, for absent and present users."""


def uniforms(rng: NoiseSource, size: int) -> Floats:
    """Return ``size`` uniform numbers in (0, 1) with 53 bits."""
    return (rng.uniform_below(1 << 53, size) + 0.5) / (1 << 53)


def laplace_quantile(uniform: Floats) -> Floats:
    """Return Laplace(0, 1) values from uniform numbers in (0, 1)."""
    shifted = uniform - 0.5
    return np.asarray(-np.sign(shifted) * np.log1p(-2.0 * np.abs(shifted)))


@lru_cache(maxsize=256)
def _moments(stored: RealDistribution, present: bool) -> tuple[float, float]:
    density = type(stored).cut(stored.epsilon)
    weights = density.measure * (density.present if present else density.absent)
    mean = float(weights @ density.values)
    return mean, float(weights @ density.values**2) - mean**2
