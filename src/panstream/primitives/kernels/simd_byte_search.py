"""Compare 32 or 64 bytes at once: the result has a bit for each, the first byte's being the lowest.

These are plain vector operations, which LLVM translates for every processor; numba would compare byte by byte. Nothing
past the end of an array is read: the last bytes are compared one by one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.primitives.kernels.jit import instruction, njit, part
from panstream.primitives.kernels.machine_words import ones, trailing_zeros

_CODE = "panstream.primitives.kernels.byte_vector_instructions"
_LOW = np.uint64(0xFFFFFFFF)
_NONE = np.uint64(0)

Bytes = NDArray[np.uint8]

equal_32: Any = instruction(_CODE, "equal_32")
equal_64: Any = instruction(_CODE, "equal_64")
between_32: Any = instruction(_CODE, "between_32")
same_32: Any = instruction(_CODE, "same_32")


# The loop over single bytes runs only near the end of the array, past which a vector must not read.
@part
def find_byte(data: Bytes, pos: int, end: int, byte: int) -> Any:
    """Return the first position of a byte in ``data[pos:end]``, or ``end``."""
    while pos < end and pos + 64 <= data.size:
        hits = equal_64(data, pos, byte)
        if hits != _NONE:
            return min(pos + np.int64(trailing_zeros(hits)), end)
        pos += 64
    while pos < end and data[pos] != byte:
        pos += 1
    return min(pos, end)


# Vectors only up to ``end``: bytes after it belong to a record that is not complete yet.
@njit(cache=True, nogil=True)
def count_byte(data: Bytes, end: int, byte: int) -> Any:
    """Count the occurrences of a byte in ``data[:end]``."""
    pos: Any = 0
    count: Any = 0
    while pos + 64 <= end:
        count += np.int64(ones(equal_64(data, pos, byte)))
        pos += 64
    while pos < end:
        count += data[pos] == byte
        pos += 1
    return count


@part
def end_of_digits(data: Bytes, pos: int, end: int) -> Any:
    """Return the position after the decimal digits that start at ``pos``."""
    while pos < end and pos + 32 <= data.size:
        others = ~between_32(data, pos, 0x30, 0x39) & _LOW
        if others != _NONE:
            return min(pos + np.int64(trailing_zeros(others)), end)
        pos += 32
    while pos < end and 0x30 <= data[pos] <= 0x39:
        pos += 1
    return min(pos, end)


@part
def end_of_letters(data: Bytes, pos: int, end: int) -> Any:
    """Return the first position of a quote, backslash or control character in ``data[pos:end]``, or ``end``."""
    while pos < end and pos + 32 <= data.size:
        hits = equal_32(data, pos, 0x22) | equal_32(data, pos, 0x5C) | between_32(data, pos, 0x00, 0x1F)
        if hits != _NONE:
            return min(pos + np.int64(trailing_zeros(hits)), end)
        pos += 32
    while pos < end and data[pos] != 0x22 and data[pos] != 0x5C and data[pos] >= 0x20:
        pos += 1
    return min(pos, end)


@part
def is_repeated(data: Bytes, one: int, other: int, size: int) -> Any:
    """Return whether the ``size`` bytes at two positions are equal; both ranges must lie within ``data``."""
    while size > 0 and max(one, other) + 32 <= data.size:
        differing = ~same_32(data, one, other) & _LOW
        if size < 32:
            differing &= (np.uint64(1) << np.uint64(size)) - np.uint64(1)
        if differing != _NONE:
            return False
        one = one + 32
        other = other + 32
        size = size - 32
    i = 0
    while i < size and data[one + i] == data[other + i]:
        i += 1
    return i >= size
