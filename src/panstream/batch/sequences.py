"""Lists, tuples and ranges of Python values.

Values are copied straight into arrays that can be wiped: no str or bytes object is made on the way, since
those could not be overwritten afterwards.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from operator import index
from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.batch.parts import Strings
from panstream.batch.request import Column, Request, read_only
from panstream.errors import InvalidBatch
from panstream.scratch import Scratch, wipe

__all__ = ["read_range", "read_sequence"]

_INT, _STR, _BYTES = {int}, {str}, {bytes}
_LOWEST, _SIGNED_TOP, _UNSIGNED_TOP = -(1 << 63), (1 << 63) - 1, (1 << 64) - 1
_ROWS = 4096  # rows encoded at a time
_CODE_POINTS = 1 << 20  # code points encoded at a time, unless a single row has more
_LONGEST = 1 << 28  # NumPy's limit for one str
_TIMES = (datetime.date, datetime.time, datetime.timedelta, np.datetime64, np.timedelta64)
_NULLS = {"NoneType", "NAType", "NaTType", "MaskedConstant"}


def read_sequence(data: Sequence[Any], request: Request) -> list[Column]:
    """Read a list or tuple whose rows are all of one kind (integers among floats are fine)."""
    if not len(data):
        return []
    types = set(map(type, data))
    kinds = {_kind(cls) for cls in types}
    if not kinds <= request.kinds or (len(kinds) > 1 and kinds != {"integer", "float"}):
        raise _misfit(data, request)
    if "float" in request.kinds:
        return [Column(_floats(data, request))]
    kind = kinds.pop()
    if kind == "integer":
        return [Column(_integers(data, types, request))]
    if kind == "str":
        return [Column(_strings(data if types == _STR else list(map(str.__str__, data)), request))]
    return [Column(_bytes(data, types, request))]


def read_range(data: range, request: Request) -> list[Column]:
    """Read a range without walking through it."""
    if not data:
        return []
    top = _UNSIGNED_TOP if request.wraps else _SIGNED_TOP
    if not _LOWEST <= data[0] <= top:
        raise request.refuse_range(0)
    if not _LOWEST <= data[-1] <= top:
        room = top - data.start if data.step > 0 else _LOWEST - data.start
        raise request.refuse_range(room // data.step + 1)
    # Modulo 2**64, as the ids themselves are; exact wherever the ends are in range.
    values = request.keep(np.arange(len(data), dtype=np.uint64))
    values *= np.uint64(data.step & _UNSIGNED_TOP)
    values += np.uint64(data.start & _UNSIGNED_TOP)
    return [Column(values if max(data[0], data[-1]) > _SIGNED_TOP else values.view(np.int64))]


def _kind(cls: type) -> str:
    if cls is int:
        return "integer"
    if issubclass(cls, str):
        return "str"
    if issubclass(cls, bytes):
        return "bytes"
    if issubclass(cls, bool | np.bool_):
        return "bool"
    if issubclass(cls, _TIMES):  # before integers: NumPy's timedelta64 is one
        return "null" if cls.__name__ in _NULLS else "time"
    if issubclass(cls, int | np.integer):
        return "integer"
    if issubclass(cls, float | np.floating):
        return "float"
    return "null" if cls.__name__ in _NULLS else "other"


def _misfit(data: Sequence[Any], request: Request) -> InvalidBatch:
    """Return the error for the first row that is not of an accepted kind, or not of the first row's kind."""
    first = type(data[0])
    for row, value in enumerate(data):
        kind = _kind(type(value))
        got = type(value).__name__
        if kind == "null" or (kind in ("float", "time") and kind not in request.kinds and value != value):
            return request.refuse_null(row)
        if kind not in request.kinds:
            return request.refuse_kind(got, kind, row)
        if kind != _kind(first) and "float" not in request.kinds:
            return request.refuse(f"must be all of one kind, got {got} after {first.__name__}", row)
    return request.refuse("changed while being read")


