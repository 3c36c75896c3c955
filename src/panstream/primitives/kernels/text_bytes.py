"""Characters and digits of text: UTF-8 of a code point, value of a hexadecimal digit.

Compiled as a part of the parsers, so that text is converted without Python strings.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.primitives.kernels.jit import njit, part


# Inlined by numba, not by LLVM: transcoding is a third faster so.
@njit(cache=True, nogil=True, inline="always")
def write_utf8(code: Any, out: NDArray[np.uint8], pos: Any) -> Any:
    """Write the UTF-8 of a code point below 2**21 to ``out[pos:]``, one to four bytes; return where it ends."""
    if code < 0x80:
        out[pos] = code
        return pos + 1
    if code < 0x800:
        out[pos] = 0xC0 | (code >> 6)
        out[pos + 1] = 0x80 | (code & 0x3F)
        return pos + 2
    if code < 0x10000:
        out[pos] = 0xE0 | (code >> 12)
        out[pos + 1] = 0x80 | ((code >> 6) & 0x3F)
        out[pos + 2] = 0x80 | (code & 0x3F)
        return pos + 3
    out[pos] = 0xF0 | (code >> 18)
    out[pos + 1] = 0x80 | ((code >> 12) & 0x3F)
    out[pos + 2] = 0x80 | ((code >> 6) & 0x3F)
    out[pos + 3] = 0x80 | (code & 0x3F)
    return pos + 4


@part
def hex_digit(byte: Any) -> Any:
    """Return the value of a hexadecimal digit in either case, or -1."""
    if 0x30 <= byte <= 0x39:
        return np.int64(byte) - 0x30
    lower = np.int64(byte) | 0x20
    return lower - 0x57 if 0x61 <= lower <= 0x66 else np.int64(-1)
