"""Counters that rows add to or take from by a public sign."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray


@njit(cache=True, nogil=True)
def add_signed(counters: NDArray[np.int64], signed_indices: NDArray[np.int64], weights: NDArray[np.int64]) -> None:
    """Add each weight to counter ``place // 2`` where the place is even, and take it away where it is odd.

    A single weight stands for all rows. Sums wrap around at 2**64.
    """
    one = weights.size == 1
    for row in range(signed_indices.size):
        weight = weights[0] if one else weights[row]
        counters[signed_indices[row] >> 1] += weight * (1 - 2 * (signed_indices[row] & 1))
