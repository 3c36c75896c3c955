"""Noise from a table of its law: one word a draw, and a list of those that need more bits."""

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
    open_draws: NDArray[np.int64],
) -> int:
    """Add one draw to every value; return how many are open: left as they are, their places in ``open_draws``."""
    found = 0
    for i in range(values.size):
        start = words[i] >> np.uint64(1)
        size = np.int64(guide[np.int64(start >> shift)])
        while start > bounds[size]:
            size += 1
        if start == bounds[size]:
            if found < open_draws.size:
                open_draws[found] = i
            found += 1
            continue
        values[i] += -size if words[i] & np.uint64(1) else size
    return found
