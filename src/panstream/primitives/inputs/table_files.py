"""Tables in files: the named columns of CSV, TSV, JSON lines, Parquet or Arrow. Messages never quote a row."""

from __future__ import annotations

import contextlib
import csv as text_lines
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from panstream.errors import InvalidBatch, InvalidParameter
from panstream.primitives.inputs.dataframes import pyarrow
from panstream.primitives.inputs.parquet_footer import CorruptParquet, read_footer

_SEPARATORS = ",;\t|"
_LONGEST_HEADER = 1 << 20
_LINES = (".json", ".jsonl", ".ndjson")
_ARROW = (".arrow", ".feather", ".ipc")
_PARQUET = (".parquet", ".pq")


def read_columns(path: Path, names: Collection[str], *, text: Collection[str] = ()) -> Any:
    """Return an Arrow table of those ``names`` that the file has; CSV columns in ``text`` are read as strings.

    The file's suffix determines its format (default: CSV); text may be compressed. The separator of CSV is the one that
    occurs most often in its header.
    """
    arrow = pyarrow()
    try:
        if _ending(path) in _PARQUET:
            from pyarrow import parquet

            read_footer(path)
            return parquet.read_table(path, columns=[name for name in parquet.read_schema(path).names if name in names])
        if _ending(path) in _ARROW:
            table = arrow.ipc.open_file(path).read_all()
            return table.select([name for name in table.schema.names if name in names])
        if _ending(path) in _LINES:
            from pyarrow import json

            with arrow.input_stream(str(path)) as stream:
                table = json.read_json(stream)
            return table.select([name for name in table.schema.names if name in names])
        from pyarrow import csv

        header, parse = _header(path)
        present = [name for name in names if name in header]
        options = csv.ConvertOptions(include_columns=present, column_types=dict.fromkeys(text, arrow.string()))
        return csv.read_csv(path, parse_options=parse, convert_options=options)
    except FileNotFoundError:
        raise InvalidParameter(f"there is no file {path}") from None
    except (arrow.ArrowException, OSError, UnicodeDecodeError, CorruptParquet):
        raise InvalidBatch(f"{path.name} cannot be read as a table{_where(path)}") from None


def read_header(path: Path) -> dict[str, Any]:
    """Return the columns that a file declares, with their Arrow types or None (CSV); no row is read.

    JSON lines have no header: their names are in the rows.
    """
    arrow = pyarrow()
    try:
        if _ending(path) in _PARQUET:
            from pyarrow import parquet

            read_footer(path)
            return {field.name: field.type for field in parquet.read_schema(path)}
        if _ending(path) in _ARROW:
            return {field.name: field.type for field in arrow.ipc.open_file(path).schema}
        if _ending(path) in _LINES:
            raise InvalidParameter(f"{path.name} has no header: JSON lines name their columns in the rows")
        return dict.fromkeys(_header(path)[0])
    except FileNotFoundError:
        raise InvalidParameter(f"there is no file {path}") from None
    except (arrow.ArrowException, OSError, UnicodeDecodeError, CorruptParquet):
        raise InvalidBatch(f"{path.name} cannot be read as a table") from None


def write_columns(path: Path, columns: Mapping[str, Sequence[object]]) -> None:
    """Write columns as CSV or Parquet, by the file's ending."""
    table = pyarrow().table(columns)
    if path.suffix == ".parquet":
        from pyarrow import parquet

        parquet.write_table(table, path)
    elif path.suffix == ".csv":
        from pyarrow import csv

        csv.write_csv(table, path)
    else:
        raise InvalidParameter(f"the output must end in .csv or .parquet, got {path.name}")


def _ending(path: Path) -> str:
    """Return the suffix of a name without the suffix of a compression."""
    name = path.name.lower()
    for ending in (".gz", ".bz2", ".zst"):
        name = name.removesuffix(ending)
    return Path(name).suffix


def _header(path: Path) -> tuple[list[str], Any]:
    """Return the names in the first line of a text, and the options with which Arrow reads the others."""
    arrow = pyarrow()
    from pyarrow import csv

    with arrow.input_stream(str(path)) as stream:
        line = stream.read(_LONGEST_HEADER).split(b"\n", 1)[0].decode("utf-8-sig", "replace").rstrip("\r")
    separator = "\t" if _ending(path) == ".tsv" else max(_SEPARATORS, key=line.count)
    return next(text_lines.reader([line], delimiter=separator), []), csv.ParseOptions(delimiter=separator)


def _where(path: Path) -> str:
    """Return the number of the first CSV line with a wrong number of fields, as text; empty if there is none."""
    if _ending(path) in (*_PARQUET, *_ARROW, *_LINES):
        return ""
    from pyarrow import ArrowException, csv

    lines: list[int] = []

    def note(row: Any) -> str:
        lines.append(row.number)
        return "error"

    with contextlib.suppress(ArrowException, OSError):
        parse = csv.ParseOptions(delimiter=_header(path)[1].delimiter, invalid_row_handler=note)
        csv.read_csv(path, csv.ReadOptions(use_threads=False), parse)
    return f": line {lines[0]} has another number of fields than the header" if lines else ""
