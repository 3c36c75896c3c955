"""A hash table from 64-bit hashes to numbers: open addressing with linear probing.

Compiled because each probe depends on the one before. The table is at most half full, so that probing ends.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from panstream.primitives.kernels.jit import njit, part


@part
def _find_slot(word: np.uint64, slots: NDArray[np.uint64], numbers: NDArray[np.int64]) -> np.uint64:
    """Return the slot that holds a hash, or the free one where it would go."""
    mask = np.uint64(slots.size - 1)
    slot = word & mask
    while numbers[slot] >= 0 and slots[slot] != word:
        slot = (slot + np.uint64(1)) & mask
    return slot


# Stops at the first repeated hash; the table is incomplete then and must not be used.
@njit(cache=True, nogil=True)
def build(hashes: NDArray[np.uint64], slots: NDArray[np.uint64], numbers: NDArray[np.int64]) -> int:
    """Enter hash i as number i; return the first number whose hash occurred before, or -1.

    The size of ``slots`` is a power of two; ``numbers`` holds -1 where a slot is free.
    """
    for i in range(hashes.size):
        slot = _find_slot(hashes[i], slots, numbers)
        if numbers[slot] >= 0:
            return i
        slots[slot] = hashes[i]
        numbers[slot] = i
    return -1


@njit(cache=True, nogil=True)
def look_up(
    hashes: NDArray[np.uint64], slots: NDArray[np.uint64], numbers: NDArray[np.int64], out: NDArray[np.int64]
) -> int:
    """Write the number of every hash; return the first row that is not in the table, or -1."""
    for i in range(hashes.size):
        number = numbers[_find_slot(hashes[i], slots, numbers)]
        if number < 0:
            return i
        out[i] = number
    return -1


# Visits every row, unlike `look_up`: for batches in which single bad rows are skipped.
@njit(cache=True, nogil=True)
def mark_unknown(
    hashes: NDArray[np.uint64], slots: NDArray[np.uint64], numbers: NDArray[np.int64], out: NDArray[np.bool_]
) -> None:
    """Mark the hashes that are not in the table."""
    for i in range(hashes.size):
        out[i] = numbers[_find_slot(hashes[i], slots, numbers)] < 0
