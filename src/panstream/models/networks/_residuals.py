"""Noisy tables as residual components, which combine overlapping tables without contradiction.

A table of attributes A is the sum of one component for every nonempty part of A: what the part has beyond its own
smaller parts, zero when summed over any of its attributes. Normal noise of equal variance in all cells is independent
between components, so averaging each component over all tables that contain it, with weights 1/variance, is the
least-squares estimate from all tables together (Xiao et al. 2023). Shares of all records; components of one and two
attributes only. Reads released tables and public figures only.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np

from panstream.models.networks._junction_tree import Attributes, Table, aligned, summed_to


def parts_of(attributes: Attributes) -> list[Attributes]:
    """Return all nonempty parts, small ones first."""
    return [part for size in range(1, len(attributes) + 1) for part in itertools.combinations(attributes, size)]


def centred(table: Table) -> Table:
    """Return the component of a table that sums to 0 over every attribute."""
    for axis in range(table.ndim):
        table = table - table.mean(axis=axis, keepdims=True)
    return table


class ResidualEstimates:
    """Weighted means of components, and their precision: 1/variance of a cell before centring.

    Args:
        sizes: Number of categories of each attribute.
    """

    def __init__(self, sizes: Sequence[int]) -> None:
        self.sizes = tuple(sizes)
        self._sums: dict[Attributes, Table] = {}
        self.precisions: dict[Attributes, float] = {}

    def add(self, attributes: Attributes, shares: Table, variance: float) -> None:
        """Add a noisy table of shares of all records, with equal variance in all cells."""
        for part in parts_of(attributes):
            table = summed_to(shares, attributes, part)
            precision = table.size / (shares.size * variance)
            self._sums[part] = self._sums.get(part, 0.0) + precision * centred(table)
            self.precisions[part] = self.precisions.get(part, 0.0) + precision

    @property
    def components(self) -> list[Attributes]:
        """Return the attributes of all components that were measured."""
        return list(self._sums)

    def component(self, attributes: Attributes) -> Table:
        """Return the estimate of one component."""
        return np.asarray(self._sums[attributes] / self.precisions[attributes])

    def deviation(self, attributes: Attributes) -> float:
        """Return the standard deviation of a cell of a component, before centring."""
        return 1.0 / math.sqrt(self.precisions[attributes])

    def table(self, attributes: Attributes) -> Table:
        """Return the estimated table: it sums to 1, agrees with the others, and may have negative cells."""
        shape = tuple(self.sizes[attribute] for attribute in attributes)
        result = np.full(shape, 1.0 / math.prod(shape))
        for part in parts_of(attributes):
            if part in self._sums:
                component = self.component(part)
                result += aligned(component, part, attributes) * (component.size / result.size)
        return result
