"""A table from 64-bit hashes to numbers, open addressing with linear probing."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray


@njit(cache=True, nogil=True)
def build(hashes: NDArray[np.uint64], slots: NDArray[np.uint64], numbers: NDArray[np.int64]) -> int:
    """Enter hash i as number i; return the first number whose hash was there before, or -1.

    ``slots`` has a power of two of places; ``numbers`` holds -1 where a place is free.
    """
    mask = np.uint64(slots.size - 1)
    for i in range(hashes.size):
        slot = hashes[i] & mask
        while numbers[slot] >= 0:
            if slots[slot] == hashes[i]:
                return i
            slot = (slot + np.uint64(1)) & mask
        slots[slot] = hashes[i]
        numbers[slot] = i
    return -1


@njit(cache=True, nogil=True)
def look_up(
    hashes: NDArray[np.uint64], slots: NDArray[np.uint64], numbers: NDArray[np.int64], out: NDArray[np.int64]
) -> int:
    """Write the number of every hash; return the first row that is not in the table, or -1."""
    mask = np.uint64(slots.size - 1)
    for i in range(hashes.size):
        slot = hashes[i] & mask
        while numbers[slot] >= 0 and slots[slot] != hashes[i]:
            slot = (slot + np.uint64(1)) & mask
        if numbers[slot] < 0:
            return i
        out[i] = numbers[slot]
    return -1


@njit(cache=True, nogil=True)
def mark_unknown(
    hashes: NDArray[np.uint64], slots: NDArray[np.uint64], numbers: NDArray[np.int64], out: NDArray[np.bool_]
) -> None:
    """Mark the hashes that are not in the table."""
    mask = np.uint64(slots.size - 1)
    for i in range(hashes.size):
        slot = hashes[i] & mask
        while numbers[slot] >= 0 and slots[slot] != hashes[i]:
            slot = (slot + np.uint64(1)) & mask
        out[i] = numbers[slot] < 0
