"""Permutations: a shuffled table, and a Feistel network on [0, rows) x [0, 2**bits) that walks into [0, universe).

Compiled because cycle walking repeats until an image lies in the universe: a few rows need more rounds than others.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.primitives.kernels.hashing.integer_mixer import mix
from panstream.primitives.kernels.jit import njit

_LOW_HALF = np.uint64(0xFFFFFFFF)
_32 = np.uint64(32)
_ODD = np.uint64(0x9E3779B1)
_BLOCK = 512


@njit(cache=True, nogil=True, forceinline=True)
def _function(half: np.uint64, factor: np.uint64, shift: np.uint64) -> Any:
    # A fixed bijection of 32-bit words first, so that the keyed linear part sees no arithmetic progression.
    word = ((half & _LOW_HALF) * _ODD) & _LOW_HALF
    return (word ^ (word >> np.uint64(16))) * factor + shift


@njit(cache=True, nogil=True, forceinline=True)
def _below(word: np.uint64, bound: np.uint64) -> Any:
    # The upper 64 bits of word * bound, for a bound under 2**32, in 32-bit products: those have vector instructions.
    narrow = bound & _LOW_HALF
    return ((word >> _32) * narrow + (((word & _LOW_HALF) * narrow) >> _32)) >> _32


@njit(cache=True, nogil=True, forceinline=True)
def _forward(x: np.uint64, rows: np.uint64, bits: np.uint64, a: Any, b: Any, c: Any, d: Any) -> Any:
    left = x >> bits
    right = x & ((np.uint64(1) << bits) - np.uint64(1))
    moved = np.int64(left + _below(_function(right, a, b), rows)) - np.int64(rows)
    left = np.uint64(moved + np.int64(rows) if moved < 0 else moved)
    right ^= _function(left, c, d) >> (np.uint64(64) - bits)
    return (left << bits) | right


@njit(cache=True, nogil=True)
def _forward_block(block: Any, rows: np.uint64, bits: np.uint64, a: Any, b: Any, c: Any, d: Any) -> None:
    bits &= np.uint64(63)
    for i in range(block.size):
        block[i] = _forward(block[i], rows, bits, a, b, c, d)


# A block passes through all rounds in vector instructions; the few ids that leave the universe walk on one by one.
@njit(cache=True, nogil=True)
def permute_all(
    ids: NDArray[np.uint64],
    universe: np.uint64,
    rows: np.uint64,
    bits: np.uint64,
    keys: NDArray[np.uint64],
    out: NDArray[np.uint64],
) -> None:
    """Write the image of every id; ``keys`` holds one row of four words for every two rounds."""
    for first in range(0, ids.size, _BLOCK):
        stop = min(first + _BLOCK, ids.size)
        block = out[first:stop]
        source = ids[first:stop]
        for i in range(block.size):
            block[i] = source[i]
        for r in range(keys.shape[0]):
            _forward_block(block, rows, bits, keys[r, 0], keys[r, 1], keys[r, 2], keys[r, 3])
        for i in range(block.size):
            while block[i] >= universe:
                for r in range(keys.shape[0]):
                    a = keys[r, 0]
                    b = keys[r, 1]
                    c = keys[r, 2]
                    d = keys[r, 3]
                    block[i] = _forward(block[i], rows, bits, a, b, c, d)


# The table depends on key and universe only, both of which are public.
@njit(cache=True, nogil=True)
def shuffle(table: NDArray[np.uint16], key0: np.uint64, key1: np.uint64) -> None:
    """Write a random permutation of [0, table.size): Fisher-Yates, driven by keyed hashes of the counter."""
    for i in range(table.size):
        table[i] = i
    for i in range(table.size - 1, 0, -1):
        j = _below(mix(np.uint64(i), key0, key1), np.uint64(i + 1))
        table[i], table[j] = table[j], table[i]


# Not ``np.take``, which would convert the 16-bit table or buffer its output.
@njit(cache=True, nogil=True)
def take_all(ids: NDArray[np.uint64], table: NDArray[np.uint16], out: NDArray[np.uint64]) -> None:
    """Write ``table[ids[i]]`` to ``out[i]``."""
    for i in range(ids.size):
        out[i] = table[ids[i]]
