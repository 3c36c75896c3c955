"""Noise by inversion of its tabulated distribution: one word and the same instructions for every draw.

Compiled for speed: a draw is a bisection of fixed depth without branches. Draws whose word equals a bound need more
bits and are listed for the caller.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.primitives.kernels.jit import njit

_LAST = np.uint64((1 << 63) - 1)
_EXPONENT = 1023  # of 1.0


@njit(cache=True, nogil=True, forceinline=True)
def guide_entry(start: Any, digits: Any) -> Any:
    """Return a word's guide entry: exponent and leading digits of its distance from 2^63, as a float stores them."""
    distance = np.float64(np.int64(_LAST - start)) + 1.0
    return (np.float64(distance).view(np.int64) >> (52 - digits)) - (np.int64(_EXPONENT) << digits)


# The only branch on a draw is the one on undecided draws, of probability below 2^-46.
@njit(cache=True, nogil=True)
def add_from_table(
    values: NDArray[Any],
    words: NDArray[np.uint64],
    bounds: NDArray[np.uint64],
    guide: NDArray[np.int32],
    digits: int,
    reach: int,
    open_draws: NDArray[np.int64],
) -> int:
    """Add one draw to every value; return how many stay undecided: unchanged, with their indices in ``open_draws``.

    The magnitude is the first whose bound is not below the word, found by bisection among ``reach`` entries from the
    one that the guide names.
    """
    open_count = 0
    for i in range(values.size):
        start = words[i] >> np.uint64(1)
        size = np.int64(guide[guide_entry(start, digits)])
        remaining = reach
        while remaining > 1:
            half = remaining >> 1
            # All are below 2^63, so the sign of the difference compares them without a branch.
            size += half & -np.int64((bounds[size + half - 1] - start) >> np.uint64(63))
            remaining -= half
        if start == bounds[size]:
            if open_count < open_draws.size:
                open_draws[open_count] = i
            open_count += 1
            continue
        values[i] += size * (np.int64(1) - np.int64((words[i] & np.uint64(1)) << np.uint64(1)))
    return open_count
