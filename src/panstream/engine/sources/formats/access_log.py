"""Access logs of web servers, with the same columns for the common and combined formats and for Caddy's JSON lines.

``visitor`` is a hash of host and agent, computed while parsing, as are the columns about visits if ``site`` is given. A
dash is NULL. Times are parsed with their zone, or are seconds since 1970. A line of another format is a bad row; text
after the fields is ignored.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np

from panstream.engine.arrow import pa
from panstream.engine.config.website import LOG_MADE
from panstream.engine.rows.row_batch import NOT_LOG, RowBatch, RowSchema
from panstream.engine.rows.wiping import wipe_unused
from panstream.engine.sources.formats._access_log_columns import columns_needed_for, derived_log_column
from panstream.engine.sources.formats.beacons import JsonSpans
from panstream.engine.sources.formats.text_columns import columns_from_spans
from panstream.errors import SourceError

COLUMNS = {
    "host": "string",
    "user": "string",
    "time": "timestamp",
    "method": "string",
    "path": "string",
    "query": "string",
    "protocol": "string",
    "status": "int",
    "bytes": "int",
    "referrer": "string",
    "agent": "string",
}
CADDY = b'"logger":"http.log.access'
LINE = re.compile(rb"\S+ \S+ \S+ \[\d{2}/[A-Z][a-z]{2}/\d{4}:")
VISITOR = "visitor"
_KEY = np.uint64(0)  # need not be secret: algorithms hash it again, and it is wiped with the rows
_COLUMN_INDEX = {name: index for index, name in enumerate(COLUMNS)} | {VISITOR: 0}
# Keys of Caddy's JSON: of a line, of its request, and of the request's headers.
_OUTER = ("request", "user_id", "ts", "status", "size")
_REQUEST = ("headers", "client_ip", "remote_ip", "method", "uri", "proto")
_HEADERS = ("Referer", "User-Agent")


class _Lines:
    """What parsers of logs share: no header, one row per line, derived columns."""

    def __init__(self, schema: RowSchema, *, label: str, site: str | None = None) -> None:
        derived_columns = {} if site is None else LOG_MADE
        known_columns = (*_COLUMN_INDEX, *derived_columns)
        strange = next((name for name in schema.columns if name not in known_columns), None)
        if strange is not None:
            raise SourceError(f"{label}: an access log has the columns {', '.join(known_columns)}, and no {strange!r}")
        if schema.columns.get(VISITOR, "int") != "int":
            raise SourceError(f"{label}: the column visitor is a hash, so its type must be int")
        read_columns = {name: kind for name, kind in schema.columns.items() if name not in derived_columns}
        sources = {name: COLUMNS[name] for name in (columns_needed_for(schema.columns) if derived_columns else ())}
        for name, kind in (derived_columns | sources).items():
            if schema.columns.get(name, kind) != kind:
                raise SourceError(f"{label}: the type of column {name} must be {kind}")
        self._schema = schema
        self._site = site or ""
        self._read = replace(schema, columns=read_columns | sources)  # derived columns are not parsed
        self._column_indices = [_COLUMN_INDEX[name] for name in self._read.columns]
        faults = range(self._read.type_error_code(next(iter(self._read.columns))))
        self._codes = np.full(len(faults) + 2 * len(self._read.columns), NOT_LOG, np.uint16)
        self._codes[faults] = faults
        for name in read_columns:
            here = self._read.type_error_code(name)
            there = schema.type_error_code(name)
            self._codes[here : here + 2] = there, there + 1

    def start(self, data: bytearray, end: int, *, final: bool) -> int:
        """Return 0: logs have no header."""
        return 0

    def _visitors(self, view: Any, starts: Any, stops: Any) -> dict[str, Any]:
        """Return the column of visitors, if it is needed."""
        from panstream.primitives.kernels.sources.visitor_ids import hash_pairs

        if VISITOR not in self._schema.columns:
            return {}
        host = _COLUMN_INDEX["host"]
        agent = _COLUMN_INDEX["agent"]
        out = np.empty(starts.shape[1], np.uint64)
        hash_pairs((view, starts[host], stops[host]), (view, starts[agent], stops[agent]), _KEY, out)
        return {VISITOR: pa.Array.from_buffers(pa.int64(), out.size, [None, pa.py_buffer(out)])}

    def _with_derived(self, read: RowBatch) -> RowBatch:
        """Add the derived columns, and overwrite the columns that only they needed."""
        if self._read == self._schema:
            return read
        columns_by_name = {name: read.columns.column(name) for name in self._read.columns}
        columns = {
            name: columns_by_name[name]
            if name in columns_by_name
            else derived_log_column(name, columns_by_name, self._site)
            for name in self._schema.columns
        }
        rows = RowBatch.checked(columns, self._schema, self._codes[read.codes])
        wipe_unused(columns_by_name.values(), rows.columns.columns)
        return rows

    def cut(self, data: bytearray, end: int) -> int:
        """Return where the last line ends."""
        return data.rfind(b"\n", 0, end) + 1


class LogParser:
    """Parses a log: in Caddy's format if its first line is a JSON object, else in the common or combined format."""

    def __init__(self, schema: RowSchema, *, label: str, site: str | None = None) -> None:
        self._kinds = tuple(kind(schema, label=label, site=site) for kind in (AccessLogParser, CaddyParser))
        self._chosen: AccessLogParser | CaddyParser = self._kinds[0]

    def start(self, data: bytearray, end: int, *, final: bool) -> int | None:
        """Choose the format by the first byte."""
        if not end and not final:
            return None
        self._chosen = self._kinds[data.startswith(b"{", 0, end)]
        return 0

    def cut(self, data: bytearray, end: int) -> int:
        """Return where the last line ends."""
        return self._chosen.cut(data, end)

    def parse(self, data: bytearray, end: int) -> tuple[RowBatch, int]:
        """Return the rows of complete lines."""
        return self._chosen.parse(data, end)


