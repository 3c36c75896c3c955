"""One budget for noise and choices: pure epsilon (Laplace, permute-and-flip) or zCDP (Gaussian, exponential mechanism).

Shares are exact fractions of the whole and only add up; what exceeds one is refused before anything is drawn. Which
share comes next may depend on what was released before: both kinds of loss add up under adaptive choices.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from panstream.errors import BudgetExhausted
from panstream.networks.forest import NoisyTable
from panstream.privacy.composition import zcdp_rho
from panstream.privacy.tables import choice_epsilon, choice_rate, table_kappa, table_sigma
from panstream.randomness import DiscreteGaussian, DiscreteLaplace, Preference, Source

__all__ = ["PurePurse", "Purse", "ZcdpPurse", "portions"]

_GRID = 1 << 50


def portions(total: Fraction, weights: Sequence[float]) -> list[Fraction]:
    """Split ``total`` in proportion to ``weights``, rounded down so that the sum is never above it."""
    whole = sum(Fraction(weight) for weight in weights)
    return [Fraction(math.floor(total * Fraction(weight) / whole * _GRID), _GRID) for weight in weights]


class Purse(Protocol):
    """What a learner may spend, in shares of the whole."""

    spent: dict[str, Fraction]

    def sigma(self, share: Fraction) -> float:
        """Return the standard deviation of a cell's noise in a table that costs ``share``."""

    def size(self, share: Fraction) -> float:
        """Return the mean absolute noise of a cell in a table that costs ``share``."""

    def measure(
        self, purpose: str, attributes: tuple[int, ...], counts: NDArray[np.int64], share: Fraction, source: Source
    ) -> NoisyTable:
        """Return the counts with noise that costs ``share``."""

    def choose(
        self, purpose: str, utilities: NDArray[np.int64], sensitivity: int, share: Fraction, source: Source
    ) -> int:
        """Return the position of a large utility, at the cost of ``share``."""


class _Account:
    __slots__ = ("spent",)

    def __init__(self) -> None:
        self.spent: dict[str, Fraction] = {}

    def _pay(self, purpose: str, share: Fraction) -> None:
        if share <= 0 or sum(self.spent.values(), Fraction(0)) + share > 1:
            raise BudgetExhausted(f"{purpose} would spend more than the whole budget")
        self.spent[purpose] = self.spent.get(purpose, Fraction(0)) + share


class PurePurse(_Account):
    """Pure epsilon: losses are shares of epsilon."""

    __slots__ = ("epsilon",)

    def __init__(self, epsilon: float) -> None:
        super().__init__()
        self.epsilon = epsilon

    def _loss(self, share: Fraction) -> Fraction | float:
        return math.inf if math.isinf(self.epsilon) else Fraction(self.epsilon) * share

    def _law(self, share: Fraction) -> DiscreteLaplace:
        return DiscreteLaplace.at_most(table_kappa(self._loss(share)))

    def sigma(self, share: Fraction) -> float:
        """Return the standard deviation of discrete Laplace noise at ``share``."""
        return math.sqrt(self._law(share).variance)

    def size(self, share: Fraction) -> float:
        """Return the mean absolute value of discrete Laplace noise, about sigma/sqrt(2)."""
        return self.sigma(share) / math.sqrt(2.0)

    def measure(
        self, purpose: str, attributes: tuple[int, ...], counts: NDArray[np.int64], share: Fraction, source: Source
    ) -> NoisyTable:
        """Add discrete Laplace noise of rate epsilon·share/2 to every cell."""
        self._pay(purpose, share)
        noisy = np.array(counts, np.int64, order="C")
        source.add_discrete_laplace(noisy.reshape(-1), self._law(share))
        return NoisyTable(attributes, noisy, self.sigma(share), laplace=True)

    def choose(
        self, purpose: str, utilities: NDArray[np.int64], sensitivity: int, share: Fraction, source: Source
    ) -> int:
        """Choose by permute-and-flip at epsilon·share."""
        self._pay(purpose, share)
        return source.permute_and_flip(utilities, Preference.at_most(choice_rate(self._loss(share), sensitivity)))

    def parts(self) -> dict[str, float]:
        """Return what was spent on what, in epsilon."""
        return {purpose: float(share) * self.epsilon for purpose, share in self.spent.items()}


class ZcdpPurse(_Account):
    """(epsilon, delta) by way of zCDP: losses are shares of the largest rho that gives both."""

    __slots__ = ("rho",)

    def __init__(self, epsilon: float, delta: float) -> None:
        super().__init__()
        self.rho = zcdp_rho(epsilon, delta)

    def _law(self, share: Fraction) -> DiscreteGaussian:
        return DiscreteGaussian.at_least(table_sigma(self.rho * float(share)))

    def sigma(self, share: Fraction) -> float:
        """Return the sigma of discrete Gaussian noise at ``share``."""
        return self._law(share).sigma

    def size(self, share: Fraction) -> float:
        """Return the mean absolute value of the noise, sigma·sqrt(2/pi)."""
        return self.sigma(share) * math.sqrt(2.0 / math.pi)

    def measure(
        self, purpose: str, attributes: tuple[int, ...], counts: NDArray[np.int64], share: Fraction, source: Source
    ) -> NoisyTable:
        """Add discrete Gaussian noise with sigma² = 1/(rho·share) to every cell."""
        self._pay(purpose, share)
        noisy = np.array(counts, np.int64, order="C")
        source.add_discrete_gaussian(noisy.reshape(-1), self._law(share))
        return NoisyTable(attributes, noisy, self.sigma(share))

    def choose(
        self, purpose: str, utilities: NDArray[np.int64], sensitivity: int, share: Fraction, source: Source
    ) -> int:
        """Choose by the exponential mechanism at epsilon = sqrt(8·rho·share)."""
        self._pay(purpose, share)
        epsilon = choice_epsilon(self.rho * float(share))
        return source.exponential(utilities, Preference.at_most(choice_rate(epsilon, sensitivity)))

    def parts(self) -> dict[str, float]:
        """Return what was spent on what, in rho."""
        return {f"rho of {purpose}": self.rho * float(share) for purpose, share in self.spent.items()}
