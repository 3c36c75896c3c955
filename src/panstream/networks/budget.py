"""One budget for noise and choices: pure epsilon (Laplace, permute-and-flip) or zCDP (Gaussian, exponential mechanism).

Shares are exact fractions of the whole and only add up; what exceeds one is refused before anything is drawn. Which
share comes next may depend on what was released before: both kinds of loss add up under adaptive choices.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from panstream.errors import BudgetExhausted
from panstream.networks.forest import NoisyTable
from panstream.networks.grouping import LARGEST_TABLE, group_price, joint_groups, joint_spread
from panstream.networks.noisy_tables import Views
from panstream.privacy.composition import zcdp_rho
from panstream.privacy.tables import choice_epsilon, choice_rate, table_kappa, table_sigma
from panstream.randomness import DiscreteGaussian, DiscreteLaplace, Preference, Source

__all__ = ["PurePurse", "Purse", "Thrift", "ZcdpPurse", "portions"]

_GRID = 1 << 50


def portions(total: Fraction, weights: Sequence[float]) -> list[Fraction]:
    """Split ``total`` in proportion to ``weights``, rounded down so that the sum is never above it."""
    whole = sum(Fraction(weight) for weight in weights)
    return [Fraction(math.floor(total * Fraction(weight) / whole * _GRID), _GRID) for weight in weights]


class Thrift(NamedTuple):
    """When edges are worth their noise: see :mod:`panstream.networks.plan`."""

    hopeless: float
    tables: float
    theta: float = 2.0


class Purse(Protocol):
    """What a learner may spend, in shares of the whole."""

    spent: dict[str, Fraction]

    thrift: Thrift

    def weight(self, cells: float) -> float:
        """Return the share of a table in proportion to which all tables together have the least absolute noise."""

    def size(self, share: Fraction, cells: int) -> float:
        """Return the mean absolute noise of a cell in a table of so many cells that costs ``share``."""

    def blur(self, share: Fraction, sensitivity: int) -> float:
        """Return how much utility a choice that costs ``share`` may overlook, for each nat of candidates."""

    def measure(
        self,
        purpose: str,
        attributes: tuple[int, ...],
        counts: NDArray[np.int64],
        share: Fraction,
        source: Source,
        views: Views | None = None,
    ) -> NoisyTable:
        """Return the counts, one for each record in one cell or its difference, with noise that costs ``share``."""

    def useful(self, share: Fraction, records: int) -> float:
        """Return how many cells a table that costs ``share`` should have at most."""

    def measure_all(
        self, purpose: str, counts: Sequence[NDArray[np.int64]], share: Fraction, source: Source
    ) -> list[NoisyTable]:
        """Return the one-way tables of all attributes with noise that costs ``share`` in all."""

    def moved(self, sizes: Sequence[int]) -> float:
        """Return half the mean absolute noise of all one-way tables together, if all is spent on them."""

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

    thrift = Thrift(hopeless=0.03, tables=0.0015)

    def __init__(self, epsilon: float) -> None:
        super().__init__()
        self.epsilon = epsilon

    def _loss(self, share: Fraction) -> Fraction | float:
        return math.inf if math.isinf(self.epsilon) else Fraction(self.epsilon) * share

    def _law(self, share: Fraction) -> DiscreteLaplace:
        return DiscreteLaplace.at_most(table_kappa(self._loss(share)))

    def weight(self, cells: float) -> float:
        """Return sqrt(cells - 1): sums of (cells - 1)/share are then smallest."""
        return math.sqrt(max(cells - 1.0, 1.0))

    def size(self, share: Fraction, cells: int) -> float:
        """Return the mean absolute noise of a cell, about (1 - 1/cells)/kappa where it is balanced."""
        size = math.sqrt(self._law(share).variance / 2.0)
        return size * (1.0 - 1.0 / cells) if cells <= LARGEST_TABLE else size

    def measure(
        self,
        purpose: str,
        attributes: tuple[int, ...],
        counts: NDArray[np.int64],
        share: Fraction,
        source: Source,
        views: Views | None = None,
    ) -> NoisyTable:
        """Add discrete Laplace noise of rate epsilon·share/2 to every cell; in small tables it adds up to 0.

        The sum of a table is the public number of records, so noise in that direction would protect nothing. A cell's
        variance is then (c-1)(2c-1)/(2c(c+1)) of the independent noise's: a quarter of it with c = 2 cells.
        """
        self._pay(purpose, share)
        noisy = np.array(counts, np.int64, order="C")
        law, cells = self._law(share), noisy.size
        if cells > LARGEST_TABLE or (views is not None and any(view.count == 2 for view in views)):
            source.add_discrete_laplace(noisy.reshape(-1), law)
            return NoisyTable(attributes, noisy, math.sqrt(law.variance), True, views)
        source.add_balanced_laplace(noisy.reshape(-1), law)
        left = (cells - 1) * (2 * cells - 1) / (2 * cells * (cells + 1))
        return NoisyTable(attributes, noisy, math.sqrt(law.variance * left), True, views)

    def useful(self, share: Fraction, records: int) -> float:
        """Return the cells whose average count is theta noise scales: records·epsilon·share/(2·theta)."""
        return records * float(self._loss(share)) / (2.0 * self.thrift.theta)

    def measure_all(
        self, purpose: str, counts: Sequence[NDArray[np.int64]], share: Fraction, source: Source
    ) -> list[NoisyTable]:
        """Add noise of rate epsilon·share/2 to groups of tables at once: :mod:`panstream.networks.grouping`."""
        sizes = [table.size for table in counts]
        groups = joint_groups(sizes)
        found: dict[int, NoisyTable] = {}
        parts = portions(share, [group_price([sizes[at] for at in group]) for group in groups])
        for group, part in zip(groups, parts, strict=True):
            if len(group) == 1:
                found[group[0]] = self.measure(purpose, (group[0],), counts[group[0]], part, source)
                continue
            self._pay(purpose, part)
            law, noisy = self._law(part), [np.array(counts[at], np.int64) for at in group]
            source.add_joint_laplace(noisy, law)
            for at, table, spread in zip(group, noisy, joint_spread([table.size for table in noisy]), strict=True):
                found[at] = NoisyTable((at,), table, math.sqrt(law.variance * spread), laplace=True)
        return [found[at] for at in range(len(counts))]

    def moved(self, sizes: Sequence[int]) -> float:
        """Return the sum over groups of (D + 1)(1 - 1/c)/(2·kappa), or of (c - 1)/(2·kappa) for tables on their own."""
        groups = [[sizes[at] for at in group] for group in joint_groups(sizes)]
        total = 0.0
        for group, part in zip(groups, portions(Fraction(1), [group_price(group) for group in groups]), strict=True):
            if len(group) == 1:
                total += group[0] * self.size(part, group[0]) / 2.0
            else:
                free = sum(size - 1 for size in group)
                scale = math.sqrt(self._law(part).variance / 2.0)
                total += (free + 1) * math.fsum(1 - 1 / size for size in group) * scale / 2.0
        return total

    def blur(self, share: Fraction, sensitivity: int) -> float:
        """Return 2·sensitivity/(epsilon·share)."""
        return 1.0 / float(choice_rate(self._loss(share), sensitivity))

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

    thrift = Thrift(hopeless=0.06, tables=0.004)

    def __init__(self, epsilon: float, delta: float) -> None:
        super().__init__()
        self.rho = zcdp_rho(epsilon, delta)

    def _law(self, share: Fraction) -> DiscreteGaussian:
        return DiscreteGaussian.at_least(table_sigma(self.rho * float(share)))

    def weight(self, cells: float) -> float:
        """Return cells^(2/3): sums of cells/sqrt(share) are then smallest."""
        return math.pow(cells, 2.0 / 3.0)

    def size(self, share: Fraction, cells: int) -> float:
        """Return the mean absolute value of the noise once the table's sum is known: sigma·sqrt(2/pi·(1 - 1/cells))."""
        return self._law(share).sigma * math.sqrt(2.0 / math.pi * (1.0 - 1.0 / cells))

    def measure(
        self,
        purpose: str,
        attributes: tuple[int, ...],
        counts: NDArray[np.int64],
        share: Fraction,
        source: Source,
        views: Views | None = None,
    ) -> NoisyTable:
        """Add discrete Gaussian noise with sigma² = 1/(rho·share) to every cell."""
        self._pay(purpose, share)
        noisy = np.array(counts, np.int64, order="C")
        source.add_discrete_gaussian(noisy.reshape(-1), self._law(share))
        return NoisyTable(attributes, noisy, self._law(share).sigma, False, views)

    def useful(self, share: Fraction, records: int) -> float:
        """Return infinity: tables stay whole."""
        return math.inf

    def measure_all(
        self, purpose: str, counts: Sequence[NDArray[np.int64]], share: Fraction, source: Source
    ) -> list[NoisyTable]:
        """Add noise to every table on its own: Gaussian noise gains nothing by being drawn together."""
        parts = portions(share, [self.weight(table.size) for table in counts])
        return [
            self.measure(purpose, (at,), table, part, source)
            for at, (table, part) in enumerate(zip(counts, parts, strict=True))
        ]

    def moved(self, sizes: Sequence[int]) -> float:
        """Return the sum over tables of half their cells' mean absolute noise."""
        shares = portions(Fraction(1), [self.weight(size) for size in sizes])
        return math.fsum(size * self.size(share, size) / 2.0 for size, share in zip(sizes, shares, strict=True))

    def blur(self, share: Fraction, sensitivity: int) -> float:
        """Return 2·sensitivity/sqrt(8·rho·share)."""
        return float(1.0 / choice_rate(choice_epsilon(self.rho * float(share)), sensitivity))

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
