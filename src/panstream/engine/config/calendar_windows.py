"""Windows that are days, weeks, months, quarters or years of the stream's time zone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from panstream.errors import ConfigError, InvalidParameter, translate_errors
from panstream.primitives.time_grid import CalendarGrid, calendar_unit
from panstream.primitives.toml_config import Section


def read_time_zone(section: Section, key: str) -> str:
    """Return the name of a time zone; raise ConfigError if it is not known."""
    name = section.required(key, str)
    grid = translate_errors(
        lambda: CalendarGrid("day", name), InvalidParameter, lambda error: ConfigError(f"{section.label} {error}")
    )
    return grid.zone


def read_calendar(section: Section, options: Mapping[str, Any], zone: str) -> dict[str, CalendarGrid]:
    """Return the grid of the calendar that a query's window or every names, if one does."""
    every = options.get("every")
    window = options.get("window")
    units = [calendar_unit(seconds) for seconds in (every, window) if seconds is not None]
    named = [unit for unit in units if unit is not None]
    if named and len(units) > 1:
        raise ConfigError(
            f"{section.label}: a window of the calendar ({named[0]}) is answered once, when it is over: leave out "
            'every, or give both as fixed lengths, such as "7 days" and "1 day"'
        )
    return {"calendar": CalendarGrid(named[0], zone)} if named else {}
