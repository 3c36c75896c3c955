"""Count records by the values of a few attributes, in blocks that stay in the first-level cache.

Compiled because NumPy would make an array with the cell of every record, as identifying as the records.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from panstream.primitives.kernels.jit import njit

_BLOCK = 2048


@njit(cache=True, nogil=True)
def _cells(
    codes: NDArray[np.uint16], which: NDArray[np.int64], sizes: NDArray[np.int64], start: int, cells: NDArray[np.int64]
) -> int:
    """Fill ``cells`` with the flat cell of each record from ``start`` on; return how many there are."""
    length: int = min(cells.size, codes.shape[1] - start)
    if which.size == 0:
        cells[:length] = 0
        return length
    first = codes[which[0]]
    for r in range(length):
        cells[r] = first[start + r]
    for a in range(1, which.size):
        row = codes[which[a]]
        size = sizes[a]
        for r in range(length):
            cells[r] = cells[r] * size + row[start + r]
    return length


# The array of cells has a fixed size, so that memory does not grow with the number of records.
@njit(cache=True, nogil=True)
def count(
    codes: NDArray[np.uint16], which: NDArray[np.int64], sizes: NDArray[np.int64], table: NDArray[np.int64]
) -> None:
    """Add 1 to the cell of every record; ``table`` is flat, the last attribute varies fastest."""
    cells = np.empty(_BLOCK, np.int64)
    for start in range(0, codes.shape[1], _BLOCK):
        length = _cells(codes, which, sizes, start, cells)
        for r in range(length):
            table[cells[r]] += 1


@njit(cache=True, nogil=True)
def count_pairs(
    codes: NDArray[np.uint16], sizes: NDArray[np.int64], offsets: NDArray[np.int64], tables: NDArray[np.int64]
) -> None:
    """Count all pairs i < j; the table of a pair begins at its entry of ``offsets`` (pairs in lexicographic order)."""
    pair = 0
    for i in range(sizes.size):
        first = codes[i]
        for j in range(i + 1, sizes.size):
            second = codes[j]
            table = tables[offsets[pair] : offsets[pair + 1]]
            width = sizes[j]
            for r in range(codes.shape[1]):
                table[first[r] * width + second[r]] += 1
            pair += 1


@njit(cache=True, nogil=True)
def add_looked_up(
    codes: NDArray[np.uint16],
    which: NDArray[np.int64],
    sizes: NDArray[np.int64],
    table: NDArray[np.float64],
    totals: NDArray[np.float64],
) -> None:
    """Add to each record's total the entry of the flat ``table`` at the record's cell."""
    cells = np.empty(_BLOCK, np.int64)
    for start in range(0, codes.shape[1], _BLOCK):
        length = _cells(codes, which, sizes, start, cells)
        for r in range(length):
            totals[start + r] += table[cells[r]]
