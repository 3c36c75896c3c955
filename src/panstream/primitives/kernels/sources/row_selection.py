"""Numbers of some rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from panstream.primitives.kernels.machine_words import load_word


@njit(cache=True, nogil=True)
def keep_numbers(numbers: NDArray[Any], keep: NDArray[np.bool_], out: NDArray[Any]) -> None:
    """Copy the numbers to be kept; ``out`` has room for one more than those, which becomes 0.

    Every number is written, kept or not, since a processor guesses wrong which are.
    """
    count = 0
    for i in range(numbers.size):
        out[count] = numbers[i]
        count += keep[i]
    out[count] = 0


@njit(cache=True, nogil=True)
def keep_words(page: NDArray[np.uint8], pos: int, keep: NDArray[np.bool_], out: NDArray[np.int64]) -> int:
    """Copy those to be kept of the whole numbers that begin at ``pos``, as many as ``keep`` is long; return how many.

    ``out`` has room for one more.
    """
    count = 0
    for i in range(keep.size):
        out[count] = load_word(page, pos + 8 * i)
        count += keep[i]
    return count
