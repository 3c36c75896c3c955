"""SipHash-1-3 of many strings that lie one after the other in one buffer.

Strings are taken in blocks of ``LANES``. A block whose strings all have the same number of whole words is hashed word
by word across the block, a loop that the compiler turns into vector instructions; any other block string by string.
Compiled because every round depends on the one before. No byte past ``data`` is read.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.primitives.kernels.jit import njit
from panstream.primitives.kernels.machine_words import load_word

LANES = 64

_INIT0 = np.uint64(0x736F6D6570736575)
_INIT1 = np.uint64(0x646F72616E646F6D)
_INIT2 = np.uint64(0x6C7967656E657261)
_INIT3 = np.uint64(0x7465646279746573)
_WORD = np.uint64(64)
_13, _16, _17, _21, _32 = map(np.uint64, (13, 16, 17, 21, 32))  # literal numbers would compile _rotate_left five times
_ALL_ONES = np.uint64(0xFFFFFFFFFFFFFFFF)


@njit(cache=True, nogil=True, forceinline=True)
def _rotate_left(word: np.uint64, bits: np.uint64) -> Any:
    return (word << bits) | (word >> (_WORD - bits))


@njit(cache=True, nogil=True, forceinline=True)
def _round(v0: np.uint64, v1: np.uint64, v2: np.uint64, v3: np.uint64) -> Any:
    v0 += v1
    v2 += v3
    v1 = _rotate_left(v1, _13) ^ v0
    v3 = _rotate_left(v3, _16) ^ v2
    v0 = _rotate_left(v0, _32) + v3
    v2 += v1
    v1 = _rotate_left(v1, _17) ^ v2
    v3 = _rotate_left(v3, _21) ^ v0
    return v0, v1, _rotate_left(v2, _32), v3


@njit(cache=True, nogil=True, forceinline=True)
def _absorb(v0: np.uint64, v1: np.uint64, v2: np.uint64, v3: np.uint64, word: np.uint64) -> Any:
    v0, v1, v2, v3 = _round(v0, v1, v2, v3 ^ word)
    return v0 ^ word, v1, v2, v3


@njit(cache=True, nogil=True, forceinline=True)
def _finish(v0: np.uint64, v1: np.uint64, v2: np.uint64, v3: np.uint64) -> Any:
    v2 ^= np.uint64(0xFF)
    for _ in range(3):
        v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    return v0 ^ v1 ^ v2 ^ v3


@njit(cache=True, nogil=True, forceinline=True)
def hash_one(data: NDArray[np.uint8], start: np.int64, length: np.int64, key0: np.uint64, key1: np.uint64) -> Any:
    """Hash ``data[start : start + length]``."""
    v0 = key0 ^ _INIT0
    v1 = key1 ^ _INIT1
    v2 = key0 ^ _INIT2
    v3 = key1 ^ _INIT3
    stop = start + (length & ~7)
    for position in range(start, stop, 8):
        v0, v1, v2, v3 = _absorb(v0, v1, v2, v3, load_word(data, position))
    last = np.uint64(length) << np.uint64(56)
    tail = length & 7
    if tail:
        if stop + 8 <= data.size:
            last |= load_word(data, stop) & (_ALL_ONES >> np.uint64(64 - 8 * tail))
        else:
            for i in range(tail):
                last |= np.uint64(data[stop + i]) << np.uint64(8 * i)
    v0, v1, v2, v3 = _absorb(v0, v1, v2, v3, last)
    return _finish(v0, v1, v2, v3)


@njit(cache=True, nogil=True)
def _hash_lanes(
    data: NDArray[np.uint8],
    start: np.int64,
    words: np.int64,
    tail: np.int64,
    key0: np.uint64,
    key1: np.uint64,
    state: NDArray[np.uint64],
    out: NDArray[np.uint64],
) -> None:
    """Hash ``LANES`` strings of ``8 * words + tail`` bytes each that follow one another from ``start``."""
    v0 = state[0]
    v1 = state[1]
    v2 = state[2]
    v3 = state[3]
    # If the length were an argument, the compiler would specialise for length 1 and vectorise only that case.
    length = 8 * words + tail
    for lane in range(LANES):
        v0[lane] = key0 ^ _INIT0
        v1[lane] = key1 ^ _INIT1
        v2[lane] = key0 ^ _INIT2
        v3[lane] = key1 ^ _INIT3
    for word in range(words):
        here = start + 8 * word
        for lane in range(LANES):
            a, b, c, d = _absorb(v0[lane], v1[lane], v2[lane], v3[lane], load_word(data, here + lane * length))
            v0[lane] = a
            v1[lane] = b
            v2[lane] = c
            v3[lane] = d
    last = np.uint64(length) << np.uint64(56)
    if tail:
        keep = _ALL_ONES >> np.uint64(64 - 8 * tail)
        here = start + 8 * words
        for lane in range(LANES):
            last_word = last | (load_word(data, here + lane * length) & keep)
            a, b, c, d = _absorb(v0[lane], v1[lane], v2[lane], v3[lane], last_word)
            out[lane] = _finish(a, b, c, d)
    else:
        for lane in range(LANES):
            a, b, c, d = _absorb(v0[lane], v1[lane], v2[lane], v3[lane], last)
            out[lane] = _finish(a, b, c, d)


@njit(cache=True, nogil=True)
def _hash_alike(
    offsets: NDArray[Any],
    data: NDArray[np.uint8],
    words: np.int64,
    key0: np.uint64,
    key1: np.uint64,
    state: NDArray[np.uint64],
    out: NDArray[np.uint64],
) -> None:
    """Hash ``LANES`` strings of ``words`` whole words each, with tails of any length."""
    v0 = state[0]
    v1 = state[1]
    v2 = state[2]
    v3 = state[3]
    for lane in range(LANES):
        v0[lane] = key0 ^ _INIT0
        v1[lane] = key1 ^ _INIT1
        v2[lane] = key0 ^ _INIT2
        v3[lane] = key1 ^ _INIT3
    for word in range(words):
        for lane in range(LANES):
            out[lane] = load_word(data, np.int64(offsets[lane]) + 8 * word)
        for lane in range(LANES):
            a, b, c, d = _absorb(v0[lane], v1[lane], v2[lane], v3[lane], out[lane])
            v0[lane] = a
            v1[lane] = b
            v2[lane] = c
            v3[lane] = d
    for lane in range(LANES):
        start = np.int64(offsets[lane])
        length = np.uint64(np.int64(offsets[lane + 1]) - start)
        keep = (np.uint64(1) << (np.uint64(8) * (length & np.uint64(7)))) - np.uint64(1)
        out[lane] = length << np.uint64(56) | load_word(data, start + 8 * words) & keep
    for lane in range(LANES):
        a, b, c, d = _absorb(v0[lane], v1[lane], v2[lane], v3[lane], out[lane])
        out[lane] = _finish(a, b, c, d)


@njit(cache=True, nogil=True)
def hash_block(
    offsets: NDArray[Any],
    data: NDArray[np.uint8],
    key0: np.uint64,
    key1: np.uint64,
    state: NDArray[np.uint64],
    out: NDArray[np.uint64],
) -> None:
    """Write the hashes of at most ``LANES`` strings; ``state`` is working memory of shape (4, LANES)."""
    start = np.int64(offsets[0])
    length = np.int64(offsets[1]) - start
    words = length >> 3
    tail = length & 7
    equal = alike = out.size == LANES
    for i in range(out.size):
        other = np.int64(offsets[i + 1]) - np.int64(offsets[i])
        equal &= other == length
        alike &= other >> 3 == words
    # A tail is read as a whole word, which must not reach past the buffer.
    if equal and (tail == 0 or np.int64(offsets[LANES]) - tail + 8 <= data.size):
        _hash_lanes(data, start, words, tail, key0, key1, state, out)
    elif alike and np.int64(offsets[LANES - 1]) + 8 * words + 8 <= data.size:
        _hash_alike(offsets, data, words, key0, key1, state, out)
    else:
        for i in range(out.size):
            start = np.int64(offsets[i])
            out[i] = hash_one(data, start, np.int64(offsets[i + 1]) - start, key0, key1)


@njit(cache=True, nogil=True)
def hash_all(
    offsets: NDArray[Any],
    data: NDArray[np.uint8],
    key0: np.uint64,
    key1: np.uint64,
    state: NDArray[np.uint64],
    out: NDArray[np.uint64],
) -> None:
    """Write the hash of string ``i`` to ``out[i]``; ``state`` is working memory of shape (4, LANES)."""
    for first in range(0, out.size, LANES):
        stop = min(first + LANES, out.size)
        hash_block(offsets[first : stop + 1], data, key0, key1, state, out[first:stop])


# The first loop has no exit, so that it becomes vector instructions; the second runs only to report a row.
@njit(cache=True, nogil=True)
def first_bad_offset(offsets: NDArray[Any], size: int) -> int:
    """Return the first string that does not lie within a buffer of ``size`` bytes, or -1."""
    good = offsets[0] >= 0 and offsets[offsets.size - 1] <= size
    for i in range(offsets.size - 1):
        good &= offsets[i] <= offsets[i + 1]
    if not good:
        for i in range(offsets.size - 1):
            if offsets[i] < 0 or offsets[i] > offsets[i + 1] or offsets[i + 1] > size:
                return i
        return 0
    return -1
