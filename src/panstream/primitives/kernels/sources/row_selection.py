"""Numbers of some rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray


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
