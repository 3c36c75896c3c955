"""Ids of visitors: one keyed hash of an address and a user agent; and beacons that were delivered twice.

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


@njit(cache=True, nogil=True)
def mark_repeats(hashes: NDArray[np.uint64], table: NDArray[np.uint64], repeated: Bytes) -> None:
    """Mark the rows whose hash is that of an earlier row; rows marked before are passed over.

    ``table`` is empty at first and has a power of two of slots, more than rows; it is the caller's, who wipes it.
    """
    mask = np.uint64(table.size - 1)
    for row in range(hashes.size):
        if repeated[row]:
            continue
        value = hashes[row] | np.uint64(1)  # 0 is an empty slot
        slot = (value >> np.uint64(1)) & mask
        while table[slot] != 0 and table[slot] != value:
            slot = (slot + np.uint64(1)) & mask
        repeated[row] = np.uint8(table[slot] == value)
        table[slot] = value