def _integers(data: Sequence[Any], types: set[type], request: Request) -> NDArray[Any]:
    if types != _INT:
        cls = next(iter(types))
        if len(types) == 1 and issubclass(cls, np.integer):
            same = request.keep(np.empty(len(data), cls))
            same[:] = data
            return same
        data = list(map(index, data))
    values = request.keep(np.empty(len(data), np.int64))
    if _filled(values, data):
        return values
    top = _UNSIGNED_TOP if request.wraps else _SIGNED_TOP
    for row, value in enumerate(data):
        if not _LOWEST <= value <= top:
            raise request.refuse_range(row)
    unsigned = request.keep(np.empty(len(data), np.uint64))
    unsigned[:] = [value & _UNSIGNED_TOP for value in data]
    return unsigned


def _floats(data: Sequence[Any], request: Request) -> NDArray[np.float64]:
    values = request.keep(np.empty(len(data), np.float64))
    with np.errstate(over="ignore"):
        if _filled(values, data):
            return values
        row = next(row for row, value in enumerate(data) if not _filled(values[row : row + 1], [value]))
    raise request.refuse_range(row)


def _filled(values: NDArray[Any], data: Sequence[Any]) -> bool:
    """Copy ``data`` into ``values`` and tell whether all fitted; NumPy's error might quote a value."""
    try:
        values[:] = data
    except OverflowError:
        return False
    return True


def _bytes(data: Sequence[bytes], types: set[type], request: Request) -> Strings:
    lengths, offsets = _measured(data, len if types == _BYTES else bytes.__len__, request)
    wipe(lengths)
    packed = np.frombuffer(bytearray().join(data), np.uint8) if offsets[-1] else np.empty(0, np.uint8)
    return Strings(offsets, request.keep(packed))


def _strings(data: Sequence[str], request: Request) -> Strings:
    lengths, offsets = _measured(data, len, request)
    room = request.keep(np.empty(4 * int(offsets[-1]), np.uint8))  # untouched pages cost nothing
    try:
        for start in range(0, len(data), _ROWS):
            _encode(data, start, min(start + _ROWS, len(data)), lengths, offsets, room, request)
    finally:
        wipe(lengths)
    packed = request.owned[-1] = room[: int(offsets[-1])]
    return Strings(offsets, packed)


def _measured(
    data: Sequence[Any], length: Callable[[Any], int], request: Request
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the length of every row, which the caller wipes, and the offsets that follow from them."""
    lengths = np.fromiter(map(length, data), np.int64, len(data))
    offsets = request.keep(np.zeros(len(data) + 1, np.int64))
    lengths.cumsum(out=offsets[1:])
    return lengths, offsets


def _encode(
    data: Sequence[str],
    start: int,
    stop: int,
    lengths: NDArray[np.int64],
    offsets: NDArray[np.int64],
    room: NDArray[np.uint8],
    request: Request,
) -> None:
    """Write rows ``start`` to ``stop`` as UTF-8, in halves if a long row would blow the others up."""
    width = max(1, int(lengths[start:stop].max()))
    if (stop - start) * width > _CODE_POINTS and stop - start > 1:
        middle = (start + stop) // 2
        _encode(data, start, middle, lengths, offsets, room, request)
        _encode(data, middle, stop, lengths, offsets, room, request)
        return
    if width >= _LONGEST:
        raise request.refuse(f"must be shorter than {_LONGEST} characters", start)
    from panstream._kernels.gather import encode_utf8

    with Scratch() as scratch:
        texts = scratch.array(stop - start, f"U{width}")
        texts[:] = data[start:stop]
        rows = read_only(texts.view(np.uint32).reshape(stop - start, width))
        bad = int(encode_utf8(rows, lengths[start:stop], offsets[start : stop + 1], room))
    if bad >= 0:
        raise request.refuse_surrogate(start + bad)
