"""JSON lines: one object a line, declared columns by key, other keys ignored, an absent key is NULL.

A block is parsed whole by pyarrow; if it refuses, by halves, until the bad lines stand alone. pyarrow reads a sequence of
values rather than lines (and crashes on a lone ``null``), so a block goes to it whole only if every line is plainly one object.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.engine.arrow import pa
from panstream.engine.rows import RowSchema, arrow_type
from panstream.engine.sources.typed import Piece, from_arrow, with_unread
from panstream.scratch import wipe

__all__ = ["JsonParser"]

_BOM = b"\xef\xbb\xbf"
_SECOND_VALUE = re.compile(rb"\}[ \t\r]*[^ \t\r\n,\]}]")  # also met inside strings, which then take the slow way
_SPACE = re.compile(rb"[ \t\r\n]*")
_OBJECT = re.compile(rb"[ \t]*\{")
_FAULT = "the line is not a JSON object with values of the declared types"


class JsonParser:
    """Rows of one input of JSON lines."""

    def __init__(self, schema: RowSchema) -> None:
        self._schema = schema
        # Times and dates are strings in JSON; they are parsed as in CSV.
        texts = ("timestamp", "date")
        types = {name: pa.string() if kind in texts else arrow_type(kind) for name, kind in schema.columns.items()}
        self._arrow = pa.schema(list(types.items()))

    def start(self, data: bytearray, end: int, *, final: bool) -> int | None:
        """There is no head, but perhaps a byte order mark."""
        if not final and end < len(_BOM):
            return None
        return len(_BOM) if data.startswith(_BOM) else 0

    def cut(self, data: bytearray, end: int) -> int:
        """Return where the last line ends; a string in JSON holds no raw newline."""
        return data.rfind(b"\n", 0, end) + 1

    def parse(self, data: bytearray, end: int) -> tuple[Piece, int]:
        """Return the rows of complete lines."""
        with memoryview(data) as view, view[:end] as block:
            return self._parse(block), end

    def _parse(self, block: memoryview) -> Piece:
        view = np.frombuffer(block, np.uint8)
        stops = np.flatnonzero(view == 0x0A) + 1
        starts = np.concatenate([[0], stops[:-1]])
        orderly = (view[starts] == ord("{")).all() and _SECOND_VALUE.search(block) is None
        table = self._read(block, stops.size) if orderly else None
        if table is not None:
            return self._typed(table)
        return self._careful(block, np.stack([starts, stops], axis=1))

    def _careful(self, block: memoryview, lines: NDArray[np.int64]) -> Piece:
        """Parse by halves until bad lines stand alone. Blank lines are not rows."""
        view = np.frombuffer(block, np.uint8)
        rows = [line for line in lines.tolist() if not _SPACE.fullmatch(block, *line)]
        objects = np.array([_OBJECT.match(block, *line) is not None for line in rows], bool)
        tables, unread = [self._arrow.empty_table()], []
        spans = [(0, len(rows))]
        while spans:
            first, last = spans.pop()
            table = None
            if objects[first:last].all() and last > first:
                packed = np.concatenate([view[start:stop] for start, stop in rows[first:last]])
                lines_alone: memoryview = packed.data
                single = last - first == 1 or _SECOND_VALUE.search(lines_alone) is None
                table = self._read(lines_alone, last - first) if single else None
                wipe(packed)
            if table is not None:
                tables.append(table)
            elif last - first > 1:
                middle = (first + last) // 2
                spans += [(middle, last), (first, middle)]
            elif last > first:
                unread.append(first)
        return with_unread(self._typed(pa.concat_tables(tables)), unread, _FAULT)

    def _typed(self, table: Any) -> Piece:
        batches = table.combine_chunks().to_batches()
        return from_arrow(batches[0] if batches else pa.RecordBatch.from_pylist([], self._arrow), self._schema)

    def _read(self, block: memoryview, rows: int) -> Any:
        """Return the table of a block, or ``None`` if it is not ``rows`` objects of the declared types."""
        from pyarrow import json

        options = json.ParseOptions(
            explicit_schema=self._arrow, newlines_in_values=False, unexpected_field_behavior="ignore"
        )
        read_options = json.ReadOptions(use_threads=False, block_size=len(block) + 1)
        try:
            table = json.read_json(pa.BufferReader(block), read_options, options)
        except (pa.ArrowException, UnicodeDecodeError):
            return None
        return table if table.num_rows == rows else None
