"""How far two tables are apart: total variation distance of all one-way and two-way marginals."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from panstream.errors import InvalidParameter
from panstream.networks.counting import contingency, pairwise
from panstream.networks.records import Records

__all__ = ["Comparison", "compare", "total_variation"]


def total_variation(one: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    """Return half the L1 distance of two distributions."""
    return 0.5 * float(np.abs(one - other).sum())


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Distances by attribute and by pair; 0 is equal, 1 is disjoint. Exact figures of the records, not private."""

    one_way: dict[str, float]
    two_way: dict[tuple[str, str], float]

    @property
    def mean_one_way(self) -> float:
        """Return the mean over attributes."""
        return float(np.mean(list(self.one_way.values())))

    @property
    def mean_two_way(self) -> float:
        """Return the mean over pairs (over attributes where there is one only)."""
        return float(np.mean(list(self.two_way.values()))) if self.two_way else self.mean_one_way


def compare(one: Records, other: Records) -> Comparison:
    """Compare the marginals of two tables of the same domain."""
    if one.domain != other.domain:
        raise InvalidParameter("the two tables must have the same domain")
    if not (len(one) and len(other)):
        raise InvalidParameter("both tables must have at least one record")
    names = one.domain.names
    singles = {
        name: total_variation(contingency(one, (at,)) / len(one), contingency(other, (at,)) / len(other))
        for at, name in enumerate(names)
    }
    first, second = (pairwise(one), pairwise(other)) if len(names) > 1 else ({}, {})
    pairs = {
        (names[i], names[j]): total_variation(first[i, j] / len(one), second[i, j] / len(other))
        for i, j in itertools.combinations(range(len(names)), 2)
    }
    return Comparison(one_way=singles, two_way=pairs)
