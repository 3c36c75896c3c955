"""Walk over the messages of an Arrow IPC stream without trusting any size in them.

pyarrow allocates what a message claims and may end the process on damaged metadata, so streams are checked here first.
Compiled because these are chains of offsets. Every position is compared with the size of the data before it is read.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.primitives.kernels.jit import njit

WHOLE = 0
DAMAGED = 1
COMPRESSED = 2
DELTA = 3
_ABSENT = -1  # a field that the table does not have
_INVALID = -2  # a position outside the message
_DICTIONARY = 2  # kinds of messages
_RECORDS = 3
# Fields of a record batch
_BUFFERS = 2
_COMPRESSION = 3
_BLOCK = 24  # bytes

Bytes = NDArray[np.uint8]


@njit(cache=True, nogil=True)
def _number(data: Bytes, pos: int, width: int) -> Any:
    """Return the little-endian number at a position that the caller has checked."""
    value = np.uint64(0)
    for i in range(width):
        value |= np.uint64(data[pos + i]) << np.uint64(8 * i)
    if width == 4 and value >= np.uint64(1 << 31):
        return np.int64(value) - (np.int64(1) << 32)
    return np.int64(value)


@njit(cache=True, nogil=True)
def _field(data: Bytes, table: int, number: int) -> Any:
    """Return the position of a field of a flatbuffer's table, ``_ABSENT`` or ``_INVALID``."""
    if table < 0 or table > data.size - 4:
        return _INVALID
    entries = table - _number(data, table, 4)
    if entries < 0 or entries > data.size - 4:
        return _INVALID
    entry = entries + 4 + 2 * number
    if 4 + 2 * number + 2 > _number(data, entries, 2):
        return _ABSENT
    if entry > data.size - 2:
        return _INVALID
    offset = _number(data, entry, 2)
    if offset == 0:
        return _ABSENT
    return table + offset if table + offset < data.size else _INVALID


@njit(cache=True, nogil=True)
def _follow_offset(data: Bytes, pos: int) -> Any:
    """Return the position that the offset at ``pos`` points to, or ``_INVALID``."""
    if pos < 0 or pos > data.size - 4:
        return _INVALID
    target = pos + (_number(data, pos, 4) & np.int64(0xFFFFFFFF))
    return target if target <= data.size - 4 else _INVALID


@njit(cache=True, nogil=True)
def _records(metadata: Bytes) -> tuple[Any, Any]:
    """Return the position of the table of a message's record batch, and whether it extends an earlier dictionary."""
    root = _follow_offset(metadata, 0)
    kind = _field(metadata, root, 1)
    header = _field(metadata, root, 2)
    if kind == _INVALID or header == _INVALID:
        return _INVALID, False
    what = 0 if kind == _ABSENT else metadata[kind]
    if header == _ABSENT or what not in (_DICTIONARY, _RECORDS):
        return _ABSENT, False
    table = _follow_offset(metadata, header)
    if what == _RECORDS:
        return table, False
    inner = _field(metadata, table, 1)
    delta = _field(metadata, table, 2)
    if inner == _INVALID or delta == _INVALID:
        return _INVALID, False
    is_delta = delta != _ABSENT and metadata[delta] != 0
    return (_ABSENT if inner == _ABSENT else _follow_offset(metadata, inner)), is_delta


@njit(cache=True, nogil=True)
def classify_message(metadata: Bytes) -> tuple[Any, Any]:
    """Return the length of a message's body (-1 if damaged), and its status."""
    length = _field(metadata, _follow_offset(metadata, 0), 3)
    if length == _INVALID or length > metadata.size - 8:
        return np.int64(-1), DAMAGED
    body = np.int64(0) if length == _ABSENT else _number(metadata, length, 8)
    table, delta = _records(metadata)
    if table == _INVALID or body < 0:
        return np.int64(-1), DAMAGED
    if delta:
        return body, DELTA
    if table == _ABSENT:
        return body, WHOLE
    compression = _field(metadata, table, _COMPRESSION)
    if compression == _INVALID:
        return np.int64(-1), DAMAGED
    return body, WHOLE if compression == _ABSENT else COMPRESSED


@njit(cache=True, nogil=True)
def _vector(data: Bytes, table: int, number: int, width: int) -> tuple[Any, Any]:
    """Return position and number of a vector's items; the number is -1 if it does not lie within the data."""
    field_pos = _field(data, table, number)
    if field_pos == _ABSENT:
        return np.int64(0), np.int64(0)
    pos = _follow_offset(data, field_pos)
    if pos < 0:
        return np.int64(0), np.int64(-1)
    count = _number(data, pos, 4)
    if count < 0 or count * width > data.size - pos - 4:
        return np.int64(0), np.int64(-1)
    return pos + 4, count


# `_vector` has checked the count against the metadata, so the array is not larger than the message.
@njit(cache=True, nogil=True)
def buffer_spans(metadata: Bytes) -> Any:
    """Return offset and length of every buffer in the body of a record batch; a single -1, -1 if it is damaged."""
    table, _ = _records(metadata)
    pos, count = _vector(metadata, table, _BUFFERS, 16)
    spans = np.full((max(count, 1) if count != 0 else 0, 2), -1, np.int64)
    for i in range(count):
        spans[i, 0] = _number(metadata, pos + 16 * i, 8)
        spans[i, 1] = _number(metadata, pos + 16 * i + 8, 8)
    return spans


# `_vector` has checked both counts against the footer, so the array is not larger than it.
@njit(cache=True, nogil=True)
def block_offsets(footer: Bytes) -> Any:
    """Return the positions of a file's messages according to its footer; a single -1 if that is damaged."""
    root = _follow_offset(footer, 0)
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
    """Return a stream's status: whole, damaged or truncated, with compressed buffers, or with dictionary deltas."""
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
