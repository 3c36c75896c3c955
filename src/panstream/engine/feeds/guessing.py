"""What an input looks like, guessed before a row of it counts: its format, dialect, columns and their types.

The guess is made from the first bytes alone and then stands: a later value that does not fit makes its row a bad one.
Since one row among the first can change the guess, whatever is made with it declares it public. Nothing but columns is
guessed: bounds, groups and sizes would tell of the people in the rows.
"""

from __future__ import annotations

import json
import subprocess
import sys
from base64 import b64decode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from panstream.engine.arrow import kind_of, pa
from panstream.engine.feeds.access_log import CADDY, COLUMNS, LINE
from panstream.engine.feeds.csv import CsvParser, Dialect
from panstream.engine.feeds.guard import guarded
from panstream.engine.feeds.inputs import Format, InputFile, expand
from panstream.engine.feeds.json_lines import JsonParser
from panstream.engine.feeds.streams import SPARE_BYTES, PipeBytes, open_file, unpacked_head
from panstream.engine.feeds.tables import opened_table
from panstream.engine.rows import RowSchema
from panstream.errors import FeedError

_SAMPLE = 1 << 20  # bytes that are looked at
_SEPARATORS = {",": "a comma", "\t": "a tab", ";": "a semicolon", "|": "a bar", " ": "a space"}
_FORMATS = {
    "json": "JSON lines",
    "log": "an access log",
    "caddy": "an access log of Caddy",
    "parquet": "Parquet",
    "arrow": "Arrow",
    "table": "a table",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Guess:
    """A format and typed columns, and how text is written. ``reading`` is what a feed has to be told besides."""

    format: str
    columns: Mapping[str, str]
    dialect: Dialect | None = None
    reading: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def __str__(self) -> str:
        columns = ", ".join(f"{name} {kind}" for name, kind in self.columns.items())
        if self.dialect is None:
            return f"{_FORMATS[self.format]}: {columns}"
        sign, header = self.dialect.delimiter, "no header line" if self.dialect.names else "a header line"
        return f"text separated by {_SEPARATORS.get(sign, repr(sign))}, with {header}: {columns}"

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        found: dict[str, Any] = {"format": self.format, "columns": dict(self.columns)}
        if self.dialect is not None:
            dialect = self.dialect
            found |= {"delimiter": dialect.delimiter, "quote": dialect.quote, "header": not dialect.names}
        return found


def guess_table(data: Any) -> tuple[Any, Guess]:
    """Return a table as Arrow has it, and the types of its columns, which are those it has."""
    table = opened_table(data)
    return table, Guess(format="table", columns=_kinds(table.schema))


def guess(inputs: Sequence[str], *, format: str | None = None) -> Guess:
    """Look at the beginning of the first input; the others must be like it.

    ``inputs`` are files, globs, directories, or "-" for standard input, of which nothing is used up.
    """
    first, told = _first(inputs, format)
    pipe = PipeBytes(0) if first.path is None else None
    if pipe is not None:
        head, codec = pipe.head(_SAMPLE), pipe.compression()
    else:
        assert first.path is not None
        raw, codec = open_file(first.path)
        with raw:
            head = bytearray(guarded(lambda: raw.read(_SAMPLE), place=first.name, what="a file") or b"")
    sample = head if codec is None else unpacked_head(head, codec, _SAMPLE)
    try:
        kind = first.format if told else _told_by(sample)
        found = _guess(replace(first, format=kind), sample)
    finally:
        for data in (head, sample):
            data[:] = bytes(len(data))
    reading: dict[str, Any] = {} if told and pipe is None and format is None else {"format": kind}
    if found.dialect is not None:
        reading["dialect"] = found.dialect
    return replace(found, reading=reading if pipe is None else {**reading, "pipe": pipe})


def _first(inputs: Sequence[str], format: Any) -> tuple[InputFile, bool]:
    """Return the first file, and whether its format is known."""
    told = "-" not in inputs or format is not None
    try:
        files = expand(inputs, format=format)
    except FeedError:
        files, told = expand(inputs, format=format or "csv"), False  # which fails again unless it was for the name
    if not files:
        raise FeedError("there is no file to read: no file name has a known format")
    return files[0], told and (files[0].format != "log" or format is not None)  # anything may be called .log


def _told_by(sample: bytearray) -> Format:
    """Return the format that an input's first bytes tell of; CSV otherwise."""
    magics: dict[bytes, Format] = {b"PAR1": "parquet", b"ARROW1": "arrow", b"\xff\xff\xff\xff": "arrow", b"{": "json"}
    begin = bytes(sample[:512]).removeprefix(b"\xef\xbb\xbf").lstrip()
    if LINE.match(begin):
        return "log"
    if begin.startswith(b"{") and CADDY in begin:
        return "caddy"
    return next((format for magic, format in magics.items() if begin.startswith(magic)), "csv")


def _guess(file: InputFile, sample: bytearray) -> Guess:
    if file.format in ("parquet", "arrow"):
        schema = guarded(lambda: _schema(file, sample), place=file.name, what=file.format)
        return Guess(format=file.format, columns=_kinds(schema))
    if file.format in ("log", "caddy"):
        return Guess(format=file.format, columns=COLUMNS)
    if len(sample) >= _SAMPLE:  # the last line may be half a line
        del sample[sample.rfind(b"\n") + 1 or len(sample) :]
    if not sample.strip():
        raise FeedError(f"{file.name} is empty, so its columns cannot be guessed")
    found, dialect = _sniffed(file, sample), None
    if file.format == "json":
        columns = _kinds(pa.ipc.read_schema(pa.py_buffer(b64decode(found["schema"]))))
    elif found["skipped"]:
        raise FeedError(f"{file.name} begins with lines that are not part of its table; remove them")
    else:
        columns = found["columns"]
        names = () if found["header"] else columns
        dialect = Dialect(delimiter=found["delimiter"], quote=found["quote"], names=names)
    fitting = {name: kind if _fits(sample, name, kind, dialect) else "string" for name, kind in columns.items()}
    return Guess(format=file.format, columns=fitting, dialect=dialect)


def _sniffed(file: InputFile, sample: bytearray) -> dict[str, Any]:
    """Have a process of its own look at the first rows: what it was given ends with it."""
    command = [sys.executable, "-P", "-m", "panstream.engine.dialects", file.format]
    done = subprocess.run(command, input=sample, capture_output=True, check=False)
    if done.returncode:
        what = "JSON lines" if file.format == "json" else "a table of text"
        raise FeedError(f"{file.name}: its first rows cannot be read as {what}")
    return dict(json.loads(done.stdout))


def _fits(sample: bytearray, name: str, kind: str, dialect: Dialect | None) -> bool:
    """Return whether the feeds' own reader takes the first values of a column as a type: it knows fewer ways to write
    a time.
    """
    if kind == "string":
        return True
    schema = RowSchema(columns={name: kind})
    parser = JsonParser(schema) if dialect is None else CsvParser(schema, place="the input", dialect=dialect)
    data = sample + b"\n" + bytes(SPARE_BYTES)
    end = len(sample) + 1
    try:
        begin = parser.start(data, end, final=True) or 0
        del data[:begin]
        rows, _ = parser.parse(data, end - begin)
        fits = not rows.codes.any()
        rows.wipe()
        return fits
    finally:
        data[:] = bytes(len(data))


def _schema(file: InputFile, sample: bytearray) -> Any:
    if file.format == "parquet":
        if file.path is None:
            raise FeedError("Parquet cannot be read from standard input, since its index is at the end; give the file")
        from pyarrow import parquet

        return parquet.read_schema(file.path)
    if file.path is not None and sample.startswith(b"ARROW1"):
        with pa.OSFile(str(file.path)) as opened:
            return pa.ipc.open_file(opened).schema
    return pa.ipc.read_schema(pa.py_buffer(bytes(sample)))


def _kinds(schema: Any) -> dict[str, str]:
    found = {field.name: kind for field in schema if (kind := kind_of(field.type)) is not None}
    if not found:
        raise FeedError("the input has no columns that can be read")
    return found
