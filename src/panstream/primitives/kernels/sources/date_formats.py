"""Parse dates and times in declared formats, which the engine's text style compiles to lists of steps.

Compiled, since strptime would need a Python string of every row, which is never wiped.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.primitives.kernels.jit import njit, part
from panstream.primitives.kernels.sources.text_values import Bytes, Mask, Positions, days_from_civil, trim_blanks

# A step below 256 is a byte that must occur there; the others are fields. Adjacent numeric fields have their full
# width, marked by ``FULL``.
YEAR, SHORT_YEAR, MONTH, DAY, HOUR, HOUR_12, MINUTE, SECOND, FRACTION = range(256, 265)
HALF_DAY, MONTH_ABBREVIATION, MONTH_NAME, ZONE = range(265, 269)
FULL = 1 << 10

_NAMES = ["january", "february", "march", "april", "may", "june"]
_NAMES += ["july", "august", "september", "october", "november", "december"]
_LONGEST_NAME = 9
_LETTERS = np.frombuffer("".join(name.ljust(_LONGEST_NAME) for name in _NAMES).encode(), np.uint8).reshape(12, -1)
_LENGTHS = np.array([len(name) for name in _NAMES])
_FIELDS = 9  # of a date: year, month, day, hour, minute, second, microsecond, half of the day, seconds east of UTC
_DAY_MICROSECONDS = 86_400_000_000


@part
def _number(data: Bytes, pos: int, stop: int, min_digits: int, max_digits: int) -> tuple[Any, Any, Any]:
    """Return a number of ``min_digits`` to ``max_digits`` digits, its end (-1 if there are fewer), and their number."""
    value = np.int64(0)
    count = 0
    while count < max_digits and pos < stop and 0x30 <= data[pos] <= 0x39:
        value = 10 * value + np.int64(data[pos]) - 0x30
        pos += 1
        count += 1
    return value, pos if count >= min_digits else -1, count


@part
def _month(data: Bytes, pos: int, stop: int, letters: int) -> tuple[Any, Any]:
    """Return the month named at ``pos``, in either case, and its end; ``letters`` long, or in full for 0."""
    for month in range(12):
        length = letters if letters else _LENGTHS[month]
        same = pos + length <= stop
        for i in range(length if same else 0):
            same = same and data[pos + i] | 0x20 == _LETTERS[month, i]
        if same:
            return month + 1, pos + length
    return 0, -1


@part
def _zone(data: Bytes, pos: int, stop: int) -> tuple[Any, Any]:
    """Return the seconds east of UTC of Z, +hhmm or +hh:mm, and its end, or -1."""
    if pos < stop and data[pos] == 0x5A:
        return np.int64(0), pos + 1
    if pos >= stop or (data[pos] != 0x2B and data[pos] != 0x2D):
        return np.int64(0), -1
    west = data[pos] == 0x2D
    hours, pos, _ = _number(data, pos + 1, stop, 2, 2)
    if pos < 0:
        return np.int64(0), -1
    if pos < stop and data[pos] == 0x3A:
        pos += 1
    minutes, pos, _ = _number(data, pos, stop, 2, 2)
    if pos < 0 or hours > 23 or minutes > 59:
        return np.int64(0), -1
    seconds = 3600 * hours + 60 * minutes
    return -seconds if west else seconds, pos


@part
def _read(data: Bytes, pos: int, stop: int, steps: NDArray[np.int64], fields: NDArray[np.int64]) -> bool:
    """Parse a text into ``fields``; return whether it matches the steps."""
    fields[:] = 0
    fields[7] = -1
    for step in steps:
        if step < 256:
            if pos >= stop or data[pos] != step:
                return False
            pos += 1
            continue
        kind = step & ~FULL
        min_digits = 2 if step & FULL else 1
        if kind == YEAR:
            fields[0], pos, _ = _number(data, pos, stop, 4, 4)
        elif kind == SHORT_YEAR:
            fields[0], pos, _ = _number(data, pos, stop, 2, 2)
            fields[0] += 1900 if fields[0] > 68 else 2000
        elif kind == MONTH:
            fields[1], pos, _ = _number(data, pos, stop, min_digits, 2)
        elif kind == DAY:
            fields[2], pos, _ = _number(data, pos, stop, min_digits, 2)
        elif kind == HOUR:
            fields[3], pos, _ = _number(data, pos, stop, min_digits, 2)
        elif kind == HOUR_12:
            fields[3], pos, _ = _number(data, pos, stop, min_digits, 2)
            if not 1 <= fields[3] <= 12:
                return False
            fields[3] %= 12
        elif kind == MINUTE:
            fields[4], pos, _ = _number(data, pos, stop, min_digits, 2)
        elif kind == SECOND:
            fields[5], pos, _ = _number(data, pos, stop, min_digits, 2)
        elif kind == FRACTION:
            fields[6], pos, digits = _number(data, pos, stop, 1, 6)
            for _ in range(digits, 6):
                fields[6] *= 10
        elif kind == HALF_DAY:
            if pos + 2 > stop or data[pos + 1] | 0x20 != 0x6D:
                return False
            first = data[pos] | 0x20
            if first != 0x61 and first != 0x70:
                return False
            fields[7] = first == 0x70
            pos += 2
        elif kind == MONTH_ABBREVIATION:
            fields[1], pos = _month(data, pos, stop, 3)
        elif kind == MONTH_NAME:
            fields[1], pos = _month(data, pos, stop, 0)
        else:
            fields[8], pos = _zone(data, pos, stop)
        if pos < 0:
            return False
    if fields[7] > 0:
        fields[3] += 12
    return bool(pos == stop and fields[3] < 24 and fields[4] < 60 and fields[5] < 60)


@njit(cache=True, nogil=True)
def parse_formatted(
    data: Bytes,
    starts: Positions,
    stops: Positions,
    present: Mask,
    steps: NDArray[np.int64],
    ends: NDArray[np.int64],
    values: NDArray[Any],
    bad: Mask,
    whole_days: bool,
) -> None:
    """Parse times as microseconds, or days, since 1970, by the first format that matches a text.

    ``steps`` concatenates the steps of all formats, each of which ends at one of ``ends``. Without a zone, times are
    UTC.
    """
    fields = np.empty(_FIELDS, np.int64)
    for i in range(values.size):
        values[i] = 0
        bad[i] = present[i]
        if not present[i]:
            continue
        pos, stop = trim_blanks(data, starts[i], stops[i])
        first = 0
        for end in ends:
            if _read(data, pos, stop, steps[first:end], fields):
                days, exists = days_from_civil(fields[0], fields[1], fields[2])
                if exists and fields[0] > 0:
                    time = 3600 * fields[3] + 60 * fields[4] + fields[5] - fields[8]
                    values[i] = days if whole_days else days * _DAY_MICROSECONDS + 1_000_000 * time + fields[6]
                    bad[i] = False
                    break
            first = end
    fields[:] = 0
