"""Generate the inputs of the audit: rows made from the configuration only, and their neighbours, in every format.

A neighbour has one event or one user added, removed, or changed to each kind of invalid or unusual value.
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

from panstream.engine.config.config import Config, QueryConfig
from panstream.engine.rows.row_batch import arrow_type
from panstream.engine.sources.formats.access_log import COLUMNS
from panstream.errors import InvalidParameter
from panstream.primitives.inputs.table_files import read_columns
from panstream.primitives.sender_counts import COLUMN

MEDIA_TYPES = {
    "csv": "text/csv",
    "json": "application/x-ndjson",
    "arrow": "application/vnd.apache.arrow.stream",
}
_TYPED = ("parquet", "arrow")

Row = dict[str, Any]  # column to value: int, float, str, bool, datetime, date, or _Raw

_ROWS = 42
_ROWS_PER_SLOT = 7
_HOUR = 3600.0


def is_logged(config: Config) -> bool:
    """Return whether an access log can represent the rows: it has the columns, or a site's columns derive from them."""
    return config.stream.columns.keys() <= COLUMNS.keys() or (config.web is not None and config.web.source == "log")


def generate_rows(config: Config, now: float) -> tuple[Row, ...]:
    """Return rows that match and miss every WHERE, in several windows, all of them before ``now``."""
    stream = config.stream
    words = _words(config)
    slot = min([length for query in config.queries for length in (query.every, query.window) if length] or [_HOUR])
    span = max([length for query in config.queries for length in (query.every, query.window) if length] or [_HOUR])
    first = (math.floor(now / span) - 3 - math.ceil(_ROWS / _ROWS_PER_SLOT * slot / span)) * span
    rows: list[Row] = []
    for number in range(_ROWS):
        # Two rows share each time, so that removing one leaves its slot occupied; only the last row is single.
        since = number // 2 * 2 * slot / _ROWS_PER_SLOT + (span if number == _ROWS - 1 else 0.0)
        time = datetime.fromtimestamp(first, UTC) + timedelta(seconds=since)
        row = {name: _value(config, name, kind, number, words, time) for name, kind in stream.columns.items()}
        rows.append(row)
    return tuple(rows)


def sender_entry(config: Config, time: float, number: int, *, shift: int = 0) -> str:
    """Return what a sender says of its row: its number in every window, or in those that many windows later."""
    counted = {(query.counter, int(query.window)) for query in config.queries if query.window}
    return " ".join(f"{kind}:{length}:{math.floor(time / length) + shift}:{number}" for kind, length in sorted(counted))


def windows_with_rows(config: Config, rows: Sequence[Row]) -> set[tuple[float, int]]:
    """Return the windows of all queries that have a row, as (length, index)."""
    lengths = {query.window for query in config.queries if query.window}
    times = [row.get(config.stream.time or "") for row in rows]
    return {
        (length, math.floor(time.replace(tzinfo=UTC).timestamp() / length))
        for length in lengths
        for time in times
        if isinstance(time, datetime)
    }


def _value(config: Config, name: str, kind: str, number: int, words: dict[str, list[str]], time: datetime) -> Any:
    stream = config.stream
    if name == COLUMN:  # of a few rows of a window, as of a sender
        return sender_entry(config, time.timestamp(), number % 5 + 1)
    if name == stream.time:
        return {"date": time.date(), "int": int(time.timestamp())}.get(kind, time.replace(tzinfo=None))
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
    queries = [query for query in config.queries if query.parsed.value is not None and name in query.parsed.value]
    low = [query.lower for query in queries if query.lower is not None]
    high = [query.upper for query in queries if query.upper is not None]
    return (min(low) if low else 0.0), (max(high) if high else 100.0)


def _words(config: Config) -> dict[str, list[str]]:
    """Return, for every column of a WHERE or GROUP BY, values that match and one that does not."""
    words_by_column: dict[str, list[str]] = {}
    for query in config.queries:
        for key, values in query.groups.items():
            words_by_column.setdefault(key, []).extend(str(value) for value in values)
        for column, word in _compared(query):
            words_by_column.setdefault(column, []).append(word)
    return {
        name: [*dict.fromkeys(words), *(["something else"] if config.stream.columns[name] == "string" else [])]
        for name, words in words_by_column.items()
        if name in config.stream.columns and name != config.stream.user
    }


def _compared(query: QueryConfig) -> list[tuple[str, str]]:
    import sqlglot
    from sqlglot import expressions as sql

    where = sqlglot.parse_one(query.sql, read="duckdb").args.get("where")
    comparisons: list[tuple[str, str]] = []
    for predicate in () if where is None else where.find_all(sql.Predicate):
        columns = [column.name for column in predicate.find_all(sql.Column)]
        literals = [literal.this for literal in predicate.find_all(sql.Literal)]
        comparisons += [(column, str(literal).replace("%", "x")) for column in columns for literal in literals]
    return comparisons


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


