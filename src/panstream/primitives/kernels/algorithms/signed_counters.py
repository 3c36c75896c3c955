"""Counters to which rows add their weight with a public sign.

Compiled because ``np.add.at`` is slower and converts indices, which leaves a copy of every row's counter behind.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from panstream.primitives.kernels.jit import njit


@njit(cache=True, nogil=True)
def add_signed(counters: NDArray[np.int64], signed_indices: NDArray[np.int64], weights: NDArray[np.int64]) -> None:
    """Add each weight to counter ``index // 2`` where the signed index is even, subtract it where it is odd.

    A single weight applies to all rows. Sums wrap around at 2**64.
    """
    one = weights.size == 1
    for row in range(signed_indices.size):
        weight = weights[0] if one else weights[row]
        counters[signed_indices[row] >> 1] += weight * (1 - 2 * (signed_indices[row] & 1))
