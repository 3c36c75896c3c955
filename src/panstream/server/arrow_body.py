"""Arrow IPC streams from strangers: every size is checked before anything is believed.

Buffers that are compressed within the stream are refused: their declared size is a promise that the reader would
allocate memory for.
"""

from __future__ import annotations

import struct
from typing import Any

from panstream.engine.arrow import pa
from panstream.engine.rows import RowSchema, SourceError
from panstream.engine.sources.arrow_ipc import check_offsets
from panstream.engine.sources.guard import guarded
from panstream.engine.sources.typed import Piece, check_types, from_arrow
from panstream.server.refusals import Refusal

__all__ = ["read_arrow"]

_PLACE = "the body"
_HEADERS = {2: "dictionary batch", 3: "record batch"}
_COMPRESSION = 3  # field of a RecordBatch table


def read_arrow(data: memoryview, schema: RowSchema, *, rows: int) -> Piece:
    """Return the rows of a stream; they may share the memory of ``data``."""
    options = pa.ipc.IpcReadOptions(use_threads=False, ensure_alignment=pa.ipc.Alignment.DataTypeSpecific)

    def opened() -> Any:
        _check_messages(data)
        return pa.ipc.open_stream(pa.BufferReader(data), options=options)

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
    at = 0
    compressed = False
    try:
        while at < len(data):
            (size,) = struct.unpack_from("<i", data, at)
            at += 4
            if size == -1:
                (size,) = struct.unpack_from("<i", data, at)
                at += 4
            if size == 0:
                break
            if size < 0 or at + size > len(data):
                raise struct.error
            body, compressed = _message(data[at : at + size])
            at += size + body
            if compressed or body < 0:
                break
    except struct.error:
        at = len(data) + 1
    if compressed:
        raise SourceError(f"{_PLACE} has compressed buffers; compress the whole body instead, by Content-Encoding")
    if at > len(data):
        raise SourceError(f"{_PLACE} is not an Arrow IPC stream, or is cut short")


def _message(metadata: memoryview) -> tuple[int, bool]:
    """Return the length of a message's body, and whether its buffers are compressed."""
    (root,) = struct.unpack_from("<I", metadata, 0)
    kind = _field(metadata, root, 1)
    header = _field(metadata, root, 2)
    length = _field(metadata, root, 3)
    body = 0 if length is None else struct.unpack_from("<q", metadata, length)[0]
    what = 0 if kind is None else metadata[kind]
    if what not in _HEADERS or header is None:
        return body, False
    table = header + struct.unpack_from("<I", metadata, header)[0]
    if what == 2:
        inner = _field(metadata, table, 1)
        if inner is None:
            return body, False
        table = inner + struct.unpack_from("<I", metadata, inner)[0]
    return body, _field(metadata, table, _COMPRESSION) is not None


def _field(data: memoryview, table: int, number: int) -> int | None:
    """Return where a field of a flatbuffer's table lies, or None if it is absent."""
    (back,) = struct.unpack_from("<i", data, table)
    if not 0 <= table - back <= len(data) - 4:
        raise struct.error
    (size,) = struct.unpack_from("<H", data, table - back)
    if 4 + 2 * number + 2 > size:
        return None
    (offset,) = struct.unpack_from("<H", data, table - back + 4 + 2 * number)
    if offset == 0:
        return None
    if table + offset >= len(data):
        raise struct.error
    return int(table + offset)
