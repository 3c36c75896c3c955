"""Prior sampling of one attribute for a block of records: select the table's row by the parents, then invert.

Compiled because rows of the table differ from record to record. Records are synthetic, so timing reveals nothing.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from panstream.primitives.kernels.jit import njit


# For few categories a sum of comparisons, which is faster than bisection.
@njit(cache=True, nogil=True)
def draw_attribute(
    codes: NDArray[np.uint16],
    start: int,
    position: int,
    parents: NDArray[np.int64],
    sizes: NDArray[np.int64],
    thresholds: NDArray[np.uint64],
    words: NDArray[np.uint64],
) -> None:
    """Set ``codes[position, start:start + words.size]``: the number of thresholds of its row not above a 63-bit word.

    ``thresholds`` has a row per setting of the parents (the last varies fastest), rising, without the last category.
    """
    width = thresholds.shape[1]
    out = codes[position]
    for r in range(words.size):
        row = np.int64(0)
        for a in range(parents.size):
            row = row * sizes[a] + codes[parents[a], start + r]
        word = words[r] >> np.uint64(1)
        steps = thresholds[row]
        if width <= 8:
            low = 0
            for k in range(width):
                low += steps[k] <= word
        else:
            low = 0
            high = width
            while low < high:
                middle = (low + high) >> 1
                if steps[middle] <= word:
                    low = middle + 1
                else:
                    high = middle
        out[start + r] = low
