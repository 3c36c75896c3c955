"""Text in other encodings to UTF-8, without Python strings, which are never wiped.

An invalid character becomes ``INVALID``, a byte that UTF-8 does not have, so that its row is found invalid later.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.primitives.kernels.jit import njit
from panstream.primitives.kernels.sources.text_values import is_utf8
from panstream.primitives.kernels.text_bytes import write_utf8

INVALID = 0xFF
LONGEST = 3  # bytes of UTF-8 for a byte of another encoding, at most


@njit(cache=True, nogil=True)
def expand_bytes(data: NDArray[np.uint8], table: NDArray[np.uint8], out: NDArray[np.uint8]) -> int:
    """Write text of one byte per character as UTF-8; return how many bytes were written.

    ``table`` has a length and up to three bytes for each of the 256 bytes.
    """
    written = 0
    for byte in data:
        for i in range(1, table[byte, 0] + 1):
            out[written] = table[byte, i]
            written += 1
    return written


@njit(cache=True, nogil=True)
def expand_utf16(data: NDArray[np.uint8], big_endian: bool, out: NDArray[np.uint8]) -> Any:
    """Write UTF-16 as UTF-8; return how many bytes were read and written.

    An incomplete character at the end, of up to three bytes, is not read.
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
        if unit < 0x80 or 0xD800 <= unit < 0xE000:
            out[written] = unit if unit < 0x80 else INVALID
            written += 1
        else:
            written = write_utf8(unit, out, written)
    return pos, written


@njit(cache=True, nogil=True)
def count_letters(data: NDArray[np.uint8]) -> Any:
    """Count the valid UTF-8 characters beyond ASCII, and the bytes beyond ASCII that belong to none."""
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
