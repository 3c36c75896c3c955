"""Columns that a path names, as Hive and Spark write them: ``visits/day=2026-11-19/region=north/part-0.parquet``.

Their values are public, as all names of files are: what was read is recorded by name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import unquote

import numpy as np

from panstream.engine.arrow import pa
from panstream.engine.rows.row_batch import RowSchema, arrow_type
from panstream.errors import SourceError

_NULL = "__HIVE_DEFAULT_PARTITION__"
_PART = re.compile(r"([^=/]+)=([^/]*)")
_INTEGER = re.compile(r"[+-]?[0-9]{1,18}")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


def path_columns(path: str) -> dict[str, str | None]:
    """Return the columns that the directories of a path name, as text; None is NULL.

    >>> path_columns("visits/day=2026-11-19/region=N%20W/part-0.parquet")
    {'day': '2026-11-19', 'region': 'N W'}
    """
    matches = [_PART.fullmatch(part) for part in path.split("/")[:-1]]
    return {
        unquote(match[1]): None if match[2] == _NULL else unquote(match[2]) for match in matches if match is not None
    }


def infer_kinds(partitions: Iterable[Mapping[str, str | None]]) -> dict[str, str]:
    """Return the type of every column that the paths of all files name: int, date or string."""
    seen: dict[str, set[str]] = {}
    common: set[str] | None = None
    for values in partitions:
        common = set(values) if common is None else common & set(values)
        for name, value in values.items():
            if value is not None:
                is_number = _INTEGER.fullmatch(value) is not None
                kind = "int" if is_number else "date" if _DATE.fullmatch(value) else "string"
                seen.setdefault(name, set()).add(kind)
    return {
        name: kinds.pop() if len(kinds) == 1 else "string"
        for name, kinds in ((name, set(seen.get(name, ()))) for name in sorted(common or ()))
    }


class PathColumns:
    """The columns of a schema that a file lacks and its path has.

    Args:
        values: What the path says, as text.
        stored: Columns that the file itself has, which win.
        schema: The declared columns.
        label: What messages call the file.

    Raises:
        SourceError: The path has the user column, or a value is not of its declared type.
    """

    def __init__(self, values: Mapping[str, str | None], stored: Iterable[str], schema: RowSchema, label: str) -> None:
        in_file = set(stored)
        self.names = tuple(name for name in schema.columns if name in values and name not in in_file)
        if schema.user in self.names:
            raise SourceError(
                f"{label}: the user column {schema.user!r} is taken from the path, but names of files are public and "
                "are recorded: write the ids into the files, not into their paths"
            )
        self._scalars = {name: _scalar(values[name], name, schema.columns[name], label) for name in self.names}
        self.schema = RowSchema(
            columns={name: kind for name, kind in schema.columns.items() if name not in self.names},
            user=schema.user,
            on_bad_row=schema.on_bad_row,
        )
        self._whole = schema

    def add_to(self, batch: Any) -> Any:
        """Return a record batch with the declared columns, those of the path among them."""
        if not self.names:
            return batch
        count = batch.num_rows
        arrays = [
            _repeated(self._scalars[name], count) if name in self._scalars else batch.column(name)
            for name in self._whole.columns
        ]
        return pa.RecordBatch.from_arrays(arrays, names=list(self._whole.columns))


def _scalar(value: str | None, name: str, kind: str, label: str) -> Any:
    kind_of_arrow = arrow_type(kind)
    try:
        return pa.scalar(value, pa.string()).cast(kind_of_arrow)
    except (pa.ArrowException, ValueError):
        pass
    raise SourceError(f"{label}: the value of column {name!r} in the path is not of the declared type {kind}")


def _repeated(scalar: Any, count: int) -> Any:
    if scalar.type == pa.string() and scalar.is_valid and count:
        return pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int8)), pa.array([scalar.as_py()]))
    return pa.repeat(scalar, count)
