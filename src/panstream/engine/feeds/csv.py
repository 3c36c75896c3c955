"""CSV with a header line: declared columns by name, RFC 4180 quoting.

A block is read straight into the declared types. Only if something in it does not convert, or a row has too few or too many fields, is
it read again field by field, so one bad row costs its block some time and the other rows nothing else.

An empty field is NULL, an empty field in quotes is an empty string. Blank lines are not rows. A row with too few or too many fields
is bad, but its fields count by their places as far as they go: so it has its time if that field is there and is one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from panstream.engine.arrow import arrow_mask, pa
from panstream.engine.feeds.csv_records import Dialect
from panstream.engine.feeds.text_columns import FALSE_WORDS, TRUE_WORDS
from panstream.engine.feeds.typed import empty, from_text, settle
from panstream.engine.rows import RAGGED, Rows, RowSchema, arrow_type
from panstream.errors import FeedError

__all__ = ["CsvParser"]

_BOM = b"\xef\xbb\xbf"


class CsvParser:
    """Rows of one CSV input."""

    def __init__(self, schema: RowSchema, *, place: str, dialect: Dialect | None = None) -> None:
        self._schema, self._place = schema, place
        self._dialect = dialect or Dialect()
        self._names: list[str] = []
        self._chosen: dict[str, str] = {}  # declared name to position, as text
        self._sentinel = b""
        self._zone: str | None = None  # whether times are written with a zone, as far as seen

    def start(self, data: bytearray, end: int, *, final: bool) -> int | None:
        """Read the header line."""
        begin = len(_BOM) if data.startswith(_BOM) else 0
        while begin < end and data[begin] in b"\r\n":
            begin += 1
        if begin >= end:
            return end if final else None
        stop = self._dialect.first_end(data, begin, end)
        if stop is None and not final:
            return None
        self._head(bytes(data[begin : stop or end]).rstrip(b"\r\n") + b"\n")
        return stop or end

    def cut(self, data: bytearray, end: int) -> int:
        """Return where the last record seems to end."""
        return self._dialect.likely_end(data, end)

    def parse(self, data: bytearray, end: int) -> tuple[Rows, int]:
        """Return the rows of complete records."""
        if not end:
            return empty(self._schema), 0
        if _is_utf8(data, end):
            for zone in (self._zone, "UTC" if self._zone is None else None):
                columns = self._read(data, end, {spot: self._type(name, zone) for name, spot in self._chosen.items()})
                if columns is not None:
                    self._zone = zone
                    codes = np.zeros(len(next(iter(columns.values()))), np.uint16)
                    return settle(columns, self._schema, codes), end
                if "timestamp" not in self._schema.columns.values():
                    break
        return self._by_field(data, end)

    def _by_field(self, data: bytearray, end: int) -> tuple[Rows, int]:
        """Return the rows of complete records, and where the last of them ends: ``data[:end]`` may end within quotes."""
        from panstream._kernels.csv_fields import gather_fields, split_records

        view = np.frombuffer(data, np.uint8)
        quote = -1 if self._dialect.quote is None else ord(self._dialect.quote)
        most = 1 + int(np.count_nonzero((view[:end] == 0x0A) | (view[:end] == 0x0D)))
        wanted = list(self._chosen.values())
        spots = np.array([wanted.index(name) if name in wanted else -1 for name in self._names], np.int64)
        starts, stops = np.empty((2, len(wanted), most), np.int64)
        forms, ragged = np.empty((len(wanted), most), np.uint8), np.empty(most, np.uint8)
        delimiter = ord(self._dialect.delimiter)
        rows, end = split_records(view, end, delimiter, quote, spots, starts, stops, forms, ragged)
        texts = {}
        for column, name in enumerate(self._chosen):
            first, last = starts[column, :rows], stops[column, :rows]
            offsets, present = np.empty(rows + 1, np.int32), np.empty(rows, bool)
            out = np.empty(int((last - first).sum()), np.uint8)
            gather_fields(view, first, last, forms[column, :rows], quote, offsets, out, present)
            bits = None if present.all() else arrow_mask(present).buffers()[1]
            texts[name] = pa.Array.from_buffers(pa.binary(), rows, [bits, pa.py_buffer(offsets), pa.py_buffer(out)])
        codes = np.where(ragged[:rows] != 0, np.uint16(RAGGED), np.uint16(0))
        return (from_text(texts, self._schema, codes) if rows else empty(self._schema)), int(end)

    def _type(self, name: str, zone: str | None) -> Any:
        kind = self._schema.columns[name]
        return pa.timestamp("us", zone) if kind == "timestamp" else arrow_type(kind)

    def _head(self, line: bytes) -> None:
        head = self._table(line, {}, None, lambda row: "skip") if _is_utf8(line, len(line)) else None
        found = [] if head is None else head.column_names
        for name in self._schema.columns:
            if found.count(name) != 1:
                fault = "names it twice" if name in found else "does not name it"
                raise FeedError(f"{self._place}: column {name!r} is declared, but the first line {fault}")
        self._names = [str(position) for position in range(len(found))]
        self._chosen = {name: str(found.index(name)) for name in self._schema.columns}
        self._sentinel = self._dialect.delimiter.encode() * len(found) + b"\n"

    def _read(self, data: bytearray, end: int, types: dict[str, Any]) -> dict[str, Any] | None:
        """Return the columns; ``None`` if something does not convert, a row is ragged, or ``end`` is within quotes.

        A line of one field too many is put behind the block. pyarrow must report it, as the last one: behind a quote that is
        still open it would have become part of the last record.
        """
        last: list[int] = []

        def stop_at(row: Any) -> str:
            is_sentinel = len(row.text) + 1 == len(self._sentinel) and row.text == self._sentinel[:-1].decode()
            if last or not is_sentinel:
                return "error"
            last.append(row.number - 1)
            return "skip"

        stop = end + len(self._sentinel)
        saved = data[end:stop]
        data[end:stop] = self._sentinel
        with memoryview(data) as view, view[:stop] as block:
            table = self._table(block, types, self._names, stop_at)
        data[end:stop] = saved
        saved[:] = bytes(len(saved))
        if table is None or last != [table.num_rows]:
            return None
        return {name: _whole(table, spot, self._schema.columns[name]) for name, spot in self._chosen.items()}

    def _table(
        self,
        block: Any,
        types: dict[str, Any],
        names: list[str] | None,
        skip: Callable[[Any], str],
    ) -> Any:
        """Read a block of text; ``None`` if something in it does not convert."""
        from pyarrow import csv

        parse_options = csv.ParseOptions(
            delimiter=self._dialect.delimiter,
            quote_char=self._dialect.quote or False,
            newlines_in_values=self._dialect.quote is not None,
            invalid_row_handler=skip,
        )
        convert_options = csv.ConvertOptions(
            include_columns=list(types),
            column_types=types,
            null_values=[""],
            true_values=TRUE_WORDS,
            false_values=FALSE_WORDS,
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
            check_utf8=False,
        )
        read_options = csv.ReadOptions(use_threads=False, block_size=len(block) + 1, column_names=names)
        try:
            return csv.read_csv(pa.BufferReader(block), read_options, parse_options, convert_options)
        except (pa.ArrowException, UnicodeDecodeError):
            return None


def _is_utf8(data: bytes | bytearray, end: int) -> bool:
    """Check without a copy: the block as a single Arrow string."""
    view = np.frombuffer(data, np.uint8, end)
    offsets = np.array([0, end], np.int32)
    try:
        pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(offsets), pa.py_buffer(view)]).validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _whole(table: Any, spot: str, kind: str) -> Any:
    column = table.column(spot)
    array = column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays([*column.chunks, pa.nulls(0, column.type)])
    return array if array.type == arrow_type(kind) else array.cast(arrow_type(kind))
