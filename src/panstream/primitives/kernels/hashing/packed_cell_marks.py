"""Packed marks of the cells that a batch touches, 64 to a word, for tables larger than the second-level cache.

Each mark is a cache miss. Therefore cells pass through a ring: their cache lines are prefetched soon after they enter
it and have arrived by the time they leave it, while other rows are hashed. NumPy can neither pack nor prefetch.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.primitives.kernels.hashing import simd_lanes as lanes
from panstream.primitives.kernels.hashing.bitmap_cells import cell_of
from panstream.primitives.kernels.hashing.integer_mixer import mix
from panstream.primitives.kernels.hashing.multiply_fold import fold_block, readable, short_keys, short_length
from panstream.primitives.kernels.hashing.siphash import first_bad_offset
from panstream.primitives.kernels.jit import njit
from panstream.primitives.kernels.machine_words import prefetch

Words = NDArray[np.uint64]

RING = 256
"""Cells whose cache lines are being loaded."""

STRINGS = 1 << 15
"""Strings per block: many, since marking waits for memory at the start of each."""

_LATER = 32  # rows before a cell is read back: sooner would stall on the store that wrote it
_WAIT = RING - lanes.LANES
_6 = np.uint64(6)
_63 = np.uint64(63)
_1 = np.uint64(1)
_END = np.uint64(RING - 1)


@njit(cache=True, nogil=True, forceinline=True)
def _set(marks: Words, cell: np.uint64) -> None:
    marks[cell >> _6] |= _1 << (cell & _63)


@njit(cache=True, nogil=True, forceinline=True)
def _ring_index(row: int) -> Any:
    return np.int64(np.uint64(row) & _END)


@njit(cache=True, nogil=True, forceinline=True)
def _prefetch_and_mark(ring: Words, row: int, marks: Words) -> None:
    """Prefetch the lines of cells that entered the ring ``_LATER`` rows ago, and mark the oldest ones."""
    if row >= _WAIT:
        entered = np.uint64(row - _LATER) & _END
        oldest = np.uint64(row - _WAIT) & _END
        for i in range(lanes.LANES):
            prefetch(marks, ring[entered + np.uint64(i)] >> _6)
            _set(marks, ring[oldest + np.uint64(i)])


@njit(cache=True, nogil=True, forceinline=True)
def _mark_remaining(ring: Words, rows: int, marks: Words) -> None:
    """Mark the cells that are still in the ring after ``rows`` rows."""
    for row in range(max(rows - _WAIT, 0), rows):
        _set(marks, ring[np.uint64(row) & _END])


# Three loops: start the prefetches, mark while prefetching, mark the rest.
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


# The remainder of fewer than ``lanes.LANES`` rows is marked without the ring.
@njit(cache=True, nogil=True)
def mark_integers(
    values: Words, key0: np.uint64, key1: np.uint64, buckets: np.uint64, guard: np.uint64, ring: Words, marks: Words
) -> None:
    """Mark the cell of every integer; ``ring`` (RING) is working memory."""
    full = values.size // lanes.LANES * lanes.LANES
    for row in range(0, full, lanes.LANES):
        prefetch(values, np.uint64(row + lanes.AHEAD // values.itemsize))
        lanes.mixed_cells(values, row, (key0, key1), (buckets, guard), ring, _ring_index(row))
        _prefetch_and_mark(ring, row, marks)
    _mark_remaining(ring, full, marks)
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
    """Mark the cells of ``count`` strings, a multiple of ``lanes.LANES``, of equal length of at most 16 bytes."""
    keep, few = short_keys(length, keys)
    for row in range(0, count, lanes.LANES):
        here = start + row * length
        prefetch(data, np.uint64(here + lanes.AHEAD))
        prefetch(data, np.uint64(here + lanes.AHEAD + lanes.LINE))
        lanes.folded_cells(data, here, length, keep, few, (buckets, guard), ring, _ring_index(row))
        _prefetch_and_mark(ring, row, marks)
    _mark_remaining(ring, count, marks)


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

    Offsets are checked block by block, while they are in the cache. Return the first string that does not lie within
    ``data`` (the blocks before it are marked then), or -1.
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
