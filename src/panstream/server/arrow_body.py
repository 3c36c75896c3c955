"""Arrow IPC streams from strangers: every size is checked before anything is believed, and every offset before it is used."""

from __future__ import annotations

from typing import Any

import numpy as np

from panstream.engine.arrow import compute, pa, truth_of
from panstream.engine.feeds.guard import guarded
from panstream.engine.feeds.ipc_checks import check_body
from panstream.engine.feeds.layouts import check_layout, check_types
from panstream.engine.feeds.typed import empty, from_arrow, joined
from panstream.engine.rows import Rows, RowSchema
from panstream.server.refusals import Refusal

__all__ = ["read_arrow"]

_PLACE = "the body"
_KIND = "an Arrow IPC stream"
_VIEWS = (pa.string_view(), pa.binary_view())
_WORDS = (pa.string(), pa.large_string(), pa.binary(), pa.large_binary())


def read_arrow(data: memoryview, schema: RowSchema, *, rows: int, unpacked: int = 64 << 20) -> Rows:
    """Return the rows of a stream; they may share the memory of ``data``.

    Words that stand there once and are used many times may take ``unpacked`` bytes written out.
    """
    check_body(data, _PLACE)
    reader = _opened(data)
    check_types(reader.schema, schema, _PLACE)
    if len(reader.schema) > len(schema.columns):  # others are not even read
        reader = _opened(data, sorted(reader.schema.get_field_index(name) for name in schema.columns))
    pieces: list[Rows] = []
    total = size = 0
    while (batch := guarded(lambda: _next(reader), place=_PLACE, what=_KIND)) is not None:
        total += batch.num_rows
        if total > rows:
            raise Refusal("too_large", f"a body may have {rows:,} rows")
        size += guarded(lambda: _written_out(batch, schema), place=_PLACE, what=_KIND)
        if size > unpacked:
            raise Refusal("too_large", f"the words of a body may have {unpacked:,} bytes written out")
        if batch.num_rows:
            pieces.append(from_arrow(batch, schema, place=_PLACE))
    if not total:
        return empty(schema)
    return joined(pieces, schema)


def _opened(data: memoryview, fields: list[int] | None = None) -> Any:
    options = pa.ipc.IpcReadOptions(
        use_threads=False, ensure_alignment=pa.ipc.Alignment.DataTypeSpecific, included_fields=fields
    )
    return guarded(lambda: pa.ipc.open_stream(pa.BufferReader(data), options=options), place=_PLACE, what=_KIND)


def _written_out(batch: Any, schema: RowSchema) -> int:
    """Return how many bytes words take that the body holds once for many rows, where they will be written out."""
    size = 0
    for name, kind in schema.columns.items():
        array = getattr(batch.column(name), "storage", batch.column(name))
        coded = pa.types.is_dictionary(array.type)
        words = array.dictionary if coded else array
        if coded and kind == "string" and name != schema.user:
            continue  # stays as it is
        if words.type in _VIEWS or (coded and words.type in _WORDS):
            check_layout(array)
            lengths = _lengths(words)
            size += int(compute.sum(lengths.take(array.indices) if coded else lengths).as_py() or 0)
    return size


def _lengths(words: Any) -> Any:
    if words.type not in _VIEWS:
        return compute.binary_length(words)
    stop = words.offset + len(words)
    views = np.frombuffer(words.buffers()[1] or b"", np.int32, 4 * stop).reshape(-1, 4)[words.offset :, 0]
    known = np.where(truth_of(words.is_valid()), views, 0)  # of a word that is missing, the view may say anything
    return pa.Array.from_buffers(pa.int32(), len(known), [None, pa.py_buffer(known.astype(np.int32))])


def _next(reader: Any) -> Any:
    return next(iter(reader), None)
