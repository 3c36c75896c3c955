"""SipHash-1-3 of strings and bytes as Arrow lays them out.

SipHash (Aumasson and Bernstein, 2012) with one round per word and three at the end, the variant of Python's and
Rust's own hash tables. Its 128-bit key is ``derive(key, "strings")`` as 16 little-endian bytes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.hashing._arrays import check_out, checked_strings
from panstream.hashing.keys import HashKey, key_words
from panstream.scratch import Scratch

__all__ = ["hash_strings"]


def hash_strings(offsets: NDArray[Any], data: NDArray[np.uint8], key: HashKey, out: NDArray[np.uint64]) -> None:
    """Write the 64-bit hash of every string to ``out``.

    String ``i`` is ``data[offsets[i] : offsets[i + 1]]``; ``offsets`` (int32 or int64) has one element more than
    there are strings and need not start at 0, so that slices of Arrow arrays can be hashed in place.

    >>> text = np.frombuffer(b"annbobann", np.uint8)
    >>> out = np.empty(3, np.uint64)
    >>> hash_strings(np.array([0, 3, 6, 9]), text, 0, out)
    >>> bool(out[0] == out[2]), bool(out[0] == out[1])
    (True, False)
    """
    from panstream._kernels.siphash import LANES, hash_all

    offsets, data = checked_strings(offsets, data)
    check_out(out, offsets.size - 1, np.uint64)
    key0, key1 = key_words(key, "strings")
    with Scratch() as scratch:
        hash_all(offsets, data, key0, key1, scratch.array(4 * LANES, np.uint64).reshape(4, LANES), out)
