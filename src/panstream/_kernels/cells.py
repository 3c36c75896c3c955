"""Cells of a bitmap of ``levels`` rows and ``buckets`` columns, from hashes or straight from items."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from panstream._kernels.fold import fold_block, short_length
from panstream._kernels.mix import mix
from panstream._kernels.siphash import LANES, hash_block
from panstream._kernels.words import trailing_zeros

_LOW_HALF = np.uint64(0xFFFFFFFF)
_32 = np.uint64(32)


@njit(cache=True, nogil=True, forceinline=True)
def cell_of(word: np.uint64, buckets: np.uint64, guard: np.uint64) -> Any:
    # Masks that change nothing tell the compiler that 32-bit products suffice.
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
    """Multiply and fold every string and write its cell; ``hashes`` (fold.LANES) is working memory."""
    length = short_length(offsets, data.size)
    for first in range(0, out.size, hashes.size):
        stop = min(first + hashes.size, out.size)
        block = out[first:stop]
        fold_block(offsets[first : stop + 1], data, length, keys, hashes[: block.size])
        for i in range(block.size):
            block[i] = cell_of(hashes[i], buckets, guard)


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
) -> None:
    """Set the mark of every string's cell; ``hashes`` and ``cells`` (fold.LANES) are working memory.

    Cells stay in the nearest cache, and their loop is one of vector instructions, which a loop with marks is not.
    """
    length = short_length(offsets, data.size)
    for first in range(0, offsets.size - 1, hashes.size):
        stop = min(first + hashes.size, offsets.size - 1)
        count = stop - first
        fold_block(offsets[first : stop + 1], data, length, keys, hashes[:count])
        for i in range(count):
            cells[i] = cell_of(hashes[i], buckets, guard)
        for i in range(count):
            marks[cells[i]] = np.uint8(1)
