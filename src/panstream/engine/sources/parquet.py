"""Parquet files: only the declared columns are read, a page at a time, whatever the size of the row groups.

pyarrow holds the page it decodes, and the dictionary of the row group where a column has one: the ids in them are in memory until
the next. Most writers end pages and dictionaries at 1 MB.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from panstream.engine.rows import RowSchema
from panstream.engine.sources.guard import guarded
from panstream.engine.sources.typed import Piece, check_types, from_arrow

__all__ = ["ParquetFile"]

_BUFFER_BYTES = (1 << 15, 1 << 18)  # least and most of a column that is read from the file at once
_ROW_BYTES = 16
_PLAIN_BYTES = 4  # a string stored plainly takes four bytes for its length alone


class ParquetFile:
    """One file, read in pieces of at most ``rows`` rows; ``skip`` passes over whole row groups without reading them."""

    def __init__(self, path: Path, schema: RowSchema, *, rows: int) -> None:
        from pyarrow import parquet

        self._schema, self._rows, self._place = schema, rows, path.name
        metadata = self._guarded(lambda: parquet.read_metadata(path))
        check_types(self._guarded(metadata.schema.to_arrow_schema), schema, self._place)
        self._sizes = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
        self._file = self._guarded(
            lambda: parquet.ParquetFile(
                path,
                metadata=metadata,
                buffer_size=min(max(_BUFFER_BYTES[0], _ROW_BYTES * rows), _BUFFER_BYTES[1]),
                pre_buffer=False,
                read_dictionary=_repetitive(metadata, schema),
            )
        )

    @property
    def total_rows(self) -> int:
        """How many rows the file has."""
        return sum(self._sizes)

    def skip(self, rows: int) -> int:
        """Leave out row groups that lie within the first ``rows`` rows; return how many rows that are."""
        gone = 0
        while self._sizes and gone + self._sizes[0] <= rows:
            gone += self._sizes.pop(0)
        return gone

    def pieces(self) -> Iterator[Piece]:
        """Yield the rows in order."""
        groups = range(self._file.num_row_groups - len(self._sizes), self._file.num_row_groups)
        batches = self._file.iter_batches(
            self._rows, row_groups=list(groups), columns=list(self._schema.columns), use_threads=False
        )
        while (batch := self._guarded(lambda: next(batches, None))) is not None:
            yield from_arrow(batch, self._schema)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _guarded(self, call: Callable[[], Any]) -> Any:
        return guarded(call, place=self._place, what="a Parquet file")


def _repetitive(metadata: Any, schema: RowSchema) -> list[str]:
    """Return the string columns that are stored as a dictionary throughout: they stay so, which is faster."""
    found = []
    for column in range(metadata.num_columns):
        chunks = [metadata.row_group(group).column(column) for group in range(metadata.num_row_groups)]
        name = metadata.schema.column(column).path
        size = sum(chunk.total_uncompressed_size for chunk in chunks)
        values = sum(chunk.num_values for chunk in chunks)
        if schema.columns.get(name) == "string" and name != schema.user and size < _PLAIN_BYTES * values:
            found.append(name)
    return found
