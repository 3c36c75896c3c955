"""Infer the schema of an input from its first bytes: format, dialect, columns and their types.

A later value that does not fit makes its row a bad one. Only columns are inferred: bounds, groups and sizes would
reveal the users in the rows.

Privacy: one row among the first can change the schema, so callers declare it a public fact.
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
from panstream.engine.sources._encodings import to_utf8
from panstream.engine.sources.byte_streams import PipeBytes, open_file
from panstream.engine.sources.error_guard import translate_reader_errors
from panstream.engine.sources.first_rows import (
    SAMPLE_BYTES,
    TEXT_FORMATS,
    Caller,
    check_encoding_of,
    first_values,
    hint_for,
    read_head,
    whole_lines,
)
from panstream.engine.sources.formats.access_log import CADDY, COLUMNS, LINE
from panstream.engine.sources.formats.csv import Dialect
from panstream.engine.sources.hive_columns import infer_kinds
from panstream.engine.sources.input_files import Format, InputFile, expand_paths
from panstream.engine.sources.plain_text import plain_dialect
from panstream.engine.sources.tables import open_table, readable_columns
from panstream.errors import InvalidBatch, SourceError
from panstream.primitives.inputs.parquet_footer import footer_of

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
class InferredSchema:
    """Format, typed columns and dialect of an input. ``reading`` are further arguments of its source."""

    format: str
    columns: Mapping[str, str]
    dialect: Dialect | None = None
    reading: Mapping[str, Any] = field(default_factory=dict, repr=False)
    hints: Mapping[str, str] = field(default_factory=dict)  # options that might give a type to text columns

    def __str__(self) -> str:
        columns = ", ".join(f"{name} {kind}" for name, kind in self.columns.items())
        if self.dialect is None:
            return f"{_FORMATS[self.format]}: {columns}"
        sign = self.dialect.delimiter
        header = "no header line" if self.dialect.names else "a header line"
        return f"text separated by {_SEPARATORS.get(sign, repr(sign))}, with {header}: {columns}"

    def to_json(self) -> dict[str, Any]:
        """Return the schema as JSON values."""
        document: dict[str, Any] = {"format": self.format, "columns": dict(self.columns)}
        if self.dialect is not None:
            dialect = self.dialect
            document |= {"delimiter": dialect.delimiter, "quote": dialect.quote, "header": not dialect.names}
            document |= {"encoding": dialect.encoding, "decimal": dialect.style.decimal}
            document["date_format"] = list(dialect.style.date_formats)
        return document


def infer_table_schema(data: Any) -> tuple[Any, InferredSchema]:
    """Return a table as Arrow, and a schema with the types of its columns; some may be left out, with hints."""
    try:
        table = open_table(data)
        hints: dict[str, str] = {}
    except InvalidBatch:
        data, hints = readable_columns(data)
        table = open_table(data)
    return table, InferredSchema(format="table", columns=_kinds(table.schema), hints=hints)


def infer_schema(
    inputs: Sequence[str], *, format: str | None = None, written: Dialect | None = None, caller: Caller = "python"
) -> InferredSchema:
    """Infer the schema of the first input; the others must have the same.

    Args:
        inputs: Files, globs, directories, or "-" for standard input, whose first bytes will be read again.
        format: The format, if the name does not say.
        written: The declared part of the dialect: decimal mark, date formats and encoding.
        caller: How messages spell options.
    """
    declared = written or Dialect()
    first, is_format_certain, from_paths = _first(inputs, format)
    pipe = PipeBytes(0) if first.path is None else None
    sample = read_head(first, pipe)
    try:
        if len(sample) >= SAMPLE_BYTES:
            whole_lines(sample)  # of binary formats, only what is at the beginning is used
        if not is_format_certain or first.format in TEXT_FORMATS:
            sample = to_utf8(sample, declared.encoding)
        kind = first.format if is_format_certain else _sniff_format(sample)
        inferred = _guess(replace(first, format=kind), sample, declared, caller)
    finally:
        sample[:] = bytes(len(sample))
    if kind == "parquet":
        inferred = replace(inferred, columns={**from_paths, **inferred.columns})
    reading: dict[str, Any] = {} if is_format_certain and pipe is None and format is None else {"format": kind}
    if inferred.dialect is not None or (written is not None and kind == "json"):
        reading["dialect"] = inferred.dialect or written
    return replace(inferred, reading=reading if pipe is None else {**reading, "pipe": pipe})


def _first(inputs: Sequence[str], format: Any) -> tuple[InputFile, bool, Mapping[str, str]]:
    """Return the first file, whether its format is certain, and the columns that all paths name."""
    is_format_certain = "-" not in inputs or format is not None
    try:
        files = expand_paths(inputs, format=format)
    except SourceError:
        files = expand_paths(inputs, format=format or "csv")  # fails again, unless only the format was unknown
        is_format_certain = False
    if not files:
        raise SourceError("there is no file to read: no file name has a known format")
    is_certain = is_format_certain and (files[0].format != "log" or format is not None)  # anything may be called .log
    return files[0], is_certain, infer_kinds(file.values for file in files)


def _sniff_format(sample: bytearray) -> Format:
    """Return the format by the first bytes of an input; CSV if none matches."""
    magics: dict[bytes, Format] = {b"PAR1": "parquet", b"ARROW1": "arrow", b"\xff\xff\xff\xff": "arrow", b"{": "json"}
    begin = bytes(sample[:512]).removeprefix(b"\xef\xbb\xbf").lstrip()
    if LINE.match(begin):
        return "log"
    if begin.startswith(b"{") and CADDY in begin:
        return "caddy"
    return next((format for magic, format in magics.items() if begin.startswith(magic)), "csv")


def _guess(file: InputFile, sample: bytearray, declared: Dialect, caller: Caller) -> InferredSchema:
    if file.format in ("parquet", "arrow"):
        schema = translate_reader_errors(lambda: _schema(file, sample), label=file.name, what=file.format)
        return InferredSchema(format=file.format, columns=_kinds(schema))
    if file.format in ("log", "caddy"):
        return InferredSchema(format=file.format, columns=COLUMNS)
    if not sample.strip():
        raise SourceError(f"{file.name} is empty, so its columns cannot be guessed")
    if sample.removeprefix(b"\xef\xbb\xbf").startswith(b"sep="):
        raise SourceError(f"{file.name} begins with a line for Excel (sep=), which is not part of its table; remove it")
    check_encoding_of(sample, declared, label=file.name, caller=caller)
    is_json = file.format == "json"
    plain = None if is_json or declared.style.decimal != "." else plain_dialect(sample)
    inferred = plain or _sniffed(file, sample, declared)
    dialect = declared
    if is_json:
        columns = _kinds(pa.ipc.read_schema(pa.py_buffer(b64decode(inferred["schema"]))))
    elif inferred["skipped"]:
        raise SourceError(f"{file.name} begins with lines that are not part of its table; remove them")
    else:
        columns = inferred["columns"]
        names = () if inferred["header"] else columns
        dialect = declared.but(delimiter=inferred["delimiter"], quote=inferred["quote"], names=names)
    certain = {"int", "double"} if dialect.style.date_formats else {"int", "double", "string"}
    fitting = {
        name: kind if plain and kind in certain else _fitting(sample, name, kind, dialect, is_json=is_json)
        for name, kind in columns.items()
    }
    hints = {
        name: hint_for(sample, name, kind, dialect, is_json=is_json, caller=caller)
        for name, kind in fitting.items()
        if kind == "string" and not (plain and columns[name] == kind)  # words are neither numbers nor times
    }
    return InferredSchema(
        format=file.format,
        columns=fitting,
        dialect=None if is_json else dialect,
        hints={name: f"{name!r} is read as text; {hint}" for name, hint in hints.items() if hint},
    )


def _sniffed(file: InputFile, sample: bytearray, declared: Dialect) -> dict[str, Any]:
    """Sniff the first rows in a child process: DuckDB's residue of them ends with it."""
    command = [sys.executable, "-P", "-m", "panstream.engine.dialect_sniffer", file.format, declared.style.decimal]
    done = subprocess.run(command, input=sample, capture_output=True, check=False)
    if done.returncode:
        what = "JSON lines" if file.format == "json" else "a table of text"
        raise SourceError(f"{file.name}: its first rows cannot be read as {what}")
    return dict(json.loads(done.stdout))


