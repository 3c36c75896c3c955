"""NumPy arrays of integers, floats, fixed-width strings and bytes, and of Python objects."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.batch.parts import Strings
from panstream.batch.request import Column, Request, read_only
from panstream.batch.sequences import read_sequence
from panstream.scratch import Scratch

__all__ = ["read_array"]

_KINDS = {
    "i": "integer",
    "u": "integer",
    "f": "float",
    "b": "bool",
    "S": "bytes",
    "U": "str",
    "M": "time",
    "m": "time",
}


def read_array(array: NDArray[Any], request: Request) -> list[Column]:
    """Read a one-dimensional array; an empty one is fine whatever its dtype.

    NumPy drops trailing NULs of 'S' and 'U' items, so ``b"a"`` and ``b"a\\\\0"`` are one id there.
    """
    if array.ndim == 0:
        raise request.refuse(f"must be one-dimensional, got a single {array.dtype.name}; pass a list")
    if array.ndim != 1:
        raise request.refuse(f"must be one-dimensional, got an array of {array.ndim} dimensions")
    if isinstance(array, np.ma.MaskedArray):
        mask = np.ma.getmaskarray(array)
        if mask.dtype == bool and mask.any():
            raise request.refuse_null(int(mask.argmax()))
    array = np.asarray(array)
    if not array.size:
        return []
    if array.dtype.kind == "O":
        return read_sequence(array.tolist(), request)
    kind = _KINDS.get(array.dtype.kind, "other")
    if kind not in request.kinds:
        if array.dtype.kind in "fMm" and (missing := array != array).any():
            raise request.refuse_null(int(missing.argmax()))
        hint = "; use .astype('U')" if array.dtype.kind == "T" else ""
        raise request.refuse_kind(f"an array of dtype {array.dtype.name}{hint}", kind)
    if kind == "bytes":
        return [Column(_fixed_bytes(array, request))]
    if kind == "str":
        return [Column(_fixed_strings(array, request))]
    return [Column(array)]


def _fixed_bytes(array: NDArray[Any], request: Request) -> Strings:
    from panstream._kernels.gather import compact_rows, trimmed_lengths

    width = array.dtype.itemsize
    rows = _matrix(array, np.uint8, request)
    with Scratch() as scratch:
        lengths = scratch.array(array.size, np.int64)
        total = int(trimmed_lengths(rows, lengths))
        if total == array.size * width:
            return Strings(request.keep(np.arange(array.size + 1) * width), rows.reshape(-1))
        offsets = request.keep(np.empty(array.size + 1, np.int64))
        packed = request.keep(np.empty(total, np.uint8))
        compact_rows(rows, lengths, offsets, packed)
    return Strings(offsets, packed)


def _fixed_strings(array: NDArray[Any], request: Request) -> Strings:
    from panstream._kernels.gather import encode_utf8, trimmed_lengths

    rows = _matrix(array, np.uint32, request)
    offsets = request.keep(np.zeros(array.size + 1, np.int64))
    with Scratch() as scratch:
        lengths = scratch.array(array.size, np.int64)
        room = request.keep(np.empty(4 * int(trimmed_lengths(rows, lengths)), np.uint8))
        bad = int(encode_utf8(rows, lengths, offsets, room))
    if bad >= 0:
        raise request.refuse_surrogate(bad)
    packed = request.owned[-1] = room[: int(offsets[-1])]
    return Strings(offsets, packed)


def _matrix(array: NDArray[Any], unit: type[np.generic], request: Request) -> NDArray[Any]:
    """Return fixed-width items as a read-only matrix, one row each, in native byte order."""
    if not array.dtype.itemsize:
        return read_only(np.empty((array.size, 0), unit))
    flat = request.settle(array, array.dtype.newbyteorder("="))
    return read_only(flat.view(unit).reshape(array.size, -1))
