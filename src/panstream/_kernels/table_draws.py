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
    reach: int,
    open_draws: NDArray[np.int64],
) -> int:
    """Add one draw to every value; return how many are open: left as they are, their places in ``open_draws``.

    A size is the first whose bound is not below the word: among ``reach`` of them from the one that the guide names.
    """
    found = 0
    for i in range(values.size):
        start = words[i] >> np.uint64(1)
        size = np.int64(guide[np.int64(start >> shift)])
        left = reach
        while left > 1:
            half = left >> 1
            # All are below 2^63: the sign of the difference compares them, and leaves nothing to branch on.
            size += half & -np.int64((bounds[size + half - 1] - start) >> np.uint64(63))
            left -= half
        if start == bounds[size]:
            if found < open_draws.size:
                open_draws[found] = i
            found += 1
            continue
        values[i] += size * (np.int64(1) - np.int64((words[i] & np.uint64(1)) << np.uint64(1)))
    return found