def _fitting(sample: bytearray, name: str, kind: str, dialect: Dialect, *, is_json: bool) -> str:
    """Return the first candidate type by which our parser reads all first values; "string" if none.

    Our parser and DuckDB's sniffer accept different forms of numbers and times.
    """

    def unusable(kind: str) -> bool:
        values = first_values(sample, name, kind, dialect, is_json=is_json, rows=None)
        return values.unusable > 0 or (kind != guessed and not values.usable)

    guessed = kind
    candidates = [kind]
    if kind not in ("int", "double", "bool") and dialect.style.date_formats:
        candidates.append("timestamp" if dialect.style.has_times else "date")
    if kind == "string":
        candidates = candidates[1:]
        if dialect.style.decimal != "." and not is_json:
            candidates.append("double")
    return next((candidate for candidate in candidates if not unusable(candidate)), "string")


def _schema(file: InputFile, sample: bytearray) -> Any:
    if file.format == "parquet":
        if file.path is None:
            raise SourceError(
                "Parquet cannot be read from standard input, since its index is at the end; give the file"
            )
        from pyarrow import parquet

        with open_file(file.path)[0] as opened:
            footer_of(opened)  # pyarrow must not see one that is damaged
            return parquet.read_schema(pa.PythonFile(opened, "r"))
    if file.path is not None and sample.startswith(b"ARROW1"):
        with open_file(file.path)[0] as opened:
            return pa.ipc.open_file(pa.PythonFile(opened, "r")).schema
    return pa.ipc.read_schema(pa.py_buffer(bytes(sample)))


def _kinds(schema: Any) -> dict[str, str]:
    kinds = {field.name: kind for field in schema if (kind := kind_of(field.type)) is not None}
    if not kinds:
        raise SourceError("the input has no columns that can be read")
    return kinds
