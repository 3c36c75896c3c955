"""JSON lines: one object per line, declared columns by key, other keys ignored, an absent key is NULL.

Own kernels instead of pyarrow's reader buy this: bad rows are marked one by one, lines are parsed as they arrive, and
no copy of a row is left in memory. A value of another type than declared makes its row bad, but its event time counts;
a line that is not an object has no time.
"""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from typing import Any

import numpy as np

from panstream.engine.config.text_style import PLAIN, TextStyle
from panstream.engine.rows.row_batch import NOT_JSON, RowBatch, RowSchema
from panstream.engine.sources.formats.text_columns import columns_from_spans

_BOM = b"\xef\xbb\xbf"


class JsonParser:
    """Parses JSON lines. The form of numbers is that of JSON; ``style`` gives that of times."""

    def __init__(self, schema: RowSchema, *, style: TextStyle = PLAIN) -> None:
        from panstream.primitives.kernels.sources.json_fields import ESCAPED, FALSE, NUMBER, STRING, TRUE

        self._schema = schema
        self._style = replace(style, decimal=".")
        names = [name.encode() for name in schema.columns]
        self._names = np.frombuffer(b"".join(names), np.uint8)
        self._edges = np.cumsum([0, *map(len, names)])
        fitting = {"int": (NUMBER,), "double": (NUMBER,), "bool": (TRUE, FALSE)}  # all others are strings in JSON
        self._fitting = [fitting.get(kind, (STRING, ESCAPED)) for kind in schema.columns.values()]

    def start(self, data: bytearray, end: int, *, final: bool) -> int | None:
        """Skip a byte order mark."""
        if not final and end < len(_BOM):
            return None
        return len(_BOM) if data.startswith(_BOM) else 0

    def cut(self, data: bytearray, end: int) -> int:
        """Return where the last line ends; a string in JSON holds no raw newline."""
        return data.rfind(b"\n", 0, end) + 1

    def parse(self, data: bytearray, end: int) -> tuple[RowBatch, int]:
        """Return the rows of complete lines."""
        from panstream.primitives.kernels.simd_byte_search import count_byte
        from panstream.primitives.kernels.sources.json_fields import ABSENT, ESCAPED, gather_values, scan_lines

        view = np.frombuffer(data, np.uint8)
        max_lines = int(count_byte(view, end, 0x0A))
        columns = len(self._fitting)
        starts, stops = np.empty((2, columns, max_lines), np.int64)
        kinds = np.empty((columns, max_lines), np.uint8)
        broken = np.empty(max_lines, np.uint8)
        rows = int(scan_lines(view, end, self._names, self._edges, starts, stops, kinds, broken))
        if not rows:
            return RowBatch.none(self._schema), end
        codes = broken[:rows].astype(np.uint16) * np.uint16(NOT_JSON)
        starts = starts[:, :rows]
        stops = stops[:, :rows]
        kinds = kinds[:, :rows]
        present = np.empty(kinds.shape, bool)
        for column, name in enumerate(self._schema.columns):
            kind = kinds[column]
            present[column] = reduce(np.logical_or, [kind == fitting for fitting in self._fitting[column]])
            misfits = ~present[column] & (kind != ABSENT)
            if misfits.any():
                self._schema.mark(codes, misfits, self._schema.type_error_code(name))
                kind[misfits] = ABSENT

        def copy(column: int, offsets: Any, out: Any) -> None:
            gather_values(view, starts[column], stops[column], kinds[column], offsets, out)

        escaped = kinds == ESCAPED
        return columns_from_spans(
            view, self._schema, codes, (starts, stops), present, copy, escaped, style=self._style
        ), end
