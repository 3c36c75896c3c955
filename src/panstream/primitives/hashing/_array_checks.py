"""Checks of the arrays that hash functions read and write: kernels trust what passed here."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.errors import InvalidBatch, InvalidParameter
from panstream.primitives.inputs.argument import read_only


def check_array(array: Any, name: str, *dtypes: type[np.generic]) -> None:
    """Raise InvalidParameter unless ``array`` is one-dimensional, contiguous and of one of ``dtypes``."""
    if (
        not isinstance(array, np.ndarray)
        or array.ndim != 1
        or not array.flags.c_contiguous
        or array.dtype not in dtypes  # by value: NumPy has two types of 64 bits
    ):
        kinds = " or ".join(np.dtype(dtype).name for dtype in dtypes)
        actual = (
            f"{array.ndim} dimensions of {array.dtype.name}" if isinstance(array, np.ndarray) else type(array).__name__
        )
        raise InvalidParameter(f"{name} must be a contiguous one-dimensional array of {kinds}, got {actual}")


def check_out(out: Any, size: int, *dtypes: type[np.generic]) -> None:
    """Raise InvalidParameter unless ``out`` is writeable and has exactly ``size`` elements."""
    check_array(out, "out", *dtypes)
    if out.size != size or not out.flags.writeable:
        raise InvalidParameter(f"out must be a writeable array of {size} elements, got {out.size}")


def check_limit(values: NDArray[np.uint64], limit: int, name: str) -> None:
    """Raise InvalidBatch at the first row that is not in [0, limit)."""
    from panstream.primitives.kernels.machine_words import first_at_least

    row = first_at_least(values, np.uint64(limit))
    if row >= 0:
        raise InvalidBatch(f"{name} must be in 0..{limit - 1}", row=int(row))


def words_of(array: Any, name: str) -> NDArray[np.uint64]:
    """Return an int64 or uint64 array as read-only machine words, without a copy."""
    check_array(array, name, np.int64, np.uint64)
    return read_only(array.view(np.uint64))


def checked_strings(offsets: Any, data: Any) -> tuple[NDArray[Any], NDArray[np.uint8]]:
    """Return both as read-only views, or raise unless every string lies within ``data``."""
    from panstream.primitives.kernels.hashing.siphash import first_bad_offset

    offsets, data = unchecked_strings(offsets, data)
    require_valid_offset(int(first_bad_offset(offsets, data.size)))
    return offsets, data


def unchecked_strings(offsets: Any, data: Any) -> tuple[NDArray[Any], NDArray[np.uint8]]:
    """Return both as read-only views; the caller must check the offsets."""
    check_array(offsets, "offsets", np.int32, np.int64)
    check_array(data, "data", np.uint8)
    if offsets.size == 0:
        raise InvalidParameter("offsets must have one element more than there are strings, got 0")
    return read_only(offsets), read_only(data)


def require_valid_offset(row: int) -> None:
    """Raise InvalidBatch unless ``row``, the first string that does not lie within the data, is -1."""
    if row >= 0:
        raise InvalidBatch("offsets must not decrease and must lie within data", row=row)
