"""Divide time into numbered intervals: of a fixed length, or days, weeks, months, quarters and years of a time zone.

A local day begins when the local clock first shows its midnight, or a later time. So intervals are contiguous, though
a clock may show an hour twice or never; where it is put back past midnight, the repeated hour is part of the new day.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, tzinfo
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Protocol

from panstream.errors import InvalidParameter

if TYPE_CHECKING:  # NumPy is imported where arrays are used: durations are read by commands that need none
    import numpy as np
    from numpy.typing import NDArray

_HOUR = 3600.0
_DAY = 24 * _HOUR
_EPOCH = datetime(1970, 1, 1)
_EPOCH_DAY = _EPOCH.toordinal()
_MOST_PUT_BACK = 24.5 * _HOUR  # a zone that crosses the date line repeats a day
_MOST_PUT_FORWARD = 36 * _HOUR  # in a year: a skipped day at the date line, and summer time
# Bounds of the length in every time zone, also where a day is skipped at the date line.
_LONGEST = {"day": _DAY, "week": 7 * _DAY, "month": 31 * _DAY, "quarter": 92 * _DAY, "year": 366 * _DAY}
_SHORTEST = {"day": 12 * _HOUR, "week": 6 * _DAY, "month": 27 * _DAY, "quarter": 89 * _DAY, "year": 364 * _DAY}
_NOMINAL_SHORTEST = {"day": _DAY, "week": 7 * _DAY, "month": 28 * _DAY, "quarter": 90 * _DAY, "year": 365 * _DAY}
# Seconds by which claims name calendar units. Time zones differ in the length of their days, so these exceed all.
CALENDAR_SECONDS = {unit: length + _MOST_PUT_BACK for unit, length in _LONGEST.items()}
_BY_SECONDS = {seconds: unit for unit, seconds in CALENDAR_SECONDS.items()}
# Times outside are in the first or last interval.
_FIRST_YEAR = 2
_LAST_YEAR = 9998
_BEGIN = (datetime(_FIRST_YEAR, 1, 2) - _EPOCH).total_seconds()
_END = (datetime(_LAST_YEAR, 12, 30) - _EPOCH).total_seconds()


class TimeGrid(Protocol):
    """Intervals that are numbered in the order of time."""

    @property
    def longest(self) -> float:
        """Return the seconds of the longest interval, or more."""

    @property
    def shortest(self) -> float:
        """Return the seconds of the shortest interval, or less."""

    def index(self, time: float) -> int:
        """Return the number of the interval that contains a time."""

    def start(self, index: int) -> float:
        """Return the first time of an interval."""

    def indices(self, times: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the numbers of the intervals that contain times, as floats; times that are not finite stay."""


