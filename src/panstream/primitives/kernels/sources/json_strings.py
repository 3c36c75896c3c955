"""Strings of JSON: where they end, and what they are without their escapes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.primitives.kernels.jit import part, rare_part
from panstream.primitives.kernels.simd_byte_search import end_of_letters

_BAD = -1

Bytes = NDArray[np.uint8]


@rare_part
def _hex(data: Bytes, pos: int, end: int) -> Any:
    """Return the number of four hexadecimal digits, or -1."""
    if pos + 4 > end:
        return _BAD
    value: Any = 0
    for i in range(pos, pos + 4):
        c = data[i]
        if 0x30 <= c <= 0x39:
            digit = c - 0x30
        elif 0x41 <= c <= 0x46:
            digit = c - 0x37
        elif 0x61 <= c <= 0x66:
            digit = c - 0x57
        else:
            return _BAD
        value = 16 * value + np.int64(digit)
    return value


@part
def end_of_string(data: Bytes, pos: int, end: int) -> tuple[Any, Any]:
    """Return where the string whose first letter is at ``pos`` has its closing quote, or -1; and whether it has
    escapes.
    """
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
    """Write a checked string without its escapes; return where the copy ends."""
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
            out[to] = (
                0x08
                if c == 0x62
                else 0x0C
                if c == 0x66
                else 0x0A
                if c == 0x6E
                else 0x0D
                if c == 0x72
                else 0x09
                if c == 0x74
                else c
            )
            to += 1
            continue
        code = _hex(data, pos, stop)
        pos += 4
        if 0xD800 <= code < 0xDC00:
            code = 0x10000 + ((code - 0xD800) << 10) + (_hex(data, pos + 2, stop) - 0xDC00)
            pos += 6
        if code < 0x80:
            out[to] = code
            to += 1
        elif code < 0x800:
            out[to] = 0xC0 | (code >> 6)
            out[to + 1] = 0x80 | (code & 0x3F)
            to += 2
        elif code < 0x10000:
            out[to] = 0xE0 | (code >> 12)
            out[to + 1] = 0x80 | ((code >> 6) & 0x3F)
            out[to + 2] = 0x80 | (code & 0x3F)
            to += 3
        else:
            out[to] = 0xF0 | (code >> 18)
            out[to + 1] = 0x80 | ((code >> 12) & 0x3F)
            out[to + 2] = 0x80 | ((code >> 6) & 0x3F)
            out[to + 3] = 0x80 | (code & 0x3F)
            to += 4
    return to
