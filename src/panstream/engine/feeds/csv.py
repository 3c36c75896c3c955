"""CSV with a header line: declared columns by name, RFC 4180 quoting.

pyarrow reads a block straight into the declared types, half again as fast as we do. Only if something in it does not
convert, or a row has too few or too many fields, is it read again field by field, so one bad row costs its block some
time and the other rows nothing else.

An empty field is NULL, an empty field in quotes is an empty string. Blank lines are not rows. A row with too few or too
many fields is bad, but its fields count by their places as far as they go: so it has its time if that field is there
and is one.
"""

from __future__ import annotations

import contextlib
import csv
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from panstream.engine.arrow import pa
from panstream.engine.feeds.text_columns import FALSE_WORDS, TRUE_WORDS, from_spans
from panstream.engine.rows import RAGGED, Rows, RowSchema, arrow_type
from panstream.errors import FeedError, InvalidParameter

_BOM = b"\xef\xbb\xbf"


class Dialect:
    """A delimiter and a quote; ``quote=None`` takes quotes as ordinary characters, as tab-separated logs often do.

    ``names`` are those of the fields where the first line is a row already.
    """

    def __init__(self, *, delimiter: str = ",", quote: str | None = '"', names: Sequence[str] = ()) -> None:
        if len(delimiter.encode()) != 1 or delimiter in "\r\n":
            raise InvalidParameter("delimiter must be one character of ASCII")
        if quote is not None and (len(quote.encode()) != 1 or quote in "\r\n" + delimiter):
            raise InvalidParameter("quote must be one character of ASCII other than the delimiter, or None")
        self.delimiter, self.quote, self.names = delimiter, quote, list(names)
        edge = re.escape(delimiter.encode())
        field = plain = rb"[^\r\n" + edge + rb"]*+"
        if quote is not None:
            mark = re.escape(quote.encode())
            inner = rb"[^" + mark + rb"]*+"
            quoted = mark + inner + rb"(?:" + mark + mark + inner + rb")*+" + mark + plain
            field = rb"(?:" + quoted + rb"|(?!" + mark + rb")" + plain + rb")"
        # A carriage return at the very end may be half of a line end.
        self.record = re.compile(field + rb"(?:" + edge + field + rb")*+(?:\r\n|\n|\r(?=[^\n]))")


