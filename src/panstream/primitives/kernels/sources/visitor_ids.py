"""Ids of visitors: an address and a user agent become one number, and neither stays."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from panstream.primitives.kernels.hashing.siphash import hash_one

Bytes = NDArray[np.uint8]
Spots = NDArray[np.int64]


@njit(cache=True, nogil=True)
def hash_pairs(
    first: tuple[Bytes, Spots, Spots], second: tuple[Bytes, Spots, Spots], key: np.uint64, out: NDArray[np.uint64]
) -> Any:
    """Write a hash of two texts of each row, given by where they begin and end in some memory."""
    data, starts, stops = first
    other, begins, ends = second
    for row in range(out.size):
        half = hash_one(data, starts[row], stops[row] - starts[row], key, key)
        out[row] = hash_one(other, begins[row], ends[row] - begins[row], half, key)
