"""Public hash keys, and independent subkeys for every use of one.

A key is a plain integer in 0..2**128 - 1. It is a public parameter: it chooses the hash function, hides nothing,
and is 0 by default, so that two sketches built with the same parameters can be merged.

>>> derive(0, "strings") == derive(0, "strings")
True
>>> derive(0, "strings") == derive(0, "integers")
False
"""

from __future__ import annotations

import hashlib
import struct
from functools import lru_cache
from typing import Any

import numpy as np

from panstream.errors import InvalidParameter

HashKey = int
"""A public key: an integer in 0..2**128 - 1."""

_PERSON = b"panstream.hash.1"


def check_key(key: Any) -> None:
    """Raise InvalidParameter unless ``key`` is a hash key."""
    if isinstance(key, bool) or not isinstance(key, int) or not 0 <= key < 1 << 128:
        raise InvalidParameter("key must be an integer in 0..2**128 - 1")


@lru_cache(maxsize=256, typed=True)
def derive(key: HashKey, label: str) -> HashKey:
    """Return the subkey of ``key`` for the use named ``label``.

    It is BLAKE2b with a 16-byte digest and the personalisation ``panstream.hash.1``, of the key as 16
    little-endian bytes followed by the label in UTF-8; the digest is read as a little-endian integer.
    """
    check_key(key)
    message = key.to_bytes(16, "little") + label.encode()
    return int.from_bytes(hashlib.blake2b(message, digest_size=16, person=_PERSON).digest(), "little")


def expand(key: HashKey, label: str, words: int) -> tuple[int, ...]:
    """Return ``words`` pseudo-random integers below 2**64 for the use named ``label``.

    They are the little-endian words of BLAKE2b digests of 64 bytes, personalised as in `derive`, of the
    key as 16 bytes, the digest's number (0, 1, ...) as 8 bytes, both little-endian, and the label.
    """
    check_key(key)
    stream = b"".join(
        hashlib.blake2b(
            key.to_bytes(16, "little") + number.to_bytes(8, "little") + label.encode(), digest_size=64, person=_PERSON
        ).digest()
        for number in range(-(-words // 8))
    )
    return struct.unpack_from(f"<{words}Q", stream)


@lru_cache(maxsize=256, typed=True)
def key_words(key: HashKey, label: str) -> tuple[np.uint64, np.uint64]:
    """Return the lower and the upper half of the subkey for ``label``."""
    subkey = derive(key, label)
    return np.uint64(subkey & ((1 << 64) - 1)), np.uint64(subkey >> 64)
