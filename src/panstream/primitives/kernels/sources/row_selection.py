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
    kept = 0
    for i in range(numbers.size):
        out[kept] = numbers[i]
        kept += keep[i]
    out[kept] = 0


@njit(cache=True, nogil=True)
def keep_words(page: NDArray[np.uint8], at: int, keep: NDArray[np.bool_], out: NDArray[np.int64]) -> int:
    """Copy those to be kept of the whole numbers that begin at ``at``, as many as ``keep`` is long; return how many.

    ``out`` has room for one more.
    """
    kept = 0
    for i in range(keep.size):
        out[kept] = load_word(page, at + 8 * i)
        kept += keep[i]
    return kept
