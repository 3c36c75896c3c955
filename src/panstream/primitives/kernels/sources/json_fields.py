"""Values of JSON lines, found in one pass: every line is validated, and the spans of declared keys are written.

Compared with pyarrow's reader this buys that damaged rows are marked one by one and no copy of a row is left in
unwiped memory. Nesting is limited by ``_DEPTH``, and the parser uses a stack of its own, so that input cannot exhaust
the process's.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.primitives.kernels.jit import njit, part, rare_part
from panstream.primitives.kernels.simd_byte_search import end_of_digits, find_byte, is_repeated
from panstream.primitives.kernels.sources.byte_copies import copy_short
from panstream.primitives.kernels.sources.json_strings import end_of_string, write_letters

# Kind of a key's value: ABSENT for a missing key and for null; TWICE if the key occurs more than once.
ABSENT = 0
STRING = 1
ESCAPED = 2
NUMBER = 3
TRUE = 4
FALSE = 5
NESTED = 6
TWICE = 7
_DEPTH = 1 << 12  # nesting; deeper objects are invalid
_KEYS = 64  # keys of an object that are first compared with those of the object before
_BAD = -1
_TRUE = 0
_FALSE = 1
_NULL = 2
_NAN = 3
_INFINITY = 4
_INF = 5
_WORDS = np.array([list(word.ljust(8)) for word in (b"true", b"false", b"null", b"NaN", b"Infinity", b"Inf")], np.uint8)
_SIZES = np.array([4, 5, 4, 3, 8, 3])

Bytes = NDArray[np.uint8]
Positions = NDArray[np.int64]


@part
def skip_blanks(data: Bytes, pos: int, end: int) -> Any:
    """Return the position of the first byte that is not blank."""
    while pos < end and (data[pos] == 0x20 or data[pos] == 0x09 or data[pos] == 0x0D):
        pos += 1
    return pos


@rare_part
def _word(data: Bytes, pos: int, end: int, word: int) -> Any:
    """Return the end of a word that starts at ``pos``, or -1."""
    size = _SIZES[word]
    if pos + size > end:
        return _BAD
    for i in range(size):
        if data[pos + i] != _WORDS[word, i]:
            return _BAD
    return pos + size


@part
def _number(data: Bytes, pos: int, end: int) -> Any:
    """Return the end of a number, or -1; infinity and NaN are numbers, as for pyarrow."""
    if pos < end and data[pos] == 0x2D:
        pos += 1
    if pos >= end:
        return _BAD
    if data[pos] == 0x49 or data[pos] == 0x4E:
        for word in (_NAN, _INFINITY, _INF):
            named = _word(data, pos, end, word)
            if named >= 0:
                return named
    stop = end_of_digits(data, pos, end)
    if stop == pos or (data[pos] == 0x30 and stop > pos + 1):
        return _BAD
    pos = stop
    if pos < end and data[pos] == 0x2E:
        stop = end_of_digits(data, pos + 1, end)
        if stop == pos + 1:
            return _BAD
        pos = stop
    if pos < end and (data[pos] == 0x65 or data[pos] == 0x45):
        pos += 1
        if pos < end and (data[pos] == 0x2B or data[pos] == 0x2D):
            pos += 1
        stop = end_of_digits(data, pos, end)
        if stop == pos:
            return _BAD
        pos = stop
    return pos


@part
def _scalar(data: Bytes, pos: int, end: int) -> tuple[Any, Any]:
    """Return the end of the scalar at ``pos`` (of a string: after its quote) or -1, and its kind."""
    c = data[pos]
    if c == 0x22:
        close, escaped = end_of_string(data, pos + 1, end)
        return (_BAD if close < 0 else close + 1), (ESCAPED if escaped else STRING)
    if c == 0x74:
        return _word(data, pos, end, _TRUE), TRUE
    if c == 0x66:
        return _word(data, pos, end, _FALSE), FALSE
    if c == 0x6E:
        return _word(data, pos, end, _NULL), ABSENT
    return _number(data, pos, end), NUMBER


@rare_part
def _key(data: Bytes, pos: int, end: int) -> tuple[Any, Any]:
    """Return the start of the value after a key whose quote is at ``pos``, or -1, and the key's closing quote."""
    if pos >= end or data[pos] != 0x22:
        return _BAD, _BAD
    close, _ = end_of_string(data, pos + 1, end)
    if close < 0:
        return _BAD, _BAD
    colon = skip_blanks(data, close + 1, end)
    if colon >= end or data[colon] != 0x3A:
        return _BAD, _BAD
    value = skip_blanks(data, colon + 1, end)
    return (value if value < end else _BAD), close