class AccessLogParser(_Lines):
    """Parses a log in the common or combined format."""

    def parse(self, data: bytearray, end: int) -> tuple[RowBatch, int]:
        """Return the rows of complete lines."""
        from panstream.primitives.kernels.sources.access_log_fields import split_log
        from panstream.primitives.kernels.sources.csv_fields import copy_spans

        view = np.frombuffer(data, np.uint8)
        max_lines = data.count(b"\n", 0, end)
        starts, stops = np.empty((2, len(COLUMNS), max_lines), np.int64)
        broken = np.empty(max_lines, np.uint8)
        rows = int(split_log(view, end, starts, stops, broken))
        if not rows:
            return RowBatch.none(self._schema), end
        codes = np.where(broken[:rows] != 0, np.uint16(NOT_LOG), np.uint16(0))
        derived = self._visitors(view, starts[:, :rows], stops[:, :rows])
        starts = starts[self._column_indices, :rows]
        stops = stops[self._column_indices, :rows]

        def copy(column: int, offsets: Any, out: Any) -> None:
            copy_spans(view, starts[column], stops[column], offsets, out)

        read = columns_from_spans(view, self._read, codes, (starts, stops), stops > starts, copy, made=derived)
        return self._with_derived(read), end


class CaddyParser(_Lines):
    """Parses a log of Caddy: JSON lines."""

    def parse(self, data: bytearray, end: int) -> tuple[RowBatch, int]:
        """Return the rows of complete lines."""
        from panstream.primitives.kernels.sources import json_fields as json
        from panstream.primitives.kernels.sources.json_nested import scan_within, split_texts, take_first

        view = np.frombuffer(data, np.uint8)
        outer = JsonSpans(_OUTER, data.count(b"\n", 0, end))
        broken = np.empty(data.count(b"\n", 0, end), np.uint8)
        rows = int(json.scan_lines(view, end, *outer.arrays, broken))
        if not rows:
            return RowBatch.none(self._schema), end
        request = JsonSpans(_REQUEST, rows)
        headers = JsonSpans(_HEADERS, rows)
        scan_within(view, outer.spans_of("request", rows), *request.arrays)
        scan_within(view, request.spans_of("headers", rows), *headers.arrays)
        starts, stops = np.zeros((2, len(COLUMNS), rows), np.int64)
        kinds = np.zeros((len(COLUMNS), rows), np.uint8)

        def put(column: str, spans: tuple[Any, Any, Any]) -> int:
            column_index = _COLUMN_INDEX[column]
            there = spans[2] != json.ABSENT
            starts[column_index, there], stops[column_index, there], kinds[column_index, there] = (
                field_array[there] for field_array in spans
            )
            return column_index

        for column, key in (("user", "user_id"), ("time", "ts"), ("status", "status"), ("bytes", "size")):
            put(column, outer.spans_of(key, rows))
        for column, key in (("host", "remote_ip"), ("host", "client_ip"), ("method", "method"), ("protocol", "proto")):
            put(column, request.spans_of(key, rows))
        for column, key in (("referrer", "Referer"), ("agent", "User-Agent")):
            column_index = put(column, headers.spans_of(key, rows))
            take_first(view, starts[column_index], stops[column_index], kinds[column_index])
        column_index = put("path", request.spans_of("uri", rows))
        rest = _COLUMN_INDEX["query"]
        split_texts(
            view,
            ord("?"),
            starts[column_index],
            stops[column_index],
            kinds[column_index],
            starts[rest],
            stops[rest],
            kinds[rest],
        )
        fitting = np.isin(kinds, (json.STRING, json.ESCAPED, json.NUMBER))
        kinds[~fitting | (starts == stops)] = json.ABSENT  # an empty user name is NULL
        bad = (broken[:rows] != 0) | (outer.spans_of("request", rows)[2] != json.NESTED)
        codes = np.where(bad, np.uint16(NOT_LOG), np.uint16(0))
        # Caddy can be configured to write times as text.
        has_numeric_times = not (kinds[_COLUMN_INDEX["time"]] == json.STRING).any()
        derived = self._visitors(view, starts, stops)
        starts = starts[self._column_indices]
        stops = stops[self._column_indices]
        kinds = kinds[self._column_indices]

        def copy(column: int, offsets: Any, out: Any) -> None:
            json.gather_values(view, starts[column], stops[column], kinds[column], offsets, out)

        present = kinds != json.ABSENT
        woven = kinds == json.ESCAPED
        seconds = ["time"] if has_numeric_times else []
        read = columns_from_spans(
            view, self._read, codes, (starts, stops), present, copy, woven, seconds=seconds, made=derived
        )
        return self._with_derived(read), end
