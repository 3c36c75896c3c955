"""NumPy arrays, and lists, tuples and ranges of Python values.

Python values are copied straight into arrays that can be wiped: no intermediate str or bytes object is made, since
those could not be overwritten afterwards.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from operator import index
from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.errors import InvalidBatch
from panstream.primitives.inputs._columns import Strings
from panstream.primitives.inputs.argument import ArgumentReader, InputColumn, read_only
from panstream.primitives.memory.scratch import Scratch, wipe

_INT = {int}
_STR = {str}
_BYTES = {bytes}
_LOWEST = -(1 << 63)
_SIGNED_TOP = (1 << 63) - 1
_UNSIGNED_TOP = (1 << 64) - 1
_ROWS = 4096  # rows encoded at a time
_CODE_POINTS = 1 << 20  # code points encoded at a time, unless a single row has more
_LONGEST = 1 << 28  # NumPy's limit for one str
_TIMES = (datetime.date, datetime.time, datetime.timedelta, np.datetime64, np.timedelta64)
_NULLS = {"NoneType", "NAType", "NaTType", "MaskedConstant"}


def read_values(data: Any, call: ArgumentReader) -> list[InputColumn]:
    """Read a list, tuple, range or NumPy array."""
    if isinstance(data, np.ndarray):
        return _read_array(data, call)
    return _read_range(data, call) if isinstance(data, range) else _read_sequence(data, call)


def _read_sequence(data: Sequence[Any], call: ArgumentReader) -> list[InputColumn]:
    """Read a list or tuple whose rows are all of one kind (integers among floats are accepted)."""
    if not len(data):
        return []
    types = set(map(type, data))
    kinds = {_kind(cls) for cls in types}
    if not kinds <= call.kinds or (len(kinds) > 1 and kinds != {"integer", "float"}):
        raise _type_error(data, call)
    if "float" in call.kinds:
        return [InputColumn(_floats(data, call))]
    kind = kinds.pop()
    if kind == "integer":
        return [InputColumn(_integers(data, types, call))]
    if kind == "str":
        return [InputColumn(_strings(data if types == _STR else list(map(str.__str__, data)), call))]
    return [InputColumn(_bytes(data, types, call))]


def _read_range(data: range, call: ArgumentReader) -> list[InputColumn]:
    """Read a range without iterating over it."""
    if not data:
        return []
    top = _UNSIGNED_TOP if call.wraps else _SIGNED_TOP
    if not _LOWEST <= data[0] <= top:
        raise call.refuse_range(0)
    if not _LOWEST <= data[-1] <= top:
        headroom = top - data.start if data.step > 0 else _LOWEST - data.start
        raise call.refuse_range(headroom // data.step + 1)
    # Modulo 2**64, as ids are; exact because both ends are in range.
    values = call.register(np.arange(len(data), dtype=np.uint64))
    values *= np.uint64(data.step & _UNSIGNED_TOP)
    values += np.uint64(data.start & _UNSIGNED_TOP)
    return [InputColumn(values if max(data[0], data[-1]) > _SIGNED_TOP else values.view(np.int64))]


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


def _type_error(data: Sequence[Any], call: ArgumentReader) -> InvalidBatch:
    """Return the error for the first row that is not of an accepted kind, or not of the first row's kind."""
    first = type(data[0])
    for row, value in enumerate(data):
        kind = _kind(type(value))
        got = type(value).__name__
        if kind == "null" or (kind in ("float", "time") and kind not in call.kinds and value != value):
            return call.refuse_null(row)
        if kind not in call.kinds:
            return call.refuse_kind(got, kind, row)
        if kind != _kind(first) and "float" not in call.kinds:
            return call.refuse(f"must be all of one kind, got {got} after {first.__name__}", row)
    return call.refuse("changed while being read")


def _integers(data: Sequence[Any], types: set[type], call: ArgumentReader) -> NDArray[Any]:
    if types != _INT:
        cls = next(iter(types))
        if len(types) == 1 and issubclass(cls, np.integer):
            same = call.register(np.empty(len(data), cls))
            same[:] = data
            return same
        data = list(map(index, data))
    values = call.register(np.empty(len(data), np.int64))
    if _fill(values, data):
        return values
    top = _UNSIGNED_TOP if call.wraps else _SIGNED_TOP
    for row, value in enumerate(data):
        if not _LOWEST <= value <= top:
            raise call.refuse_range(row)
    unsigned = call.register(np.empty(len(data), np.uint64))
    unsigned[:] = [value & _UNSIGNED_TOP for value in data]
    return unsigned


def _floats(data: Sequence[Any], call: ArgumentReader) -> NDArray[np.float64]:
    values = call.register(np.empty(len(data), np.float64))
    with np.errstate(over="ignore"):
        if _fill(values, data):
            return values
        row = next(row for row, value in enumerate(data) if not _fill(values[row : row + 1], [value]))
    raise call.refuse_range(row)


def _fill(values: NDArray[Any], data: Sequence[Any]) -> bool:
    """Copy ``data`` into ``values``; return whether all fit. NumPy's own error might quote a value."""
    try:
        values[:] = data
    except OverflowError:
        return False
    return True


def _bytes(data: Sequence[bytes], types: set[type], call: ArgumentReader) -> Strings:
    lengths, offsets = _measure_rows(data, len if types == _BYTES else bytes.__len__, call)
    wipe(lengths)
    packed = np.frombuffer(bytearray().join(data), np.uint8) if offsets[-1] else np.empty(0, np.uint8)
    return Strings(offsets, call.register(packed))


