"""Discrete Laplace noise from independent coins for its binary digits, in constant time.

The digits of a geometric number are independent, so a fixed number of words decides every draw: no branch and no
address depends on what is drawn.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.primitives.kernels.jit import njit


# All digits of both numbers are computed, and ties are recorded without leaving the loop. The only branch on a draw
# is the one on ties, of probability below 2^-121.
@njit(cache=True, nogil=True)
def add_from_digits(
    values: NDArray[Any],
    words: NDArray[np.uint64],
    high: NDArray[np.uint64],
    low: NDArray[np.uint64],
    open_draws: NDArray[np.int64],
) -> int:
    """Add the difference of two geometric numbers to every value; return how many stay undecided.

    Digit i of a number is 1 if two words are below ``high[i]``, ``low[i]``; if they are equal, the draw is undecided:
    the value is unchanged and its index goes to ``open_draws``.
    """
    open_count = 0
    pos = 0
    for i in range(values.size):
        noise = np.int64(0)
        tied = False
        for sign in (np.int64(1), np.int64(-1)):
            for digit in range(high.size):
                first = words[pos]
                second = words[pos + 1]
                same = first == high[digit]
                one = (first < high[digit]) | (same & (second < low[digit]))
                tied |= same & (second == low[digit])
                noise += sign * (np.int64(one) << digit)
                pos += 2
        if tied:
            if open_count < open_draws.size:
                open_draws[open_count] = i
            open_count += 1
            continue
        values[i] += noise
    return open_count
