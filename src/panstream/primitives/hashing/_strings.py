"""Two hash functions of strings and bytes in Arrow's layout. A state stores the name of the one it uses.

``"fold"``, the default of new states, multiplies and folds. Let k be ``expand(key, "fold", 66)``, a string's length n,
and m its bytes as little-endian words, padded with zeros to a multiple of 16 bytes, at least 16. Then

    s = n + (m[0] + k[0])·(m[1] + k[1]) + (m[2] + k[2])·(m[3] + k[3]) + ...   modulo 2**128

and with l = s mod 2**64, h = floor(s / 2**64), r being l with its 32-bit halves exchanged, and
p = (l + k[64])·((h xor r) + k[65]), the hash is (p mod 2**64) xor floor(p / 2**64). Single words are added modulo
2**64. A string of more than 512 bytes is cut into pieces of 512; after each but the last, the hash so far becomes the
upper half of the next sum, and the number of bytes that are left its lower half.

The sum is NH (Black, Halevi, Krawczyk, Krovetz, Rogaway 1999). Two different strings of up to 512 bytes have the same s
for at most a fraction 2**-63 of all k, whatever the strings: there is no pair that collides under every key, which
hashes of this family with fixed constants have, where a word that equals a constant makes a product 0. That s does not
collide in the fold is tested, not proved. The function is fast and mixes well, but it is no cipher: if the key must
stay unknown to an observer of which ids collide, use the other one.

``"siphash"`` is SipHash-1-3 (Aumasson and Bernstein 2012), one round per word and three at the end, the variant of
Python's and Rust's own hash tables. Its 128-bit key is ``derive(key, "strings")`` as 16 little-endian bytes.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from panstream.errors import InvalidParameter
from panstream.primitives.hashing._array_checks import check_out, checked_strings
from panstream.primitives.hashing.keys import HashKey, expand, key_words
from panstream.primitives.memory.scratch import Scratch

StringHash = Literal["fold", "siphash"]
"""The hash function of strings; there is only one for integers."""

_FOLD_WORDS = 66


def check_hash(hash: Any) -> None:
    """Raise InvalidParameter unless ``hash`` names a hash function of strings."""
    if hash not in get_args(StringHash):
        raise InvalidParameter(f"hash must be 'fold' or 'siphash', got hash={hash!r}")


@lru_cache(maxsize=64, typed=True)
def fold_keys(key: HashKey) -> NDArray[np.uint64]:
    """Return the words k of ``"fold"``, read-only."""
    words = np.array(expand(key, "fold", _FOLD_WORDS), np.uint64)
    words.flags.writeable = False
    return words


def hash_strings(
    offsets: NDArray[Any], data: NDArray[np.uint8], key: HashKey, out: NDArray[np.uint64], *, hash: StringHash
) -> None:
    """Write the 64-bit hash of every string to ``out``.

    String ``i`` is ``data[offsets[i] : offsets[i + 1]]``; ``offsets`` (int32 or int64) has one element more than
    there are strings and need not start at 0, so that slices of Arrow arrays can be hashed in place.

    >>> text = np.frombuffer(b"annbobann", np.uint8)
    >>> out = np.empty(3, np.uint64)
    >>> hash_strings(np.array([0, 3, 6, 9]), text, 0, out, hash="fold")
    >>> bool(out[0] == out[2]), bool(out[0] == out[1])
    (True, False)
    """
    check_hash(hash)
    offsets, data = checked_strings(offsets, data)
    check_out(out, offsets.size - 1, np.uint64)
    with Scratch() as scratch:  # also clears registers and the stack
        if hash == "fold":
            from panstream.primitives.kernels.hashing.multiply_fold import fold_all

            fold_all(offsets, data, fold_keys(key), out)
        else:
            from panstream.primitives.kernels.hashing.siphash import LANES, hash_all

            state = scratch.array(4 * LANES, np.uint64).reshape(4, LANES)
            hash_all(offsets, data, *key_words(key, "strings"), state, out)