@rare_part
def _nested(data: Bytes, pos: int, end: int, stack: Bytes) -> Any:
    """Return the end of the object or array that starts at ``pos``, or -1."""
    depth = 0
    while True:
        # At a value.
        if data[pos] == 0x7B or data[pos] == 0x5B:
            if depth == stack.size:
                return _BAD
            opened = data[pos]
            stack[depth] = opened
            depth += 1
            pos = skip_blanks(data, pos + 1, end)
            if pos >= end:
                return _BAD
            if data[pos] != opened + 2:  # not empty
                if opened == 0x7B:
                    pos, _ = _key(data, pos, end)
                    if pos < 0:
                        return _BAD
                continue
            pos += 1
            depth -= 1
        else:
            pos, _ = _scalar(data, pos, end)
            if pos < 0:
                return _BAD
        # After a value: close the objects and arrays that end here.
        while depth:
            pos = skip_blanks(data, pos, end)
            if pos >= end:
                return _BAD
            if data[pos] != stack[depth - 1] + 2:
                break
            pos += 1
            depth -= 1
        if not depth:
            return pos
        if data[pos] != 0x2C:
            return _BAD
        pos = skip_blanks(data, pos + 1, end)
        if stack[depth - 1] == 0x7B:
            pos, _ = _key(data, pos, end)
            if pos < 0:
                return _BAD
        elif pos >= end:
            return _BAD


@rare_part
def _named(data: Bytes, pos: int, size: int, names: Bytes, edges: Positions) -> Any:
    """Return the index of the name at ``pos``, or -1."""
    for name in range(edges.size - 1):
        if edges[name + 1] - edges[name] == size:
            i = 0
            while i < size and names[edges[name] + i] == data[pos + i]:
                i += 1
            if i == size:
                return name
    return _BAD


@rare_part
def _column(data: Bytes, pos: int, stop: int, names: Bytes, edges: Positions, buffer: Bytes) -> Any:
    """Return the index of the declared name that the key ``data[pos:stop]`` is, or -1."""
    for i in range(pos, stop):
        if data[i] == 0x5C:
            if stop - pos > buffer.size:  # an escape takes at most six bytes: a longer key is no declared name
                return _BAD
            return _named(buffer, np.int64(0), write_letters(data, pos, stop, buffer, np.int64(0)), names, edges)
    return _named(data, pos, stop - pos, names, edges)


@njit(cache=True, nogil=True)
def workspace(names: Bytes, edges: Positions) -> tuple[Any, Any, Any, Any]:
    """Allocate the working memory of ``scan_object``; its size depends on the declared names only.

    It holds the open objects and arrays, a key without escapes, the names seen, and the keys of the last object: their
    positions, distances to the value, and names.
    """
    stack = np.empty(_DEPTH, np.uint8)
    buffer = np.empty(6 * names.size, np.uint8)
    return stack, buffer, np.empty(edges.size - 1, np.uint8), np.zeros((3, _KEYS), np.int64)


