"""A keyed 64-bit mixer for integers.

The finaliser is Pelle Evensen's ``rrxmrrxmsx_0`` (2018): twice "xor with two rotations of itself, multiply by an
odd constant", then an xor-shift. The lower half of ``derive(key, "integers")`` is xored to the input, the upper half
between the two rounds. Every step can be undone, so that for each key the mixer is a bijection of the 64-bit words:
different integers never collide. It is not a cryptographic function and need not be one, the key being public.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.primitives.hashing._array_checks import check_out, words_of
from panstream.primitives.hashing.keys import HashKey, key_words


def hash_integers(values: NDArray[Any], key: HashKey, out: NDArray[np.uint64]) -> None:
    """Write the 64-bit hash of every int64 or uint64 value to ``out``.

    A negative int64 hashes as the uint64 of the same 64 bits.

    >>> out = np.empty(3, np.uint64)
    >>> hash_integers(np.array([5, 7, 5]), 0, out)
    >>> bool(out[0] == out[2]), bool(out[0] == out[1])
    (True, False)
    """
    from panstream.primitives.kernels.hashing.integer_mixer import mix_all

    words = words_of(values, "values")
    check_out(out, words.size, np.uint64)
    mix_all(words, *key_words(key, "integers"), out)
