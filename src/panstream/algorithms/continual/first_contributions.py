"""The first rows of every user in a batch."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.errors import InvalidBatch
from panstream.primitives.hashing import derive
from panstream.primitives.hashing.items import hash_items
from panstream.primitives.inputs import Dictionary, ItemBatch, Strings, items
from panstream.primitives.memory.scratch import Scratch

_INTEGER_BYTES = 8


def first_contributions(users: Any, rows: int, max_contributions: int) -> NDArray[np.uint8]:
    """Return 1 for every row among its user's first ``max_contributions`` rows of the batch, else 0.

    The caller wipes the result, which depends on single rows.

    >>> first_contributions(["ann", "bob", "ann", "ann"], 4, 2).tolist()
    [1, 1, 1, 0]
    """
    from panstream.primitives.kernels.algorithms.noisy_tree import keep_first_rows

    # Ids are compared byte by byte where hashes agree: a collision would let one user's rows displace another's. The
    # hash table lies in scratch memory and is wiped with it.
    ids = items(users, name="users")
    try:
        if len(ids) != rows:
            raise InvalidBatch(f"users must have one id per row, got {len(ids)} for {rows} rows")
        keep = np.empty(rows, np.uint8)
        with Scratch() as scratch:
            hashes = scratch.array(rows, np.uint64)
            addresses = scratch.array(rows, np.uint64)
            lengths = scratch.array(rows, np.int64)
            hash_items(ids, derive(0, "contributions"), hashes)
            _id_spans(ids, addresses, lengths, scratch)
            size = 2 << max(rows, 1).bit_length()
            table = scratch.array(size, np.int64)
            counts = scratch.array(size, np.int64)
            counts.fill(0)
            keep_first_rows(hashes, addresses, lengths, max_contributions, table, counts, keep)
    finally:
        ids.wipe()
    return keep


def _id_spans(ids: ItemBatch, addresses: NDArray[np.uint64], lengths: NDArray[np.int64], scratch: Scratch) -> None:
    """Write the memory address and the length in bytes of every row's id."""
    from panstream.primitives.kernels.algorithms.noisy_tree import row_addresses

    for row, part in ids.spans():
        values = part.values if isinstance(part, Dictionary) else part
        if isinstance(values, Strings):
            offsets = values.offsets
            data = values.data
        else:
            offsets = np.arange(len(values) + 1) * _INTEGER_BYTES
            data = values.values.view(np.uint8)
        address = np.uint64(data.ctypes.data)
        rows = slice(row, row + len(part))
        if not isinstance(part, Dictionary):
            row_addresses(offsets, address, addresses[rows], lengths[rows])
            continue
        starts = scratch.array(len(values), np.uint64)
        sizes = scratch.array(len(values), np.int64)
        row_addresses(offsets, address, starts, sizes)
        np.take(starts, part.codes, out=addresses[rows], mode="clip")  # codes are in range; "raise" would buffer
        np.take(sizes, part.codes, out=lengths[rows], mode="clip")
