"""The keyed 64-bit mixer for integers.

Compiled so that mixing fuses with what uses the hash; `mix_all` alone becomes vector instructions. Nothing in it
depends on the value: the same instructions run for every id.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.primitives.kernels.jit import njit

FIRST = np.uint64(0xA24BAED4963EE407)
SECOND = np.uint64(0x9FB21C651E98DF25)


@njit(cache=True, nogil=True, forceinline=True)
def _rotate_right(word: np.uint64, bits: int) -> Any:
    return (word >> np.uint64(bits)) | (word << np.uint64(64 - bits))


@njit(cache=True, nogil=True, forceinline=True)
def mix(word: np.uint64, key0: np.uint64, key1: np.uint64) -> Any:
    """Map a word to a word; a bijection for each key, since every line below is one."""
    word ^= key0
    word ^= _rotate_right(word, 25) ^ _rotate_right(word, 50)
    word *= FIRST
    word ^= key1
    word ^= _rotate_right(word, 24) ^ _rotate_right(word, 49)
    word *= SECOND
    return word ^ (word >> np.uint64(28))


@njit(cache=True, nogil=True)
def mix_all(values: NDArray[np.uint64], key0: np.uint64, key1: np.uint64, out: NDArray[np.uint64]) -> None:
    """Write ``mix(values[i])`` to ``out[i]``."""
    for i in range(values.size):
        out[i] = mix(values[i], key0, key1)
