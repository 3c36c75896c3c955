"""CSV with a header line: declared columns by name, RFC 4180 quoting.

Own kernels instead of pyarrow's reader buy this: bad rows are marked one by one, records are parsed as they arrive, and
no copy of a row is left in memory. An empty field is NULL, an empty field in quotes is an empty string. Blank lines are
not rows. A row with too few or too many fields is bad, but the fields that it has are parsed, so that its event time
counts.
"""

from __future__ import annotations

import contextlib
import csv
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from panstream.engine.config.text_style import DecimalMark, TextStyle, check_encoding, date_formats_of
from panstream.engine.rows.row_batch import RAGGED, RowBatch, RowSchema
from panstream.engine.sources.formats.text_columns import columns_from_spans
from panstream.errors import InvalidParameter, SourceError

_BOM = b"\xef\xbb\xbf"


class Dialect:
    """The form of text: delimiter, quote, numbers, dates and times, encoding.

    Args:
        delimiter: A character of ASCII; None for a comma, or a tab in ``.tsv``.
        quote: The quote; None treats quotes as ordinary characters, as tab-separated logs often do.
        names: Names of the fields, if there is no header line.
        decimal: The decimal mark of numbers, "." or ",".
        date_format: One or several formats of dates and times, as ``datetime.strptime`` takes them; None for ISO 8601.
        encoding: "utf-8", "windows-1252", "latin-1" or "utf-16"; None for UTF-8 by default, which is checked.
    """

    def __init__(
        self,
        *,
        delimiter: str | None = None,
        quote: str | None = '"',
        names: Sequence[str] = (),
        decimal: DecimalMark = ".",
        date_format: str | Sequence[str] | None = None,
        encoding: str | None = None,
    ) -> None:
        self.has_delimiter = delimiter is not None
        self.style = TextStyle(decimal, date_formats_of(date_format))
        self.declared_encoding = encoding
        self.encoding = check_encoding(encoding or "utf-8")
        delimiter = "," if delimiter is None else delimiter
        if len(delimiter.encode()) != 1 or delimiter in "\r\n":
            raise InvalidParameter("delimiter must be one character of ASCII")
        if quote is not None and (len(quote.encode()) != 1 or quote in "\r\n" + delimiter):
            raise InvalidParameter("quote must be one character of ASCII other than the delimiter, or None")
        self.delimiter = delimiter
        self.quote = quote
        self.names = list(names)
        edge = re.escape(delimiter.encode())
        field = plain = rb"[^\r\n" + edge + rb"]*+"
        if quote is not None:
            mark = re.escape(quote.encode())
            inner = rb"[^" + mark + rb"]*+"
            quoted = mark + inner + rb"(?:" + mark + mark + inner + rb")*+" + mark + plain
            field = rb"(?:" + quoted + rb"|(?!" + mark + rb")" + plain + rb")"
        # A carriage return at the end of the block may be the first half of a line end.
        self.record = re.compile(field + rb"(?:" + edge + field + rb")*+(?:\r\n|\n|\r(?=[^\n]))")

    def but(self, **changes: Any) -> Dialect:
        """Return the same dialect with some arguments changed."""
        arguments: dict[str, Any] = {
            "delimiter": self.delimiter if self.has_delimiter else None,
            "quote": self.quote,
            "names": self.names,
            "decimal": self.style.decimal,
            "date_format": self.style.date_formats,
            "encoding": self.declared_encoding,
        }
        return Dialect(**{**arguments, **changes})

    def of_format(self, format: str) -> Dialect:
        """Return the dialect for a format: in TSV the delimiter is a tab, unless one is declared."""
        return self.but(delimiter="\t") if format == "tsv" and not self.has_delimiter else self


class CsvParser:
    """Parses one CSV input."""

    def __init__(self, schema: RowSchema, *, label: str, dialect: Dialect | None = None) -> None:
        self._schema = schema
        self._label = label
        self._dialect = dialect or Dialect()
        self._column_of_field = np.empty(0, np.int64)  # index of a declared column, -1 for others

    def start(self, data: bytearray, end: int, *, final: bool) -> int | None:
        """Read the header line, if there is one."""
        begin = len(_BOM) if data.startswith(_BOM) else 0
        if self._dialect.names:
            self._match_header(self._dialect.names)
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
        """Return where the last line ends; ``parse`` finds out whether a record ends there, too."""
        return data.rfind(b"\n", 0, end) + 1

    def parse(self, data: bytearray, end: int) -> tuple[RowBatch, int]:
        """Return the rows of complete records, and where the last one ends: ``data[:end]`` may end within quotes."""
        from panstream.primitives.kernels.simd_byte_search import count_byte
        from panstream.primitives.kernels.sources.csv_fields import ABSENT, WOVEN, gather_fields
        from panstream.primitives.kernels.sources.csv_simd import split_records

        view = np.frombuffer(data, np.uint8)
        quote = -1 if self._dialect.quote is None else ord(self._dialect.quote)
        max_records = 1 + int(count_byte(view, end, 0x0A) + count_byte(view, end, 0x0D))
        columns = len(self._schema.columns)
        delimiter = ord(self._dialect.delimiter)
        starts, stops = np.empty((2, columns, max_records), np.int64)
        forms = np.empty((columns, max_records), np.uint8)
        ragged = np.empty(max_records, np.uint8)
        rows, end = split_records(view, end, delimiter, quote, self._column_of_field, starts, stops, forms, ragged)
        if not rows:
            return RowBatch.none(self._schema), int(end)
        starts = starts[:, :rows]
        stops = stops[:, :rows]
        forms = forms[:, :rows]
        codes = ragged[:rows].astype(np.uint16) * np.uint16(RAGGED)

        def copy(column: int, offsets: Any, out: Any) -> None:
            gather_fields(view, starts[column], stops[column], forms[column], quote, offsets, out)

        rows_read = columns_from_spans(
            view,
            self._schema,
            codes,
            (starts, stops),
            forms != ABSENT,
            copy,
            forms == WOVEN,
            style=self._dialect.style,
        )
        return rows_read, int(end)

    def _head(self, line: bytes) -> None:
        sign = self._dialect.delimiter
        quote = self._dialect.quote
        names: list[str] = []
        with contextlib.suppress(UnicodeDecodeError, csv.Error):
            names = next(csv.reader([line.decode()], delimiter=sign, quotechar=quote, quoting=0 if quote else 3))
        self._match_header(names)

    def _match_header(self, header: list[str]) -> None:
        names = list(self._schema.columns)
        for name in names:
            if header.count(name) != 1:
                fault = "names it twice" if name in header else "does not name it"
                raise SourceError(f"{self._label}: column {name!r} is declared, but the first line {fault}")
        self._column_of_field = np.array([names.index(name) if name in names else -1 for name in header], np.int64)


def end_of_records(data: bytearray) -> int:
    """Return where the last complete record of comma-separated text ends."""
    from panstream.primitives.kernels.sources.csv_simd import split_records

    max_records = 1 + data.count(b"\n") + data.count(b"\r")
    none = np.empty((0, max_records), np.int64)
    ragged = np.empty(max_records, np.uint8)
    view = np.frombuffer(data, np.uint8)
    spots = np.empty(0, np.int64)
    return int(
        split_records(
            view, len(data), ord(","), ord('"'), spots, none, none, np.empty((0, max_records), np.uint8), ragged
        )[1]
    )
