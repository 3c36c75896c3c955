"""Ids of visitors: one keyed hash of an address and a user agent.

Compiled because neither text may become a Python object; both stay in buffers that the caller wipes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.primitives.kernels.hashing.siphash import hash_one
from panstream.primitives.kernels.jit import njit

Bytes = NDArray[np.uint8]
Positions = NDArray[np.int64]


# The hash of the first text keys that of the second, so that moving bytes from one to the other changes the id.
@njit(cache=True, nogil=True)
def hash_pairs(
    first: tuple[Bytes, Positions, Positions],
    second: tuple[Bytes, Positions, Positions],
    key: np.uint64,
    out: NDArray[np.uint64],
) -> Any:
    """Write a hash of two texts per row, each given as (data, starts, stops)."""
    data, starts, stops = first
    other, begins, ends = second
    for row in range(out.size):
        half = hash_one(data, starts[row], stops[row] - starts[row], key, key)
        out[row] = hash_one(other, begins[row], ends[row] - begins[row], half, key)
