"""Walking over the messages of an Arrow IPC stream without believing any size in them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

WHOLE = 0
DAMAGED = 1
COMPRESSED = 2
DELTA = 3
_NOWHERE = -1  # a field that is absent
_OUTSIDE = -2  # one that lies outside the message
# Kinds of messages
_DICTIONARY = 2
_RECORDS = 3
# Fields of a record batch
_BUFFERS = 2
_COMPRESSION = 3
_BLOCK = 24  # bytes

Bytes = NDArray[np.uint8]


@njit(cache=True, nogil=True)
def _number(data: Bytes, pos: int, width: int) -> Any:
    """Return the little-endian number at a place that is known to lie within the data."""
    value = np.uint64(0)
    for i in range(width):
        value |= np.uint64(data[pos + i]) << np.uint64(8 * i)
    if width == 4 and value >= np.uint64(1 << 31):
        return np.int64(value) - (np.int64(1) << 32)
    return np.int64(value)


@njit(cache=True, nogil=True)
def _field(data: Bytes, table: int, number: int) -> Any:
    """Return where a field of a flatbuffer's table lies."""
    if table < 0 or table > data.size - 4:
        return _OUTSIDE
    entries = table - _number(data, table, 4)
    if entries < 0 or entries > data.size - 4:
        return _OUTSIDE
    entry = entries + 4 + 2 * number
    if 4 + 2 * number + 2 > _number(data, entries, 2):
        return _NOWHERE
    if entry > data.size - 2:
        return _OUTSIDE
    offset = _number(data, entry, 2)
    if offset == 0:
        return _NOWHERE
    return table + offset if table + offset < data.size else _OUTSIDE


@njit(cache=True, nogil=True)
def _followed(data: Bytes, pos: int) -> Any:
    """Return where the offset at a place points to."""
    if pos < 0 or pos > data.size - 4:
        return _OUTSIDE
    target = pos + (_number(data, pos, 4) & np.int64(0xFFFFFFFF))
    return target if target <= data.size - 4 else _OUTSIDE


@njit(cache=True, nogil=True)
def _records(metadata: Bytes) -> tuple[Any, Any]:
    """Return where the table of a message's record batch lies, and whether that is a part of a dictionary sent
    before.
    """
    root = _followed(metadata, 0)
    kind = _field(metadata, root, 1)
    header = _field(metadata, root, 2)
    if kind == _OUTSIDE or header == _OUTSIDE:
        return _OUTSIDE, False
    what = 0 if kind == _NOWHERE else metadata[kind]
    if header == _NOWHERE or what not in (_DICTIONARY, _RECORDS):
        return _NOWHERE, False
    table = _followed(metadata, header)
    if what == _RECORDS:
        return table, False
    inner = _field(metadata, table, 1)
    delta = _field(metadata, table, 2)
    if inner == _OUTSIDE or delta == _OUTSIDE:
        return _OUTSIDE, False
    is_delta = delta != _NOWHERE and metadata[delta] != 0
    return (_NOWHERE if inner == _NOWHERE else _followed(metadata, inner)), is_delta


@njit(cache=True, nogil=True)
def classify_message(metadata: Bytes) -> tuple[Any, Any]:
    """Return the length of a message's body, and what the message is."""
    length = _field(metadata, _followed(metadata, 0), 3)
    if length == _OUTSIDE or length > metadata.size - 8:
        return np.int64(-1), DAMAGED
    body = np.int64(0) if length == _NOWHERE else _number(metadata, length, 8)
    table, delta = _records(metadata)
    if table == _OUTSIDE or body < 0:
        return np.int64(-1), DAMAGED
    if delta:
        return body, DELTA
    if table == _NOWHERE:
        return body, WHOLE
    compression = _field(metadata, table, _COMPRESSION)
    if compression == _OUTSIDE:
        return np.int64(-1), DAMAGED
    return body, WHOLE if compression == _NOWHERE else COMPRESSED


@njit(cache=True, nogil=True)
def _vector(data: Bytes, table: int, number: int, width: int) -> tuple[Any, Any]:
    """Return where the items of a vector lie, and how many there are: -1 if it does not lie within the data."""
    field_pos = _field(data, table, number)
    if field_pos == _NOWHERE:
        return np.int64(0), np.int64(0)
    pos = _followed(data, field_pos)
    if pos < 0:
        return np.int64(0), np.int64(-1)
    count = _number(data, pos, 4)
    if count < 0 or count * width > data.size - pos - 4:
        return np.int64(0), np.int64(-1)
    return pos + 4, count


@njit(cache=True, nogil=True)
def buffer_spans(metadata: Bytes) -> Any:
    """Return offset and length of every buffer in the body of a message with records; one of -1, -1 if it is
    damaged.
    """
    table, _ = _records(metadata)
    pos, count = _vector(metadata, table, _BUFFERS, 16)
    spans = np.full((max(count, 1) if count != 0 else 0, 2), -1, np.int64)
    for i in range(count):
        spans[i, 0] = _number(metadata, pos + 16 * i, 8)
        spans[i, 1] = _number(metadata, pos + 16 * i + 8, 8)
    return spans


@njit(cache=True, nogil=True)
def block_offsets(footer: Bytes) -> Any:
    """Return where the messages of a file begin, by its footer; one of -1 if that is damaged."""
    root = _followed(footer, 0)
    dictionaries, many = _vector(footer, root, 2, _BLOCK)
    batches, more = _vector(footer, root, 3, _BLOCK)
    if many < 0 or more < 0:
        return np.full(1, -1, np.int64)
    offsets = np.empty(many + more, np.int64)
    for i in range(many):
        offsets[i] = _number(footer, dictionaries + _BLOCK * i, 8)
    for i in range(more):
        offsets[many + i] = _number(footer, batches + _BLOCK * i, 8)
    return offsets


@njit(cache=True, nogil=True)
def walk_messages(data: Bytes) -> Any:
    """Return what a stream is: whole, damaged or cut short, with compressed buffers, or with parts of dictionaries."""
    pos: Any = np.int64(0)
    while pos < data.size:
        if pos > data.size - 4:
            return DAMAGED
        size = _number(data, pos, 4)
        pos += 4
        if size == -1:
            if pos > data.size - 4:
                return DAMAGED
            size = _number(data, pos, 4)
            pos += 4
        if size == 0:
            return WHOLE
        if size < 0 or size > data.size - pos:
            return DAMAGED
        body, status = classify_message(data[pos : pos + size])
        if status != WHOLE:
            return status
        pos += size
        if body > data.size - pos:
            return DAMAGED
        pos += body
    return WHOLE
