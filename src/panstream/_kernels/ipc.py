"""Walking over the messages of an Arrow IPC stream without believing any size in them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

__all__ = ["COMPRESSED", "DAMAGED", "WHOLE", "walk_messages"]

WHOLE, DAMAGED, COMPRESSED = 0, 1, 2
_NOWHERE = -1  # a field that is absent
_OUTSIDE = -2  # one that lies outside the message
_DICTIONARY, _RECORDS = 2, 3  # kinds of messages
_COMPRESSION = 3  # field of a record batch

Bytes = NDArray[np.uint8]


@njit(cache=True, nogil=True)
def _number(data: Bytes, at: int, width: int) -> Any:
    """Return the little-endian number at a place that is known to lie within the data."""
    value = np.uint64(0)
    for i in range(width):
        value |= np.uint64(data[at + i]) << np.uint64(8 * i)
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
    place = entries + 4 + 2 * number
    if 4 + 2 * number + 2 > _number(data, entries, 2):
        return _NOWHERE
    if place > data.size - 2:
        return _OUTSIDE
    offset = _number(data, place, 2)
    if offset == 0:
        return _NOWHERE
    return table + offset if table + offset < data.size else _OUTSIDE


@njit(cache=True, nogil=True)
def _followed(data: Bytes, at: int) -> Any:
    """Return where the offset at a place points to."""
    if at < 0 or at > data.size - 4:
        return _OUTSIDE
    target = at + (_number(data, at, 4) & np.int64(0xFFFFFFFF))
    return target if target <= data.size - 4 else _OUTSIDE


@njit(cache=True, nogil=True)
def _message(metadata: Bytes) -> tuple[Any, Any]:
    """Return the length of a message's body, negative if it cannot be told, and whether its buffers are compressed."""
    root = _followed(metadata, 0)
    kind, header, length = _field(metadata, root, 1), _field(metadata, root, 2), _field(metadata, root, 3)
    if kind == _OUTSIDE or header == _OUTSIDE or length == _OUTSIDE or length > metadata.size - 8:
        return np.int64(-1), False
    body = np.int64(0) if length == _NOWHERE else _number(metadata, length, 8)
    what = 0 if kind == _NOWHERE else metadata[kind]
    if header == _NOWHERE or what not in (_DICTIONARY, _RECORDS):
        return body, False
    table = _followed(metadata, header)
    if what == _DICTIONARY:
        inner = _field(metadata, table, 1)
        if inner == _NOWHERE:
            return body, False
        table = _followed(metadata, inner)
    compression = _field(metadata, table, _COMPRESSION)
    if compression == _OUTSIDE:
        return np.int64(-1), False
    return body, compression != _NOWHERE


@njit(cache=True, nogil=True)
def walk_messages(data: Bytes) -> Any:
    """Return what a stream is: whole, damaged or cut short, or with compressed buffers."""
    at: Any = np.int64(0)
    while at < data.size:
        if at > data.size - 4:
            return DAMAGED
        size = _number(data, at, 4)
        at += 4
        if size == -1:
            if at > data.size - 4:
                return DAMAGED
            size = _number(data, at, 4)
            at += 4
        if size == 0:
            return WHOLE
        if size < 0 or size > data.size - at:
            return DAMAGED
        body, compressed = _message(data[at : at + size])
        if compressed:
            return COMPRESSED
        at += size
        if body < 0 or body > data.size - at:
            return DAMAGED
        at += body
    return WHOLE
