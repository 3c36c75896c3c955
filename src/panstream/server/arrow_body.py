"""Arrow IPC streams from strangers: every size is checked before anything is believed.

Buffers that are compressed within the stream are refused: their declared size is a promise that the reader would
allocate memory for.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from panstream._kernels.ipc import COMPRESSED, DAMAGED, walk_messages
from panstream.engine.arrow import pa
from panstream.engine.rows import RowSchema, SourceError
from panstream.engine.sources.arrow_ipc import check_offsets
from panstream.engine.sources.guard import guarded
from panstream.engine.sources.typed import Piece, check_types, from_arrow
from panstream.server.refusals import Refusal

__all__ = ["read_arrow"]

_PLACE = "the body"
_OPTIONS = pa.ipc.IpcReadOptions(use_threads=False, ensure_alignment=pa.ipc.Alignment.DataTypeSpecific)


def read_arrow(data: memoryview, schema: RowSchema, *, rows: int) -> Piece:
    """Return the rows of a stream; they may share the memory of ``data``."""

    def opened() -> Any:
        _check_messages(data)
        return pa.ipc.open_stream(pa.BufferReader(data), options=_OPTIONS)

    reader = guarded(opened, place=_PLACE, what="an Arrow IPC stream")
    check_types(reader.schema, schema, _PLACE)
    batches: list[Any] = []
    total = 0
    while (batch := guarded(lambda: _next(reader, schema), place=_PLACE, what="an Arrow IPC stream")) is not None:
        total += batch.num_rows
        if total > rows:
            raise Refusal("too_large", f"a body may have {rows:,} rows")
        batches.append(batch)
    if not total:
        return Piece(pa.RecordBatch.from_pylist([], schema.arrow()), 0, [])
    if len(batches) == 1:
        return from_arrow(batches[0], schema)
    joined = guarded(lambda: _joined(batches), place=_PLACE, what="an Arrow IPC stream")
    return from_arrow(joined, schema)


def _next(reader: Any, schema: RowSchema) -> Any:
    batch = next(iter(reader), None)
    if batch is not None:
        batch = batch.select(list(schema.columns))
        batch.validate()
        for column in batch.columns:
            check_offsets(column)
    return batch


def _joined(batches: list[Any]) -> Any:
    return pa.Table.from_batches(batches).unify_dictionaries().combine_chunks().to_batches()[0]


def _check_messages(data: memoryview) -> None:
    """Walk over the messages, and refuse compressed buffers."""
    found = walk_messages(np.frombuffer(data, np.uint8))
    if found == COMPRESSED:
        raise SourceError(f"{_PLACE} has compressed buffers; compress the whole body instead, by Content-Encoding")
    if found == DAMAGED:
        raise SourceError(f"{_PLACE} is not an Arrow IPC stream, or is cut short")
