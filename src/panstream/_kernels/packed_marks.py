"""Packed marks of the cells that a batch touches, 64 to a word, for tables that no near cache holds.

A mark is a line of cache to wait for. So cells pass through a ring: their lines are asked for when they enter it, and
have come by the time they leave it, while other rows are hashed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from panstream._kernels import lanes
from panstream._kernels.cells import cell_of
from panstream._kernels.fold import fold_block, readable, short_keys, short_length
from panstream._kernels.mix import mix
from panstream._kernels.siphash import first_bad_offset
from panstream._kernels.words import prefetch

Words = NDArray[np.uint64]

RING = 256
"""Cells that wait for their lines."""

LANES = 1 << 15
"""Strings whose cells are kept at a time: many, since marking waits at the start of each block."""

_BLOCK = 32  # integers that are hashed at a time, by vector instructions
_LATER = 32  # rows for which a cell stays unread: until its block has left the registers
_6, _63, _1 = np.uint64(6), np.uint64(63), np.uint64(1)
_END = np.uint64(RING - 1)


@njit(cache=True, nogil=True, forceinline=True)
def _set(marks: Words, cell: np.uint64) -> None:
    marks[cell >> _6] |= _1 << (cell & _63)


@njit(cache=True, nogil=True, forceinline=True)
def _pass_on(ring: Words, row: int, block: int, marks: Words) -> None:
    """Ask for the lines of a block that entered the ring before that of ``row``, and mark the oldest one."""
    if row >= RING - block:
        entered, oldest = np.uint64(row - _LATER) & _END, np.uint64(row + block) & _END
        for i in range(block):
            prefetch(marks, ring[entered + np.uint64(i)] >> _6)
            _set(marks, ring[oldest + np.uint64(i)])


@njit(cache=True, nogil=True, forceinline=True)
def _empty(ring: Words, rows: int, block: int, marks: Words) -> None:
    """Mark what is left in the ring after so many rows."""
    for i in range(max(rows - (RING - block), 0), rows):
        _set(marks, ring[np.uint64(i) & _END])


@njit(cache=True, nogil=True)
def mark(cells: NDArray[Any], marks: Words) -> None:
    """Mark every cell."""
    fetched = max(cells.size - RING, 0)
    ahead, left = cells[RING:], cells[fetched:]
    for i in range(min(cells.size, RING)):
        prefetch(marks, np.uint64(cells[i]) >> _6)
    for i in range(fetched):
        prefetch(marks, np.uint64(ahead[i]) >> _6)
        _set(marks, np.uint64(cells[i]))
    for i in range(left.size):
        _set(marks, np.uint64(left[i]))


@njit(cache=True, nogil=True)
def mark_integers(
    values: Words, key0: np.uint64, key1: np.uint64, buckets: np.uint64, guard: np.uint64, ring: Words, marks: Words
) -> None:
    """Mark the cell of every integer; ``ring`` (RING) is working memory.

    Blocks begin where a line of cache does: loads that take from two lines wait for those that were asked for.
    """
    head = min((-values.ctypes.data) % lanes.LINE // values.itemsize, values.size)
    whole = (values.size - head) // _BLOCK * _BLOCK
    for row in range(0, whole, _BLOCK):
        first, at = head + row, np.int64(np.uint64(row) & _END)
        rows, entering = values[first : first + _BLOCK], ring[at : at + _BLOCK]
        for i in range(_BLOCK):
            entering[i] = np.uint64(cell_of(mix(rows[i], key0, key1), buckets, guard))
        _pass_on(ring, row, _BLOCK, marks)
    _empty(ring, whole, _BLOCK, marks)
    for i in range(head):
        _set(marks, np.uint64(cell_of(mix(values[i], key0, key1), buckets, guard)))
    for i in range(head + whole, values.size):
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
        lanes.cell_lanes(data, here, length, keep, few, (buckets, guard), ring, np.int64(np.uint64(row) & _END))
        _pass_on(ring, row, lanes.LANES, marks)
    _empty(ring, count, lanes.LANES, marks)


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
    """Mark the cell of every string; ``hashes`` (LANES) is working memory.

    Offsets are checked while they are in the cache: return the first string that does not lie within ``data``, before
    whose block everything is marked, or -1.
    """
    for first in range(0, offsets.size - 1, hashes.size):
        stop = min(first + hashes.size, offsets.size - 1)
        few, done = offsets[first : stop + 1], 0
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
