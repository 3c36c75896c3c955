"""Parquet files: only the declared columns are read, a few pages at a time, whatever the size of the row groups.

Columns of strings and of 64-bit integers that are stored in the ordinary ways are decoded by ``parquet_pages``, all
others by pyarrow. Either way the page that is being decoded, and the dictionary of the row group where a column has
one, are in memory until the next; of pages with fewer rows, those that a micro-batch needs. Most writers end pages and
dictionaries at 1 MB.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from panstream.engine.arrow import pa
from panstream.engine.rows.buffer_pool import Spare
from panstream.engine.rows.row_batch import Rows, RowSchema
from panstream.engine.rows.undecoded_ids import StoredIds
from panstream.engine.rows.wiping import wipe_array
from panstream.engine.sources.error_guard import guarded
from panstream.engine.sources.formats.arrow_columns import check_types, from_arrow
from panstream.engine.sources.formats.parquet._dictionary_columns import WordColumn
from panstream.engine.sources.formats.parquet._footer import KINDS, Footer, read_footer
from panstream.engine.sources.formats.parquet._integer_columns import WIDTH, NumberColumn, StoredNumberColumn
from panstream.engine.sources.formats.parquet._page_stream import Reading
from panstream.engine.sources.formats.parquet._string_columns import Cursor, StoredColumn, StringColumn
from panstream.engine.sources.formats.parquet.pages import Chunk

_BUFFER_BYTES = (1 << 15, 1 << 18)  # least and most of a column that is read from the file at once
_ROW_BYTES = 16
_CODECS = {0: None, 1: "snappy", 2: "gzip", 4: "brotli", 6: "zstd"}
_ENCODINGS = 1 << 0 | 1 << 2 | 1 << 3 | 1 << 8  # plain, a dictionary's codes in both their names, runs
_PLAIN_BYTES = 4  # a string stored plainly takes four bytes for its length alone

Column = StringColumn | StoredColumn | WordColumn | NumberColumn


class ParquetFile:
    """One file, read in pieces of at most ``rows`` rows; ``skip`` passes over whole row groups without reading them.

    ``ahead`` decompresses the next page in a thread of its own. By default there is one with more than two processors:
    on two, the engine and the thread that reads its micro-batches keep both busy. With ``stored_ids`` ids stay in their
    pages where they can; if ``hurry`` then returns True, whoever looks at them decompresses the page.
    """

    def __init__(
        self,
        path: Path,
        schema: RowSchema,
        *,
        rows: int,
        ahead: bool | None = None,
        stored_ids: bool = False,
        hurry: Callable[[], bool] = lambda: False,
    ) -> None:
        from pyarrow import parquet

        self._schema, self._rows, self._place = schema, rows, path.name
        self._ahead = (os.cpu_count() or 1) > 2 if ahead is None else ahead
        metadata = self._guarded(lambda: parquet.read_metadata(path))
        check_types(self._guarded(_schema_of(metadata).to_arrow_schema), schema, self._place)
        footer = self._guarded(lambda: read_footer(path, metadata.num_row_groups, metadata.num_columns))
        self._sizes = footer.rows.tolist()
        self._groups = len(self._sizes)
        self._repetitive = _repetitive(metadata, footer, schema)
        self._strings = _strings(metadata, footer, schema)
        self._numbers = _numbers(metadata, footer, schema)
        self._stored_ids, self._hurry, self._path = stored_ids, hurry, path
        self._open: list[Column] = []
        self._spare = Spare()
        self._file = self._guarded(
            lambda: parquet.ParquetFile(
                path,
                metadata=metadata,
                buffer_size=min(max(_BUFFER_BYTES[0], _ROW_BYTES * rows), _BUFFER_BYTES[1]),
                pre_buffer=False,
                read_dictionary=self._repetitive,
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

    def pieces(self) -> Iterator[Rows]:
        """Yield the rows in order."""
        first = self._groups - len(self._sizes)
        own: dict[str, Column] = {name: self._column(name, chunks[first:]) for name, chunks in self._strings.items()}
        for name, chunks in self._numbers.items():
            kind = StoredNumberColumn if self._stored_ids and name == self._schema.user else NumberColumn
            own[name] = kind(self._cursor(chunks[first:], width=WIDTH))
        self._open = list(own.values())
        for rows, others in self._others(first):
            columns = {name: others.column(name) for name in self._schema.columns if name not in own}
            try:
                for name, column in own.items():
                    columns[name] = self._guarded(partial(column.take, rows))
                piece = self._piece(columns, rows)
            except BaseException:
                for found in columns.values():
                    found.wipe() if isinstance(found, StoredIds) else wipe_array(found)
                raise
            yield piece

    def _column(self, name: str, chunks: list[Chunk]) -> Column:
        if self._stored_ids and name == self._schema.user:
            return StoredColumn(self._cursor(chunks, hurry=(lambda: False) if self._ahead else self._hurry))
        if name in self._repetitive:
            return WordColumn(self._cursor(chunks, narrow=True))
        return StringColumn(self._cursor(chunks))

    def _cursor(self, chunks: list[Chunk], **options: Any) -> Cursor:
        return Cursor(self._path, chunks, Reading(spare=self._spare, rows=self._rows, **options), ahead=self._ahead)

    def _piece(self, columns: dict[str, Any], rows: int) -> Rows:
        """Return the columns as declared; ids that are left in their pages are set apart."""
        user = self._schema.user
        ids = columns[user] if user is not None and isinstance(columns[user], StoredIds) else None
        kinds = {name: kind for name, kind in self._schema.columns.items() if ids is None or name != user}
        if not kinds:
            return Rows(columns=_rows_only(rows), ids=ids)
        batch = pa.RecordBatch.from_arrays([columns[name] for name in kinds], names=list(kinds))
        own = {*self._strings, *self._numbers}
        return from_arrow(batch, self._schema, ids=ids, place=self._place, sound=own)

    def close(self) -> None:
        """Close the file."""
        for column in self._open:
            column.close()
        self._file.close()

    def _others(self, first: int) -> Iterator[tuple[int, Any]]:
        """Yield how many rows come next, and their columns as pyarrow reads them."""
        names = [name for name in self._schema.columns if name not in {*self._strings, *self._numbers}]
        if not names:
            left = sum(self._sizes)
            while left:
                rows = min(left, self._rows)
                left -= rows
                yield rows, None
            return
        groups = list(range(first, self._groups))
        batches = self._file.iter_batches(self._rows, row_groups=groups, columns=names, use_threads=False)
        while (batch := self._guarded(lambda: next(batches, None))) is not None:
            yield batch.num_rows, batch

    def _guarded(self, call: Callable[[], Any]) -> Any:
        return guarded(call, place=self._place, what="a Parquet file")


def _rows_only(rows: int) -> Any:
    """Return a record batch without columns."""
    return pa.RecordBatch.from_arrays([pa.nulls(rows)], names=["none"]).select([])


def _strings(metadata: Any, footer: Footer, schema: RowSchema) -> dict[str, list[Chunk]]:
    """Return the columns that are decoded here, with their places in the file."""
    types = _schema_of(metadata).to_arrow_schema()
    found = {}
    for name, kind in schema.columns.items():
        text = pa.types.is_string(types.field(name).type) or pa.types.is_large_string(types.field(name).type)
        chunks = _chunks_of(metadata, footer, name, "BYTE_ARRAY") if kind == "string" and text else None
        if chunks is not None:
            found[name] = chunks
    return found


def _numbers(metadata: Any, footer: Footer, schema: RowSchema) -> dict[str, list[Chunk]]:
    """Return the columns of signed 64-bit integers that are decoded here, with their places in the file."""
    types = _schema_of(metadata).to_arrow_schema()
    wanted = [name for name, kind in schema.columns.items() if kind == "int" and types.field(name).type == pa.int64()]
    found = {name: _chunks_of(metadata, footer, name, "INT64") for name in wanted}
    return {name: chunks for name, chunks in found.items() if chunks is not None}


def _repetitive(metadata: Any, footer: Footer, schema: RowSchema) -> list[str]:
    """Return the string columns that are stored as a dictionary throughout: they stay so, which is faster."""
    from panstream.primitives.kernels.sources.parquet_footer import SIZE, VALUES

    found, paths = [], _schema_of(metadata)
    for column in range(metadata.num_columns):
        name = paths.column(column).path
        size, values = (sum(footer.numbers[:, column, place].tolist()) for place in (SIZE, VALUES))
        if schema.columns.get(name) == "string" and name != schema.user and size < _PLAIN_BYTES * values:
            found.append(name)
    return found


def _schema_of(metadata: Any) -> Any:
    """Return the schema of a Parquet file.

    ``metadata.schema`` would tie the two into a cycle, and the footer's values would stay in memory.
    """
    from pyarrow.parquet import ParquetSchema

    return ParquetSchema(metadata)


def _chunks_of(metadata: Any, footer: Footer, name: str, kind: str) -> list[Chunk] | None:
    """Return where a column of a kind lies, or None if pyarrow has to read it: nested, or encoded in another way."""
    from panstream.primitives.kernels.sources.parquet_footer import (
        CODEC,
        DATA,
        DICTIONARY,
        ELSEWHERE,
        ENCODINGS,
        KIND,
        MISSING,
        SIZE,
        STORED,
        VALUES,
    )

    schema = _schema_of(metadata)
    found = [at for at in range(metadata.num_columns) if schema.column(at).path == name]
    if len(found) != 1:
        return None
    column = schema.column(found[0])
    if column.max_repetition_level or column.max_definition_level > 1:
        return None
    chunks = []
    for rows, part in zip(footer.rows.tolist(), footer.numbers[:, found[0]].tolist(), strict=True):
        if part[KIND] != KINDS[kind] or part[CODEC] not in _CODECS or part[ELSEWHERE] or part[VALUES] != rows:
            return None
        if part[ENCODINGS] & ~_ENCODINGS or min(part[SIZE], part[STORED]) < 0:
            return None
        if part[DATA] <= 0 and rows:
            return None
        start = part[DATA] if part[DICTIONARY] <= 0 else min(part[DATA], part[DICTIONARY])
        chunks.append(
            Chunk(
                start=start,
                stored=part[STORED],
                rows=rows,
                size=part[SIZE],
                codec=_CODECS[part[CODEC]],
                optional=column.max_definition_level == 1,
                complete=column.max_definition_level == 0 or part[MISSING] == 0,
            )
        )
    return chunks
