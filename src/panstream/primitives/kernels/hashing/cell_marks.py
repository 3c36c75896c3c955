"""Marks of the cells that a batch touches, a byte each.

Compiled because NumPy converts index arrays to 64 bits: a copy of every row's cell that nothing wipes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.primitives.kernels.jit import njit

Bytes = NDArray[np.uint8]


# No test of bounds: cells come from `cell_of`, which is always below levels * buckets.
@njit(cache=True, nogil=True)
def mark(marks: Bytes, cells: NDArray[Any]) -> None:
    """Set ``marks[cell]`` to 1 for every cell."""
    for i in range(cells.size):
        marks[cells[i]] = np.uint8(1)


# Cells beyond the marks belong to users who are not in the sample.
@njit(cache=True, nogil=True)
def mark_inside(marks: Bytes, cells: NDArray[Any]) -> None:
    """Set ``marks[cell]`` to 1 for every cell below ``marks.size``; the others are not sampled."""
    for i in range(cells.size):
        if cells[i] < marks.size:
            marks[cells[i]] = np.uint8(1)


# ``seen`` filters the cells of entries of a dictionary that no row uses.
@njit(cache=True, nogil=True)
def mark_seen(marks: Bytes, cells: NDArray[Any], seen: Bytes) -> None:
    """Set ``marks[cell]`` to 1 for every cell whose ``seen`` is not 0."""
    for i in range(cells.size):
        if seen[i]:
            marks[cells[i]] = np.uint8(1)