def read_rows(config: Config, path: str) -> tuple[Row, ...]:
    """Return the first rows of a CSV or Parquet file; raise InvalidParameter if columns or rows are missing."""
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
    return tuple(rows)


@dataclass(frozen=True, slots=True)
class _Raw:
    """A field with a given text in the file, which need not be a value of the declared type.

    ``text`` is for CSV and ``json`` for JSON; ``value`` is for typed formats, None if they cannot represent it.
    """

    text: str
    json: str
    value: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbour:
    """One changed input. ``length`` is the change of the number of rows; ``line`` corrupts the text of one row.

    ``cuts`` are numbers of the original's rows and of these after which a window passes, for streams by arrival time.
    """

    name: str
    rows: tuple[Row, ...]
    length: int = 0
    is_informative: bool = False  # suffices to check whether a cluster's metadata depends on the selected rows
    cuts: tuple[tuple[int, int], ...] = ()
    line: tuple[int, str] | None = None  # row number, and the kind of corruption, one of ``_CORRUPTIONS``

    def fits(self, format: str) -> bool:
        """Return whether a format can represent the input: typed ones have neither invalid text nor lines."""
        if format not in _TYPED:
            return True
        odd = [value for row in self.rows for value in row.values() if isinstance(value, _Raw)]
        return self.line is None and all(value.value is not None or value.text == "" for value in odd)

    def encode(self, columns: Mapping[str, str], format: str) -> bytes:
        """Return the rows as a file or body in this format."""
        if format in _TYPED:
            return _arrow(columns, self.rows, format)
        write = {"csv": _csv_line, "log": _log_line}.get(format, _json_line)
        lines = [write(columns, row).encode() for row in self.rows]
        if self.line is not None:
            index, corruption = self.line
            lines[index] = _corrupt_line(lines[index], corruption, format)
        head = [",".join(columns).encode()] if format == "csv" else []
        return b"\n".join([*head, *lines]) + b"\n"


_CORRUPTIONS = ("a field too many", "a field missing", "not text", "half a line")
_EMPTY = _Raw("", "null")
_FAR_DAYS = 400


def neighbours(config: Config, rows: tuple[Row, ...], now: float) -> Iterator[Neighbour]:
    """Yield inputs that differ from ``rows`` in one event or in one user."""
    stream = config.stream
    middle = len(rows) // 2
    victim = rows[middle]
    yield Neighbour(name="event removed", rows=rows[:middle] + rows[middle + 1 :], length=-1, is_informative=True)
    yield Neighbour(name="event added", rows=(*rows[: middle + 1], {**victim}, *rows[middle + 1 :]), length=1)
    newcomer = {**victim, stream.user: new_user(rows, stream.user)} if stream.user is not None else victim
    yield Neighbour(
        name="event of a newcomer added", rows=(*rows[: middle + 1], newcomer, *rows[middle + 1 :]), length=1
    )
    if stream.user is not None:
        others = tuple(row for row in rows if row[stream.user] != victim[stream.user])
        yield Neighbour(name="user removed", rows=others, length=len(others) - len(rows))
        unnamed = tuple(
            {**row, stream.user: _EMPTY} if row[stream.user] == victim[stream.user] else row for row in rows
        )
        yield Neighbour(name="user without a name", rows=unnamed)
    for column, kind in stream.columns.items():
        # The last row is the only one of its slot, so that rejecting it for an invalid value changes the slots. An
        # invalid time is tried on another row, since a lost time may change the public windows.
        index = middle if column == stream.time else len(rows) - 1
        for label, value in _unusual_values(kind, column == stream.time, rows[index][column], now):
            changed = {**rows[index], column: value}
            yield Neighbour(
                name=f"{column}: {label}",
                rows=(*rows[:index], changed, *rows[index + 1 :]),
                is_informative=label in ("unknown", "empty"),
            )
    for corruption in _CORRUPTIONS:
        yield Neighbour(name=corruption, rows=rows, line=(middle, corruption))


def new_user(rows: Sequence[Row], user: str) -> Any:
    """Return an id of the column's type that is in none of the rows."""
    users = {row[user] for row in rows}
    sample = rows[0][user]
    if isinstance(sample, int):
        return next(number for number in range(10_000) if number not in users)
    return "somebody else"


