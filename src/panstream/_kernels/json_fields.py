"""Values of JSON lines, found in one pass: every line is checked from end to end, and only declared keys are noted."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from panstream._kernels.pages import copy_item

# What stands for a key: nothing or null, ...; TWICE means that the key is there more than once.
ABSENT, STRING, ESCAPED, NUMBER, TRUE, FALSE, NESTED, TWICE = 0, 1, 2, 3, 4, 5, 6, 7
DEPTH = 1 << 12  # of values within values; deeper ones are not read
_BAD = -1
_TRUE, _FALSE, _NULL, _NAN, _INFINITY, _INF = 0, 1, 2, 3, 4, 5
_WORDS = np.array([list(word.ljust(8)) for word in (b"true", b"false", b"null", b"NaN", b"Infinity", b"Inf")], np.uint8)
_SIZES = np.array([4, 5, 4, 3, 8, 3])

Bytes = NDArray[np.uint8]


@njit(cache=True, nogil=True)
def skip_blanks(data: Bytes, at: int, end: int) -> Any:
    while at < end and (data[at] == 0x20 or data[at] == 0x09 or data[at] == 0x0D):
        at += 1
    return at


@njit(cache=True, nogil=True)
def _hex(data: Bytes, at: int, end: int) -> Any:
    """Return the number of four hexadecimal digits, or -1."""
    if at + 4 > end:
        return _BAD
    value: Any = 0
    for i in range(at, at + 4):
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


@njit(cache=True, nogil=True)
def end_of_string(data: Bytes, at: int, end: int) -> tuple[Any, Any]:
    """Return where the string whose first letter is at ``at`` has its closing quote, or -1; and whether it has
    escapes.
    """
    escaped = False
    while at < end:
        c = data[at]
        if c == 0x22:
            return at, escaped
        if c < 0x20:
            return _BAD, escaped
        if c != 0x5C:
            at += 1
            continue
        escaped = True
        if at + 1 >= end:
            return _BAD, escaped
        c = data[at + 1]
        at += 2
        if c == 0x75:
            code = _hex(data, at, end)
            at += 4
            if code < 0 or 0xDC00 <= code < 0xE000:
                return _BAD, escaped
            if 0xD800 <= code < 0xDC00:
                if at + 2 > end or data[at] != 0x5C or data[at + 1] != 0x75:
                    return _BAD, escaped
                low = _hex(data, at + 2, end)
                if not 0xDC00 <= low < 0xE000:
                    return _BAD, escaped
                at += 6
        elif c not in (0x22, 0x5C, 0x2F, 0x62, 0x66, 0x6E, 0x72, 0x74):
            return _BAD, escaped
    return _BAD, escaped


@njit(cache=True, nogil=True)
def _digits(data: Bytes, at: int, end: int) -> Any:
    while at < end and 0x30 <= data[at] <= 0x39:
        at += 1
    return at


@njit(cache=True, nogil=True)
def _word(data: Bytes, at: int, end: int, word: int) -> Any:
    """Return where a word ends that stands at ``at``, or -1."""
    size = _SIZES[word]
    if at + size > end:
        return _BAD
    for i in range(size):
        if data[at + i] != _WORDS[word, i]:
            return _BAD
    return at + size


@njit(cache=True, nogil=True)
def _number(data: Bytes, at: int, end: int) -> Any:
    """Return where a number ends, or -1; infinity and NaN are among them, as pyarrow has it."""
    if at < end and data[at] == 0x2D:
        at += 1
    if at >= end:
        return _BAD
    if data[at] == 0x49 or data[at] == 0x4E:
        for word in (_NAN, _INFINITY, _INF):
            named = _word(data, at, end, word)
            if named >= 0:
                return named
    stop = _digits(data, at, end)
    if stop == at or (data[at] == 0x30 and stop > at + 1):
        return _BAD
    at = stop
    if at < end and data[at] == 0x2E:
        stop = _digits(data, at + 1, end)
        if stop == at + 1:
            return _BAD
        at = stop
    if at < end and (data[at] == 0x65 or data[at] == 0x45):
        at += 1
        if at < end and (data[at] == 0x2B or data[at] == 0x2D):
            at += 1
        stop = _digits(data, at, end)
        if stop == at:
            return _BAD
        at = stop
    return at


@njit(cache=True, nogil=True)
def _scalar(data: Bytes, at: int, end: int) -> tuple[Any, Any]:
    """Return where the simple value at ``at`` ends (a string behind its quote), or -1; and what it is."""
    c = data[at]
    if c == 0x22:
        close, escaped = end_of_string(data, at + 1, end)
        return (_BAD if close < 0 else close + 1), (ESCAPED if escaped else STRING)
    if c == 0x74:
        return _word(data, at, end, _TRUE), TRUE
    if c == 0x66:
        return _word(data, at, end, _FALSE), FALSE
    if c == 0x6E:
        return _word(data, at, end, _NULL), ABSENT
    return _number(data, at, end), NUMBER


@njit(cache=True, nogil=True)
def _key(data: Bytes, at: int, end: int) -> tuple[Any, Any]:
    """Return where the value begins behind a key whose quote is at ``at``, or -1; and where the key's closing quote
    is.
    """
    if at >= end or data[at] != 0x22:
        return _BAD, _BAD
    close, _ = end_of_string(data, at + 1, end)
    if close < 0:
        return _BAD, _BAD
    colon = skip_blanks(data, close + 1, end)
    if colon >= end or data[colon] != 0x3A:
        return _BAD, _BAD
    value = skip_blanks(data, colon + 1, end)
    return (value if value < end else _BAD), close


@njit(cache=True, nogil=True)
def _nested(data: Bytes, at: int, end: int, stack: Bytes) -> Any:
    """Return where the object or array that begins at ``at`` ends, or -1."""
    depth = 0
    while True:
        # At a value.
        if data[at] == 0x7B or data[at] == 0x5B:
            if depth == stack.size:
                return _BAD
            opened = data[at]
            stack[depth] = opened
            depth += 1
            at = skip_blanks(data, at + 1, end)
            if at >= end:
                return _BAD
            if data[at] != opened + 2:  # not empty
                if opened == 0x7B:
                    at, _ = _key(data, at, end)
                    if at < 0:
                        return _BAD
                continue
            at += 1
            depth -= 1
        else:
            at, _ = _scalar(data, at, end)
            if at < 0:
                return _BAD
        # Behind a value: close what ends here.
        while depth:
            at = skip_blanks(data, at, end)
            if at >= end:
                return _BAD
            if data[at] != stack[depth - 1] + 2:
                break
            at += 1
            depth -= 1
        if not depth:
            return at
        if data[at] != 0x2C:
            return _BAD
        at = skip_blanks(data, at + 1, end)
        if stack[depth - 1] == 0x7B:
            at, _ = _key(data, at, end)
            if at < 0:
                return _BAD
        elif at >= end:
            return _BAD


@njit(cache=True, nogil=True)
def _write(data: Bytes, at: int, stop: int, out: Bytes, to: int) -> Any:
    """Write a checked string without its escapes; return where the copy ends."""
    while at < stop:
        c = data[at]
        if c != 0x5C:
            out[to] = c
            to += 1
            at += 1
            continue
        c = data[at + 1]
        at += 2
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
        code = _hex(data, at, stop)
        at += 4
        if 0xD800 <= code < 0xDC00:
            code = 0x10000 + ((code - 0xD800) << 10) + (_hex(data, at + 2, stop) - 0xDC00)
            at += 6
        if code < 0x80:
            out[to] = code
            to += 1
        elif code < 0x800:
            out[to], out[to + 1] = 0xC0 | (code >> 6), 0x80 | (code & 0x3F)
            to += 2
        elif code < 0x10000:
            out[to], out[to + 1], out[to + 2] = 0xE0 | (code >> 12), 0x80 | ((code >> 6) & 0x3F), 0x80 | (code & 0x3F)
            to += 3
        else:
            out[to], out[to + 1] = 0xF0 | (code >> 18), 0x80 | ((code >> 12) & 0x3F)
            out[to + 2], out[to + 3] = 0x80 | ((code >> 6) & 0x3F), 0x80 | (code & 0x3F)
            to += 4
    return to


@njit(cache=True, nogil=True)
def _named(data: Bytes, at: int, size: int, names: Bytes, edges: NDArray[np.int64]) -> Any:
    """Return which name stands at ``at``, or -1."""
    for name in range(edges.size - 1):
        if edges[name + 1] - edges[name] == size:
            i = 0
            while i < size and names[edges[name] + i] == data[at + i]:
                i += 1
            if i == size:
                return name
    return _BAD


@njit(cache=True, nogil=True)
def _column(data: Bytes, at: int, stop: int, names: Bytes, edges: NDArray[np.int64], room: Bytes) -> Any:
    """Return which declared name the key ``data[at:stop]`` is, or -1."""
    for i in range(at, stop):
        if data[i] == 0x5C:
            # Six bytes a letter at most: a longer one is no name.
            return _BAD if stop - at > room.size else _named(room, 0, _write(data, at, stop, room, 0), names, edges)
    return _named(data, at, stop - at, names, edges)


@njit(cache=True, nogil=True)
def scan_object(
    data: Bytes, at: int, end: int, row: int, names: Bytes, edges: NDArray[np.int64], stack: Bytes, room: Bytes,
    starts: NDArray[np.int64], stops: NDArray[np.int64], kinds: Bytes, seen: Bytes,
) -> Any:  # fmt: skip
    """Note the values of the object at ``at``; return whether the line is one object and nothing else."""
    if data[at] != 0x7B:
        return False
    at = skip_blanks(data, at + 1, end)
    if at < end and data[at] == 0x7D:
        return skip_blanks(data, at + 1, end) == end
    while True:
        quote = at
        at, close = _key(data, at, end)
        if at < 0:
            return False
        column = _column(data, quote + 1, close, names, edges, room)
        begin = at
        if data[at] == 0x7B or data[at] == 0x5B:
            at, kind = _nested(data, at, end, stack), NESTED
        else:
            at, kind = _scalar(data, at, end)
        if at < 0:
            return False
        if column >= 0:
            inner = kind in (STRING, ESCAPED)
            kinds[column, row] = TWICE if seen[column] else kind
            starts[column, row], stops[column, row] = (begin + 1, at - 1) if inner else (begin, at)
            seen[column] = 1
        at = skip_blanks(data, at, end)
        if at >= end:
            return False
        if data[at] == 0x7D:
            return skip_blanks(data, at + 1, end) == end
        if data[at] != 0x2C:
            return False
        at = skip_blanks(data, at + 1, end)


@njit(cache=True, nogil=True)
def scan_lines(
    data: Bytes, end: int, names: Bytes, edges: NDArray[np.int64],
    starts: NDArray[np.int64], stops: NDArray[np.int64], kinds: Bytes, broken: Bytes,
) -> Any:  # fmt: skip
    """Find the values of declared keys in ``data[:end]``, whose lines are complete; return how many rows there are.

    ``names[edges[i]:edges[i + 1]]`` is a name. ``starts``, ``stops`` and
    ``kinds`` have a row for each name. Blank lines are no rows; of a line that is ``broken`` nothing is noted.
    """
    stack = np.empty(DEPTH, np.uint8)
    room = np.empty(6 * names.size, np.uint8)
    seen = np.empty(edges.size - 1, np.uint8)
    at = row = 0
    while at < end:
        stop = at
        while data[stop] != 0x0A:
            stop += 1
        begin = skip_blanks(data, at, stop)
        if begin < stop:
            for name in range(seen.size):
                seen[name] = 0
            good = scan_object(data, begin, stop, row, names, edges, stack, room, starts, stops, kinds, seen)
            broken[row] = not good
            for name in range(seen.size):
                if not good or not seen[name]:
                    kinds[name, row] = ABSENT
                    starts[name, row] = stops[name, row] = 0
            row += 1
        at = stop + 1
    room[:] = 0
    return row


@njit(cache=True, nogil=True)
def gather_values(
    data: Bytes,
    starts: NDArray[np.int64],
    stops: NDArray[np.int64],
    kinds: Bytes,
    offsets: NDArray[np.int32],
    out: Bytes,
) -> None:
    """Copy one column's values as text, one after the other, strings without quotes and escapes; ``out`` has
    ``SLACK`` bytes more.
    """
    to = 0
    offsets[0] = 0
    for row in range(starts.size):
        if kinds[row] == ESCAPED:
            to = _write(data, starts[row], stops[row], out, to)
        elif kinds[row] != ABSENT:
            copy_item(data, starts[row], stops[row] - starts[row], out, to)
            to += stops[row] - starts[row]
        offsets[row + 1] = to
