"""Select the numbers of some rows.

Compiled because NumPy's boolean indexing allocates its result, which nothing would wipe.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray


@njit(cache=True, nogil=True)
def keep_numbers(numbers: NDArray[Any], keep: NDArray[np.bool_], out: NDArray[Any]) -> None:
    """Copy the selected numbers; ``out`` has one element more than those, which becomes 0.

    Every number is written, selected or not: a mispredicted branch would take longer.
    """
    count = 0
    for i in range(numbers.size):
        out[count] = numbers[i]
        count += keep[i]
    out[count] = 0
