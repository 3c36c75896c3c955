"""Exact contingency tables of records, and distances between two data sets. Exact, so not for release."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from panstream.errors import InvalidParameter
from panstream.models.networks.domain import LARGEST_TABLE
from panstream.models.networks.records import Records


def contingency(records: Records, attributes: Sequence[int]) -> NDArray[np.int64]:
    """Return the counts of all value combinations of ``attributes`` (positions), one axis per attribute.

    Args:
        records: The records to count.
        attributes: Positions of the attributes, one per axis.

    >>> from panstream.models.networks import Domain
    >>> domain = Domain({"sex": ["f", "m"], "smokes": ["no", "yes"]})
    >>> records = Records.read({"sex": ["f", "m", "f"], "smokes": ["no", "no", "yes"]}, domain)
    >>> contingency(records, (0, 1)).tolist()
    [[1, 1], [1, 0]]
    """
    from panstream.primitives.kernels.models.contingency import count

    shape = records.domain.shape(attributes)
    table = np.zeros(shape, np.int64)
    count(records.codes, np.array(attributes, np.int64), np.array(shape, np.int64), table.reshape(-1))
    return table


def pairwise(records: Records) -> dict[tuple[int, int], NDArray[np.int64]]:
    """Return the exact tables of all pairs ``(i, j)`` with ``i < j``, as views of one array.

    Args:
        records: The records to count.
    """
    from panstream.primitives.kernels.models.contingency import count_pairs

    sizes = records.domain.sizes
    pairs = [(i, j) for i in range(len(sizes)) for j in range(i + 1, len(sizes))]
    offsets = np.zeros(len(pairs) + 1, np.int64)
    np.cumsum([sizes[i] * sizes[j] for i, j in pairs], out=offsets[1:])
    if offsets[-1] > LARGEST_TABLE:
        raise InvalidParameter(f"all pair tables have {offsets[-1]} cells, above the limit of {LARGEST_TABLE}")
    flat = np.zeros(int(offsets[-1]), np.int64)
    count_pairs(records.codes, np.array(sizes, np.int64), offsets, flat)
    return {
        (i, j): flat[offsets[index] : offsets[index + 1]].reshape(sizes[i], sizes[j])
        for index, (i, j) in enumerate(pairs)
    }


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
    """Compare the marginals of two tables of the same domain.

    Args:
        one: Records of a domain.
        other: Records of the same domain, for example synthetic ones.
    """
    if one.domain != other.domain:
        raise InvalidParameter("the two tables must have the same domain")
    if not (len(one) and len(other)):
        raise InvalidParameter("both tables must have at least one record")
    names = one.domain.names
    singles = {
        name: total_variation(contingency(one, (position,)) / len(one), contingency(other, (position,)) / len(other))
        for position, name in enumerate(names)
    }
    first, second = (pairwise(one), pairwise(other)) if len(names) > 1 else ({}, {})
    pairs = {
        (names[i], names[j]): total_variation(first[i, j] / len(one), second[i, j] / len(other))
        for i, j in itertools.combinations(range(len(names)), 2)
    }
    return Comparison(one_way=singles, two_way=pairs)
