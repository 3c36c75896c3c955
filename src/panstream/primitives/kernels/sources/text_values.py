"""Text to values, row by row and without exceptions: rows that do not parse are marked.

Rows are ``data[starts[i]:stops[i]]``. Every function sets ``bad[i]`` for rows that are ``present`` and do not parse.
The accepted language is that of pyarrow's casts from text, which stop at the first bad row and copy the text.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.primitives.kernels.jit import njit, part, rare_part
from panstream.primitives.kernels.machine_words import load_word
from panstream.primitives.kernels.text_bytes import hex_digit

Bytes = NDArray[np.uint8]
Positions = NDArray[Any]  # 32 or 64 bits
Mask = NDArray[np.bool_]

_TRUTHS = (b"true", b"True", b"TRUE", b"1", b"false", b"False", b"FALSE", b"0")
_WORDS = np.array([int.from_bytes(b"\1" + word, "big") for word in _TRUTHS], np.uint64)
_TRUE_WORDS = 4
_LONGEST_WORD = 5
_MAX_INT64 = 2**63 - 1
_SECONDS = _MAX_INT64 // 1_000_000_000
_POWERS = 10.0 ** np.arange(23)  # exact
_EXACT = 1 << 53
_EXTREME = 10_000  # a thousandth of the cap of exponents: beyond that cap numbers are 0 or infinite
_ZEROS = np.uint64(0x3030303030303030)
_SIXES = np.uint64(0x0606060606060606)
_HIGH = np.uint64(0xF0F0F0F0F0F0F0F0)
_LOW = np.uint64(0x0F0F0F0F0F0F0F0F)
_PAIRS = np.uint64(0x00FF00FF00FF00FF)
_FOUR = np.uint64(0xFFFF)
_MONTHS = np.array([31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31])


@part
def trim_blanks(data: Bytes, pos: int, stop: int) -> tuple[Any, Any]:
    """Return start and end of a text without surrounding blanks."""
    while pos < stop and (data[pos] == 0x20 or data[pos] == 0x09):
        pos += 1
    while stop > pos and (data[stop - 1] == 0x20 or data[stop - 1] == 0x09):
        stop -= 1
    return pos, stop


@part
def _digits(word: Any, count: int) -> tuple[Any, Any]:
    """Parse the first ``count`` bytes of a word, one to eight; return the number and whether all are digits."""
    unused = np.uint64(8 * (8 - count))
    word = (word << unused) | (_ZEROS & ((np.uint64(1) << unused) - np.uint64(1)))
    good = (word & _HIGH) == _ZEROS and ((word + _SIXES) & _HIGH) == _ZEROS
    word = (word & _LOW) * np.uint64(10) + ((word & _LOW) >> np.uint64(8))
    word = (word & _PAIRS) * np.uint64(100) + ((word >> np.uint64(16)) & _PAIRS)
    return (word & _FOUR) * np.uint64(10_000) + ((word >> np.uint64(32)) & _FOUR), good


@part
def _short_int(data: Bytes, pos: int, stop: int) -> tuple[Any, Any]:
    """Parse one to sixteen digits; return the number and whether the text has nothing else."""
    count = stop - pos
    if count < 1 or count > 16 or pos + 8 > data.size:
        return np.int64(0), False
    if count <= 8:
        value, good = _digits(load_word(data, pos), count)
        return np.int64(value), good
    high, good = _digits(load_word(data, pos), count - 8)
    low, also = _digits(load_word(data, stop - 8), np.int64(8))
    return np.int64(high * np.uint64(100_000_000) + low), good and also


@rare_part
def _any_int(data: Bytes, pos: int, stop: int) -> tuple[Any, Any]:
    """Parse a signed decimal or a hexadecimal integer of 64 bits; return the number and whether valid."""
    value = np.uint64(0)
    if stop - pos > 2 and data[pos] == 0x30 and (data[pos + 1] == 0x78 or data[pos + 1] == 0x58):
        if stop - pos > 18:
            return np.int64(0), False
        for i in range(pos + 2, stop):
            digit = hex_digit(data[i])
            if digit < 0:
                return np.int64(0), False
            value = (value << np.uint64(4)) | np.uint64(digit)
        return np.int64(value), True
    minus = pos < stop and data[pos] == 0x2D
    if minus:
        pos += 1
    if pos == stop:
        return np.int64(0), False
    while pos < stop and data[pos] == 0x30:
        pos += 1
    if stop - pos > 19:
        return np.int64(0), False
    for i in range(pos, stop):
        c = data[i]
        if c < 0x30 or c > 0x39:
            return np.int64(0), False
        value = value * np.uint64(10) + np.uint64(c - 0x30)
    if value > np.uint64(_MAX_INT64) + np.uint64(minus):
        return np.int64(0), False
    return (np.int64(np.uint64(0) - value) if minus else np.int64(value)), True


# Nearly all numbers have at most 16 digits, which take two steps on words instead of a loop over digits.
@njit(cache=True, nogil=True)
def parse_ints(
    data: Bytes, starts: Positions, stops: Positions, present: Mask, values: NDArray[np.int64], bad: Mask
) -> None:
    """Parse integers of 64 bits, also hexadecimal ones, with blanks around them."""
    for i in range(values.size):
        values[i] = 0
        bad[i] = False
        if present[i]:
            pos, stop = trim_blanks(data, starts[i], stops[i])
            value, good = _short_int(data, pos, stop)
            if not good:
                value, good = _any_int(data, pos, stop)
            values[i] = value
            bad[i] = not good


# Mantissas below 2**53 and powers of ten up to 10**22 are exact doubles, so that one operation rounds correctly
# (Clinger 1990).
@njit(cache=True, nogil=True)
def parse_doubles(
    data: Bytes,
    starts: Positions,
    stops: Positions,
    present: Mask,
    values: NDArray[np.float64],
    bad: Mask,
    rest: Mask,
    decimal: int,
) -> None:
    """Parse finite numbers with a decimal mark.

    ``rest`` marks valid numbers that need more than 53 bits or an inexact power of ten; the caller computes those.
    """
    for i in range(values.size):
        values[i] = 0.0
        bad[i] = False
        rest[i] = False
        if not present[i]:
            continue
        pos, stop = trim_blanks(data, starts[i], stops[i])
        minus = pos < stop and data[pos] == 0x2D
        if minus or (pos < stop and data[pos] == 0x2B):
            pos += 1
        mantissa = np.uint64(0)
        digits = 0
        scale = 0
        exact = True
        point = False
        while pos < stop:
            c = data[pos]
            if c == decimal and not point:
                point = True
            elif 0x30 <= c <= 0x39:
                digits += 1
                scale -= point
                if mantissa < np.uint64(_EXACT):
                    mantissa = mantissa * np.uint64(10) + np.uint64(c - 0x30)
                else:
                    exact = False
            else:
                break
            pos += 1
        if digits == 0:
            bad[i] = True
            continue
        if pos < stop:
            if data[pos] != 0x65 and data[pos] != 0x45:
                bad[i] = True
                continue
            pos += 1
            down = pos < stop and data[pos] == 0x2D
            if down or (pos < stop and data[pos] == 0x2B):
                pos += 1
            power: Any = 0
            bad[i] = pos == stop
            while pos < stop:
                c = data[pos]
                if c < 0x30 or c > 0x39:
                    bad[i] = True
                    break
                power = min(10 * power + np.int64(c - 0x30), _EXTREME * 1000)
                pos += 1
            if bad[i]:
                continue
            scale += -power if down else power
        if not exact or mantissa > np.uint64(_EXACT) or scale > 22 or scale < -22:
            rest[i] = True
            continue
        value = np.float64(mantissa)
        value = value / _POWERS[-scale] if scale < 0 else value * _POWERS[scale]
        values[i] = -value if minus else value


@part
def _two(data: Bytes, pos: int) -> Any:
    """Return the number of two digits, or -1."""
    tens = np.int64(data[pos]) - 0x30
    ones = np.int64(data[pos + 1]) - 0x30
    return 10 * tens + ones if 0 <= tens <= 9 and 0 <= ones <= 9 else -1


@part
def days_from_civil(year: Any, month: Any, day: Any) -> tuple[Any, Any]:
    """Return the days from 1970 to a Gregorian date, and whether the date exists."""
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    if not 1 <= month <= 12 or day < 1 or day > _MONTHS[month - 1] + (month == 2 and leap):
        return np.int64(0), False
    march_year = year if month > 2 else year - 1  # years begin in March, so that a leap day ends one
    era = march_year // 400
    of_era = march_year - 400 * era
    of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return np.int64(146097 * era + 365 * of_era + of_era // 4 - of_era // 100 + of_year - 719468), True


@part
def _day(data: Bytes, pos: int) -> tuple[Any, Any]:
    """Parse the ten bytes YYYY-MM-DD; return the days from 1970 and whether the date exists."""
    high = _two(data, pos)
    low = _two(data, pos + 2)
    month = _two(data, pos + 5)
    day = _two(data, pos + 8)
    if high < 0 or low < 0 or not 1 <= month <= 12 or day < 1 or data[pos + 4] != 0x2D or data[pos + 7] != 0x2D:
        return np.int64(0), False
    days, exists = days_from_civil(100 * high + low, month, day)
    return days, exists


@njit(cache=True, nogil=True)
def parse_dates(
    data: Bytes, starts: Positions, stops: Positions, present: Mask, values: NDArray[np.int32], bad: Mask
) -> None:
    """Parse dates YYYY-MM-DD as days since 1970, with blanks around them."""
    for i in range(values.size):
        values[i] = 0
        bad[i] = False
        if present[i]:
            pos, stop = trim_blanks(data, starts[i], stops[i])
            bad[i] = stop - pos != 10
            if not bad[i]:
                day, good = _day(data, pos)
                values[i] = day
                bad[i] = not good


@part
def _zone(data: Bytes, pos: int, stop: int) -> tuple[Any, Any]:
    """Return the end of the time before its zone (-1 if the zone is invalid), and the seconds to add to get UTC."""
    if data[stop - 1] == 0x5A:
        return stop - 1, 0
    for size in (3, 5, 6):
        sign = data[stop - size] if stop - size > pos else 0
        if (sign == 0x2B or sign == 0x2D) and (size != 6 or data[stop - 3] == 0x3A):
            hours = _two(data, stop - size + 1)
            minutes = 0 if size == 3 else _two(data, stop - 2)
            if not 0 <= hours < 24 or not 0 <= minutes < 60:
                return -1, 0
            seconds = 3600 * hours + 60 * minutes
            return stop - size, -seconds if sign == 0x2B else seconds
    return stop, 0


@part
def _moment(data: Bytes, pos: int, stop: int) -> tuple[Any, Any]:
    """Parse YYYY-MM-DD[ T]hh[:mm[:ss[.f]]][zone]; return microseconds since 1970 and whether the time exists."""
    if stop - pos < 10:
        return np.int64(0), False
    days, good = _day(data, pos)
    seconds = 86400 * days
    if not good or stop - pos == 10:
        return 1_000_000 * seconds, good
    if data[pos + 10] != 0x20 and data[pos + 10] != 0x54:
        return np.int64(0), False
    end, shift = _zone(data, pos + 10, stop)
    size = end - pos
    if end < 0 or not (size == 13 or size == 16 or size == 19 or 21 <= size <= 29):
        return np.int64(0), False
    hour = _two(data, pos + 11)
    minute = _two(data, pos + 14) if size >= 16 else 0
    second = _two(data, pos + 17) if size >= 19 else 0
    if not (0 <= hour < 24 and 0 <= minute < 60 and 0 <= second < 60):
        return np.int64(0), False
    if (
        (size >= 16 and data[pos + 13] != 0x3A)
        or (size >= 19 and data[pos + 16] != 0x3A)
        or (size > 19 and data[pos + 19] != 0x2E)
    ):
        return np.int64(0), False
    seconds += 3600 * hour + 60 * minute + second + shift
    if size <= 19:
        return 1_000_000 * seconds, True
    fraction: Any = 0
    for i in range(pos + 20, pos + 29):
        c = 0x30 if i >= end else data[i]
        if c < 0x30 or c > 0x39:
            return np.int64(0), False
        fraction = 10 * fraction + np.int64(c - 0x30)
    if size <= 26:
        return 1_000_000 * seconds + fraction // 1000, True
    # More than six digits: 64 bits of nanoseconds must hold the time, and it is truncated towards 1970, as in pyarrow.
    if not -_SECONDS <= seconds <= _SECONDS or (
        seconds == _SECONDS and fraction > _MAX_INT64 - 1_000_000_000 * _SECONDS
    ):
        return np.int64(0), False
    nanoseconds = 1_000_000_000 * seconds + fraction
    return (-(-nanoseconds // 1000) if nanoseconds < 0 else nanoseconds // 1000), True


@njit(cache=True, nogil=True)
def parse_timestamps(
    data: Bytes, starts: Positions, stops: Positions, present: Mask, values: NDArray[np.int64], bad: Mask
) -> None:
    """Parse times as microseconds since 1970; without a zone they are UTC."""
    for i in range(values.size):
        values[i] = 0
        bad[i] = False
        if present[i]:
            values[i], good = _moment(data, starts[i], stops[i])
            bad[i] = not good


@njit(cache=True, nogil=True)
def parse_booleans(data: Bytes, starts: Positions, stops: Positions, present: Mask, values: Mask, bad: Mask) -> None:
    """Parse the words for true and false, without blanks around them."""
    for i in range(values.size):
        values[i] = False
        bad[i] = False
        if present[i]:
            word = np.uint64(1)  # a leading 1, so that the length counts
            for pos in range(starts[i], min(stops[i], starts[i] + _LONGEST_WORD + 1)):
                word = (word << np.uint64(8)) | np.uint64(data[pos])
            index = 0
            while index < _WORDS.size and _WORDS[index] != word:
                index += 1
            values[i] = index < _TRUE_WORDS
            bad[i] = index == _WORDS.size


@part
def _follows(data: Bytes, pos: int, stop: int, count: int) -> Any:
    """Return whether ``count`` continuation bytes of UTF-8 come next."""
    continuations = 0
    for i in range(pos, min(pos + count, stop)):
        continuations += data[i] & 0xC0 == 0x80
    return continuations == count


# Rejects overlong forms, surrogates and code points beyond U+10FFFF, as Python does.
@rare_part
def is_utf8(data: Bytes, pos: int, stop: int) -> Any:
    """Return whether ``data[pos:stop]`` is valid UTF-8."""
    while pos < stop:
        c = data[pos]
        pos += 1
        if c < 0x80:
            continue
        if c < 0xC2 or c > 0xF4:
            return False
        more = 1 if c < 0xE0 else 2 if c < 0xF0 else 3
        if not _follows(data, pos, stop, more):
            return False
        second = data[pos]
        if (c == 0xE0 and second < 0xA0) or (c == 0xED and second > 0x9F):
            return False
        if (c == 0xF0 and second < 0x90) or (c == 0xF4 and second > 0x8F):
            return False
        pos += more
    return True


@njit(cache=True, nogil=True)
def find_bad_utf8(data: Bytes, starts: Positions, stops: Positions, present: Mask, bad: Mask) -> None:
    """Mark the rows that are not valid UTF-8."""
    for i in range(bad.size):
        bad[i] = present[i] and not is_utf8(data, starts[i], stops[i])
