"""Cells of a bitmap of ``levels`` rows and ``buckets`` columns, from hashes or straight from items.

Compiled so that items are hashed a block at a time and only the cells leave the kernel: an array with the hashes of all
rows would identify users as well as their ids do. Blocks and rings are working memory that the caller wipes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.primitives.kernels.hashing import simd_lanes as lanes
from panstream.primitives.kernels.hashing.integer_mixer import mix
from panstream.primitives.kernels.hashing.multiply_fold import fold_block, readable, short_keys, short_length
from panstream.primitives.kernels.hashing.siphash import LANES, first_bad_offset, hash_block
from panstream.primitives.kernels.jit import njit
from panstream.primitives.kernels.machine_words import prefetch, trailing_zeros

_RING = 32  # cells between hashing and marking: reading one sooner would stall on the store that wrote it
_LOW_HALF = np.uint64(0xFFFFFFFF)
_32 = np.uint64(32)


# Level and bucket come from disjoint halves of the hash, so that they are independent.
@njit(cache=True, nogil=True, forceinline=True)
def cell_of(word: np.uint64, buckets: np.uint64, guard: np.uint64) -> Any:
    """Return the cell that a hash selects: the level by its trailing zeros, the bucket by its high half."""
    # The masks change nothing, but prove to the compiler that 32-bit products suffice.
    level = trailing_zeros(word | guard) & _LOW_HALF
    narrow = buckets & _LOW_HALF
    return np.int64(level * narrow + (((word >> _32) * narrow) >> _32))


@njit(cache=True, nogil=True)
def cells_of_hashes(words: NDArray[np.uint64], buckets: np.uint64, guard: np.uint64, out: NDArray[Any]) -> None:
    """Write the cell of every hash; ``guard`` is ``1 << (levels - 1)``, levels <= 33, buckets < 2**32."""
    for i in range(words.size):
        out[i] = cell_of(words[i], buckets, guard)


@njit(cache=True, nogil=True)
def cells_of_integers(
    values: NDArray[np.uint64],
    key0: np.uint64,
    key1: np.uint64,
    buckets: np.uint64,
    guard: np.uint64,
    out: NDArray[Any],
) -> None:
    """Mix every integer and write its cell."""
    for i in range(values.size):
        out[i] = cell_of(mix(values[i], key0, key1), buckets, guard)


# Only ``LANES`` hashes exist at a time; the caller wipes them.
@njit(cache=True, nogil=True)
def cells_of_strings(
    offsets: NDArray[Any],
    data: NDArray[np.uint8],
    key0: np.uint64,
    key1: np.uint64,
    state: NDArray[np.uint64],
    hashes: NDArray[np.uint64],
    buckets: np.uint64,
    guard: np.uint64,
    out: NDArray[Any],
) -> None:
    """SipHash every string and write its cell; ``state`` (4, LANES) and ``hashes`` (LANES) are working memory."""
    for first in range(0, out.size, LANES):
        stop = min(first + LANES, out.size)
        block = out[first:stop]
        hash_block(offsets[first : stop + 1], data, key0, key1, state, hashes[: stop - first])
        for i in range(block.size):
            block[i] = cell_of(hashes[i], buckets, guard)


# Only one block of hashes exists at a time; the caller wipes it.
@njit(cache=True, nogil=True)
def cells_of_folded(
    offsets: NDArray[Any],
    data: NDArray[np.uint8],
    keys: NDArray[np.uint64],
    hashes: NDArray[np.uint64],
    buckets: np.uint64,
    guard: np.uint64,
    out: NDArray[Any],
) -> None:
    """Hash every string by multiply-and-fold and write its cell; ``hashes`` (fold.LANES) is working memory."""
    length = short_length(offsets, data.size)
    for first in range(0, out.size, hashes.size):
        stop = min(first + hashes.size, out.size)
        block = out[first:stop]
        fold_block(offsets[first : stop + 1], data, length, keys, hashes[: block.size])
        for i in range(block.size):
            block[i] = cell_of(hashes[i], buckets, guard)


@njit(cache=True, nogil=True)
def _mark_equal(
    data: NDArray[np.uint8],
    start: int,
    length: int,
    count: int,
    keys: NDArray[np.uint64],
    buckets: np.uint64,
    guard: np.uint64,
    ring: NDArray[np.uint64],
    marks: NDArray[np.uint8],
) -> None:
    """Mark the cells of ``count`` strings, a multiple of ``lanes.LANES``, of equal length of at most 16 bytes.

    Cells pass through a ring, so that marking some strings overlaps with hashing the next.
    """
    keep, few = short_keys(length, keys)
    end = np.uint64(ring.size - 1)
    for row in range(0, count, lanes.LANES):
        here = start + row * length
        prefetch(data, np.uint64(here + lanes.AHEAD))
        prefetch(data, np.uint64(here + lanes.AHEAD + lanes.LINE))
        entering = np.uint64(row) & end
        oldest = np.uint64(row + lanes.LANES) & end
        lanes.folded_cells(data, here, length, keep, few, (buckets, guard), ring, np.int64(entering))
        if row >= ring.size - lanes.LANES:
            for i in range(lanes.LANES):
                marks[ring[oldest + np.uint64(i)]] = np.uint8(1)
    for i in range(max(count - (ring.size - lanes.LANES), 0), count):
        marks[ring[np.uint64(i) & end]] = np.uint8(1)


@njit(cache=True, nogil=True)
def mark_folded(
    offsets: NDArray[Any],
    data: NDArray[np.uint8],
    keys: NDArray[np.uint64],
    hashes: NDArray[np.uint64],
    cells: NDArray[np.uint32],
    buckets: np.uint64,
    guard: np.uint64,
    marks: NDArray[np.uint8],
) -> int:
    """Set the mark of every string's cell; ``hashes`` and ``cells`` (fold.LANES) are working memory.

    Computing cells is a loop of its own, since it becomes vector instructions and a loop that marks does not; the cells
    of a block stay in the first-level cache. Return the first string that does not lie within ``data``, in which case
    nothing is marked, or -1.
    """
    length = short_length(offsets, data.size)
    done = 0
    if length < 0:
        bad = first_bad_offset(offsets, data.size)
        if bad >= 0:
            return bad
    elif lanes.wide():
        done = readable(offsets, length, data.size) // lanes.LANES * lanes.LANES
        _mark_equal(data, int(offsets[0]), length, done, keys, buckets, guard, hashes[:_RING], marks)
    for first in range(done, offsets.size - 1, hashes.size):
        stop = min(first + hashes.size, offsets.size - 1)
        count = stop - first
        fold_block(offsets[first : stop + 1], data, length, keys, hashes[:count])
        for i in range(count):
            cells[i] = cell_of(hashes[i], buckets, guard)
        for i in range(count):
            marks[cells[i]] = np.uint8(1)
    return -1
