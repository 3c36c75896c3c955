"""Re-drawing stored bits."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray


@njit(cache=True, nogil=True)
def redraw(bits: NDArray[np.uint8], cells: NDArray[np.int64], coins: NDArray[np.uint8]) -> None:
    """Set ``bits[cell]`` to its coin, in order; cells beyond the array are users outside the sample."""
    size = np.uint64(bits.size)
    for i in range(cells.size):
        cell = np.uint64(cells[i])  # unsigned: an index that may be negative costs a comparison
        if cell < size:
            bits[cell] = coins[i]


@njit(cache=True, nogil=True)
def redraw_all(bits: NDArray[np.uint8], cells: NDArray[np.int64], coins: NDArray[np.uint8]) -> None:
    """Set ``bits[cell]`` to its coin, in order, where every cell is known to lie in the array."""
    full = cells.size & ~np.int64(3)
    for i in range(0, full, 4):  # four at a time: the stores miss the cache, and more of them are under way
        first, second = np.uint64(cells[i]), np.uint64(cells[i + 1])
        third, fourth = np.uint64(cells[i + 2]), np.uint64(cells[i + 3])
        bits[first] = coins[i]
        bits[second] = coins[i + 1]
        bits[third] = coins[i + 2]
        bits[fourth] = coins[i + 3]
    for i in range(full, cells.size):
        bits[np.uint64(cells[i])] = coins[i]


@njit(cache=True, nogil=True)
def choose(coins: NDArray[np.uint8], others: NDArray[np.uint8], weights: NDArray[np.int64], start: int) -> None:
    """Replace a coin by the other one where the weight is negative."""
    for i in range(coins.size):
        if weights[start + i] < 0:
            coins[i] = others[i]


@njit(cache=True, nogil=True)
def count_and_redraw(
    counters: NDArray[np.int32], bits: NDArray[np.uint8], cells: NDArray[np.int64], coins: NDArray[np.uint8], crop: int
) -> None:
    """Move each row's counter on by one modulo ``crop``; where it wraps, set the bit to the row's coin."""
    size = bits.size
    for i in range(cells.size):
        cell = cells[i]
        if cell < size:
            following = counters[cell] + 1
            if following == crop:
                following = 0
                bits[cell] = coins[i]
            counters[cell] = following
