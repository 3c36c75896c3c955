"""Read Parquet files with pyarrow: only the declared columns, and of each a page at a time, even of large row groups.

Small row groups are loaded as they are stored, so that pages are checked and decoded in the same bytes.

Privacy: what is loaded is overwritten. Pages and dictionaries that pyarrow decodes are overwritten only by the
allocator of a hardened process; in other processes ids stay in freed memory until it is reused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.engine.arrow import pa
from panstream.engine.rows.row_batch import RowBatch, RowSchema
from panstream.engine.rows.wiping import wipe_array
from panstream.engine.sources.error_guard import translate_reader_errors
from panstream.engine.sources.formats.arrow_columns import check_types, from_arrow
from panstream.engine.sources.formats.parquet.column_decoder import ColumnDecoder, read_metadata
from panstream.engine.sources.formats.parquet.local_bytes import LocalBytes, can_load
from panstream.engine.sources.formats.parquet.page_limits import LARGEST_PAGE_BYTES, chunk_range, measure_pages
from panstream.engine.sources.hive_columns import PathColumns
from panstream.engine.sources.object_stores import RemoteBytes, RemoteFile
from panstream.errors import SourceError
from panstream.primitives.inputs.parquet_footer import CorruptParquet, Footer, footer_bytes, parse_footer
from panstream.primitives.memory.scratch import wipe

_FIELD_ID = b"PARQUET:field_id"
_MIN_BUFFER_BYTES = 1 << 15  # read from the file at once, per column
_MAX_BUFFER_BYTES = 1 << 18
_ROW_BYTES = 16
_BATCH_BYTES = 1 << 28  # a batch that might need more when decoded has fewer rows
_LENGTH_BYTES = 4  # stored before the text of a string in PLAIN encoding


class ParquetFile:
    """One file, read in pieces of at most ``rows`` rows.

    Errors name the file and the index of the row group.

    Args:
        path: The file.
        schema: The declared columns.
        rows: Most rows of a piece.
        values: Columns that its path or its table's log says, as text; the file's own ones of the same name win.
        field_ids: Ids that declared columns must have in the file; empty if names are enough.
    """

    def __init__(
        self,
        path: Path | RemoteFile,
        schema: RowSchema,
        *,
        rows: int,
        values: Mapping[str, str | None] | None = None,
        field_ids: Mapping[str, int] | None = None,
    ) -> None:
        self._rows = rows
        self._name = path.name
        self._next_group = 0
        self._file: LocalBytes | RemoteBytes = self._guarded(
            lambda: path.open() if isinstance(path, RemoteFile) else LocalBytes(path)
        )
        try:
            self._open(path, schema, values or {}, field_ids or {})
        except BaseException:
            self._file.close()
            raise

    def _open(
        self,
        path: Path | RemoteFile,
        schema: RowSchema,
        values: Mapping[str, str | None],
        field_ids: Mapping[str, int],
    ) -> None:
        from pyarrow import parquet

        footer: NDArray[np.uint8] = self._guarded(lambda: footer_bytes(self._file))
        try:
            self._footer: Footer = self._guarded(lambda: parse_footer(footer))
            # Not ``metadata.schema``: its reference cycle would hold the statistics, which quote values, in memory.
            parquet_schema = self._guarded(lambda: parquet.ParquetSchema(read_metadata(footer)))
            arrow_schema = self._guarded(parquet_schema.to_arrow_schema)
            self._whole_schema = schema
            self._from_path = PathColumns(values, arrow_schema.names, schema, self._name)
            self._schema = self._from_path.schema
            check_types(arrow_schema, self._schema, self._name)
            self._check_field_ids(arrow_schema, field_ids)
            self._columns = self._guarded(lambda: self._columns_by_name(parquet_schema))
            self._decoder: ColumnDecoder = self._guarded(
                lambda: ColumnDecoder(
                    lambda: self._source(path),
                    footer,
                    list(self._schema.columns),
                    repetitive=[name for name, column in self._columns if self._is_repetitive(name, column)],
                    buffer_size=self._buffer_size(),
                )
            )
        finally:
            wipe(footer)  # statistics quote values

    @property
    def total_rows(self) -> int:
        """Number of rows, by the footer."""
        return sum(self._footer.rows)

    def skip(self, rows: int) -> int:
        """Skip the row groups that lie within the first ``rows`` rows, unread; return their number of rows."""
        skipped = 0
        for group_rows in self._footer.rows:
            if skipped + group_rows > rows:
                break
            skipped += group_rows
            self._next_group += 1
        return skipped

    def pieces(self) -> Iterator[RowBatch]:
        """Yield the rows in order."""
        for group in range(self._next_group, len(self._footer.rows)):
            yield from self._read_group(group)

    def close(self) -> None:
        """Close the file."""
        self._decoder.close()
        self._file.close()

    def _check_field_ids(self, arrow_schema: Any, field_ids: Mapping[str, int]) -> None:
        """Raise SourceError if a column was renamed since the file was written: the name would be another column's."""
        for name in self._schema.columns if field_ids else ():
            described = arrow_schema.field(name).metadata or {}
            if field_ids.get(name) != int(described.get(_FIELD_ID, b"-1")):
                raise SourceError(
                    f"{self._name}: column {name!r} of the table is another one in this file, or was renamed since it "
                    "was written, which is not supported; rewrite the table's data files"
                )

    def _read_group(self, group: int) -> Iterator[RowBatch]:
        if self._loads_all or isinstance(self._file, RemoteBytes):
            self._guarded(lambda: self._file.load(self._ranges(group)), group)
        rows_left = self._footer.rows[group]
        batch_rows = self._guarded(lambda: self._batch_rows(group), group)
        batches = self._decoder.batches(group, batch_rows)

        def next_piece() -> RowBatch | None:
            batch = next(batches, None)
            if (0 if batch is None else batch.num_rows) > rows_left or (batch is None and rows_left):
                raise CorruptParquet("a row group has more or fewer rows than the footer says")
            return None if batch is None else self._converted(batch, group)

        while (piece := self._guarded(next_piece, group)) is not None:
            rows_left -= len(piece)
            yield piece

    def _converted(self, batch: Any, group: int) -> RowBatch:
        try:
            return from_arrow(self._from_path.add_to(batch), self._whole_schema, label=self._name_of(group))
        except BaseException:
            for column in batch.columns:
                wipe_array(column)
            raise

    def _batch_rows(self, group: int) -> int:
        """Check the page headers of a row group; return how many rows to decode at once within ``_BATCH_BYTES``."""
        row_limit = _BATCH_BYTES // self._rows
        chunks = [self._footer.columns[group, column] for _, column in self._columns]
        limits = [measure_pages(self._file, chunk, row_limit) for chunk in chunks]
        if sum(limit.page_bytes for limit in limits) > LARGEST_PAGE_BYTES:
            raise CorruptParquet("the pages of a row group are too large")
        row_bytes = sum(limit.row_bytes for limit in limits)
        most = min(self._rows, max(1, _BATCH_BYTES // max(1, row_bytes)))
        return -(-self._footer.rows[group] // max(1, -(-self._footer.rows[group] // most))) or 1

    def _ranges(self, group: int) -> list[tuple[int, int]]:
        return [chunk_range(self._footer.columns[group, column]) for _, column in self._columns]

    @cached_property
    def _loads_all(self) -> bool:
        """Return whether every row group of a local file is loaded before pyarrow reads it."""
        groups = range(len(self._footer.rows))
        return isinstance(self._file, LocalBytes) and all(can_load(self._ranges(group)) for group in groups)

    def _source(self, path: Path | RemoteFile) -> Any:
        """Open the file for pyarrow, which reads files on a local disk by itself unless they are loaded."""
        return path if isinstance(path, Path) and not self._loads_all else pa.PythonFile(self._file, "r")

    def _buffer_size(self) -> int:
        """Return the bytes that pyarrow reads at once of a column; 0 for all of it."""
        return 0 if self._loads_all else min(max(_MIN_BUFFER_BYTES, _ROW_BYTES * self._rows), _MAX_BUFFER_BYTES)

    def _columns_by_name(self, parquet_schema: Any) -> list[tuple[str, int]]:
        """Return the declared columns with the indices of their leaves, as pyarrow matches names with paths."""
        paths = [parquet_schema.column(number).path for number in range(len(parquet_schema))]
        if self._footer.rows and self._footer.columns.shape[1] != len(paths):
            raise CorruptParquet("the footer contradicts its schema")
        return [
            (name, number)
            for name in self._schema.columns
            for number, path in enumerate(paths)
            if path == name or path.startswith(f"{name}.")
        ]

    def _is_repetitive(self, name: str, column: int) -> bool:
        """Return whether a string column is dictionary-encoded throughout: decoding it as such is faster."""
        from panstream.primitives.kernels.sources.parquet_thrift import SIZE, VALUES

        size, values = (sum(self._footer.columns[:, column, field].tolist()) for field in (SIZE, VALUES))
        return self._schema.columns[name] == "string" and size < _LENGTH_BYTES * values

    def _guarded(self, call: Callable[[], Any], group: int | None = None) -> Any:
        return translate_reader_errors(call, label=self._name_of(group), what="a Parquet file")

    def _name_of(self, group: int | None) -> str:
        return self._name if group is None else f"{self._name} (row group {group})"