def _strings(data: Sequence[str], call: ArgumentReader) -> Strings:
    lengths, offsets = _measure_rows(data, len, call)
    buffer = call.register(np.empty(4 * int(offsets[-1]), np.uint8))  # untouched pages cost nothing
    try:
        for start in range(0, len(data), _ROWS):
            _encode(data, start, min(start + _ROWS, len(data)), lengths, offsets, buffer, call)
    finally:
        wipe(lengths)
    packed = call.owned[-1] = buffer[: int(offsets[-1])]
    return Strings(offsets, packed)


def _measure_rows(
    data: Sequence[Any], length: Callable[[Any], int], call: ArgumentReader
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the length of every row, which the caller wipes, and the offsets that follow from them."""
    lengths = np.fromiter(map(length, data), np.int64, len(data))
    offsets = call.register(np.zeros(len(data) + 1, np.int64))
    lengths.cumsum(out=offsets[1:])
    return lengths, offsets


def _encode(
    data: Sequence[str],
    start: int,
    stop: int,
    lengths: NDArray[np.int64],
    offsets: NDArray[np.int64],
    buffer: NDArray[np.uint8],
    call: ArgumentReader,
) -> None:
    """Write rows ``start`` to ``stop`` as UTF-8, in halves if a long row would make the fixed-width copy too large."""
    width = max(1, int(lengths[start:stop].max()))
    if (stop - start) * width > _CODE_POINTS and stop - start > 1:
        middle = (start + stop) // 2
        _encode(data, start, middle, lengths, offsets, buffer, call)
        _encode(data, middle, stop, lengths, offsets, buffer, call)
        return
    if width >= _LONGEST:
        raise call.refuse(f"must be shorter than {_LONGEST} characters", start)
    from panstream.primitives.kernels.arrow_gather import encode_utf8

    with Scratch() as scratch:
        texts = scratch.array(stop - start, f"U{width}")
        texts[:] = data[start:stop]
        rows = read_only(texts.view(np.uint32).reshape(stop - start, width))
        bad = int(encode_utf8(rows, lengths[start:stop], offsets[start : stop + 1], buffer))
    if bad >= 0:
        raise call.refuse_surrogate(start + bad)


_KINDS = {"i": "integer", "u": "integer", "f": "float", "b": "bool", "S": "bytes", "U": "str", "M": "time", "m": "time"}


def _read_array(array: NDArray[Any], call: ArgumentReader) -> list[InputColumn]:
    """Read a one-dimensional array; an empty one may have any dtype.

    NumPy drops trailing NULs of 'S' and 'U' items, so ``b"a"`` and ``b"a\\\\0"`` are one id there.
    """
    if array.ndim == 0:
        raise call.refuse(f"must be one-dimensional, got a single {array.dtype.name}; pass a list")
    if array.ndim != 1:
        raise call.refuse(f"must be one-dimensional, got an array of {array.ndim} dimensions")
    if isinstance(array, np.ma.MaskedArray):
        mask = np.ma.getmaskarray(array)
        if mask.dtype == bool and mask.any():
            raise call.refuse_null(int(mask.argmax()))
    array = np.asarray(array)
    if not array.size:
        return []
    if array.dtype.kind == "O":
        return _read_sequence(array.tolist(), call)
    kind = _KINDS.get(array.dtype.kind, "other")
    if kind not in call.kinds:
        if array.dtype.kind in "fMm" and (missing := array != array).any():
            raise call.refuse_null(int(missing.argmax()))
        hint = "; use .astype('U')" if array.dtype.kind == "T" else ""
        raise call.refuse_kind(f"an array of dtype {array.dtype.name}{hint}", kind)
    if kind == "bytes":
        return [InputColumn(_fixed_bytes(array, call))]
    if kind == "str":
        return [InputColumn(_fixed_strings(array, call))]
    return [InputColumn(array)]


def _fixed_bytes(array: NDArray[Any], call: ArgumentReader) -> Strings:
    from panstream.primitives.kernels.arrow_gather import compact_rows, trimmed_lengths

    width = array.dtype.itemsize
    rows = _matrix(array, np.uint8, call)
    with Scratch() as scratch:
        lengths = scratch.array(array.size, np.int64)
        total = int(trimmed_lengths(rows, lengths))
        if total == array.size * width:
            return Strings(call.register(np.arange(array.size + 1) * width), rows.reshape(-1))
        offsets = call.register(np.empty(array.size + 1, np.int64))
        packed = call.register(np.empty(total, np.uint8))
        compact_rows(rows, lengths, offsets, packed)
    return Strings(offsets, packed)


def _fixed_strings(array: NDArray[Any], call: ArgumentReader) -> Strings:
    from panstream.primitives.kernels.arrow_gather import encode_utf8, trimmed_lengths

    rows = _matrix(array, np.uint32, call)
    offsets = call.register(np.zeros(array.size + 1, np.int64))
    with Scratch() as scratch:
        lengths = scratch.array(array.size, np.int64)
        buffer = call.register(np.empty(4 * int(trimmed_lengths(rows, lengths)), np.uint8))
        bad = int(encode_utf8(rows, lengths, offsets, buffer))
    if bad >= 0:
        raise call.refuse_surrogate(bad)
    packed = call.owned[-1] = buffer[: int(offsets[-1])]
    return Strings(offsets, packed)


def _matrix(array: NDArray[Any], unit: type[np.generic], call: ArgumentReader) -> NDArray[Any]:
    """Return fixed-width items as a read-only matrix, one row each, in native byte order."""
    if not array.dtype.itemsize:
        return read_only(np.empty((array.size, 0), unit))
    flat = call.convert(array, array.dtype.newbyteorder("="))
    return read_only(flat.view(unit).reshape(array.size, -1))
