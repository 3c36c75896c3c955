"""Arrow IPC streams from strangers: every size is checked before anything is believed, and every offset before it is used."""

from __future__ import annotations

from typing import Any

from panstream.engine.arrow import pa
from panstream.engine.rows import RowSchema
from panstream.engine.sources.guard import guarded
from panstream.engine.sources.ipc_checks import check_body
from panstream.engine.sources.layouts import check_types
from panstream.engine.sources.typed import Piece, empty, from_arrow, joined
from panstream.server.refusals import Refusal

__all__ = ["read_arrow"]

_PLACE = "the body"
_KIND = "an Arrow IPC stream"


def read_arrow(data: memoryview, schema: RowSchema, *, rows: int) -> Piece:
    """Return the rows of a stream; they may share the memory of ``data``."""
    check_body(data, _PLACE)
    reader = _opened(data)
    check_types(reader.schema, schema, _PLACE)
    if len(reader.schema) > len(schema.columns):  # others are not even read
        reader = _opened(data, sorted(reader.schema.get_field_index(name) for name in schema.columns))
    pieces: list[Piece] = []
    total = 0
    while (batch := guarded(lambda: _next(reader), place=_PLACE, what=_KIND)) is not None:
        total += batch.num_rows
        if total > rows:
            raise Refusal("too_large", f"a body may have {rows:,} rows")
        if batch.num_rows:
            pieces.append(from_arrow(batch, schema, place=_PLACE))
    if not total:
        return empty(schema)
    return joined(pieces)


def _opened(data: memoryview, fields: list[int] | None = None) -> Any:
    options = pa.ipc.IpcReadOptions(
        use_threads=False, ensure_alignment=pa.ipc.Alignment.DataTypeSpecific, included_fields=fields
    )
    return guarded(lambda: pa.ipc.open_stream(pa.BufferReader(data), options=options), place=_PLACE, what=_KIND)


def _next(reader: Any) -> Any:
    return next(iter(reader), None)
