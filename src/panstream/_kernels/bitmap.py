"""Marking, drawing, toggling and merging the cells of a bitmap."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

__all__ = ["count_ones", "draw_marked", "mark", "mark_seen", "noisy_or", "scatter", "toggle"]

Bytes = NDArray[np.uint8]


@njit(cache=True, nogil=True)
def mark(marks: Bytes, cells: NDArray[Any]) -> None:
    """Set ``marks[cell]`` to 1 for every cell."""
    for i in range(cells.size):
        marks[cells[i]] = np.uint8(1)


@njit(cache=True, nogil=True)
def mark_seen(marks: Bytes, cells: NDArray[Any], seen: Bytes) -> None:
    """Set ``marks[cell]`` to 1 for every cell whose ``seen`` is not 0."""
    for i in range(cells.size):
        if seen[i]:
            marks[cells[i]] = np.uint8(1)


@njit(cache=True, nogil=True)
def draw_marked(bits: Bytes, marks: Bytes, coins: Bytes) -> None:
    """Set the bit of every marked cell to its coin."""
    for i in range(bits.size):
        bits[i] = coins[i] if marks[i] else bits[i]


@njit(cache=True, nogil=True)
def scatter(bits: Bytes, cells: NDArray[Any], coins: Bytes) -> None:
    """Set ``bits[cell]`` to its coin, row by row."""
    for i in range(cells.size):
        bits[cells[i]] = coins[i]


@njit(cache=True, nogil=True)
def toggle(bits: Bytes, cells: NDArray[Any]) -> None:
    """Toggle ``bits[cell]``, row by row."""
    for i in range(cells.size):
        bits[cells[i]] ^= np.uint8(1)


@njit(cache=True, nogil=True)
def noisy_or(first: Bytes, second: Bytes, only_first: Bytes, only_second: Bytes, both: Bytes, out: Bytes) -> None:
    """Write 0 where both bits are 0 and else the coin for the pair of bits."""
    for i in range(out.size):
        if first[i]:
            out[i] = both[i] if second[i] else only_first[i]
        else:
            out[i] = only_second[i] if second[i] else np.uint8(0)


@njit(cache=True, nogil=True)
def count_ones(bits: Bytes, frozen: NDArray[np.uint8], buckets: int, ones: NDArray[np.int64]) -> None:
    """Add every bit to ``ones[pattern, level]``; the pattern's bit j is what row j of ``frozen`` shows."""
    for level in range(ones.shape[1]):
        for i in range(level * buckets, (level + 1) * buckets):
            pattern = np.int64(0)
            for phase in range(frozen.shape[0]):
                pattern |= np.int64(frozen[phase, i]) << phase
            ones[pattern, level] += bits[i]
