"""Values of JSON lines, found in one pass: every line is checked from end to end, and only declared keys are noted."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from panstream.primitives.kernels.jit import part, rare_part
from panstream.primitives.kernels.simd_byte_search import end_of_digits, find_byte, is_repeated
from panstream.primitives.kernels.sources.json_strings import end_of_string, write_letters
from panstream.primitives.kernels.sources.parquet_pages import copy_short

# What stands for a key: nothing or null, ...; TWICE means that the key is there more than once.
ABSENT, STRING, ESCAPED, NUMBER, TRUE, FALSE, NESTED, TWICE = 0, 1, 2, 3, 4, 5, 6, 7
_DEPTH = 1 << 12  # of values within values; deeper ones are not read
_KEYS = 64  # of an object that are looked for where the object before had them
_BAD = -1
_TRUE, _FALSE, _NULL, _NAN, _INFINITY, _INF = 0, 1, 2, 3, 4, 5
_WORDS = np.array([list(word.ljust(8)) for word in (b"true", b"false", b"null", b"NaN", b"Infinity", b"Inf")], np.uint8)
_SIZES = np.array([4, 5, 4, 3, 8, 3])

Bytes = NDArray[np.uint8]
Spots = NDArray[np.int64]


@part
def skip_blanks(data: Bytes, at: int, end: int) -> Any:
    """Return the position of the first byte that is no blank."""
    while at < end and (data[at] == 0x20 or data[at] == 0x09 or data[at] == 0x0D):
        at += 1
    return at


@rare_part
def _word(data: Bytes, at: int, end: int, word: int) -> Any:
    """Return where a word ends that stands at ``at``, or -1."""
    size = _SIZES[word]
    if at + size > end:
        return _BAD
    for i in range(size):
        if data[at + i] != _WORDS[word, i]:
            return _BAD
    return at + size


@part
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
    stop = end_of_digits(data, at, end)
    if stop == at or (data[at] == 0x30 and stop > at + 1):
        return _BAD
    at = stop
    if at < end and data[at] == 0x2E:
        stop = end_of_digits(data, at + 1, end)
        if stop == at + 1:
            return _BAD
        at = stop
    if at < end and (data[at] == 0x65 or data[at] == 0x45):
        at += 1
        if at < end and (data[at] == 0x2B or data[at] == 0x2D):
            at += 1
        stop = end_of_digits(data, at, end)
        if stop == at:
            return _BAD
        at = stop
    return at


@part
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


@rare_part
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


@rare_part
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


@rare_part
def _named(data: Bytes, at: int, size: int, names: Bytes, edges: Spots) -> Any:
    """Return which name stands at ``at``, or -1."""
    for name in range(edges.size - 1):
        if edges[name + 1] - edges[name] == size:
            i = 0
            while i < size and names[edges[name] + i] == data[at + i]:
                i += 1
            if i == size:
                return name
    return _BAD


@rare_part
def _column(data: Bytes, at: int, stop: int, names: Bytes, edges: Spots, room: Bytes) -> Any:
    """Return which declared name the key ``data[at:stop]`` is, or -1."""
    for i in range(at, stop):
        if data[i] == 0x5C:
            if stop - at > room.size:  # six bytes a letter at most: a longer one is no name
                return _BAD
            return _named(room, np.int64(0), write_letters(data, at, stop, room, np.int64(0)), names, edges)
    return _named(data, at, stop - at, names, edges)


@njit(cache=True, nogil=True)
def workspace(names: Bytes, edges: Spots) -> tuple[Any, Any, Any, Any]:
    """Return what ``scan_object`` works with: what is open, a key without escapes, which names were met, and the keys
    of the last object: where each begins, how far it is to the value, and which name it is.
    """
    stack, room = np.empty(_DEPTH, np.uint8), np.empty(6 * names.size, np.uint8)
    return stack, room, np.empty(edges.size - 1, np.uint8), np.zeros((3, _KEYS), np.int64)


@part
def _members(
    data: Bytes, at: int, end: int, row: int, names: Bytes, edges: Spots, stack: Bytes, room: Bytes, seen: Bytes,
    known: Spots, starts: Spots, stops: Spots, kinds: Bytes,
) -> Any:  # fmt: skip
    """Note the values of the object at ``at``; return whether the text is one object and nothing else."""
    if at >= end or data[at] != 0x7B:
        return False
    at = skip_blanks(data, at + 1, end)
    if at < end and data[at] == 0x7D:
        return skip_blanks(data, at + 1, end) == end
    key = 0
    while True:
        quote, last, size = at, known[0, min(key, _KEYS - 1)], known[1, min(key, _KEYS - 1)]
        # Objects mostly have the keys of the one before.
        if key < _KEYS and 0 < size < end - quote and is_repeated(data, quote, last, size):
            column, at = known[2, key], skip_blanks(data, quote + size, end)
            if at >= end:
                return False
        else:
            at, close = _key(data, at, end)
            if at < 0:
                return False
            column = _column(data, quote + 1, close, names, edges, room)
            if key < _KEYS:
                known[0, key], known[1, key], known[2, key] = quote, at - quote, column
        key += 1
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


@part
def scan_object(
    data: Bytes, at: int, end: int, row: int, names: Bytes, edges: Spots, stack: Bytes, room: Bytes, seen: Bytes,
    known: Spots, starts: Spots, stops: Spots, kinds: Bytes,
) -> Any:  # fmt: skip
    """Note where the values of names are in ``data[at:end]``, nothing if that is not one object; return whether it is.

    ``names[edges[i]:edges[i + 1]]`` is a name. ``starts``, ``stops`` and ``kinds`` have a row for each name, and
    what is between is their ``workspace``.
    """
    for name in range(seen.size):
        seen[name] = 0
    good = _members(data, at, end, row, names, edges, stack, room, seen, known, starts, stops, kinds)
    for name in range(seen.size):
        if not good or not seen[name]:
            kinds[name, row] = ABSENT
            starts[name, row] = stops[name, row] = 0
    return good


@njit(cache=True, nogil=True)
def scan_lines(
    data: Bytes, end: int, names: Bytes, edges: Spots, starts: Spots, stops: Spots, kinds: Bytes, broken: Bytes
) -> Any:
    """Find the values of declared keys in ``data[:end]``, whose lines are complete; return how many rows there are.

    Blank lines are no rows; of a line that is ``broken`` nothing is noted.
    """
    stack, room, seen, known = workspace(names, edges)
    at = row = np.int64(0)
    while at < end:
        stop = find_byte(data, at, end, 0x0A)
        begin = skip_blanks(data, at, stop)
        if begin < stop:
            broken[row] = not scan_object(
                data, begin, stop, row, names, edges, stack, room, seen, known, starts, stops, kinds
            )
            row += 1
        at = stop + 1
    room[:] = 0
    return row


@njit(cache=True, nogil=True)
def gather_values(
    data: Bytes,
    starts: Spots,
    stops: Spots,
    kinds: Bytes,
    offsets: NDArray[np.int32],
    out: Bytes,
) -> None:
    """Copy one column's values as text, one after the other, strings without quotes and escapes; ``out`` has
    ``SLACK`` bytes more.
    """
    to = np.int64(0)
    offsets[0] = 0
    for row in range(starts.size):
        if kinds[row] == ESCAPED:
            to = write_letters(data, starts[row], stops[row], out, to)
        elif kinds[row] != ABSENT:
            copy_short(data, starts[row], stops[row] - starts[row], out, to)
            to += stops[row] - starts[row]
        offsets[row + 1] = to
    out[to:] = 0  # copies go beyond their end
