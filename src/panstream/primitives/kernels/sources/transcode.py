"""Text in other encodings to UTF-8. What is no letter becomes a byte that UTF-8 does not have: its row is then bad."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from panstream.primitives.kernels.sources.text_values import is_utf8

INVALID = 0xFF
LONGEST = 3  # bytes of UTF-8 for a byte of another encoding, at most


@njit(cache=True, nogil=True)
def expand_bytes(data: NDArray[np.uint8], table: NDArray[np.uint8], out: NDArray[np.uint8]) -> int:
    """Write UTF-8 for text of one byte a letter; ``table`` has a length and up to three bytes for each of 256. Return
    how many bytes were written.
    """
    written = 0
    for byte in data:
        for i in range(1, table[byte, 0] + 1):
            out[written] = table[byte, i]
            written += 1
    return written


@njit(cache=True, nogil=True)
def expand_utf16(data: NDArray[np.uint8], big_endian: bool, out: NDArray[np.uint8]) -> Any:
    """Write UTF-8 for UTF-16; return how many bytes were read and written. A letter that is not there in full is left,
    and takes up to three bytes.
    """
    low = 1 if big_endian else 0
    pos = 0
    written = 0
    while pos + 2 <= data.size:
        unit = np.int64(data[pos + low]) | np.int64(data[pos + 1 - low]) << 8
        size = 2
        if 0xD800 <= unit < 0xDC00:
            if pos + 4 > data.size:
                break
            second = np.int64(data[pos + 2 + low]) | np.int64(data[pos + 3 - low]) << 8
            if 0xDC00 <= second < 0xE000:
                unit = 0x10000 + ((unit - 0xD800) << 10) + (second - 0xDC00)
                size = 4
        pos += size
        if unit < 0x80:
            out[written] = unit
            written += 1
        elif 0xD800 <= unit < 0xE000:
            out[written] = INVALID
            written += 1
        elif unit < 0x800:
            out[written] = 0xC0 | unit >> 6
            out[written + 1] = 0x80 | unit & 0x3F
            written += 2
        elif unit < 0x10000:
            out[written] = 0xE0 | unit >> 12
            out[written + 1] = 0x80 | unit >> 6 & 0x3F
            out[written + 2] = 0x80 | unit & 0x3F
            written += 3
        else:
            out[written] = 0xF0 | unit >> 18
            out[written + 1] = 0x80 | unit >> 12 & 0x3F
            out[written + 2] = 0x80 | unit >> 6 & 0x3F
            out[written + 3] = 0x80 | unit & 0x3F
            written += 4
    return pos, written


@njit(cache=True, nogil=True)
def count_letters(data: NDArray[np.uint8]) -> Any:
    """Return how many letters beyond ASCII are UTF-8, and how many bytes beyond ASCII belong to none."""
    pos = 0
    letters = 0
    strays = 0
    while pos < data.size:
        byte = data[pos]
        more = 0 if byte < 0xC2 or byte > 0xF4 else 1 if byte < 0xE0 else 2 if byte < 0xF0 else 3
        if byte < 0x80:
            pos += 1
        elif more and pos + more < data.size and is_utf8(data, pos, pos + more + 1):
            letters += 1
            pos += more + 1
        else:
            strays += 1
            pos += 1
    return letters, strays
