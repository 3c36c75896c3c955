"""Compare the first rows of an input with the declared types, before any budget is charged.

If most values of a column cannot be parsed, every answer about it is meaningless, and its interval does not show it:
such an input is refused. If more than a tenth cannot, a warning is given.

Privacy: one row among the first can change either outcome, so callers declare it a public fact.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Literal

import numpy as np

from panstream.engine.arrow import valid_mask
from panstream.engine.config.text_style import Encoding
from panstream.engine.rows.row_batch import RAGGED, RowSchema
from panstream.engine.sources._encodings import to_utf8
from panstream.engine.sources.byte_streams import SPARE_BYTES, PipeBytes, decompress_prefix, open_file
from panstream.engine.sources.error_guard import translate_reader_errors
from panstream.engine.sources.formats.csv import CsvParser, Dialect
from panstream.engine.sources.formats.json_lines import JsonParser
from panstream.engine.sources.input_files import InputFile, expand_paths
from panstream.errors import SourceError

ROWS = 200  # compared
TEXT_FORMATS = ("csv", "tsv", "json")
SAMPLE_BYTES = 1 << 20  # read from the beginning
_FEWEST = 10  # rows below which nothing is refused or warned of: a single row would decide
_ROWS_BYTES = 1 << 16  # that these rows are taken from, unless the first one is longer
_TOLERATED = 10  # one row in ten may be unusable without a warning
_NULS = 4  # in UTF-16, at least one byte in four is NUL for ASCII-rich text
_NEWLINE = 0x0A
_NOT_ASCII = 0x80
_UNDEFINED = (0x81, 0x8D, 0x8F, 0x90, 0x9D)  # bytes that Windows-1252 does not define
_KINDS = {
    "int": "a whole number",
    "double": "a number",
    "string": "valid UTF-8",
    "binary": "bytes",
    "bool": "true or false",
    "timestamp": "a time",
    "date": "a date",
}
_ENCODINGS = {"windows-1252": "Windows-1252", "latin-1": "Latin-1"}
_DATES = ("%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%d.%m.%y", "%d/%m/%y", "%m/%d/%y", "%Y/%m/%d", "%Y%m%d")
_TIMES = ("", " %H:%M", " %H:%M:%S", " %I:%M %p")

Caller = Literal["command", "configuration", "python"]


def say_option(caller: Caller, key: str, value: str) -> str:
    """Return the spelling of an option: on the command line, in ``[stream]``, or as an argument."""
    if caller == "configuration":
        return f'{key} = "{value}" in [stream]'
    if caller == "python":
        return f'{key}="{value}"'
    quoted = f"'{value}'" if set(value) & set(" %") else value
    return f"--{key.replace('_', '-')} {quoted}"


def read_head(file: InputFile, pipe: PipeBytes | None) -> bytearray:
    """Return the first bytes of an input, decompressed; the caller overwrites them. A pipe will be read again."""
    if pipe is not None:
        head = pipe.head(SAMPLE_BYTES)
        codec = pipe.compression()
    else:
        assert file.path is not None
        raw, codec = open_file(file.path)
        with raw:
            head = bytearray(
                translate_reader_errors(lambda: raw.read(SAMPLE_BYTES), label=file.name, what="a file") or b""
            )
    if codec is None:
        return head
    sample = decompress_prefix(head, codec, SAMPLE_BYTES)
    head[:] = bytes(len(head))
    return sample


def likely_encoding(sample: bytearray) -> Encoding | None:
    """Return the likely encoding of a text that is not UTF-8; None if it has a multi-byte character of UTF-8.

    A single row with invalid bytes is a bad row, and no evidence about the others: only invalid bytes in the first
    line, which may hold column names, or in two lines count.
    """
    if sample.isascii() and 0 not in sample:
        return None
    from panstream.primitives.kernels.sources.transcode import count_letters

    data = np.frombuffer(sample, np.uint8)
    if sample.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "utf-16"
    if _NULS * np.count_nonzero(data == 0) > data.size:
        return "utf-16-le" if np.count_nonzero(data[1::2] == 0) > np.count_nonzero(data[::2] == 0) else "utf-16-be"
    letters, strays = count_letters(data)
    if letters or not strays:
        return None
    lines = np.unique(np.searchsorted(np.flatnonzero(data == _NEWLINE), np.flatnonzero(data >= _NOT_ASCII)))
    if lines.size < 2 and lines[0] != 0:
        return None
    return "latin-1" if np.isin(data, _UNDEFINED).any() else "windows-1252"


def check_encoding_of(sample: bytearray, dialect: Dialect, *, label: str, caller: Caller) -> None:
    """Raise SourceError if text seems not to be UTF-8 and no encoding was declared."""
    if dialect.declared_encoding is None and (encoding := likely_encoding(sample)) is not None:
        shown = _ENCODINGS.get(encoding, "UTF-16")
        option = say_option(caller, "encoding", encoding)
        raise SourceError(f"{label} is not UTF-8; it looks like {shown} ({option})")


def whole_lines(sample: bytearray) -> None:
    """Overwrite and remove the last line of a sample, which may be incomplete."""
    end = sample.rfind(b"\n") + 1 or len(sample)
    sample[end:] = bytes(len(sample) - end)
    del sample[end:]


@dataclass(frozen=True, slots=True)
class FirstValues:
    """Counts of the first rows by what a column has in them.

    Attributes:
        rows: All rows.
        usable: Rows with a value of the type.
        misfits: Rows with a value of another type.
        unusable: Misfits and, where the column is required, rows without a value.
        ragged: Rows with too few or too many fields.
    """

    rows: int
    usable: int
    misfits: int
    unusable: int
    ragged: int

    @property
    def fits(self) -> bool:
        """Whether there are values, and all of them are of the type."""
        return self.usable > 0 and not self.unusable


def first_values(
    sample: bytearray,
    name: str,
    kind: str,
    dialect: Dialect,
    *,
    is_json: bool,
    required: bool = False,
    label: str = "the input",
    rows: int | None = ROWS,
) -> FirstValues:
    """Parse a column of the first rows with the parsers of the sources.

    In a ``required`` column, as users and times are, a row without a value is unusable, too.
    """
    schema = RowSchema(columns={name: kind})
    parser: CsvParser | JsonParser = CsvParser(schema, label=label, dialect=dialect)
    if is_json:
        parser = JsonParser(schema, style=dialect.style)
    end = len(sample)
    if rows is not None and end > _ROWS_BYTES:
        end = sample.rfind(b"\n", 0, _ROWS_BYTES) + 1 or end
    data = sample[:end] + b"\n" + bytes(SPARE_BYTES)
    end += 1
    try:
        begin = parser.start(data, end, final=True) or 0
        data[: end - begin] = data[begin:end]
        batch, _ = parser.parse(data, end - begin)
        codes = batch.codes[:rows]
        valid = valid_mask(batch.columns.column(name))[:rows]
        misfits = codes == schema.type_error_code(name)
        unusable = misfits | (~valid & (codes != RAGGED)) if required else misfits
        batch.wipe()
        return FirstValues(
            rows=codes.size,
            usable=int(np.count_nonzero(valid)),
            misfits=int(np.count_nonzero(misfits)),
            unusable=int(np.count_nonzero(unusable)),
            ragged=int(np.count_nonzero(codes == RAGGED)),
        )
    finally:
        data[:] = bytes(len(data))


def hint_for(sample: bytearray, name: str, kind: str, dialect: Dialect, *, is_json: bool, caller: Caller) -> str:
    """Return a question with the option that would make the values of a column readable; "" if none does."""

    def fits(kind: str, **changes: str) -> bool:
        return first_values(sample, name, kind, dialect.but(**changes), is_json=is_json).fits

    is_number = kind in ("int", "double", "string") and dialect.style.decimal == "." and not is_json
    if is_number and not fits("double") and fits("double", decimal=","):
        return f"is the decimal mark a comma? ({say_option(caller, 'decimal', ',')})"
    if kind in ("timestamp", "date", "string") and not fits("timestamp"):
        formats = [day + time for day, time in product(_DATES, _TIMES) if fits("timestamp", date_format=day + time)]
        if formats:
            options = " or ".join(say_option(caller, "date_format", text) for text in formats)
            return f"are dates written in another way? ({options})"
    return ""


def check_first_rows(
    inputs: Sequence[str],
    columns: Mapping[str, str],
    *,
    required: Collection[str] = (),
    dialect: Dialect | None = None,
    format: Any = None,
    pipe: PipeBytes | None = None,
    caller: Caller,
) -> list[str]:
    """Compare the first rows of every file of text with the types of the columns that are read.

    Returns:
        Warnings about columns of which more than a tenth of the rows cannot be used.

    Raises:
        SourceError: A file is in another encoding, or more of its first values do not fit than do.
    """
    warnings: list[str] = []
    declared = dialect or Dialect()
    for file in expand_paths(inputs, format=format):
        if file.format not in TEXT_FORMATS:
            continue  # readers check the types of Parquet and Arrow; logs have fixed columns
        sample = read_head(file, pipe)
        try:
            if len(sample) >= SAMPLE_BYTES:
                whole_lines(sample)
            sample = to_utf8(sample, declared.encoding)
            text = sample if "string" in columns.values() else sample[: sample.find(b"\n") + 1]
            check_encoding_of(text, declared, label=file.name, caller=caller)
            warnings += _check_columns(sample, file, columns, required, declared.of_format(file.format), caller)
        finally:
            sample[:] = bytes(len(sample))
    return warnings


def _check_columns(
    sample: bytearray,
    file: InputFile,
    columns: Mapping[str, str],
    required: Collection[str],
    dialect: Dialect,
    caller: Caller,
) -> list[str]:
    warnings: list[str] = []
    is_json = file.format == "json"
    for name, kind in columns.items():
        values = first_values(sample, name, kind, dialect, is_json=is_json, required=name in required, label=file.name)
        rows = f"the first {values.rows:,} rows"
        if values.rows < _FEWEST:
            break
        if values.ragged == values.rows:
            raise SourceError(f"{file.name}: each of {rows} has too few or too many fields; is the delimiter right?")
        if not values.unusable:
            continue
        hint = hint_for(sample, name, kind, dialect, is_json=is_json, caller=caller)
        what = f"{_KINDS[kind]} in {name!r}"
        question = hint or f"is its type {kind}?"
        if not values.usable:
            raise SourceError(f"{file.name}: none of {rows} has {what}; {question}")
        if values.misfits > values.usable:
            raise SourceError(f"{file.name}: {values.unusable:,} of {rows} do not have {what}; {question}")
        if _TOLERATED * values.unusable > values.rows:
            warning = f"{file.name}: {values.unusable:,} of {rows} do not have {what}, and are left out"
            warnings.append(f"{warning}; {hint}" if hint else warning)
    return warnings
