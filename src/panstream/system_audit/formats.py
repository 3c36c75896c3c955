"""Rows as files and bodies: CSV, JSON lines, Parquet and Arrow, odd values included where the format can hold them."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from datetime import date, datetime
from typing import Any

from panstream.engine.rows import arrow_type
from panstream.system_audit.neighbours import Neighbour, Raw
from panstream.system_audit.table import Row, Table

__all__ = ["MEDIA_TYPES", "encode", "fits"]

MEDIA_TYPES = {
    "csv": "text/csv",
    "json": "application/x-ndjson",
    "arrow": "application/vnd.apache.arrow.stream",
}
_TYPED = ("parquet", "arrow")


def fits(neighbour: Neighbour, format: str) -> bool:
    """Return whether a format can hold the oddity: typed ones have neither text nor lines."""
    if format not in _TYPED:
        return True
    odd = [value for row in neighbour.rows for value in row.values() if isinstance(value, Raw)]
    return neighbour.line is None and all(value.value is not None or value.text == "" for value in odd)


def encode(table: Table, neighbour: Neighbour, format: str) -> bytes:
    """Return the rows of a neighbour as bytes."""
    if format in _TYPED:
        return _typed(table.columns, neighbour.rows, format)
    write = _csv_line if format == "csv" else _json_line
    lines = [write(table.columns, row).encode() for row in neighbour.rows]
    if neighbour.line is not None:
        place, what = neighbour.line
        lines[place] = _spoilt(lines[place], what, format)
    head = [",".join(table.columns).encode()] if format == "csv" else []
    return b"\n".join([*head, *lines]) + b"\n"


def _spoilt(line: bytes, what: str, format: str) -> bytes:
    if what == "a field too many":
        return line + b",1" if format == "csv" else line[:-1] + b', "surplus": [1, {"a": 2}]}'
    if what == "a field missing":
        return line.rpartition(b",")[0] if format == "csv" else line.rpartition(b",")[0] + b"}"
    if what == "not text":
        return line[:-1] + b"\xff\xfe" + line[-1:]
    return line[: len(line) // 2]


def _csv_line(columns: Mapping[str, str], row: Row) -> str:
    return ",".join(value.text if isinstance(value, Raw) else _quoted(_text(value)) for value in _values(columns, row))


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"' if any(mark in text for mark in ',"\n\r') else text


def _json_line(columns: Mapping[str, str], row: Row) -> str:
    fields = zip(columns, _values(columns, row), strict=True)
    pairs = [
        f"{json.dumps(name)}: {value.json if isinstance(value, Raw) else json.dumps(_plain(value))}"
        for name, value in fields
    ]
    return "{" + ", ".join(pairs) + "}"


def _values(columns: Mapping[str, str], row: Row) -> list[Any]:
    return [row[name] for name in columns]


def _plain(value: Any) -> Any:
    return _text(value) if isinstance(value, datetime | date) else value


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value.isoformat() if isinstance(value, datetime | date) else str(value)


def _typed(columns: Mapping[str, str], rows: tuple[Row, ...], format: str) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet

    arrays = {}
    for name, kind in columns.items():
        values = [row[name].value if isinstance(row[name], Raw) else row[name] for row in rows]
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