@dataclass(frozen=True, slots=True)
class FixedGrid:
    """Intervals of one length: the k-th begins ``k * length`` seconds after 1970."""

    length: float

    @property
    def longest(self) -> float:
        """Return the length."""
        return self.length

    @property
    def shortest(self) -> float:
        """Return the length."""
        return self.length

    def index(self, time: float) -> int:
        """Return the number of the interval that contains a time."""
        return math.floor(time / self.length)

    def start(self, index: int) -> float:
        """Return the first time of an interval."""
        return index * self.length

    def indices(self, times: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the numbers of the intervals that contain times, as floats; times that are not finite stay."""
        import numpy as np

        numbers: NDArray[np.float64] = np.floor(times / self.length)
        return numbers


@dataclass(frozen=True, slots=True)
class CalendarGrid:
    """The days, weeks (from Monday), months, quarters or years of a time zone; number 0 contains 1 January 1970.

    Args:
        unit: "day", "week", "month", "quarter" or "year".
        zone: Name of the time zone, such as "Europe/Berlin".

    Raises:
        InvalidParameter: The time zone is not known.

    Examples:
        >>> grid = CalendarGrid("day", "Europe/Berlin")
        >>> (grid.start(20_178) - grid.start(20_177)) / 3600  # 2025-03-30: summer time begins
        23.0
    """

    unit: str
    zone: str = "UTC"

    def __post_init__(self) -> None:
        _load_zone(self.zone)

    def __str__(self) -> str:
        return f"{self.unit} {self.zone}"

    @classmethod
    def parse(cls, text: str) -> CalendarGrid:
        """Return the grid whose `str` is ``text``."""
        unit, _, zone = text.partition(" ")
        return cls(unit, zone)

    @property
    def longest(self) -> float:
        """Return an upper bound of the length that holds in all time zones, and so names the unit in claims."""
        return CALENDAR_SECONDS[self.unit]

    @property
    def shortest(self) -> float:
        """Return a lower bound of the length in this time zone."""
        return max(_SHORTEST[self.unit], _NOMINAL_SHORTEST[self.unit] - _largest_advance(self.zone))

    def index(self, time: float) -> int:
        """Return the number of the interval that contains a time."""
        seconds = math.floor(min(max(time, _BEGIN), _END))
        local = _local_time(seconds, _load_zone(self.zone))
        index = _index_of_day(self.unit, local.toordinal())
        while self.start(index + 1) <= seconds:  # the clock was put back past midnight, or skipped a day
            index += 1
        return index

    def start(self, index: int) -> float:
        """Return the first time of an interval."""
        return _start(self, index)

    def indices(self, times: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the numbers of the intervals that contain times, as floats; times that are not finite stay.

        Every interval is computed once, so this takes one search per time and a few microseconds per interval.
        """
        import numpy as np

        numbers = times.copy()
        finite = np.isfinite(times)
        inside = np.clip(times[finite], _BEGIN, _END)
        if not inside.size:
            return numbers
        intervals = list(self._intervals(inside))
        starts = np.array([start for start, _ in intervals])
        indices = np.array([index for _, index in intervals], np.float64)
        numbers[finite] = indices[np.searchsorted(starts, inside, side="right") - 1]
        return numbers

    def _intervals(self, times: NDArray[np.float64]) -> Iterator[tuple[float, int]]:
        """Yield the start and number of all intervals with times, in order."""
        import numpy as np

        time = float(times.min())
        newest = float(times.max())
        # Between two times that are far apart, most intervals have no rows.
        is_sparse = newest - time > 1000 * _SHORTEST[self.unit]
        ordered = np.unique(times).tolist() if is_sparse else []
        while True:
            index = self.index(time)
            yield self.start(index), index
            end = self.start(index + 1)
            if end > newest:
                return
            time = ordered[bisect_right(ordered, math.nextafter(end, -math.inf))] if is_sparse else end


def calendar_unit(seconds: float) -> str | None:
    """Return the calendar unit that claims name by these seconds, if it is one.

    >>> calendar_unit(CALENDAR_SECONDS["month"])
    'month'
    """
    return _BY_SECONDS.get(seconds)


def most_windows(length: float, unit: str) -> int:
    """Return how many units of the calendar a period of ``length`` seconds can overlap, in any time zone.

    The clocks of a zone advance by the length of the period, and by what they are put forward.

    >>> most_windows(CALENDAR_SECONDS["quarter"], "month")
    5
    """
    return math.ceil((length + _MOST_PUT_FORWARD) / _NOMINAL_SHORTEST[unit]) + 1


def local_timestamp(seconds: float, zone: str) -> str:
    """Return a time as the clocks of a time zone show it, with its offset.

    >>> local_timestamp(1_709_247_600.0, "Europe/Berlin")
    '2024-03-01T00:00:00+01:00'
    """
    return (datetime.fromtimestamp(0, UTC) + timedelta(seconds=seconds)).astimezone(_load_zone(zone)).isoformat()


@lru_cache(maxsize=64)
def _load_zone(name: str) -> tzinfo:
    if name == "UTC":
        return UTC  # also where no database of time zones is installed
    from zoneinfo import ZoneInfo

    try:
        return ZoneInfo(name)
    except (OSError, ValueError, KeyError):  # not found, a folder, or not a name
        raise InvalidParameter(
            f"time_zone {name!r} is not known: give a name such as Europe/Berlin or America/New_York (if the system "
            "has no time zones: pip install tzdata)"
        ) from None


def _index_of_day(unit: str, ordinal: int) -> int:
    if unit == "day":
        return ordinal - _EPOCH_DAY
    if unit == "week":
        return (ordinal - _EPOCH_DAY + 3) // 7  # 1 January 1970 was a Thursday
    day = date.fromordinal(ordinal)
    months = 12 * (day.year - 1970) + day.month - 1
    return months // {"month": 1, "quarter": 3, "year": 12}[unit]


def _first_day(unit: str, index: int) -> int:
    if unit == "day":
        return index + _EPOCH_DAY
    if unit == "week":
        return 7 * index - 3 + _EPOCH_DAY
    year, month = divmod({"month": 1, "quarter": 3, "year": 12}[unit] * index, 12)
    return date(1970 + year, month + 1, 1).toordinal()


@lru_cache(maxsize=1 << 14)
def _start(grid: CalendarGrid, index: int) -> float:
    zone = _load_zone(grid.zone)
    midnight = datetime.fromordinal(_first_day(grid.unit, index))
    first = _instant(midnight, zone, fold=0)
    second = _instant(midnight, zone, fold=1)
    if first <= second:  # a clock that shows the midnight twice has reached the day the first time
        return float(first)
    # The midnight was skipped: the day begins when the clock is put forward.
    low = second
    high = first
    while low < high:
        middle = (low + high) // 2
        if _local_time(middle, zone) >= midnight:
            high = middle
        else:
            low = middle + 1
    return float(low)


def _instant(local: datetime, zone: tzinfo, *, fold: int) -> int:
    offset = local.replace(tzinfo=zone, fold=fold).utcoffset()
    assert offset is not None
    return math.floor((local - _EPOCH - offset).total_seconds())


def _local_time(seconds: int, zone: tzinfo) -> datetime:
    instant = (_EPOCH + timedelta(seconds=seconds)).replace(tzinfo=UTC)
    return instant.astimezone(zone).replace(tzinfo=None)


@lru_cache(maxsize=64)
def _largest_advance(name: str) -> float:
    """Return by how many seconds the clocks of a zone were or will be put forward at most within a few days.

    Skipped days count as well: they shorten a week or a month. They are no interval of their own, since none of their
    times exists.
    """
    zone = _load_zone(name)
    if zone is UTC:
        return 0.0
    days = range(date(1840, 1, 1).toordinal(), date(2100, 1, 1).toordinal())
    offsets = [_offset(datetime.fromordinal(day), zone) for day in days]
    return max(0.0, *(after - before for before, after in pairwise(offsets)))


def _offset(local: datetime, zone: tzinfo) -> float:
    offset = local.replace(tzinfo=zone).utcoffset()
    assert offset is not None
    return offset.total_seconds()
