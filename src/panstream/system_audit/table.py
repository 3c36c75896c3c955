"""Rows to audit with: made from the configuration alone, so that nothing private has to be at hand."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from panstream.batch.files import read_columns
from panstream.engine.config import Config, QueryConfig
from panstream.errors import InvalidParameter

__all__ = ["Row", "Table", "generated", "read_rows"]

Row = dict[str, Any]  # column to value: int, float, str, bool, datetime, date, or Raw

_ROWS = 42
_ROWS_PER_SLOT = 7
_HOUR = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows in order of time, as a configuration's stream declares them."""

    columns: dict[str, str]
    rows: tuple[Row, ...]


def generated(config: Config, now: float) -> Table:
    """Return rows that hit and miss every WHERE, in several windows, all of them in the past of ``now``."""
    stream = config.stream
    words = _words(config)
    slot = min([length for query in config.queries for length in (query.every, query.window) if length] or [_HOUR])
    span = max([length for query in config.queries for length in (query.every, query.window) if length] or [_HOUR])
    first = (math.floor(now / span) - 3 - math.ceil(_ROWS / _ROWS_PER_SLOT * slot / span)) * span
    rows: list[Row] = []
    for number in range(_ROWS):
        # Rows come in pairs of one time, so that one of them can go; the last row alone opens a slot of its own.
        since = number // 2 * 2 * slot / _ROWS_PER_SLOT + (span if number == _ROWS - 1 else 0.0)
        time = datetime.fromtimestamp(first, UTC) + timedelta(seconds=since)
        row = {name: _value(config, name, kind, number, words, time) for name, kind in stream.columns.items()}
        rows.append(row)
    return Table(columns=dict(stream.columns), rows=tuple(rows))


def _value(config: Config, name: str, kind: str, number: int, words: dict[str, list[str]], time: datetime) -> Any:
    stream = config.stream
    if name == stream.time:
        return time.replace(tzinfo=None)
    if name == stream.user:
        return _user(config, kind, number * 5 % 13)
    if name == stream.weight:
        return 1 if number % 5 else -1
    if words.get(name):
        return _typed(words[name][number % len(words[name])], kind)
    low, high = _bounds(config, name)
    if kind == "int":
        return int(low + number * (high - low) // _ROWS)
    if kind == "double":
        return low + number * (high - low) / _ROWS
    if kind == "bool":
        return number % 2 == 0
    if kind == "timestamp":
        return time.replace(tzinfo=None)
    if kind == "date":
        return time.date()
    return f"{name}{number % 4}"


def _user(config: Config, kind: str, number: int) -> Any:
    for query in config.queries:
        if isinstance(query.universe, tuple):
            return query.universe[number % len(query.universe)]
    return number if kind == "int" else f"user-{number}"


def _bounds(config: Config, name: str) -> tuple[float, float]:
    found = [query for query in config.queries if query.parsed.value is not None and name in query.parsed.value]
    low = [query.lower for query in found if query.lower is not None]
    high = [query.upper for query in found if query.upper is not None]
    return (min(low) if low else 0.0), (max(high) if high else 100.0)


def _words(config: Config) -> dict[str, list[str]]:
    """Return, for every column of a WHERE or GROUP BY, values that hit and one that misses."""
    found: dict[str, list[str]] = {}
    for query in config.queries:
        for key, values in query.groups.items():
            found.setdefault(key, []).extend(str(value) for value in values)
        for column, word in _compared(query):
            found.setdefault(column, []).append(word)
    return {
        name: [*dict.fromkeys(words), *(["something else"] if config.stream.columns[name] == "string" else [])]
        for name, words in found.items()
        if name in config.stream.columns and name != config.stream.user
    }


def _compared(query: QueryConfig) -> list[tuple[str, str]]:
    import sqlglot
    from sqlglot import expressions as sql

    where = sqlglot.parse_one(query.sql, read="duckdb").args.get("where")
    found: list[tuple[str, str]] = []
    for predicate in () if where is None else where.find_all(sql.Predicate):
        columns = [column.name for column in predicate.find_all(sql.Column)]
        literals = [literal.this for literal in predicate.find_all(sql.Literal)]
        found += [(column, str(literal).replace("%", "x")) for column in columns for literal in literals]
    return found


def _typed(word: str, kind: str) -> Any:
    try:
        if kind == "int":
            return int(float(word))
        if kind == "double":
            return float(word)
        if kind == "bool":
            return word.lower() in ("true", "1")
        if kind == "timestamp":
            return datetime.fromisoformat(word)
        if kind == "date":
            return datetime.fromisoformat(word).date()
    except ValueError:
        return 0 if kind in ("int", "double") else word
    return word


def read_rows(config: Config, path: str) -> Table:
    """Return the first rows of a CSV or Parquet file of yours."""
    columns = config.stream.columns
    table = read_columns(Path(path), columns, text=columns)
    missing = set(columns) - set(table.column_names)
    if missing:
        raise InvalidParameter(f"--rows: the file has no column {sorted(missing)[0]!r}")
    first = table.slice(0, 5 * _ROWS).to_pylist()
    rows = [
        {name: _typed("" if row[name] is None else str(row[name]), kind) for name, kind in columns.items()}
        for row in first
    ]
    if len(rows) < 3:
        raise InvalidParameter("--rows: at least three rows are needed")
    return Table(columns=dict(columns), rows=tuple(rows))