class CsvParser:
    """Rows of one CSV input."""

    def __init__(self, schema: RowSchema, *, place: str, dialect: Dialect | None = None) -> None:
        self._schema, self._place = schema, place
        self._dialect = dialect or Dialect()
        self._spots = np.empty(0, np.int64)  # which declared column a field is, -1 if none
        self._zone: str | None = None  # whether times are written with a zone, as far as seen

    def start(self, data: bytearray, end: int, *, final: bool) -> int | None:
        """Read the header line, if there is one."""
        begin = len(_BOM) if data.startswith(_BOM) else 0
        if self._dialect.names:
            self._place_columns(self._dialect.names)
            return begin
        while begin < end and data[begin] in b"\r\n":
            begin += 1
        if begin >= end:
            return end if final else None
        match = self._dialect.record.match(data, begin, end)
        if match is None and not final:
            return None
        stop = end if match is None else match.end()
        self._head(bytes(data[begin:stop]).rstrip(b"\r\n"))
        return stop

    def cut(self, data: bytearray, end: int) -> int:
        """Return where the last line ends; whether a record does, ``parse`` finds out."""
        return data.rfind(b"\n", 0, end) + 1

    def parse(self, data: bytearray, end: int) -> tuple[Rows, int]:
        """Return the rows of complete records, and where the last of them ends: ``data[:end]`` may end within
        quotes.
        """
        timed = "timestamp" in self._schema.columns.values()
        for zone in (self._zone, "UTC" if self._zone is None else None)[: 1 + timed]:
            columns = self._read(data, end, zone) if end and _is_utf8(data, end) else None
            if columns is not None:
                self._zone = zone
                return Rows.checked(columns, self._schema, np.zeros(len(next(iter(columns.values()))), np.uint16)), end
        return self._by_field(data, end)

    def _by_field(self, data: bytearray, end: int) -> tuple[Rows, int]:
        from panstream._kernels.csv_fields import ABSENT, PLAIN, WOVEN, gather_fields, split_records

        view = np.frombuffer(data, np.uint8)
        quote = -1 if self._dialect.quote is None else ord(self._dialect.quote)
        most, columns = 1 + data.count(b"\n", 0, end) + data.count(b"\r", 0, end), len(self._schema.columns)
        starts, stops = np.empty((2, columns, most), np.int64)
        forms, ragged = np.empty((columns, most), np.uint8), np.empty(most, np.uint8)
        delimiter = ord(self._dialect.delimiter)
        rows, end = split_records(view, end, delimiter, quote, self._spots, starts, stops, forms, ragged)
        if not rows:
            return Rows.none(self._schema), int(end)
        starts, stops, forms = starts[:, :rows], stops[:, :rows], forms[:, :rows]
        codes = np.where(ragged[:rows] != 0, np.uint16(RAGGED), np.uint16(0))
        present = (stops > starts) | ((forms != PLAIN) & (forms != ABSENT))

        def copy(column: int, offsets: Any, out: Any) -> None:
            gather_fields(view, starts[column], stops[column], forms[column], quote, offsets, out)

        return from_spans(view, self._schema, codes, (starts, stops), present, copy, forms == WOVEN), int(end)

    def _head(self, line: bytes) -> None:
        sign, quote = self._dialect.delimiter, self._dialect.quote
        found: list[str] = []
        with contextlib.suppress(UnicodeDecodeError, csv.Error):
            found = next(csv.reader([line.decode()], delimiter=sign, quotechar=quote, quoting=0 if quote else 3))
        self._place_columns(found)

    def _place_columns(self, found: list[str]) -> None:
        names = list(self._schema.columns)
        for name in names:
            if found.count(name) != 1:
                fault = "names it twice" if name in found else "does not name it"
                raise FeedError(f"{self._place}: column {name!r} is declared, but the first line {fault}")
        self._spots = np.array([names.index(name) if name in names else -1 for name in found], np.int64)

    def _read(self, data: bytearray, end: int, zone: str | None) -> dict[str, Any] | None:
        """Return the columns; ``None`` if something does not convert, a row is ragged, or ``end`` is within quotes.

        A line of one field too many is put behind the block. pyarrow must report it, as the last one: behind a quote
        that is still open it would have become part of the last record.
        """
        sentinel = self._dialect.delimiter.encode() * self._spots.size + b"\n"
        last: list[int] = []

        def stop_at(row: Any) -> str:
            is_sentinel = len(row.text) + 1 == len(sentinel) and row.text == sentinel[:-1].decode()
            if last or not is_sentinel:
                return "error"
            last.append(row.number - 1)
            return "skip"

        stop = end + len(sentinel)
        saved = data[end:stop]
        data[end:stop] = sentinel
        with memoryview(data) as view, view[:stop] as block:
            table = self._table(block, zone, stop_at)
        data[end:stop] = saved
        saved[:] = bytes(len(saved))
        if table is None or last != [table.num_rows]:
            return None
        found = {}
        for name, kind in self._schema.columns.items():
            column = table.column(name)
            one = column.num_chunks == 1
            array = column.chunk(0) if one else pa.concat_arrays([*column.chunks, pa.nulls(0, column.type)])
            found[name] = array if array.type == arrow_type(kind) else array.cast(arrow_type(kind))
        return found

    def _table(self, block: Any, zone: str | None, skip: Callable[[Any], str]) -> Any:
        """Read a block of text; ``None`` if something in it does not convert."""
        from pyarrow import csv

        kinds = self._schema.columns
        types = {n: pa.timestamp("us", zone) if kind == "timestamp" else arrow_type(kind) for n, kind in kinds.items()}
        names = [list(kinds)[spot] if spot >= 0 else f"-{at}" for at, spot in enumerate(self._spots.tolist())]
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


def _is_utf8(data: bytearray, end: int) -> bool:
    """Check without a copy: the block as a single Arrow string."""
    view = np.frombuffer(data, np.uint8, end)
    offsets = np.array([0, end], np.int32)
    try:
        pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(offsets), pa.py_buffer(view)]).validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def end_of_records(data: bytearray) -> int:
    """Return where the last complete record ends."""
    from panstream._kernels.csv_fields import split_records

    most = 1 + data.count(b"\n") + data.count(b"\r")
    none, ragged = np.empty((0, most), np.int64), np.empty(most, np.uint8)
    view, spots = np.frombuffer(data, np.uint8), np.empty(0, np.int64)
    return int(
        split_records(view, len(data), ord(","), ord('"'), spots, none, none, np.empty((0, most), np.uint8), ragged)[1]
    )
