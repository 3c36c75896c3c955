"""Noise from a table of its law: one word and the same instructions for every draw, and a list of those that need more
bits.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray


@njit(cache=True, nogil=True)
def add_from_table(
    values: NDArray[Any],
    words: NDArray[np.uint64],
    bounds: NDArray[np.uint64],
    guide: NDArray[np.int32],
    shift: np.uint64,
    halvings: int,
    open_draws: NDArray[np.int64],
) -> int:
    """Add one draw to every value; return how many are open: left as they are, their places in ``open_draws``.

    A size is the first whose bound is not below the word: less than 2^halvings behind the one that the guide names.
    """
    found, last = 0, bounds.size - 1
    for i in range(values.size):
        start = words[i] >> np.uint64(1)
        size = np.int64(guide[np.int64(start >> shift)])
        step = np.int64(1) << halvings
        for _ in range(halvings):
            step >>= 1
            size += step * np.int64(start > bounds[min(size + step - 1, last)])
        if start == bounds[size]:
            if found < open_draws.size:
                open_draws[found] = i
            found += 1
            continue
        values[i] += size * (np.int64(1) - np.int64((words[i] & np.uint64(1)) << np.uint64(1)))
    return found
