"""CSV with a header line: declared columns by name, RFC 4180 quoting.

A block is read straight into the declared types. Only if something in it does not convert is it read again as text and
converted row by row, so one bad row costs its block some time and the other rows nothing else.

An empty field is NULL, an empty field in quotes is an empty string. Blank lines are not rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from panstream.engine.arrow import pa
from panstream.engine.rows import RowSchema, SourceError, arrow_type
from panstream.engine.sources.csv_records import Dialect
from panstream.engine.sources.typed import FALSE_WORDS, TRUE_WORDS, Faults, Piece, from_text, settle, with_unread

__all__ = ["CsvParser"]

_BOM = b"\xef\xbb\xbf"
_RAGGED = "the row has too few or too many fields"


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

    def parse(self, data: bytearray, end: int) -> tuple[Piece, int]:
        """Return the rows of complete records."""
        if not _is_utf8(data, end):
            end = self._dialect.last_end(data, end)
            return self._parse_foreign(data, end), end
        piece = self._parse(data, end, check_utf8=False)
        if piece is None:
            end = self._dialect.last_end(data, end)
            piece = self._parse(data, end, check_utf8=False)
        if piece is None:
            raise SourceError(f"{self._place} could not be read as CSV")
        return piece, end

    def _parse(self, data: bytearray, end: int, *, check_utf8: bool) -> Piece | None:
        """Return the rows, or ``None`` if ``end`` lies within a quoted field."""
        if not end:
            return Piece(pa.RecordBatch.from_pylist([], self._schema.arrow()), 0, [])
        kinds = self._schema.columns
        for zone in (self._zone, "UTC" if self._zone is None else None):
            types = {spot: self._type(name, zone) for name, spot in self._chosen.items()}
            read = self._read(data, end, types, check_utf8=check_utf8)
            if read is not None:
                self._zone = zone
                table, ragged = read
                columns = {name: _whole(table, spot, kinds[name]) for name, spot in self._chosen.items()}
                return with_unread(settle(columns, table.num_rows, self._schema, Faults()), ragged, _RAGGED)
            if "timestamp" not in kinds.values():
                break
        read = self._read(data, end, dict.fromkeys(self._chosen.values(), pa.binary()), check_utf8=False)
        if read is None:
            return None
        table, ragged = read
        texts = {name: _whole(table, spot, "binary") for name, spot in self._chosen.items()}
        return with_unread(from_text(texts, table.num_rows, self._schema), ragged, _RAGGED)

    def _parse_foreign(self, data: bytearray, end: int) -> Piece:
        """Parse a block that is not all UTF-8.

        Ragged records are taken out before: pyarrow would try to report them as text, and fail.
        """
        kept = bytearray(end + len(self._sentinel))
        size = number = begin = 0
        ragged = []
        while begin < end and (stop := self._dialect.first_end(data, begin, end)) is not None:
            fields = self._dialect.fields(data, begin, stop)
            if fields == len(self._names):
                kept[size : size + stop - begin] = data[begin:stop]
                size += stop - begin
            elif fields:
                ragged.append(number)
            number, begin = number + (fields > 0), stop
        piece = self._parse(kept, size, check_utf8=True)
        kept[:] = bytes(len(kept))
        if piece is None:
            raise SourceError(f"{self._place} could not be read as CSV")
        return with_unread(piece, ragged, _RAGGED)

    def _type(self, name: str, zone: str | None) -> Any:
        kind = self._schema.columns[name]
        return pa.timestamp("us", zone) if kind == "timestamp" else arrow_type(kind)

    def _head(self, line: bytes) -> None:
        head = self._table(line, {}, None, lambda row: "skip", False) if _is_utf8(line, len(line)) else None
        found = [] if head is None else head.column_names
        for name in self._schema.columns:
            if found.count(name) != 1:
                fault = "names it twice" if name in found else "does not name it"
                raise SourceError(f"{self._place}: column {name!r} is declared, but the first line {fault}")
        self._names = [str(position) for position in range(len(found))]
        self._chosen = {name: str(found.index(name)) for name in self._schema.columns}
        self._sentinel = self._dialect.delimiter.encode() * len(found) + b"\n"

    def _read(
        self, data: bytearray, end: int, types: dict[str, Any], *, check_utf8: bool
    ) -> tuple[Any, list[int]] | None:
        """Return the table and the ragged rows; ``None`` if something does not convert or ``end`` is within quotes.

        A line of one field too many is put behind the block. pyarrow must report it as the last one, as it is: behind a
        quote that is still open it would have become part of the last record.
        """
        ragged: list[int] = []
        sentinels: list[int] = []

        def skip(row: Any) -> str:
            ragged.append(row.number - 1)
            if len(row.text) + 1 == len(self._sentinel) and row.text == self._sentinel[:-1].decode():
                sentinels.append(row.number - 1)
            return "skip"

        stop = end + len(self._sentinel)
        saved = data[end:stop]
        data[end:stop] = self._sentinel
        with memoryview(data) as view, view[:stop] as block:
            table = self._table(block, types, self._names, skip, check_utf8)
        data[end:stop] = saved
        saved[:] = bytes(len(saved))
        if table is None or not sentinels or sentinels[-1] != table.num_rows + len(ragged) - 1:
            return None
        return table, ragged[:-1]

    def _table(
        self,
        block: Any,
        types: dict[str, Any],
        names: list[str] | None,
        skip: Callable[[Any], str],
        check_utf8: bool,
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
            check_utf8=check_utf8,
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
