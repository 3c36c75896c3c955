"""Units of the calendar in time zones, against DuckDB and against searching for local midnights."""

import math
import re
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from zoneinfo import ZoneInfo

import duckdb
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from panstream.errors import InvalidParameter
from panstream.primitives.durations import format_duration, parse_period
from panstream.primitives.time_grid import CALENDAR_SECONDS, CalendarGrid, FixedGrid, most_windows

HOUR = 3600.0
CALENDAR_UNITS = tuple(CALENDAR_SECONDS)
ZONES = ("UTC", "Europe/Berlin", "America/New_York", "America/Sao_Paulo", "Australia/Lord_Howe", "Asia/Kathmandu")
# A skipped and a repeated day, midnights that do not exist, clocks put back past midnight, leaps of 8 and 24 hours.
ODD_ZONES = (
    "Pacific/Apia",
    "Pacific/Kwajalein",
    "America/Toronto",
    "America/St_Johns",
    "Antarctica/Casey",
    "Asia/Manila",
)
GRIDS = st.builds(CalendarGrid, st.sampled_from(CALENDAR_UNITS), st.sampled_from((*ZONES, *ODD_ZONES)))


def seconds(*moment: int) -> float:
    return datetime(*moment, tzinfo=UTC).timestamp()  # type: ignore[misc,arg-type]


@pytest.mark.parametrize("unit", CALENDAR_UNITS)
@pytest.mark.parametrize("zone", ZONES)
def test_windows_begin_where_duckdb_truncates_dates(unit: str, zone: str) -> None:
    draw = np.random.default_rng(5)
    times = draw.integers(int(seconds(1985, 1, 1)), int(seconds(2037, 1, 1)), 800)
    grid = CalendarGrid(unit, zone)
    changes = [grid.start(grid.index(float(time))) for time in times[:100]]
    times = np.unique(np.concatenate([times, *(np.array(changes) + step for step in (-1, 0, 1))])).astype(float)
    with duckdb.connect() as connection:
        connection.execute(f"SET TimeZone = '{zone}'")
        moments = "SELECT unnest(?::DOUBLE[]) AS time"
        (starts,) = connection.execute(
            f"SELECT list(epoch(date_trunc('{unit}', to_timestamp(time))) ORDER BY time) FROM ({moments})", [times]
        ).fetchone() or ((),)
    indices = grid.indices(times)
    assert indices.tolist() == [grid.index(time) for time in times]
    # Where a midnight does not exist, DuckDB names a time before the day; where it exists twice, either.
    differing = [
        time for time, index, start in zip(times, indices, starts, strict=True) if grid.start(int(index)) != start
    ]
    assert len(differing) <= (len(times) // 20 if zone == "America/Sao_Paulo" else 0)


@given(GRIDS, st.integers(-3_000_000_000, 3_500_000_000))
def test_a_window_begins_when_clocks_first_show_its_midnight(grid: CalendarGrid, time: int) -> None:
    zone = ZoneInfo(grid.zone)
    index = grid.index(float(time))
    start = grid.start(index)
    end = grid.start(index + 1)
    assert start <= time < end
    assert grid.index(start) == index == grid.index(math.nextafter(end, -math.inf))
    assert grid.shortest <= end - start <= grid.longest
    first = datetime.fromtimestamp(start, zone).replace(tzinfo=None)
    before = datetime.fromtimestamp(start - 1, zone).replace(tzinfo=None)
    midnight = datetime(first.year, first.month, first.day)
    assert before < midnight <= first
    assert first - midnight <= timedelta(hours=8)  # what the clocks skipped
    if grid.unit == "week":
        assert first.weekday() == 0 or grid.zone in ("Pacific/Apia", "Pacific/Kwajalein", "Asia/Manila")
    if grid.unit in ("month", "quarter", "year"):
        assert first.day == 1 or grid.zone in ("Pacific/Apia", "Asia/Manila")
        assert first.month in {"month": range(1, 13), "quarter": (1, 4, 7, 10), "year": (1,)}[grid.unit]


@given(GRIDS, st.lists(st.floats(-1e13, 1e13) | st.sampled_from([math.nan, math.inf, -math.inf]), max_size=20))
def test_indices_of_many_times_are_those_of_each(grid: CalendarGrid, times: list[float]) -> None:
    indices = grid.indices(np.array(times, float))
    for time, index in zip(times, indices.tolist(), strict=True):
        assert index == grid.index(time) if math.isfinite(time) else str(index) == str(time)


@given(GRIDS, st.sampled_from(CALENDAR_UNITS), st.integers(-2_000_000_000, 3_000_000_000))
def test_a_window_overlaps_no_more_of_another_unit_than_the_bound(grid: CalendarGrid, unit: str, time: int) -> None:
    index = grid.index(float(time))
    start = grid.start(index)
    end = grid.start(index + 1)
    for zone in (grid.zone, "America/New_York", "Pacific/Apia"):
        other = CalendarGrid(unit, zone)
        overlapped = other.index(math.nextafter(end, -math.inf)) - other.index(start) + 1
        assert overlapped <= most_windows(CALENDAR_SECONDS[grid.unit], unit)


def test_days_with_23_and_25_hours() -> None:
    grid = CalendarGrid("day", "Europe/Berlin")
    lengths = [
        grid.start(index + 1) - grid.start(index)
        for index in range(grid.index(seconds(2025, 1, 1)), grid.index(seconds(2026, 1, 1)))
    ]
    assert lengths.count(23 * HOUR) == lengths.count(25 * HOUR) == 1
    assert lengths.count(24 * HOUR) == 363
    assert grid.shortest == 23 * HOUR


@given(st.floats(0.01, 1e6), st.floats(-1e9, 1e9))
def test_fixed_lengths(length: float, time: float) -> None:
    grid = FixedGrid(length)
    assert grid.index(time) == math.floor(time / length) == int(grid.indices(np.array([time]))[0])
    assert grid.start(3) == 3 * length


def test_names_of_periods_and_zones() -> None:
    assert [format_duration(parse_period(text, name="window")) for text in ("Month", "1 year", "1 day", "day")] == [
        "1 calendar month",
        "1 calendar year",
        "1 day",
        "1 calendar day",
    ]
    with pytest.raises(InvalidParameter, match="or a period of the calendar: day, week, month, quarter, year"):
        parse_period("2 months", name="window")
    for zone in ("Berlin", "../etc/passwd", "", "Europe"):
        with pytest.raises(InvalidParameter, match="time_zone .* is not known"):
            CalendarGrid("day", zone)
    grid = CalendarGrid("week", "America/Argentina/Buenos_Aires")
    assert CalendarGrid.parse(str(grid)) == grid


def test_the_dashboard_knows_the_same_names() -> None:
    script = files("panstream.server.dashboard").joinpath("static", "format.js").read_text()
    table = re.search(r"const CALENDAR = new Map\(\[(.*?)\]\);", script, re.DOTALL)
    assert table is not None
    pairs = re.findall(r"\[(\d+), \"(\w+)\"\]", table.group(1))
    assert {unit: float(length) for length, unit in pairs} == CALENDAR_SECONDS
