"""Lengths of time as people write them: "20 ms", "1 hour", "7 days"."""

from __future__ import annotations

import re

from panstream.errors import InvalidParameter
from panstream.primitives.time_grid import CALENDAR_SECONDS, calendar_unit

_SECONDS = {
    "ms": 0.001,
    "s": 1.0,
    "second": 1.0,
    "min": 60.0,
    "minute": 60.0,
    "hour": 3600.0,
    "day": 86400.0,
    "week": 604800.0,
}
_FORM = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+?)s?\s*")


def parse_duration(text: object, *, name: str) -> float:
    """Return the seconds of a duration such as "1 hour"; a plain number counts seconds.

    >>> parse_duration("1.5 hours", name="every")
    5400.0
    """
    if isinstance(text, int | float) and not isinstance(text, bool):
        seconds = float(text)
    else:
        form = _FORM.fullmatch(text.lower()) if isinstance(text, str) else None
        unit = form.group(2) if form else ""
        unit = "ms" if unit == "m" and isinstance(text, str) and "ms" in text.lower() else unit
        if form is None or unit not in _SECONDS:
            raise InvalidParameter(f'{name} must be a duration such as "20 ms", "1 hour" or "7 days"')
        seconds = float(form.group(1)) * _SECONDS[unit]
    if not seconds > 0:
        raise InvalidParameter(f"{name} must be longer than nothing")
    return seconds


def parse_period(text: object, *, name: str) -> float:
    """Return the seconds of a duration, or of a unit of the calendar as claims name it.

    >>> calendar_unit(parse_period("month", name="window"))
    'month'
    """
    if isinstance(text, str):
        word = text.strip().lower()
        # "1 day" and "1 week" have a fixed length; months, quarters and years have none.
        unit = word.removeprefix("1 ") if word in ("1 month", "1 quarter", "1 year") else word
        if unit in CALENDAR_SECONDS:
            return CALENDAR_SECONDS[unit]
    try:
        return parse_duration(text, name=name)
    except InvalidParameter as error:
        raise InvalidParameter(f"{error}, or a period of the calendar: {', '.join(CALENDAR_SECONDS)}") from None


def format_duration(seconds: float) -> str:
    """Return the duration in its largest fitting unit, or the unit of the calendar.

    >>> format_duration(7200.0)
    '2 hours'
    """
    if (unit := calendar_unit(seconds)) is not None:
        return f"1 calendar {unit}"
    for unit in ("week", "day", "hour", "minute", "second"):
        count = seconds / _SECONDS[unit]
        if count >= 1 and count == int(count):
            return f"{int(count)} {unit}" + ("s" if count != 1 else "")
    return f"{1000 * seconds:g} ms" if seconds < 1 else f"{seconds:g} seconds"