def _unusual_values(kind: str, is_time: bool, value: Any, now: float) -> Iterator[tuple[str, Any]]:
    yield "empty", _EMPTY
    if is_time:
        future = datetime(1970, 1, 1) + timedelta(seconds=now, days=_FAR_DAYS)
        if isinstance(value, date):
            yield "late", value - timedelta(days=_FAR_DAYS)
            yield "from the future", future if isinstance(value, datetime) else future.date()
        yield "no time", _Raw("yesterday", '"yesterday"')
        return
    if kind == "int":
        yield "no number", _Raw("seven", '"seven"')
        yield "too large for 64 bits", _Raw("9" * 30, "9" * 30)
        yield "far outside", _Raw("987654321987654321", "987654321987654321", 987654321987654321)
        yield "negative", _Raw("-7", "-7", -7)
        yield "a fraction", _Raw("1.5", "1.5")
    if kind == "double":
        yield "no number", _Raw("seven", '"seven"')
        yield "NaN", _Raw("nan", "NaN", float("nan"))
        yield "infinite", _Raw("inf", "1e999", float("inf"))
        yield "far outside", _Raw("1e300", "1e300", 1e300)
    if kind in ("string", "binary"):
        yield "unknown", _Raw("never heard of", '"never heard of"', "never heard of")
        yield "quotes and a line break", _Raw('"a ""b""\nc"', '"a \\"b\\"\\nc"', 'a "b"\nc')
        yield "a number", _Raw("12", "12", "12")
        yield "long", _Raw("x" * 5000, '"' + "x" * 5000 + '"', "x" * 5000)
    if kind in ("bool", "date", "timestamp"):
        yield "a word", _Raw("maybe", '"maybe"')
        yield "a number", _Raw("12345678901234567890", "12345678901234567890")


def _corrupt_line(line: bytes, corruption: str, format: str) -> bytes:
    if format == "log" and corruption in _CORRUPTIONS[:2]:
        return line + b' "surplus"' if corruption == "a field too many" else line.rpartition(b'" ')[0]
    if corruption == "a field too many":
        return line + b",1" if format == "csv" else line[:-1] + b', "surplus": [1, {"a": 2}]}'
    if corruption == "a field missing":
        return line.rpartition(b",")[0] if format == "csv" else line.rpartition(b",")[0] + b"}"
    if corruption == "not text":
        return line[:-1] + b"\xff\xfe" + line[-1:]
    return line[: len(line) // 2]


def _csv_line(columns: Mapping[str, str], row: Row) -> str:
    values = (row[name] for name in columns)
    return ",".join(value.text if isinstance(value, _Raw) else _quoted(_text(value)) for value in values)


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"' if any(mark in text for mark in ',"\n\r') else text


def _json_line(columns: Mapping[str, str], row: Row) -> str:
    pairs = [
        f"{json.dumps(name)}: {row[name].json if isinstance(row[name], _Raw) else json.dumps(row[name], default=_text)}"
        for name in columns
    ]
    return "{" + ", ".join(pairs) + "}"


def _log_line(columns: Mapping[str, str], row: Row) -> str:
    """Return a line of a log in the combined format, without spaces in fields that cannot contain one."""
    field = {name: _logged(name, row[name]) if name in columns else "-" for name in COLUMNS}
    if "visitor" in columns:
        field["host"] = _logged("host", row["visitor"])
    if "event" in columns:  # a site's event follows from the status; the path makes rows of other events differ
        event = _logged("path", row["event"])
        field["status"] = str({"view": 200, "error": 500}.get(event, 404))
        field["agent"] = "Firefox/130.0"
        field["path"] += f"?event={event}".replace(" ", "+")
    start = f"{field['host']} - {field['user']} [{field['time']}] "
    request = f'"GET /{field["path"]} HTTP/1.1" {field["status"]} {field["bytes"]}'
    return f'{start}{request} "{field["referrer"]}" "{field["agent"]}"'


def _logged(name: str, value: Any) -> str:
    if isinstance(value, datetime):
        return value.strftime("%d/%b/%Y:%H:%M:%S +0000")
    text = value.text if isinstance(value, _Raw) else _text(value)
    text = text.replace('"', '\\"').replace("\n", "\\n") or "-"
    return text if name in ("path", "referrer", "agent") else text.replace(" ", "_")


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value.isoformat() if isinstance(value, datetime | date) else str(value)


def _arrow(columns: Mapping[str, str], rows: tuple[Row, ...], format: str) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet

    arrays = {}
    for name, kind in columns.items():
        values = [row[name].value if isinstance(row[name], _Raw) else row[name] for row in rows]
        if kind == "binary":
            values = [value.encode() if isinstance(value, str) else value for value in values]
        arrays[name] = pa.array(values, arrow_type(kind))
    table = pa.table(arrays)
    out = io.BytesIO()
    if format == "parquet":
        pyarrow.parquet.write_table(table, out)
    else:
        with pa.ipc.new_stream(out, table.schema) as writer:
            writer.write_table(table)
    return out.getvalue()
