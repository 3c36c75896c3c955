"""pandas and polars columns, recognised by where their class was defined: neither library is imported."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.batch.arrays import read_array
from panstream.batch.arrow import pyarrow, read_arrow
from panstream.batch.parts import Strings
from panstream.batch.request import Column, Request
from panstream.batch.sequences import read_sequence

__all__ = ["library_of", "read_pandas", "read_polars"]


def library_of(cls: type) -> str:
    """Return the data-frame library that ``cls`` or one of its bases comes from, or an empty string."""
    for base in cls.__mro__:
        root = base.__module__.partition(".")[0]
        if root in ("pandas", "polars", "pyarrow"):
            return root
    return ""


def read_pandas(data: Any, request: Request) -> list[Column]:
    """Read a Series, an Index or a pandas array; only Arrow-backed ones need pyarrow."""
    dimensions = getattr(data, "ndim", None)
    if dimensions == 2:
        raise request.refuse_kind(type(data).__name__, "table")
    dtype = getattr(data, "dtype", None)
    if dimensions != 1 or dtype is None:
        raise request.refuse_container(data)
    if isinstance(dtype, np.dtype):
        return read_array(data.to_numpy(), request)
    values = getattr(data, "array", data)
    family = type(dtype).__name__
    if family == "NumpyEADtype" or (family == "StringDtype" and dtype.storage == "python"):
        return read_array(np.asarray(values, None if family == "NumpyEADtype" else object), request)
    if family == "CategoricalDtype":
        return _read_categorical(values, request)
    native = getattr(dtype, "numpy_dtype", None)
    if hasattr(dtype, "pyarrow_dtype") or family == "StringDtype":
        pyarrow()
        return read_arrow(values.__arrow_array__(), request)
    if isinstance(native, np.dtype) and native.kind in "iufb":
        missing = values.isna()
        if missing.any():
            raise request.refuse_null(int(missing.argmax()))
        return read_array(values.to_numpy(dtype=native, copy=False), request)
    if not len(values):
        return []
    raise request.refuse_kind(f"pandas {family}", "time" if family in ("DatetimeTZDtype", "PeriodDtype") else "other")


def _read_categorical(values: Any, request: Request) -> list[Column]:
    codes = np.asarray(values.codes)
    if not codes.size:
        return []
    if int(codes.min()) < 0:
        raise request.refuse_null(int(np.argmax(codes < 0)))
    request.check_codes(codes, len(values.categories))
    entries = read_pandas(values.categories, request.entries())
    if any(entry.codes is not None for entry in entries):
        raise request.refuse("must not have categories that are categorical themselves")
    return [Column(_joined([entry.values for entry in entries], request), codes)]


def _joined(pieces: list[NDArray[Any] | Strings], request: Request) -> NDArray[Any] | Strings:
    """Return the categories, which Arrow may hold in several chunks, in one piece."""
    if len(pieces) == 1:
        return pieces[0]
    strings = [piece for piece in pieces if isinstance(piece, Strings)]
    if not strings:
        return request.keep(np.concatenate([piece for piece in pieces if isinstance(piece, np.ndarray)]))
    lengths = request.keep(np.concatenate([np.diff(piece.offsets) for piece in strings]))
    offsets = request.keep(np.zeros(lengths.size + 1, np.int64))
    lengths.cumsum(out=offsets[1:])
    used = [piece.data[piece.offsets[0] : piece.offsets[-1]] for piece in strings]
    return Strings(offsets, request.keep(np.concatenate(used)))


def read_polars(data: Any, request: Request) -> list[Column]:
    """Read a Series through its Arrow export."""
    dtype = getattr(data, "dtype", None)
    if getattr(dtype, "__name__", type(dtype).__name__) == "Object":
        return read_sequence(data.to_list(), request)  # exported to Arrow, it would be a column of addresses
    return read_arrow(data, request)
