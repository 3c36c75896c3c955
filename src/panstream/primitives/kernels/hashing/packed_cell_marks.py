"""Packed marks of the cells that a batch touches, 64 to a word, for tables that no near cache holds.

A mark is a line of cache to wait for. So cells pass through a ring: their lines are asked for soon after they enter it,
and have come by the time they leave it, while other rows are hashed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from panstream.primitives.kernels.hashing import simd_lanes as lanes
from panstream.primitives.kernels.hashing.bitmap_cells import cell_of
from panstream.primitives.kernels.hashing.integer_mixer import mix
from panstream.primitives.kernels.hashing.multiply_fold import fold_block, readable, short_keys, short_length
from panstream.primitives.kernels.hashing.siphash import first_bad_offset
from panstream.primitives.kernels.machine_words import prefetch

Words = NDArray[np.uint64]

RING = 256
"""Cells that wait for their lines."""

STRINGS = 1 << 15
"""Strings whose cells are kept at a time: many, since marking waits at the start of each block."""

_LATER = 32  # rows for which a cell stays unread: until its block has left the registers
_WAIT = RING - lanes.LANES
_6 = np.uint64(6)
_63 = np.uint64(63)
_1 = np.uint64(1)
_END = np.uint64(RING - 1)


@njit(cache=True, nogil=True, forceinline=True)
def _set(marks: Words, cell: np.uint64) -> None:
    marks[cell >> _6] |= _1 << (cell & _63)


@njit(cache=True, nogil=True, forceinline=True)
def _place(row: int) -> Any:
    return np.int64(np.uint64(row) & _END)


@njit(cache=True, nogil=True, forceinline=True)
def _pass_on(ring: Words, row: int, marks: Words) -> None:
    """Ask for the lines of cells that entered the ring some rows ago, and mark the oldest ones."""
    if row >= _WAIT:
        entered = np.uint64(row - _LATER) & _END
        oldest = np.uint64(row - _WAIT) & _END
        for i in range(lanes.LANES):
            prefetch(marks, ring[entered + np.uint64(i)] >> _6)
            _set(marks, ring[oldest + np.uint64(i)])


@njit(cache=True, nogil=True, forceinline=True)
def _empty(ring: Words, rows: int, marks: Words) -> None:
    """Mark what is left in the ring after so many rows."""
    for row in range(max(rows - _WAIT, 0), rows):
        _set(marks, ring[np.uint64(row) & _END])


@njit(cache=True, nogil=True)
def mark(cells: NDArray[Any], marks: Words) -> None:
    """Mark every cell."""
    fetched = max(cells.size - RING, 0)
    ahead = cells[RING:]
    remaining = cells[fetched:]
    for i in range(min(cells.size, RING)):
        prefetch(marks, np.uint64(cells[i]) >> _6)
    for i in range(fetched):
        prefetch(marks, np.uint64(ahead[i]) >> _6)
        _set(marks, np.uint64(cells[i]))
    for i in range(remaining.size):
        _set(marks, np.uint64(remaining[i]))


@njit(cache=True, nogil=True)
def mark_integers(
    values: Words, key0: np.uint64, key1: np.uint64, buckets: np.uint64, guard: np.uint64, ring: Words, marks: Words
) -> None:
    """Mark the cell of every integer; ``ring`` (RING) is working memory."""
    full = values.size // lanes.LANES * lanes.LANES
    for row in range(0, full, lanes.LANES):
        prefetch(values, np.uint64(row + lanes.AHEAD // values.itemsize))
        lanes.mixed_cells(values, row, (key0, key1), (buckets, guard), ring, _place(row))
        _pass_on(ring, row, marks)
    _empty(ring, full, marks)
    for i in range(full, values.size):
        _set(marks, np.uint64(cell_of(mix(values[i], key0, key1), buckets, guard)))


@njit(cache=True, nogil=True)
def _mark_equal(
    data: NDArray[np.uint8],
    start: int,
    length: int,
    count: int,
    keys: Words,
    buckets: np.uint64,
    guard: np.uint64,
    ring: Words,
    marks: Words,
) -> None:
    """Mark the cells of so many strings of equal length, at most 16 bytes, which lanes divide."""
    keep, few = short_keys(length, keys)
    for row in range(0, count, lanes.LANES):
        here = start + row * length
        prefetch(data, np.uint64(here + lanes.AHEAD))
        prefetch(data, np.uint64(here + lanes.AHEAD + lanes.LINE))
        lanes.folded_cells(data, here, length, keep, few, (buckets, guard), ring, _place(row))
        _pass_on(ring, row, marks)
    _empty(ring, count, marks)


@njit(cache=True, nogil=True)
def mark_folded(
    offsets: NDArray[Any],
    data: NDArray[np.uint8],
    keys: Words,
    hashes: Words,
    buckets: np.uint64,
    guard: np.uint64,
    marks: Words,
) -> int:
    """Mark the cell of every string; ``hashes`` (STRINGS) is working memory.

    Offsets are checked while they are in the cache: return the first string that does not lie within ``data``, before
    whose block everything is marked, or -1.
    """
    for first in range(0, offsets.size - 1, hashes.size):
        stop = min(first + hashes.size, offsets.size - 1)
        few = offsets[first : stop + 1]
        done = 0
        length = short_length(few, data.size)
        if length < 0:
            bad = first_bad_offset(few, data.size)
            if bad >= 0:
                return first + bad
        elif lanes.wide():
            done = readable(few, length, data.size) // lanes.LANES * lanes.LANES
            _mark_equal(data, int(few[0]), length, done, keys, buckets, guard, hashes[:RING], marks)
        block = hashes[: stop - first - done]
        fold_block(few[done:], data, length, keys, block)
        for i in range(block.size):
            block[i] = np.uint64(cell_of(block[i], buckets, guard))
        mark(block, marks)
    return -1
