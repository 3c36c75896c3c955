"""User-level privacy for users who contribute at most K rows each.

With ``contributions=K`` a tree counter protects a whole user: K rows move every level by K times as much, so the noise is
K times as large and the loss stays epsilon (group privacy, which is exact here). A user who contributes m > K rows loses
m·epsilon/K, no more.

What can be enforced: within one batch, exactly, since a batch is in memory while it is taken in. Give the ids with
``users=`` and a user's rows after the first K of the batch are left out. What cannot: the bound across batches.
Whoever wants to refuse a user's next row must remember that the user was there, and an intruder would read that
memory; a noisy memory would refuse the wrong users. So between batches K is a promise of whoever sends the data: one
reading per meter and hour, one vote per ballot paper. Nothing about ``users`` is kept.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.batch import items
from panstream.errors import InvalidBatch
from panstream.hashing import derive
from panstream.hashing.items import hash_items
from panstream.scratch import Scratch

__all__ = ["first_contributions"]


def first_contributions(users: Any, rows: int, most: int) -> NDArray[np.uint8]:
    """Return 1 for every row that is among its user's first ``most`` of the batch, else 0; the caller wipes it.

    >>> first_contributions(["ann", "bob", "ann", "ann"], 4, 2).tolist()
    [1, 1, 1, 0]
    """
    from panstream._kernels.tree import first_rows

    ids = items(users, name="users")
    try:
        if len(ids) != rows:
            raise InvalidBatch(f"users must have one id per row, got {len(ids)} for {rows} rows")
        keep = np.empty(rows, np.uint8)
        with Scratch() as scratch:
            hashes = scratch.array(rows, np.uint64)
            hash_items(ids, derive(0, "contributions"), hashes)
            size = 2 << max(rows, 1).bit_length()
            table, counts = scratch.array(size, np.uint64), scratch.array(size, np.int64)
            counts.fill(0)
            first_rows(hashes, most, table, counts, keep)
    finally:
        ids.wipe()
    return keep
