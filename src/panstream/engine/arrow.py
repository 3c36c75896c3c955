"""pyarrow for the engine, or an error with the command that installs it.

pyarrow imports pandas, if installed, when values are converted to Python or NumPy: half a second and 60 MB that the
engine does not need. The functions here convert through buffers instead.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.errors import import_optional

__all__ = [
    "arrow_mask",
    "boolean_bytes",
    "compute",
    "kind_of",
    "null_of",
    "numeric_view",
    "pa",
    "string_array",
    "valid_mask",
]

pa = import_optional("pyarrow", "the stream engine", "engine")


class _Compute:
    """The functions of pyarrow.compute, which is imported when the first of them is used: it takes as long as pyarrow.

    Many queries use none of them.
    """

    def __getattr__(self, name: str) -> Any:
        function = getattr(importlib.import_module("pyarrow.compute"), name)
        setattr(self, name, function)
        return function


compute: Any = _Compute()


def arrow_mask(mask: NDArray[np.bool_]) -> Any:
    """Return a NumPy mask as an Arrow boolean array."""
    bits = pa.py_buffer(np.packbits(mask, bitorder="little"))
    return pa.Array.from_buffers(pa.bool_(), mask.size, [None, bits])


def boolean_bytes(array: Any) -> NDArray[np.bool_]:
    """Return an Arrow boolean array as a NumPy mask, False for null."""
    first = array.offset
    last = array.offset + len(array)
    bits = _bits(array.buffers()[1], first, last)
    if array.null_count:
        bits &= _bits(array.buffers()[0], first, last)
    return bits.view(np.bool_)


def valid_mask(array: Any) -> NDArray[np.bool_]:
    """Return a mask of the values that are not NULL."""
    if not array.null_count:
        return np.ones(len(array), np.bool_)
    return _bits(array.buffers()[0], array.offset, array.offset + len(array)).view(np.bool_)


def _bits(buffer: Any, first: int, last: int) -> NDArray[np.uint8]:
    packed = np.frombuffer(buffer or b"", np.uint8)[first // 8 : -(-last // 8)]
    return np.unpackbits(packed, bitorder="little")[first % 8 : first % 8 + last - first]


def numeric_view(array: Any) -> NDArray[Any]:
    """Return the values of a numeric array without a copy; the values at nulls are undefined."""
    name = str(array.type)
    kind = {"halffloat": "float16", "float": "float32", "double": "float64"}.get(name, name)
    if kind not in _NUMBERS:
        return np.asarray((array.fill_null(0) if array.null_count else array).to_numpy(zero_copy_only=False))
    if not len(array):
        return np.empty(0, kind)
    return np.frombuffer(array.buffers()[1], kind, len(array), array.offset * np.dtype(kind).itemsize)


_NUMBERS = frozenset(
    [f"{sign}int{size}" for sign in ("", "u") for size in (8, 16, 32, 64)] + ["float16", "float32", "float64"]
)


def string_array(texts: Sequence[str]) -> Any:
    """Return strings as an Arrow array."""
    data = [text.encode() for text in texts]
    ends = np.cumsum([0, *map(len, data)]).astype(np.int32)
    return pa.StringArray.from_buffers(len(data), pa.py_buffer(ends), pa.py_buffer(b"".join(data)))


def null_of(kind: Any) -> Any:
    """Return a null scalar of an Arrow type."""
    return pa.nulls(1, kind)[0]


_KINDS = {
    **{f"{sign}int{size}": "int" for sign in ("", "u") for size in (8, 16, 32, 64)},
    **dict.fromkeys(("halffloat", "float", "double", "decimal"), "double"),
    **dict.fromkeys(("string", "large_string", "string_view", "null"), "string"),
    **dict.fromkeys(("binary", "large_binary", "binary_view", "fixed_size_binary"), "binary"),
    "bool": "bool",
    "date": "date",
    "timestamp": "timestamp",
}


def kind_of(arrow_type: Any) -> str | None:
    """Return the column type to declare for an Arrow type; None for types that cannot be read, such as lists.

    >>> kind_of(pa.decimal128(9, 2)), kind_of(pa.timestamp("ms")), kind_of(pa.list_(pa.int8()))
    ('double', 'timestamp', None)
    """
    if isinstance(arrow_type, pa.BaseExtensionType):
        return kind_of(arrow_type.storage_type)
    if pa.types.is_dictionary(arrow_type):
        return kind_of(arrow_type.value_type)
    name = str(arrow_type)
    return _KINDS.get(name) or _KINDS.get(re.sub(r"[\d\[(].*", "", name))
