"""Multiply and fold: a keyed hash of many strings that lie one after the other in one buffer.

A string is read as pairs of words, 16 bytes each, the last one padded with zeros. Short strings of equal length need
no offsets, and where registers are wide several are hashed at once; others are hashed one by one. Compiled because the
product of two words has 128 bits, which NumPy does not have. No byte past ``data`` is read.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.primitives.kernels.hashing import simd_lanes as lanes
from panstream.primitives.kernels.jit import njit
from panstream.primitives.kernels.machine_words import load_word, product

LANES = 2048
"""Strings per block: their hashes fit the first-level cache."""

PAIRS = 32
"""Pairs that are summed before they are folded: strings of up to 512 bytes take one fold."""

_PAIR = 16
_NOTHING = np.uint64(0)
_BYTE_MASKS = np.array([(1 << 8 * max(0, min(length - 8, 8))) - 1 for length in range(25)], np.uint64)


@njit(cache=True, nogil=True, forceinline=True)
def _masks(length: Any) -> Any:
    """Return masks of the bytes that a string of 0 to 16 bytes has in two words.

    They are looked up: shifts by a computed length would make every string wait for the one before.
    """
    return _BYTE_MASKS[np.uint64(length + 8)], _BYTE_MASKS[np.uint64(length)]


@njit(cache=True, nogil=True, forceinline=True)
def _add(low: np.uint64, high: np.uint64, left: np.uint64, right: np.uint64) -> Any:
    more, upper = product(left, right)
    more += low
    return more, upper + high + np.uint64(more < low)


@njit(cache=True, nogil=True, forceinline=True)
def _fold(low: np.uint64, high: np.uint64, key0: np.uint64, key1: np.uint64) -> Any:
    high ^= (low << np.uint64(32)) | (low >> np.uint64(32))  # so that both factors change with every bit
    first, second = product(low + key0, high + key1)
    return first ^ second


@njit(cache=True, nogil=True, forceinline=True)
def _last(data: NDArray[np.uint8], start: Any, length: Any) -> Any:
    """Return the last pair, 0 to 16 bytes; all 16 must be readable."""
    first, second = _masks(length)
    return load_word(data, start) & first, load_word(data, start + 8) & second


@njit(cache=True, nogil=True)
def _word(data: NDArray[np.uint8], start: Any, length: Any) -> Any:
    word = _NOTHING
    for i in range(length):
        word |= np.uint64(data[start + i]) << np.uint64(8 * i)
    return word


@njit(cache=True, nogil=True)
def _hash_any(data: NDArray[np.uint8], start: Any, length: Any, keys: NDArray[np.uint64]) -> Any:
    """Hash a string of any length at any position; no byte past its end is read."""
    low = np.uint64(length)
    high = _NOTHING
    pair = 0
    while length > _PAIR:
        first = load_word(data, start) + keys[2 * pair]
        second = load_word(data, start + 8) + keys[2 * pair + 1]
        low, high = _add(low, high, first, second)
        start = start + _PAIR
        length = length - _PAIR
        pair = pair + 1
        if pair == PAIRS:
            high = _fold(low, high, keys[2 * PAIRS], keys[2 * PAIRS + 1])
            low = np.uint64(length)
            pair = 0
    first = _word(data, start, min(length, 8))
    second = _word(data, start + 8, max(length - 8, 0))
    low, high = _add(low, high, first + keys[2 * pair], second + keys[2 * pair + 1])
    return _fold(low, high, keys[2 * PAIRS], keys[2 * PAIRS + 1])


@njit(cache=True, nogil=True, forceinline=True)
def short_keys(length: Any, keys: NDArray[np.uint64]) -> Any:
    """Return the masks of the two words of a string of at most 16 bytes, and the keys of product and fold."""
    return _masks(length), (keys[0], keys[1], keys[2 * PAIRS], keys[2 * PAIRS + 1])


# All strings have the same masks and keys, which stay in registers.
@njit(cache=True, nogil=True)
def _hash_equal(
    data: NDArray[np.uint8], start: Any, length: Any, keys: NDArray[np.uint64], out: NDArray[np.uint64]
) -> None:
    """Hash strings of the same length, at most 16 bytes, that follow one another from ``start``."""
    keep, few = short_keys(length, keys)
    size = np.uint64(length)
    done = 0
    if lanes.wide():
        done = out.size // lanes.LANES * lanes.LANES
        for i in range(0, done, lanes.LANES):
            lanes.fold_lanes(data, start + i * length, length, keep, few, out, i)
    for i in range(done, out.size):
        pos = start + i * length
        first = load_word(data, pos) & keep[0]
        second = load_word(data, pos + 8) & keep[1]
        low, high = _add(size, _NOTHING, first + few[0], second + few[1])
        out[i] = _fold(low, high, few[2], few[3])


@njit(cache=True, nogil=True)
def _hash_mixed(
    offsets: NDArray[Any], data: NDArray[np.uint8], keys: NDArray[np.uint64], out: NDArray[np.uint64]
) -> None:
    """Hash strings of any lengths; up to three pairs (48 bytes) without a loop, since most ids are that short."""
    key0 = keys[0]
    key1 = keys[1]
    key2 = keys[2 * PAIRS]
    key3 = keys[2 * PAIRS + 1]
    key4 = keys[2]
    key5 = keys[3]
    key6 = keys[4]
    key7 = keys[5]
    start = np.int64(offsets[0])
    safe = data.size - 3 * _PAIR
    for i in range(out.size):
        stop = np.int64(offsets[i + 1])
        length = stop - start
        if length > 3 * _PAIR or start > safe:
            out[i] = _hash_any(data, start, length, keys)
        else:
            low = np.uint64(length)
            high = _NOTHING
            if length <= _PAIR:
                first, second = _last(data, start, length)
                low, high = _add(low, high, first + key0, second + key1)
            else:
                low, high = _add(low, high, load_word(data, start) + key0, load_word(data, start + 8) + key1)
                if length <= 2 * _PAIR:
                    first, second = _last(data, start + _PAIR, length - _PAIR)
                    low, high = _add(low, high, first + key4, second + key5)
                else:
                    first = load_word(data, start + _PAIR)
                    second = load_word(data, start + _PAIR + 8)
                    low, high = _add(low, high, first + key4, second + key5)
                    first, second = _last(data, start + 2 * _PAIR, length - 2 * _PAIR)
                    low, high = _add(low, high, first + key6, second + key7)
            out[i] = _fold(low, high, key2, key3)
        start = stop


@njit(cache=True, nogil=True)
def short_length(offsets: NDArray[Any], size: int) -> Any:
    """Return the strings' length if all have the same, at most 16, else -1.

    Offsets may be any numbers: all strings lie within ``size`` bytes unless -1 is returned.
    """
    count = offsets.size - 1
    if count == 0:
        return np.int64(-1)
    length = np.int64(offsets[1]) - np.int64(offsets[0])
    equal = 0 <= length <= _PAIR and 0 <= offsets[0] <= size and offsets[count] <= size
    for i in range(count):
        equal &= np.int64(offsets[i + 1]) - np.int64(offsets[i]) == length
    return length if equal else np.int64(-1)


@njit(cache=True, nogil=True)
def readable(offsets: NDArray[Any], length: Any, size: int) -> int:
    """Return how many strings of this length start at least 16 bytes before the end of the buffer."""
    count = offsets.size - 1
    headroom = size - _PAIR - np.int64(offsets[0])
    if length < 0 or headroom < 0:
        return 0
    return min(count, headroom // length + 1) if length else count


# The last strings may end less than 16 bytes before the end of the data; `_hash_mixed` reads those byte by byte.
@njit(cache=True, nogil=True)
def fold_block(
    offsets: NDArray[Any], data: NDArray[np.uint8], length: Any, keys: NDArray[np.uint64], out: NDArray[np.uint64]
) -> None:
    """Write the hash of string ``i`` to ``out[i]``; ``length`` is the result of `short_length` for all strings."""
    equal = readable(offsets, length, data.size)
    if equal:
        _hash_equal(data, np.int64(offsets[0]), length, keys, out[:equal])
    if equal < out.size:
        _hash_mixed(offsets[equal:], data, keys, out[equal:])


@njit(cache=True, nogil=True)
def fold_all(offsets: NDArray[Any], data: NDArray[np.uint8], keys: NDArray[np.uint64], out: NDArray[np.uint64]) -> None:
    """Write the hash of string ``i`` to ``out[i]``."""
    fold_block(offsets, data, short_length(offsets, data.size), keys, out)
