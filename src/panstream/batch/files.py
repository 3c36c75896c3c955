"""Tables in files: the named columns of a CSV file (also gzipped) or a Parquet file. Messages never quote a row."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from panstream.batch.frames import pyarrow
from panstream.errors import InvalidBatch, InvalidParameter

__all__ = ["read_columns", "write_columns"]


def read_columns(path: Path, names: Collection[str], *, text: Collection[str] = ()) -> Any:
    """Return an Arrow table of those ``names`` that the file has; CSV columns in ``text`` are not taken for numbers."""
    arrow = pyarrow()
    try:
        if path.suffix == ".parquet":
            from pyarrow import parquet

            return parquet.read_table(path, columns=[name for name in parquet.read_schema(path).names if name in names])
        from pyarrow import csv

        with csv.open_csv(path) as reader:
            present = [name for name in names if name in reader.schema.names]
        options = csv.ConvertOptions(include_columns=present, column_types=dict.fromkeys(text, arrow.string()))
        return csv.read_csv(path, convert_options=options)
    except FileNotFoundError:
        raise InvalidParameter(f"there is no file {path}") from None
    except (arrow.ArrowInvalid, arrow.ArrowKeyError, OSError):
        raise InvalidBatch(f"{path.name} cannot be read as a table{_where(path)}") from None


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


def _where(path: Path) -> str:
    """Return which line of a CSV file has the wrong number of fields, if that is what is wrong."""
    if path.suffix == ".parquet":
        return ""
    from pyarrow import ArrowException, csv

    lines: list[int] = []

    def note(row: Any) -> str:
        lines.append(row.number)
        return "error"

    with contextlib.suppress(ArrowException, OSError):
        csv.read_csv(path, csv.ReadOptions(use_threads=False), csv.ParseOptions(invalid_row_handler=note))
    return f": line {lines[0]} has another number of fields than the header" if lines else ""
