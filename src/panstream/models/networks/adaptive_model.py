"""A model of privately chosen pairs: adaptive measurements of one table, and a log-linear model fitted to them.

A tree has d - 1 of the d(d - 1)/2 dependences between d attributes. This learner buys the noisy tables of as many pairs
as the budget is worth, in rounds, as AIM does (McKenna, Mullins, Sheldon, Miklau 2022): a table is chosen privately if
the model fitted so far is far from it, compared with the noise it would get; then it is measured, and the model is
fitted again (`panstream.models.networks._log_linear_fit`). "No pair" is a candidate too: if it is chosen, the shares
are too small to find more, and the next ones are twice as large; if they cannot grow, one-way tables get what remains.
A pair is a candidate only if the junction tree of the model stays small with it.

Differences from AIM: several tables are chosen between two fits; large tables get a larger share, and small ones a
smaller one; overlapping tables are combined by least squares; and a pair's parameters shrink according to its noise.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from panstream.models.networks._junction_tree import adjacency
from panstream.models.networks._log_linear_fit import LogLinearModel
from panstream.models.networks.budget import RESIDUAL_SENSITIVITY, Budget
from panstream.models.networks.contingency import contingency, pairwise
from panstream.models.networks.domain import Domain
from panstream.models.networks.learner import GaussianLearner, Learned, Progress
from panstream.models.networks.noisy_tables import NoisyTable, average_repeats, smooth
from panstream.models.networks.records import Records
from panstream.primitives.noise import NoiseSource

_ONES = Fraction(30, 100)  # share of the first one-way tables
_CHOICE = Fraction(1, 10)  # of what a table and its choice cost together
_FIRST_UNITS = 3  # times the number of attributes: the units into which the budget is divided at first
_LAST_UNIT = Fraction(1, 4)  # a remainder below that part of a first unit joins the last table
_RELATIVE_SHARES = 1.0 / 8.0, 8.0  # limits of a table's share over that of the median pair
_NOISE_WEIGHT = 0.6  # of a table's expected noise: shrinking removes part of it
_LARGEST_UNIT = Fraction(1, 4)  # of what remains: if no pair exceeds its noise even so, one-way tables get it
_FEW_STEPS = 40  # of descent, after a round
_MANY_STEPS = 150  # at the end
_LARGEST_MODEL = 1 << 17  # cells of all cliques of the junction tree
_MAX_CATEGORIES = 4096  # of all attributes together
_GRID = 1 << 50

_Pair: TypeAlias = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptiveModel(GaussianLearner):
    """Learn a network from noisy tables of privately chosen pairs, at (epsilon, delta).

    Args:
        epsilon: The claimed epsilon.
        delta: The claimed delta.

    **Privacy**: record level, replace-one, (epsilon, delta)-DP by zCDP composition of discrete Gaussian tables and
    exponential mechanisms. The number of records and the domain are public. The holder keeps the rows.

    **Error**: a cell of a two-way table has noise sigma = 1/sqrt(rho·share); shares grow like cells^(2/3), and double
    when no pair is farther from the model than its noise.

    Close two- and three-way tables; see `recommend_learner` for when another learner does better.

    >>> domain = Domain({"rain": ["no", "yes"], "wet": ["no", "yes"]})
    >>> records = Records.read({"rain": ["no", "yes"] * 400, "wet": ["no", "yes"] * 400}, domain)
    >>> learned = AdaptiveModel(epsilon=1.0, delta=1e-6).fit(records)
    >>> bool(learned.network.posterior(["wet"], {"rain": "yes"})[1] > 0.9), learned.claim.epsilon
    (True, 1.0)
    """

    def _obstacle(self, domain: Domain) -> str | None:
        if len(domain) >= 2 and sum(domain.sizes) <= _MAX_CATEGORIES:
            return None
        return (
            f"pairs need 2 attributes or more and at most {_MAX_CATEGORIES:,} categories in all; "
            "TreeNetwork takes any number"
        )

    def _learn(self, records: Records, budget: Budget, rng: NoiseSource, progress: Progress) -> Learned:
        learning = _Measurements(records, budget, rng)
        progress("one-way tables", 0.0)
        learning.measure_ones()
        while learning.remaining:
            progress(f"pairs, {len(learning.model.pairs)} so far", 0.9 * (1 - float(learning.remaining)))
            learning.measure_round()
        progress("last fit", 0.9)
        learning.model.fit(_MANY_STEPS)
        return average_repeats(learning.tables), learning.model.network(records.domain)


class _Measurements:
    """The tables measured so far, the model fitted to them, and what remains of the budget."""

    def __init__(self, records: Records, budget: Budget, rng: NoiseSource) -> None:
        self.domain = records.domain
        self.records = len(records)
        self.budget = budget
        self.rng = rng
        sizes = self.domain.sizes
        self.ones = [contingency(records, (attribute,)) for attribute in range(len(sizes))]
        self.pairs = pairwise(records)
        weights = np.array([budget.weight(table.size) for table in self.pairs.values()])
        relative = np.clip(weights / np.median(weights), *_RELATIVE_SHARES)
        self.relative = dict(zip(self.pairs, relative.tolist(), strict=True))
        self.tables: list[NoisyTable] = []
        self.model = LogLinearModel(sizes)
        self.remaining = Fraction(1)
        self.unit = (1 - _ONES) / (_FIRST_UNITS * len(sizes))
        self.last_share = self.unit * _LAST_UNIT

    def measure_ones(self) -> None:
        """Measure all one-way tables and fit independent attributes to them."""
        self.remaining -= _ONES
        for table in self.budget.measure_all("marginals", self.ones, _ONES, self.rng):
            self._add(table)
        self.model.fit(_FEW_STEPS)

    def measure_round(self) -> None:
        """Choose and measure some tables and fit again; if none exceeds its noise, double the unit or end."""
        fitted = self.model.pair_marginals()
        chosen: list[_Pair] = []
        for _ in range(max(1, len(self.domain) // 3)):
            if not self.remaining:
                break
            self.unit = min(self.unit, self.remaining)
            pair = self._choose(fitted, chosen, _down(self.unit * _CHOICE))
            if pair is None:
                if self.unit > _LARGEST_UNIT * self.remaining:
                    self._measure_ones_again()
                self.unit *= 2
                break
            share = self._table_share(pair)
            if self.remaining - share < self.last_share:
                share = self.remaining
            self._measure(pair, share)
            chosen.append(pair)
        self.model.fit(_FEW_STEPS)

    def _measure_ones_again(self) -> None:
        for table in self.budget.measure_all("marginals", self.ones, self.remaining, self.rng):
            self._add(table)
        self.remaining = Fraction(0)

    def _table_share(self, pair: _Pair) -> Fraction:
        return min(_down(self.unit * (1 - _CHOICE) * Fraction(self.relative[pair])), self.remaining)

    def _choose(
        self, fitted: dict[_Pair, NDArray[np.float64]], chosen: Collection[_Pair], share: Fraction
    ) -> _Pair | None:
        """Return a pair whose distance from the model exceeds its noise most, or None, by a private choice."""
        from panstream.primitives.kernels.models.elimination import cells_with_edges

        pairs = [pair for pair in self.pairs if pair not in chosen]
        edges = np.array(pairs, np.int64)
        graph = adjacency(len(self.domain), self.model.pairs)
        cells = cells_with_edges(graph, np.log(np.array(self.domain.sizes, np.float64)), edges)
        spent = max(1 - float(self.remaining), 0.25)
        limit = max(spent * _LARGEST_MODEL, float(cells.min()) + 0.5)
        pairs = [pair for pair, size in zip(pairs, cells, strict=True) if size <= limit]
        utilities = []
        for pair in pairs:
            gap = self.pairs[pair] - np.rint(self.records * fitted[pair]).astype(np.int64)
            noise = _NOISE_WEIGHT * gap.size * self.budget.size(self._table_share(pair), gap.size)
            utilities.append(int(np.abs(gap).sum()) - round(noise))
        self.remaining -= share
        values = np.array([*utilities, 0], np.int64)
        index = self.budget.choose("structure", values, RESIDUAL_SENSITIVITY, share, self.rng)
        return pairs[index] if index < len(pairs) else None

    def _measure(self, pair: _Pair, share: Fraction) -> NoisyTable:
        self.remaining -= share
        table = self.budget.measure("tables", pair, self.pairs[pair], share, self.rng)
        self._add(table)
        return table

    def _add(self, table: NoisyTable) -> None:
        self.tables.append(table)
        shares = np.asarray(table.counts, np.float64) / self.records
        sigma = max(table.sigma, 0.5) / self.records  # exact counts are no better than to half a record
        if len(table.attributes) == 1:
            shares, sigma = smooth(self.domain, table.attributes, shares, sigma)
        self.model.estimates.add(table.attributes, shares, sigma**2)


def _down(share: Fraction) -> Fraction:
    """Return the largest multiple of 2^-50 that is not above the share, so that sums have a small denominator."""
    return Fraction(math.floor(share * _GRID), _GRID)
