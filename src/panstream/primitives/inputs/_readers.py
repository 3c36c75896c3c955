"""Readers of the three kinds of argument: ids of any type, integers in a range, finite numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.primitives.inputs._columns import Dictionary, Integers, ItemBatch, Part, Strings
from panstream.primitives.inputs._sequences import read_values
from panstream.primitives.inputs.argument import ArgumentReader, InputColumn, read_only
from panstream.primitives.inputs.dataframes import read_frame

_IDS = frozenset({"integer", "str", "bytes"})
_INTEGERS = frozenset({"integer"})
_NUMBERS = frozenset({"integer", "float"})
_TOP = (1 << 63) - 1
_INT32 = np.dtype(np.int32)
_INT64 = np.dtype(np.int64)
_FLOAT64 = np.dtype(np.float64)
_UINT32 = np.dtype(np.uint32)
_UINT64 = np.dtype(np.uint64)


def items(data: Any, *, name: str = "ids") -> ItemBatch:
    """Return a batch of ids, integers or strings or bytes, in canonical form.

    ``data`` is a list, tuple, range, NumPy array, Arrow array, pandas or polars column. Contiguous 64-bit
    integers and Arrow string buffers are read in place, anything else is copied once. Raises ``InvalidBatch``
    with the first invalid row for nulls, mixed kinds, integers beyond 64 bits and strings without a UTF-8
    form. Floats, booleans and times are not ids.

    >>> batch = items(["ann", "bob"])
    >>> len(batch), batch.kind
    (2, 'string')
    """
    call = ArgumentReader(name, "integers, str or bytes", _IDS, "between -2**63 and 2**64 - 1", wraps=True)
    with call:
        parts = tuple([_part(column, call) for column in _read(data, call)])
    return ItemBatch(parts, tuple(call.owned))


def integers(
    data: Any, *, name: str, lower: int | None = None, upper: int | None = None
) -> tuple[NDArray[np.int64], bool]:
    """Return integers from ``lower`` to ``upper``, both included, and whether they are a copy to be wiped.

    The caller's memory is returned read-only. Nothing wraps here: above 2**63 - 1 is out of range.
    """
    low = -_TOP - 1 if lower is None else max(lower, -_TOP - 1)
    high = _TOP if upper is None else min(upper, _TOP)
    call = ArgumentReader(name, "integers", _INTEGERS, f"between {low} and {high}")
    with call:
        values, owned = _flat(data, _INT64, call)
        if values.size and not _within(values, low, high):
            raise call.refuse_range(int(np.argmax((values < low) | (values > high))))
    return values, owned


def _within(values: NDArray[np.int64], low: int, high: int) -> bool:
    if low == 0:  # one pass instead of two: as unsigned numbers, negative ones are above every bound
        return int(values.view(np.uint64).max()) <= high
    return int(values.min()) >= low and int(values.max()) <= high


def numbers(data: Any, *, name: str) -> tuple[NDArray[np.float64], bool]:
    """Return finite numbers as float64, and whether the array is a copy to be wiped.

    The caller's memory is returned read-only. Integers of more than 53 bits are rounded to the nearest float64.
    """
    call = ArgumentReader(name, "numbers", _NUMBERS, "finite, and within the range of float64")
    with call:
        values, owned = _flat(data, _FLOAT64, call)
        finite = np.isfinite(values)
        if not finite.all():
            raise call.refuse_range(int(finite.argmin()))
    return values, owned


def _read(data: Any, call: ArgumentReader) -> list[InputColumn]:
    is_sequence = isinstance(data, list | tuple | range | np.ndarray)
    return read_values(data, call) if is_sequence else read_frame(data, call)


def _part(column: InputColumn, call: ArgumentReader) -> Part:
    values = _values(column.values, call)
    if column.codes is None:
        return values
    return Dictionary(read_only(_codes(column.codes, len(values), call)), values)


def _values(values: NDArray[Any] | Strings, call: ArgumentReader) -> Integers | Strings:
    if isinstance(values, Strings):
        return Strings(read_only(values.offsets), read_only(values.data))
    if _is_uint64(values):
        return Integers(read_only(call.convert(values, _UINT64).view(_INT64)))
    return Integers(read_only(call.convert(values, _INT64)))


def _is_uint64(values: NDArray[Any]) -> bool:
    return values.dtype.kind == "u" and values.dtype.itemsize == 8


def _codes(codes: NDArray[Any], size: int, call: ArgumentReader) -> NDArray[Any]:
    """Return codes below ``size`` as int32 or int64, unsigned ones as a view."""
    width = codes.dtype.itemsize
    if width == 8 or size > 1 << 31:
        return call.convert(codes, _UINT64 if _is_uint64(codes) else _INT64).view(_INT64)
    unsigned = codes.dtype.kind == "u" and width == 4
    return call.convert(codes, _UINT32 if unsigned else _INT32).view(_INT32)


def _flat(data: Any, dtype: np.dtype[Any], call: ArgumentReader) -> tuple[NDArray[Any], bool]:
    """Return all chunks as one array, and whether that is a copy; other copies are wiped."""
    chunks = [_decoded(column, call) for column in _read(data, call)]
    if not chunks:
        return read_only(np.empty(0, dtype)), False
    if dtype is _INT64:
        _refuse_unsigned(chunks, call)
    if len(chunks) > 1:
        flat = call.register(np.concatenate(chunks, dtype=dtype, casting="unsafe"))
    elif dtype is _INT64 and _is_uint64(chunks[0]):
        flat = call.convert(chunks[0], _UINT64).view(_INT64)
    elif chunks[0].dtype.itemsize > dtype.itemsize:
        with np.errstate(over="ignore"):  # a long double may become infinite as float64, which is rejected later
            flat = call.convert(chunks[0], dtype)
    else:
        flat = call.convert(chunks[0], dtype)
    owned = any(np.may_share_memory(flat, array) for array in call.owned)
    call.wipe(spare=flat)
    return (flat, True) if owned else (read_only(flat), False)


def _refuse_unsigned(chunks: list[NDArray[Any]], call: ArgumentReader) -> None:
    for chunk in chunks:
        if _is_uint64(chunk) and int(chunk.max()) > _TOP:
            raise call.refuse_range(int(np.argmax(chunk > np.uint64(_TOP))))
        call.start += chunk.size
    call.start = 0


def _decoded(column: InputColumn, call: ArgumentReader) -> NDArray[Any]:
    values = column.values
    assert not isinstance(values, Strings)  # the call's kinds exclude them
    if column.codes is None:
        return values
    return call.register(values.take(_codes(column.codes, len(values), call)))
