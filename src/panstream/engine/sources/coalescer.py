"""Collect rows into micro-batches: by row count, and by time for live input."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import reduce
from operator import or_
from typing import Any

import numpy as np

from panstream.engine.arrow import pa
from panstream.engine.rows.row_batch import RowBatch, RowSchema, arrow_type
from panstream.engine.rows.wiping import NOTHING_BORROWED, wipe_unused
from panstream.errors import BadRowError


class Coalescer:
    """Collects the rows of one producer into batches of ``rows`` rows, bad ones included.

    Boundaries depend on the input only, unless ``seconds`` is given, after which an incomplete batch is yielded. The
    first ``skip`` rows were applied in an earlier run and are dropped; the first ``start`` of them are not even read.
    With ``uncut``, batches end where pieces do as long as they have over half of ``rows``: cutting a piece and joining
    its parts with others copies all of them.
    """

    def __init__(
        self,
        schema: RowSchema,
        *,
        rows: int,
        producer: str | None,
        label: str,
        seconds: float | None = None,
        clock: Callable[[], float] = lambda: 0.0,
        skip: int = 0,
        start: int = 0,
        uncut: bool = False,
    ) -> None:
        self._schema = schema
        self._rows = rows
        self._producer = producer
        self._label = label
        self._seconds = seconds
        self._clock = clock
        self._pieces: list[RowBatch] = []
        self._waiting = 0
        self._since = 0.0
        self._done = start  # rows that were yielded or skipped
        self._skip = skip
        self._uncut = uncut

    @property
    def rows_seen(self) -> int:
        """Rows of this producer that were read: yielded, waiting or skipped."""
        return self._done + self._waiting

    def add(self, piece: RowBatch) -> Iterator[RowBatch]:
        """Add rows, and yield the batches that are full.

        Raises:
            BadRowError: A row is bad, and ``on_bad_row`` is "stop".
        """
        if self._done < self._skip and len(piece):
            skipped = min(self._skip - self._done, len(piece))
            passed, piece = piece.split(skipped)
            passed.wipe()
            self._done += skipped
        if self._schema.on_bad_row == "stop" and piece.codes.any():
            position = int(np.argmax(piece.codes != 0))
            row = self.rows_seen + position + 1
            reason = self._schema.reason(int(piece.codes[position]))
            raise BadRowError(f"{self._label}, row {row}: {reason}; nothing of its batch was taken", row=row)
        if self._uncut and self._waiting > self._rows // 2 and self._waiting + len(piece) > self._rows:
            yield self._batch(self._waiting)
        if len(piece):
            if not self._waiting:
                self._since = self._clock()
            self._pieces.append(piece)
            self._waiting += len(piece)
        while self._waiting >= self._rows:
            yield self._batch(self._rows)

    def add_bad(self, code: int) -> Iterator[RowBatch]:
        """Add a row of NULLs, for a record that cannot be parsed."""
        columns = [pa.nulls(1, arrow_type(kind)) for kind in self._schema.columns.values()]
        batch = pa.RecordBatch.from_arrays(columns, names=list(self._schema.columns))
        yield from self.add(RowBatch(columns=batch, codes=np.array([code], np.uint16)))

    def remaining(self) -> float | None:
        """Return the seconds until the waiting rows must be yielded, or ``None`` if there is no limit."""
        if self._seconds is None or not self._waiting:
            return None
        return max(0.0, self._since + self._seconds - self._clock())

    def flush(self) -> Iterator[RowBatch]:
        """Yield the waiting rows, if any."""
        if self._waiting:
            yield self._batch(self._waiting)

    def close(self) -> None:
        """Overwrite and drop the waiting rows."""
        for piece in self._pieces:
            piece.wipe()
        self._pieces.clear()
        self._waiting = 0

    def _batch(self, rows: int) -> RowBatch:
        parts = []
        short = rows
        while short:
            piece = self._pieces.pop(0)
            if len(piece) > short:
                piece, rest = piece.split(short)
                self._pieces.insert(0, rest)
            parts.append(piece)
            short -= len(piece)
        first = self._done
        self._done = self._done + rows
        self._waiting -= rows
        self._since = self._clock()
        batch = concat_batches(parts, self._schema)
        return replace(batch, first_row=first + 1, producer=self._producer, sequence=self._done)


def concat_batches(parts: Sequence[RowBatch], schema: RowSchema) -> RowBatch:
    """Join batches; they must not be used any more, and memory that the result does not share is overwritten."""
    if len(parts) == 1:
        return parts[0]
    batches = _one_encoding([_wide(part.columns) for part in parts])
    table = pa.Table.from_batches(batches).unify_dictionaries().combine_chunks()
    columns = table.to_batches()[0] if table.num_rows else batches[0].slice(0, 0)
    for part, batch in zip(parts, batches, strict=True):
        wipe_unused(part.columns.columns, columns.columns, part.borrowed)
        wipe_unused(batch.columns, columns.columns, part.borrowed)
    return RowBatch(
        columns=columns,
        codes=np.concatenate([part.codes for part in parts]),
        borrowed=reduce(or_, (part.borrowed for part in parts), NOTHING_BORROWED),
    )


def _wide(batch: Any) -> Any:
    """Widen dictionary codes to 32 bits: a joined dictionary may have more entries than 8 bits can number."""
    columns = []
    for column in batch.columns:
        if pa.types.is_dictionary(column.type) and column.type.index_type != pa.int32():
            column = pa.DictionaryArray.from_arrays(column.indices.cast(pa.int32()), column.dictionary, safe=False)
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names) if columns else batch


def _one_encoding(batches: list[Any]) -> list[Any]:
    """Decode dictionaries, if a column is dictionary-encoded in some batches and plain in others."""
    if all(batch.schema.equals(batches[0].schema) for batch in batches):
        return batches
    plain = []
    for batch in batches:
        columns = [c.dictionary_decode() if pa.types.is_dictionary(c.type) else c for c in batch.columns]
        plain.append(pa.RecordBatch.from_arrays(columns, names=batch.schema.names))
    return plain
