"""Dialect and column types of a plain text table, as DuckDB's sniffer reports them, without starting DuckDB.

Plain: lines of ASCII that all have the same number of fields, one sign that can be a separator, no quotes, a line of
names, and columns of whole numbers, decimals, ISO dates and times, or words. All else is left to the sniffer, whose
process takes as long as half of a short query. Fields are looked at by the classes of their bytes, which are
overwritten; no field is copied.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.primitives.memory.scratch import wipe

_DIGIT, _MINUS, _POINT, _COLON, _MIDDLE, _LETTER, _OTHER, _UNPLAIN = (1 << bit for bit in range(8))
_SEPARATORS = b",;\t|"
_NEWLINE = b"\n"
_LONGEST = 18  # digits that surely fit into 64 bits
_TIME = (*[_DIGIT] * 4, _MINUS, *[_DIGIT] * 2, _MINUS, *[_DIGIT] * 2, _MIDDLE)
_TIME += (*[_DIGIT] * 2, _COLON, *[_DIGIT] * 2, _COLON, *[_DIGIT] * 2)
_DATE = _TIME[:10]
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_VALUES = ("epoch", "false", "inf", "infinity", "nan", "true")  # names that could be values, of which there is no line


def _classes() -> NDArray[np.uint8]:
    classes = np.full(256, _OTHER, np.uint8)
    classes[:32] = classes[127:] = _UNPLAIN
    for signs, kind in (
        (b"\"'\\#", _UNPLAIN),
        (_SEPARATORS + _NEWLINE, 0),
        (b"0123456789", _DIGIT),
        (b"-", _MINUS),
        (b".", _POINT),
        (b":", _COLON),
        (b" T", _MIDDLE),
        (b"abcdghjklmpqrsuvwxzABCDGHJKLMPQRSUVWXZ", _LETTER),  # no number, time or truth value begins with these
    ):
        classes[list(signs)] = kind
    return classes


_CLASSES = _classes()


def plain_dialect(sample: bytearray) -> dict[str, Any] | None:
    """Return separator, quote, header and the types of columns; None unless whole lines are surely a plain table."""
    separators = [sign for sign in _SEPARATORS if sign in sample]
    if len(separators) != 1 or not sample.endswith(_NEWLINE):
        return None
    names = sample[: sample.index(_NEWLINE)].decode("ascii", "replace").split(chr(separators[0]))
    if not all(_NAME.fullmatch(name) and name.lower() not in _VALUES for name in names):
        return None
    if len({name.lower() for name in names}) < len(names):
        return None
    data = np.frombuffer(sample, np.uint8)
    classes = _CLASSES[data]
    is_zero = data == ord("0")
    try:
        kinds = _kinds(classes, is_zero, data == _NEWLINE[0], len(names))
    finally:
        wipe(classes)
        wipe(is_zero)
    if None in kinds or set(kinds) <= {"string"}:  # only a name of another type shows that the first line holds names
        return None
    columns = dict(zip(names, kinds, strict=True))
    return {"delimiter": chr(separators[0]), "quote": '"', "skipped": 0, "header": True, "columns": columns}


def _kinds(
    classes: NDArray[np.uint8], is_zero: NDArray[np.bool_], is_newline: NDArray[np.bool_], count: int
) -> list[str | None]:
    """Return the types of ``count`` columns, from the second line on; none unless all lines have so many fields."""
    ends = np.flatnonzero(classes == 0)
    lines = np.count_nonzero(is_newline)
    if lines < 2 or ends.size != lines * count or np.any(classes == _UNPLAIN):
        return []
    if not np.all(is_newline[ends[count - 1 :: count]]):
        return []
    starts = ends[:-1] + 1
    return [
        _kind(classes, is_zero, starts[count + column - 1 :: count], ends[count + column :: count])
        for column in range(count)
    ]


def _kind(
    classes: NDArray[np.uint8], is_zero: NDArray[np.bool_], starts: NDArray[np.int64], ends: NDArray[np.int64]
) -> str | None:
    """Return the type of a column by the classes of its fields; None if it is not certain."""
    has_value = ends > starts
    starts = starts[has_value]
    ends = ends[has_value]
    if not starts.size:
        return None
    if np.any(classes[starts] == _LETTER):
        return "string"
    widths = ends - starts
    for kind, pattern in (("date", _DATE), ("timestamp", _TIME)):
        if np.all(widths == len(pattern)):
            fits = all(np.all(classes[starts + offset] == expected) for offset, expected in enumerate(pattern))
            return kind if fits else None
    signed = classes[starts] == _MINUS
    digits, points = (_count(classes == kind, starts, ends) for kind in (_DIGIT, _POINT))
    is_number = (points <= 1) & (digits + points + signed == widths) & (digits <= _LONGEST)
    begin = np.minimum(starts + signed, ends - 1)  # a minus may be all of a field
    is_number &= (classes[begin] == _DIGIT) & (classes[ends - 1] == _DIGIT)
    is_number &= (classes[begin] != classes[begin + 1]) | ~is_zero[begin]  # a code such as 007 is text
    if not np.all(is_number):
        return None
    return "double" if np.any(points) else "int"


def _count(marked: NDArray[np.bool_], starts: NDArray[np.int64], ends: NDArray[np.int64]) -> NDArray[np.int64]:
    counts: NDArray[np.int64] = np.concatenate([[0], np.cumsum(marked)])
    return counts.take(ends) - counts.take(starts)
