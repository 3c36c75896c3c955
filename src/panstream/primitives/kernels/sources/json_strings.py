"""Strings of JSON: find their end, and write them without escapes.

Compiled as a part of the scanners. `end_of_string` validates all that `write_letters` relies on.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.primitives.kernels.jit import part, rare_part
from panstream.primitives.kernels.simd_byte_search import end_of_letters
from panstream.primitives.kernels.text_bytes import hex_digit, write_utf8

_BAD = -1
_ESCAPES = np.arange(256, dtype=np.uint8)  # the byte that a backslash and a letter stand for: itself, or a control
_ESCAPES[[0x62, 0x66, 0x6E, 0x72, 0x74]] = [0x08, 0x0C, 0x0A, 0x0D, 0x09]

Bytes = NDArray[np.uint8]


@rare_part
def _hex(data: Bytes, pos: int, end: int) -> Any:
    """Return the number of four hexadecimal digits, or -1."""
    if pos + 4 > end:
        return _BAD
    value: Any = np.int64(0)
    for i in range(pos, pos + 4):
        digit = hex_digit(data[i])
        if digit < 0:
            return _BAD
        value = 16 * value + digit
    return value


@part
def end_of_string(data: Bytes, pos: int, end: int) -> tuple[Any, Any]:
    """Return the closing quote of the string whose first letter is at ``pos``, or -1, and whether it has escapes."""
    escaped = False
    while True:
        pos = end_of_letters(data, pos, end)
        if pos >= end or data[pos] < 0x20:
            return _BAD, escaped
        if data[pos] == 0x22:
            return pos, escaped
        escaped = True
        if pos + 1 >= end:
            return _BAD, escaped
        c = data[pos + 1]
        pos += 2
        if c == 0x75:
            code = _hex(data, pos, end)
            pos += 4
            if code < 0 or 0xDC00 <= code < 0xE000:
                return _BAD, escaped
            if 0xD800 <= code < 0xDC00:
                if pos + 2 > end or data[pos] != 0x5C or data[pos + 1] != 0x75:
                    return _BAD, escaped
                low = _hex(data, pos + 2, end)
                if not 0xDC00 <= low < 0xE000:
                    return _BAD, escaped
                pos += 6
        elif c not in (0x22, 0x5C, 0x2F, 0x62, 0x66, 0x6E, 0x72, 0x74):
            return _BAD, escaped


@rare_part
def write_letters(data: Bytes, pos: int, stop: int, out: Bytes, to: int) -> Any:
    """Write a validated string without its escapes; return the end of the copy."""
    while pos < stop:
        c = data[pos]
        if c != 0x5C:
            out[to] = c
            to += 1
            pos += 1
            continue
        c = data[pos + 1]
        pos += 2
        if c != 0x75:
            out[to] = _ESCAPES[c]
            to += 1
            continue
        code = _hex(data, pos, stop)
        pos += 4
        if 0xD800 <= code < 0xDC00:
            code = 0x10000 + ((code - 0xD800) << 10) + (_hex(data, pos + 2, stop) - 0xDC00)
            pos += 6
        to = write_utf8(code, out, to)
    return to
