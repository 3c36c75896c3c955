"""Re-drawing stored bits."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray


@njit(cache=True, nogil=True)
def redraw(bits: NDArray[np.uint8], cells: NDArray[np.int64], coins: NDArray[np.uint8]) -> None:
    """Set ``bits[cell]`` to its coin, in order; cells beyond the array are users outside the sample."""
    size = bits.size
    for i in range(cells.size):
        cell = cells[i]
        if cell < size:
            bits[cell] = coins[i]


@njit(cache=True, nogil=True)
def redraw_all(bits: NDArray[np.uint8], cells: NDArray[np.int64], coins: NDArray[np.uint8]) -> None:
    """Set ``bits[cell]`` to its coin, in order, where every cell is known to lie in the array."""
    for i in range(cells.size):
        bits[cells[i]] = coins[i]


@njit(cache=True, nogil=True)
def choose(coins: NDArray[np.uint8], others: NDArray[np.uint8], weights: NDArray[np.int64], start: int) -> None:
    """Replace a coin by the other one where the weight is negative."""
    for i in range(coins.size):
        if weights[start + i] < 0:
            coins[i] = others[i]


@njit(cache=True, nogil=True)
def first_outside(values: NDArray[np.int64], lower: np.int64, upper: np.int64) -> int:
    """Return the first row whose value is not in [lower, upper), or -1."""
    outside = 0
    for i in range(values.size):
        outside += (values[i] < lower) | (values[i] >= upper)
    if outside == 0:
        return -1
    for i in range(values.size):
        if values[i] < lower or values[i] >= upper:
            return i
    return -1
