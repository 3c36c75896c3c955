"""Tables in files: the named columns of a CSV file (also gzipped) or a Parquet file. Messages never quote a row."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

from panstream.batch.frames import pyarrow
from panstream.errors import InvalidBatch, InvalidParameter

__all__ = ["read_columns"]


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
        raise InvalidBatch(f"{path.name} cannot be read as a table") from None
