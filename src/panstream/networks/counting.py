"""Contingency tables: how many records hold each combination of values. Exact counts, so not for release."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from panstream.errors import InvalidParameter
from panstream.networks.domain import Domain
from panstream.networks.records import Records

__all__ = ["LARGEST_TABLE", "contingency", "pairwise", "table_shape"]

LARGEST_TABLE = 1 << 27  # cells; a gigabyte of counts


def table_shape(domain: Domain, attributes: Sequence[int]) -> tuple[int, ...]:
    """Return the shape of the table of these attributes; refuse one above the size limit before it is made."""
    if len(set(attributes)) != len(attributes) or not all(0 <= each < len(domain) for each in attributes):
        raise InvalidParameter(f"attributes must be distinct positions below {len(domain)}, got {tuple(attributes)}")
    shape = tuple(domain.attributes[each].size for each in attributes)
    if math.prod(shape) > LARGEST_TABLE:
        raise InvalidParameter(f"a table of {math.prod(shape)} cells is above the limit of {LARGEST_TABLE}")
    return shape


def contingency(records: Records, attributes: Sequence[int]) -> NDArray[np.int64]:
    """Return the counts of all value combinations of ``attributes`` (positions), one axis per attribute.

    >>> domain = Domain({"sex": ["f", "m"], "smokes": ["no", "yes"]})
    >>> records = Records.read({"sex": ["f", "m", "f"], "smokes": ["no", "no", "yes"]}, domain)
    >>> contingency(records, (0, 1)).tolist()
    [[1, 1], [1, 0]]
    """
    from panstream._kernels.contingency import count

    shape = table_shape(records.domain, attributes)
    table = np.zeros(shape, np.int64)
    count(records.codes, np.array(attributes, np.int64), np.array(shape, np.int64), table.reshape(-1))
    return table


def pairwise(records: Records) -> dict[tuple[int, int], NDArray[np.int64]]:
    """Return the tables of all pairs ``(i, j)`` with ``i < j``; they are views of one array."""
    from panstream._kernels.contingency import count_pairs

    sizes = records.domain.sizes
    pairs = [(i, j) for i in range(len(sizes)) for j in range(i + 1, len(sizes))]
    offsets = np.zeros(len(pairs) + 1, np.int64)
    np.cumsum([sizes[i] * sizes[j] for i, j in pairs], out=offsets[1:])
    if offsets[-1] > LARGEST_TABLE:
        raise InvalidParameter(f"all pair tables have {offsets[-1]} cells, above the limit of {LARGEST_TABLE}")
    flat = np.zeros(int(offsets[-1]), np.int64)
    count_pairs(records.codes, np.array(sizes, np.int64), offsets, flat)
    return {(i, j): flat[offsets[at] : offsets[at + 1]].reshape(sizes[i], sizes[j]) for at, (i, j) in enumerate(pairs)}
