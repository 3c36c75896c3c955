"""Cells of an FM bitmap: a geometric level and a uniform bucket from disjoint bits of one hash.

The level is the number of trailing zeros of the hash's lower 32 bits, at most ``levels - 1``: level l has probability
2**-(l + 1), the last one 2**-(levels - 1), exactly. The bucket is ``upper 32 bits * buckets >> 32``: exactly uniform if
``buckets`` is a power of two, and otherwise with probabilities that differ from 1/buckets by less than 2**-32.
The cell is ``level * buckets + bucket``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream import checks
from panstream.batch.calls import read_only
from panstream.errors import InvalidParameter
from panstream.hashing._arrays import check_array, check_out, checked_strings, words_of
from panstream.hashing.keys import HashKey, key_words
from panstream.scratch import Scratch

__all__ = ["MAX_LEVELS", "cells_of", "cells_of_integers", "cells_of_strings"]

MAX_LEVELS = 33
"""32 bits tell 33 levels apart."""


def cells_of(hashes: NDArray[np.uint64], buckets: int, levels: int, out: NDArray[Any]) -> None:
    """Write the cell of every hash to ``out``, an array of int32 or int64.

    >>> out = np.empty(3, np.int64)
    >>> cells_of(np.array([0b1, 0b100, 0xFFFFFFFF00000001], np.uint64), 1000, 20, out)
    >>> out.tolist()
    [0, 2000, 999]
    """
    from panstream._kernels.cells import cells_of_hashes

    check_array(hashes, "hashes", np.uint64)
    cells_of_hashes(read_only(hashes), *_table(buckets, levels, hashes.size, out), out)


def cells_of_integers(values: NDArray[Any], key: HashKey, buckets: int, levels: int, out: NDArray[Any]) -> None:
    """Write the cells of ``hash_integers(values, key)`` in one pass."""
    from panstream._kernels.cells import cells_of_integers as kernel

    words = words_of(values, "values")
    table = _table(buckets, levels, words.size, out)
    kernel(words, *key_words(key, "integers"), *table, out)


def cells_of_strings(
    offsets: NDArray[Any], data: NDArray[np.uint8], key: HashKey, buckets: int, levels: int, out: NDArray[Any]
) -> None:
    """Write the cells of ``hash_strings(offsets, data, key)`` in one pass."""
    from panstream._kernels.cells import cells_of_strings as kernel
    from panstream._kernels.siphash import LANES

    offsets, data = checked_strings(offsets, data)
    table = _table(buckets, levels, offsets.size - 1, out)
    key0, key1 = key_words(key, "strings")
    with Scratch() as scratch:
        state, hashes = scratch.array(4 * LANES, np.uint64).reshape(4, LANES), scratch.array(LANES, np.uint64)
        kernel(offsets, data, key0, key1, state, hashes, *table, out)


def _table(buckets: int, levels: int, size: int, out: Any) -> tuple[np.uint64, np.uint64]:
    checks.integer(1, MAX_LEVELS, levels=levels)
    checks.integer(1, (1 << 32) - 1, buckets=buckets)
    check_out(out, size, np.int32, np.int64)
    if buckets * levels - 1 > np.iinfo(out.dtype).max:
        raise InvalidParameter(f"out must be int64 for more than 2**31 cells, got buckets * levels={buckets * levels}")
    return np.uint64(buckets), np.uint64(1 << (levels - 1))
