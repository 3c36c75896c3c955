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
        place = hashes[i] & mask
        while numbers[place] >= 0:
            if slots[place] == hashes[i]:
                return i
            place = (place + np.uint64(1)) & mask
        slots[place] = hashes[i]
        numbers[place] = i
    return -1


@njit(cache=True, nogil=True)
def look_up(
    hashes: NDArray[np.uint64], slots: NDArray[np.uint64], numbers: NDArray[np.int64], out: NDArray[np.int64]
) -> int:
    """Write the number of every hash; return the first row that is not in the table, or -1."""
    mask = np.uint64(slots.size - 1)
    for i in range(hashes.size):
        place = hashes[i] & mask
        while numbers[place] >= 0 and slots[place] != hashes[i]:
            place = (place + np.uint64(1)) & mask
        if numbers[place] < 0:
            return i
        out[i] = numbers[place]
    return -1


@njit(cache=True, nogil=True)
def find_strangers(
    hashes: NDArray[np.uint64], slots: NDArray[np.uint64], numbers: NDArray[np.int64], out: NDArray[np.bool_]
) -> None:
    """Mark the hashes that are not in the table."""
    mask = np.uint64(slots.size - 1)
    for i in range(hashes.size):
        place = hashes[i] & mask
        while numbers[place] >= 0 and slots[place] != hashes[i]:
            place = (place + np.uint64(1)) & mask
        out[i] = numbers[place] < 0
