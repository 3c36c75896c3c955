"""One 64-bit hash for every row of a batch, for ids of any type."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from panstream.primitives.hashing._integers import hash_integers
from panstream.primitives.hashing._strings import hash_strings
from panstream.primitives.hashing.keys import HashKey
from panstream.primitives.inputs import Dictionary, Integers, ItemBatch, Strings
from panstream.primitives.memory.scratch import Scratch


def hash_items(items: ItemBatch, key: HashKey, out: NDArray[np.uint64]) -> None:
    """Write the hash of every row to ``out``, of strings by SipHash; a dictionary's entries are hashed once each."""
    for row, part in items.spans():
        target = out[row : row + len(part)]
        if isinstance(part, Dictionary):
            with Scratch() as scratch:
                entries = scratch.array(len(part.values), np.uint64)
                _hash(part.values, key, entries)
                np.take(entries, part.codes, out=target, mode="clip")  # codes are in range; "raise" would buffer
        else:
            _hash(part, key, target)


def _hash(values: Integers | Strings, key: HashKey, out: NDArray[np.uint64]) -> None:
    if isinstance(values, Integers):
        hash_integers(values.values, key, out)
    else:
        hash_strings(values.offsets, values.data, key, out, hash="siphash")
