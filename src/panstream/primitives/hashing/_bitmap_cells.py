"""Cells of an FM bitmap: a geometric level and a uniform bucket from disjoint bits of one hash.

The level is the number of trailing zeros of the hash's lower 32 bits, at most ``levels - 1``: level l has probability
2**-(l + 1), the last one 2**-(levels - 1), exactly. The bucket is ``upper 32 bits * buckets >> 32``: exactly uniform if
``buckets`` is a power of two, and otherwise with probabilities that differ from 1/buckets by less than 2**-32.
The cell is ``level * buckets + bucket``.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.errors import InvalidParameter
from panstream.primitives import validation as checks
from panstream.primitives.hashing._array_checks import (
    check_array,
    check_out,
    checked_strings,
    require_valid_offset,
    unchecked_strings,
    words_of,
)
from panstream.primitives.hashing._strings import StringHash, check_hash, fold_keys
from panstream.primitives.hashing.keys import HashKey, key_words
from panstream.primitives.inputs.argument import read_only
from panstream.primitives.memory.scratch import Scratch

MAX_LEVELS = 33
"""The trailing zeros of 32 bits take 33 values."""


def cells_of(hashes: NDArray[np.uint64], buckets: int, levels: int, out: NDArray[Any]) -> None:
    """Write the cell of every hash to ``out``, an array of int32 or int64.

    >>> out = np.empty(3, np.int64)
    >>> cells_of(np.array([0b1, 0b100, 0xFFFFFFFF00000001], np.uint64), 1000, 20, out)
    >>> out.tolist()
    [0, 2000, 999]
    """
    from panstream.primitives.kernels.hashing.bitmap_cells import cells_of_hashes

    check_array(hashes, "hashes", np.uint64)
    cells_of_hashes(read_only(hashes), *_table(buckets, levels, hashes.size, out), out)


def cells_of_integers(values: NDArray[Any], key: HashKey, buckets: int, levels: int, out: NDArray[Any]) -> None:
    """Write the cells of ``hash_integers(values, key)`` in one pass."""
    from panstream.primitives.kernels.hashing.bitmap_cells import cells_of_integers as kernel

    words = words_of(values, "values")
    table = _table(buckets, levels, words.size, out)
    kernel(words, *key_words(key, "integers"), *table, out)


def cells_of_strings(
    offsets: NDArray[Any],
    data: NDArray[np.uint8],
    key: HashKey,
    buckets: int,
    levels: int,
    out: NDArray[Any],
    *,
    hash: StringHash,
) -> None:
    """Write the cells of ``hash_strings(offsets, data, key, ..., hash=hash)`` in one pass."""
    from panstream.primitives.kernels.hashing import bitmap_cells as cells
    from panstream.primitives.kernels.hashing import multiply_fold as fold
    from panstream.primitives.kernels.hashing import siphash

    check_hash(hash)
    offsets, data = checked_strings(offsets, data)
    table = _table(buckets, levels, offsets.size - 1, out)
    with Scratch() as scratch:
        if hash == "fold":
            hashes = scratch.array(fold.LANES, np.uint64)
            cells.cells_of_folded(offsets, data, fold_keys(key), hashes, *table, out)
        else:
            lanes = siphash.LANES
            state = scratch.array(4 * lanes, np.uint64).reshape(4, lanes)
            hashes = scratch.array(lanes, np.uint64)
            cells.cells_of_strings(offsets, data, *key_words(key, "strings"), state, hashes, *table, out)


def mark_strings(
    offsets: NDArray[Any], data: NDArray[np.uint8], key: HashKey, buckets: int, levels: int, marks: NDArray[np.uint8]
) -> None:
    """Set to 1 the marks of ``cells_of_strings(..., hash="fold")``, which has a mark for every cell."""
    from panstream.primitives.kernels.hashing import bitmap_cells as cells
    from panstream.primitives.kernels.hashing import multiply_fold as fold

    offsets, data = unchecked_strings(offsets, data)
    check_out(marks, buckets * levels, np.uint8)
    table = _shape(buckets, levels)
    with Scratch() as scratch:
        hashes = scratch.array(fold.LANES, np.uint64)
        lane_cells = scratch.array(fold.LANES, np.uint32)
        require_valid_offset(cells.mark_folded(offsets, data, fold_keys(key), hashes, lane_cells, *table, marks))


def mark_integers_packed(
    values: NDArray[Any], key: HashKey, buckets: int, levels: int, marks: NDArray[np.uint64]
) -> None:
    """Set to 1 the bits of ``cells_of_integers(...)``; ``marks`` has a bit for every cell, lowest first."""
    from panstream.primitives.kernels.hashing.packed_cell_marks import RING, mark_integers

    words = words_of(values, "values")
    table = _packed_table(buckets, levels, marks)
    with Scratch() as scratch:
        mark_integers(words, *key_words(key, "integers"), *table, scratch.array(RING, np.uint64), marks)


def mark_strings_packed(
    offsets: NDArray[Any], data: NDArray[np.uint8], key: HashKey, buckets: int, levels: int, marks: NDArray[np.uint64]
) -> None:
    """Set to 1 the bits of ``cells_of_strings(..., hash="fold")``; ``marks`` has a bit for every cell, lowest first."""
    from panstream.primitives.kernels.hashing.packed_cell_marks import STRINGS, mark_folded

    offsets, data = unchecked_strings(offsets, data)
    table = _packed_table(buckets, levels, marks)
    with Scratch() as scratch:
        require_valid_offset(
            mark_folded(offsets, data, fold_keys(key), scratch.array(STRINGS, np.uint64), *table, marks)
        )


def _packed_table(buckets: int, levels: int, marks: Any) -> tuple[np.uint64, np.uint64]:
    check_out(marks, -(-buckets * levels // 64), np.uint64)
    return _shape(buckets, levels)


def _table(buckets: int, levels: int, size: int, out: Any) -> tuple[np.uint64, np.uint64]:
    shape = _shape(buckets, levels)
    check_out(out, size, np.int32, np.int64)
    if buckets * levels > 1 << 31 and out.itemsize == 4:
        raise InvalidParameter(f"out must be int64 for more than 2**31 cells, got buckets * levels={buckets * levels}")
    return shape


@functools.lru_cache(maxsize=64, typed=True)
def _shape(buckets: int, levels: int) -> tuple[np.uint64, np.uint64]:
    checks.require_int(1, MAX_LEVELS, levels=levels)
    checks.require_int(1, (1 << 32) - 1, buckets=buckets)
    return np.uint64(buckets), np.uint64(1 << (levels - 1))
