"""Names of a batch as bytes: count equal ones, pad them to one width, format integers.

Compiled because Python objects for names would stay in memory; these work in arrays that the caller wipes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.primitives.kernels.jit import njit
from panstream.primitives.kernels.machine_words import load_word

_A = np.uint64(0x9E3779B97F4A7C15)
_B = np.uint64(0xBF58476D1CE4E5B9)
_C = np.uint64(0x94D049BB133111EB)
_ONE = np.uint64(1)
_PROBES = 16  # slots searched for an equal name; a row that finds none updates the cells on its own


# Not keyed: it only chooses slots, and equal names are compared byte by byte.
@njit(cache=True, nogil=True)
def hash_of_name(data: NDArray[np.uint8], start: int, stop: int) -> np.uint64:
    """Return a hash of a name; its last eight bytes are read as one word, even if that overlaps the word before."""
    mixed = np.uint64(stop - start) * _C + _ONE
    if stop - start < 8:
        rest = np.uint64(0)
        for pos in range(start, stop):
            rest = (rest << np.uint64(8)) | np.uint64(data[pos])
    else:
        pos = start
        while pos + 8 < stop:
            mixed = (mixed ^ load_word(data, pos)) * _A
            mixed ^= mixed >> np.uint64(31)
            pos += 8
        rest = load_word(data, stop - 8)
    mixed = (mixed ^ rest) * _B
    return mixed ^ (mixed >> np.uint64(29))


@njit(cache=True, nogil=True)
def _equal(data: NDArray[np.uint8], one: int, two: int, size: int) -> bool:
    pos = 0
    while pos + 8 <= size:
        if load_word(data, one + pos) != load_word(data, two + pos):
            return False
        pos += 8
    if pos and pos < size:
        last = size - 8
        return bool(load_word(data, one + last) == load_word(data, two + last))
    while pos < size:
        if data[one + pos] != data[two + pos]:
            return False
        pos += 1
    return True


@njit(cache=True, nogil=True)
def count_names(
    offsets: NDArray[Any],
    data: NDArray[np.uint8],
    slots: NDArray[np.int32],
    hashes: NDArray[np.uint64],
    firsts: NDArray[np.int32],
    counts: NDArray[np.int32],
) -> int:
    """Write the first row and the count of every name; return how many. ``slots`` has a power of two of -1.

    Bytes are compared and not hashes only: if two names could be counted as one, one row would change the name under
    which other rows count, and the sensitivity to a row would no longer be one event.
    """
    count = 0
    mask = np.uint64(slots.size - 1)
    stop = offsets[0]
    for i in range(offsets.size - 1):
        start = stop
        stop = offsets[i + 1]
        mixed = hash_of_name(data, start, stop)
        slot = np.int64(mixed & mask)
        entry = -1
        for _ in range(_PROBES):
            other = slots[slot]
            if other < 0:
                slots[slot] = count
                break
            if hashes[other] == mixed:
                first = firsts[other]
                size = offsets[first + 1] - offsets[first]
                if size == stop - start and _equal(data, offsets[first], start, size):
                    entry = other
                    break
            slot = np.int64((np.uint64(slot) + _ONE) & mask)
        if entry >= 0:
            counts[entry] += 1
        else:
            firsts[count] = i
            counts[count] = 1
            hashes[count] = mixed
            count += 1
    return count


@njit(cache=True, nogil=True)
def count_codes(codes: NDArray[Any], counts: NDArray[np.int32]) -> None:
    """Add the number of occurrences of every code to ``counts``."""
    for i in range(codes.size):
        counts[codes[i]] += 1


@njit(cache=True, nogil=True)
def keep_used(counts: NDArray[np.int32], entries: NDArray[np.int32]) -> int:
    """Write the indices of non-zero counts to ``entries``, move those counts to the front, and return their number."""
    count = 0
    for i in range(counts.size):
        if counts[i]:
            entries[count] = i
            counts[count] = counts[i]
            count += 1
    return count


@njit(cache=True, nogil=True)
def pad_names(
    offsets: NDArray[Any],
    data: NDArray[np.uint8],
    firsts: NDArray[np.int32],
    sizes: NDArray[np.uint16],
    text: NDArray[np.uint8],
) -> None:
    """Copy names into the rows of ``text``, truncated to its width, and write their sizes in bytes."""
    for i in range(firsts.size):
        start = offsets[firsts[i]]
        size = min(offsets[firsts[i] + 1] - start, text.shape[1])
        sizes[i] = size
        for pos in range(size):
            text[i, pos] = data[start + pos]


@njit(cache=True, nogil=True)
def find_padded(chosen: NDArray[np.int64], sizes: NDArray[np.uint16], width: int, offsets: NDArray[np.int64]) -> None:
    """Write start and end of the names in the chosen rows of a text with ``width`` bytes per row."""
    for i in range(chosen.size):
        offsets[2 * i] = chosen[i] * width
        offsets[2 * i + 1] = chosen[i] * width + sizes[chosen[i]]


# Not ``str``: a Python string of every id would stay in memory.
@njit(cache=True, nogil=True)
def format_integers(values: NDArray[np.int64], offsets: NDArray[np.int64], data: NDArray[np.uint8]) -> None:
    """Write integers in decimal, one after the other; 20 bytes each are enough."""
    pos = 0
    offsets[0] = 0
    for i in range(values.size):
        size = np.uint64(values[i])
        if values[i] < 0:
            data[pos] = 45
            pos += 1
            size = np.uint64(0) - size
        digits = 1
        rest = size
        while rest >= np.uint64(10):
            rest //= np.uint64(10)
            digits += 1
        for digit_pos in range(pos + digits - 1, pos - 1, -1):
            data[digit_pos] = 48 + np.uint8(size % np.uint64(10))
            size //= np.uint64(10)
        pos += digits
        offsets[i + 1] = pos
