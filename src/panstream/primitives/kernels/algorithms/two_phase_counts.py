"""Counters and bits of two phases, read together.

Compiled so that no unpacked copy of the bits is made.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from panstream.primitives.kernels.jit import njit


@njit(cache=True, nogil=True)
def count_pairs(
    counters: NDArray[np.int32],
    bits: NDArray[np.uint8],
    seen_counters: NDArray[np.int32],
    seen_bits: NDArray[np.uint8],
    last: int,
    counts: NDArray[np.int64],
) -> None:
    """Add every set bit to ``counts[seen bit, 0]``, and to ``counts[seen bit, 1]`` if the counters sum to ``last``."""
    for cell in range(counters.size):
        byte = cell >> 3
        shift = np.uint8(cell & 7)
        bit = np.int64((bits[byte] >> shift) & np.uint8(1))
        seen = (seen_bits[byte] >> shift) & np.uint8(1)
        counts[seen, 0] += bit
        if counters[cell] + seen_counters[cell] == last:
            counts[seen, 1] += bit
