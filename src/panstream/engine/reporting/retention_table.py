"""Published answers of RETENTION as a table of cohorts: from released numbers only, so that it costs nothing."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from panstream.core.estimate import format_number
from panstream.engine.reporting.point_queries import open_release_log
from panstream.engine.sql.retention_outputs import RetentionAnswer
from panstream.engine.storage.release_log import Release, ReleaseLog
from panstream.errors import InvalidParameter

COHORTS = 13  # that are shown
TOO_FEW = "too few"
_EMPTY = 0.9  # of all possible values: an interval that spans as much says nothing


@dataclass(slots=True)
class CohortTable:
    """The answers of one query and group.

    Attributes:
        query: The query, with its group.
        lags: With how many later windows a cohort is compared.
        windows: The records of every window by the time of its start, oldest first.
        back: Per window and lag, the record of how many of its users came again.
        rates: The latest records of the share that comes back, by lag.
        help: What would make answers more certain, if some are too uncertain.
    """

    query: str
    lags: int = 0
    windows: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)
    back: dict[tuple[str, int], dict[str, Any]] = field(default_factory=dict)
    rates: dict[int, dict[str, Any]] = field(default_factory=dict)
    help: str = ""

    def add(self, answer: RetentionAnswer, record: dict[str, Any]) -> None:
        """Add a published record; of shares the latest one stays."""
        self.lags = max(self.lags, answer.lag)
        start = record["window"][0]
        self.help = record.get("help", self.help)
        if answer.kind == "rate":
            self.rates[answer.lag] = record
        elif answer.kind == "back":
            self.back[record["cohort"][0], answer.lag] = record
        else:
            self.windows.setdefault(start, {})[answer.kind] = record

    def cohorts(self, most: int = COHORTS) -> list[str]:
        """Return the starts of the last windows, oldest first."""
        return sorted(self.windows)[-most:]

    def to_json(self, most: int = COHORTS) -> dict[str, Any]:
        """Return plain JSON values: one row per cohort, and the shares over all of them."""
        return {
            "query": self.query,
            "lags": self.lags,
            "cohorts": [
                {
                    "window": self.windows[start].get("users", {}).get("window"),
                    "users": _cell(self.windows[start].get("users"), None),
                    "new": _cell(self.windows[start].get("new"), None),
                    "back": [
                        _cell(self.back.get((start, lag)), self._highest(start)) for lag in range(1, self.lags + 1)
                    ],
                }
                for start in self.cohorts(most)
            ],
            "rates": [_cell(self.rates.get(lag), 1.0) for lag in range(1, self.lags + 1)],
            "help": self.help,
        }

    def _highest(self, start: str) -> float | None:
        """Return the largest number that can have come back: all users of the window, at the end of their interval."""
        users = self.windows[start].get("users")
        return None if users is None else users["interval"][1]


def cohort_tables(log: ReleaseLog) -> list[CohortTable]:
    """Return a table for every query with answers of RETENTION, and for each of its groups."""
    tables: dict[str, CohortTable] = {}
    for release in log.history():
        answer = _answer_of(release)
        if answer is not None:
            name, bracket, group = release.query.partition(" [")
            query = name.rpartition(".")[0] + bracket + group
            tables.setdefault(query, CohortTable(query)).add(answer, release.record)
    return list(tables.values())


def read_cohorts(store: str | Path, query: str | None = None) -> list[CohortTable]:
    """Return the tables of a store; raise InvalidParameter if it has published none."""
    with open_release_log(store) as log:
        tables = cohort_tables(log)
    chosen = [table for table in tables if query in (None, table.query, table.query.partition(" [")[0])]
    if not chosen:
        known = f"; known: {', '.join(table.query for table in tables)}" if tables else ""
        raise InvalidParameter(f"no answers of RETENTION were published{' by this query' if query else ''}{known}")
    return chosen


def _answer_of(release: Release) -> RetentionAnswer | None:
    """Return which answer of RETENTION a release is; None for other questions."""
    record = release.record
    kind = record.get("answer")
    return None if kind is None else RetentionAnswer.named(kind)


def _cell(record: dict[str, Any] | None, highest: float | None) -> dict[str, Any] | None:
    """Return the figures of an answer, and which of them are shown; None if there is none yet."""
    if record is None or record["interval"][0] is None:
        return None
    low, high = record["interval"]
    shown = "interval" if record.get("too_uncertain") else "value"
    if highest is not None and high - low >= _EMPTY * highest:
        shown = "nothing"
    return {"value": record["value"], "low": low, "high": high, "shown": shown}


def cell_text(cell: dict[str, Any] | None, *, percent: bool = False) -> str:
    """Return a cell as text: value and interval, the interval only, or that there are too few users.

    >>> cell_text({"value": 120.0, "low": 80.0, "high": 160.0, "shown": "value"})
    '120 (80 to 160)'
    >>> cell_text({"value": 0.12, "low": 0.02, "high": 0.3, "shown": "interval"}, percent=True)
    '2 to 30%'
    """
    if cell is None:
        return "-"
    if cell["shown"] == "nothing":
        return TOO_FEW

    def written(number: float) -> str:
        return format_number(100 * number, 3) if percent else format_number(math.floor(number + 0.5), 3)

    low = cell["low"]
    high = cell["high"]
    span = f"{written(low)} to {written(high)}"
    sign = "%" if percent else ""
    return f"{span}{sign}" if cell["shown"] == "interval" else f"{written(cell['value'])}{sign} ({span})"
