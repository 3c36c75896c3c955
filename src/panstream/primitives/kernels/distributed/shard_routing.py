"""Sort the rows of a batch by the shard that owns their cells: a counting sort.

Compiled so that only arrays the caller wipes hold cells. Every ``shards`` consecutive cells belong to different shards,
in an order that `rotation` varies by block, so that no shard gets a whole column of a table.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.primitives.kernels.jit import njit

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MORE = np.uint64(0xBF58476D1CE4E5B9)
_32 = np.uint64(32)


@njit(cache=True, nogil=True)
def rotation(block: np.uint64, key: np.uint64) -> Any:
    """Return a 32-bit keyed hash of a block's number."""
    word = (block + key) * _GOLDEN
    word = (word ^ (word >> _32)) * _MORE
    return word >> _32


@njit(cache=True, nogil=True)
def count_owners(
    cells: NDArray[Any],
    limit: int,
    shards: int,
    key: np.uint64,
    owners: NDArray[np.int32],
    counts: NDArray[np.int64],
) -> None:
    """Write the owner of every row's cell, -1 where the cell is not below ``limit``, and count each owner's rows."""
    size = np.uint64(shards)
    for i in range(cells.size):
        cell = np.uint64(cells[i])
        if cell >= np.uint64(limit):
            owners[i] = -1
            continue
        block = cell // size
        owner = (cell - block * size + rotation(block, key)) % size
        owners[i] = np.int32(owner)
        counts[owner] += 1


# Stable: rows of one cell keep their order, on which inserts and deletes depend.
@njit(cache=True, nogil=True)
def sort_rows(
    cells: NDArray[Any],
    owners: NDArray[np.int32],
    shards: int,
    starts: NDArray[np.int64],
    local_cells: NDArray[Any],
    rows: NDArray[np.int64],
) -> None:
    """Write local cells and row numbers grouped by owner, in row order; ``starts`` ends as the end of each group."""
    for i in range(cells.size):
        owner = owners[i]
        if owner >= 0:
            index = starts[owner]
            local_cells[index] = cells[i] // shards
            rows[index] = i
            starts[owner] = index + 1