@part
def _members(
    data: Bytes, pos: int, end: int, row: int, names: Bytes, edges: Positions, stack: Bytes, buffer: Bytes, seen: Bytes,
    last_keys: Positions, starts: Positions, stops: Positions, kinds: Bytes,
) -> Any:  # fmt: skip
    """Write the values of the object at ``pos``; return whether the text is one object and nothing else."""
    if pos >= end or data[pos] != 0x7B:
        return False
    pos = skip_blanks(data, pos + 1, end)
    if pos < end and data[pos] == 0x7D:
        return skip_blanks(data, pos + 1, end) == end
    key = 0
    while True:
        quote = pos
        last = last_keys[0, min(key, _KEYS - 1)]
        size = last_keys[1, min(key, _KEYS - 1)]
        # Objects mostly have the keys of the one before.
        if key < _KEYS and 0 < size < end - quote and is_repeated(data, quote, last, size):
            column = last_keys[2, key]
            pos = skip_blanks(data, quote + size, end)
            if pos >= end:
                return False
        else:
            pos, close = _key(data, pos, end)
            if pos < 0:
                return False
            column = _column(data, quote + 1, close, names, edges, buffer)
            if key < _KEYS:
                last_keys[0, key] = quote
                last_keys[1, key] = pos - quote
                last_keys[2, key] = column
        key += 1
        begin = pos
        if data[pos] == 0x7B or data[pos] == 0x5B:
            pos = _nested(data, pos, end, stack)
            kind = NESTED
        else:
            pos, kind = _scalar(data, pos, end)
        if pos < 0:
            return False
        if column >= 0:
            inner = kind in (STRING, ESCAPED)
            kinds[column, row] = TWICE if seen[column] else kind
            starts[column, row], stops[column, row] = (begin + 1, pos - 1) if inner else (begin, pos)
            seen[column] = 1
        pos = skip_blanks(data, pos, end)
        if pos >= end:
            return False
        if data[pos] == 0x7D:
            return skip_blanks(data, pos + 1, end) == end
        if data[pos] != 0x2C:
            return False
        pos = skip_blanks(data, pos + 1, end)


@part
def scan_object(
    data: Bytes, pos: int, end: int, row: int, names: Bytes, edges: Positions, stack: Bytes, buffer: Bytes, seen: Bytes,
    last_keys: Positions, starts: Positions, stops: Positions, kinds: Bytes,
) -> Any:  # fmt: skip
    """Write the spans of the names' values in ``data[pos:end]``, none if that is not one object; return whether it is.

    ``names[edges[i]:edges[i + 1]]`` is a name. ``starts``, ``stops`` and ``kinds`` have a row for each name; the
    arguments before them are its ``workspace``.
    """
    for name in range(seen.size):
        seen[name] = 0
    good = _members(data, pos, end, row, names, edges, stack, buffer, seen, last_keys, starts, stops, kinds)
    for name in range(seen.size):
        if not good or not seen[name]:
            kinds[name, row] = ABSENT
            starts[name, row] = stops[name, row] = 0
    return good


# ``buffer`` has held keys of the input, so it is zeroed at the end.
@njit(cache=True, nogil=True)
def scan_lines(
    data: Bytes,
    end: int,
    names: Bytes,
    edges: Positions,
    starts: Positions,
    stops: Positions,
    kinds: Bytes,
    broken: Bytes,
) -> Any:
    """Find the values of declared keys in ``data[:end]``, whose lines are complete; return the number of rows.

    Blank lines are skipped; a ``broken`` line has no values.
    """
    stack, buffer, seen, last_keys = workspace(names, edges)
    pos = row = np.int64(0)
    while pos < end:
        stop = find_byte(data, pos, end, 0x0A)
        begin = skip_blanks(data, pos, stop)
        if begin < stop:
            broken[row] = not scan_object(
                data, begin, stop, row, names, edges, stack, buffer, seen, last_keys, starts, stops, kinds
            )
            row += 1
        pos = stop + 1
    buffer[:] = 0
    return row


@njit(cache=True, nogil=True)
def gather_values(
    data: Bytes,
    starts: Positions,
    stops: Positions,
    kinds: Bytes,
    offsets: NDArray[np.int32],
    out: Bytes,
) -> None:
    """Concatenate one column's values as text, strings unescaped; ``out`` has ``SLACK`` bytes more than their total."""
    to = np.int64(0)
    offsets[0] = 0
    for row in range(starts.size):
        if kinds[row] == ESCAPED:
            to = write_letters(data, starts[row], stops[row], out, to)
        elif kinds[row] != ABSENT:
            copy_short(data, starts[row], stops[row] - starts[row], out, to)
            to += stops[row] - starts[row]
        offsets[row + 1] = to
    out[to:] = 0  # what copies wrote past their end
