"""Arrow arrays, objects with the Arrow C data interface, and columns of pandas and polars.

The libraries are recognised by the module that defines a class: neither pandas nor polars is imported.
"""

from __future__ import annotations

from contextlib import suppress
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.errors import import_optional
from panstream.primitives.inputs._columns import Strings
from panstream.primitives.inputs._sequences import read_values
from panstream.primitives.inputs.argument import ArgumentReader, InputColumn, read_only

_NUMBERS = {f"{sign}int{bits}": np.dtype(f"{sign}int{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64)}
_NUMBERS |= {"halffloat": np.dtype(np.float16), "float": np.dtype(np.float32), "double": np.dtype(np.float64)}
_OFFSETS = {"string": np.int32, "binary": np.int32, "large_string": np.int64, "large_binary": np.int64}
_INT32 = np.dtype(np.int32)
_TIMES = ("date", "time", "duration", "month_day_nano", "interval")  # timestamp begins with time


def pyarrow() -> ModuleType:
    """Import pyarrow, which only Arrow, polars and Arrow-backed pandas input needs."""
    module: ModuleType = import_optional("pyarrow", "Arrow input", "arrow")
    return module


def read_frame(data: Any, call: ArgumentReader) -> list[InputColumn]:
    """Read a column of pandas, polars or Arrow; raise InvalidBatch for any other object."""
    library = dataframe_library(type(data))
    if library == "pandas":
        return _read_pandas(data, call)
    if library == "polars":
        return _read_polars(data, call)
    if library or hasattr(type(data), "__arrow_c_array__") or hasattr(type(data), "__arrow_c_stream__"):
        return _read_arrow(data, call)
    raise call.refuse_container(data)


def _read_arrow(data: Any, call: ArgumentReader) -> list[InputColumn]:
    """Read Arrow data chunk by chunk, without copying integers of 64 bits and string buffers."""
    columns = []
    for chunk in _chunks(data, call):
        kind = _kind(chunk.type)
        if kind == "table":
            raise call.refuse_kind(type(data).__name__, kind)
        if len(chunk):
            columns.append(_column(chunk, call))
            call.start += len(chunk)
    call.start = 0
    return columns


def _chunks(data: Any, call: ArgumentReader) -> list[Any]:
    arrow = pyarrow()
    if isinstance(data, arrow.ChunkedArray):
        return data.chunks or [arrow.array([], data.type)]
    if isinstance(data, arrow.Array):
        return [data]
    if not any(hasattr(type(data), protocol) for protocol in ("__arrow_c_stream__", "__arrow_c_array__")):
        raise call.refuse_container(data)
    exported = _exported(data, arrow)
    if exported is None:
        raise call.refuse(f"could not be exported to Arrow, got {type(data).__name__}")
    return _chunks(exported, call)


def _exported(data: Any, arrow: ModuleType) -> Any:
    """Return the object as an Arrow array, or ``None``: an error of the exporter may quote values."""
    with suppress(Exception):
        return arrow.chunked_array(data) if hasattr(type(data), "__arrow_c_stream__") else arrow.array(data)
    with suppress(Exception):
        return data.to_arrow()  # polars with a pyarrow that has no string views
    return None


def _kind(arrow_type: Any) -> str:
    name = str(arrow_type)
    if name in _NUMBERS:
        return "float" if _NUMBERS[name].kind == "f" else "integer"
    if name.endswith(("string", "string_view")):
        return "str"
    if name.endswith(("binary", "binary_view")) or name.startswith("fixed_size_binary"):
        return "bytes"
    if name.startswith("struct"):
        return "table"
    return "time" if name.startswith(_TIMES) else name


def _column(chunk: Any, call: ArgumentReader, *, nulls_checked: bool = False) -> InputColumn:
    if getattr(chunk.type, "extension_name", None) == "arrow.uuid":
        chunk = chunk.storage
    name = str(chunk.type)
    if name.startswith("dictionary"):
        return _dictionary(chunk, call)
    kind = _kind(chunk.type)
    if kind == "null":
        raise call.refuse_null(0)
    if kind not in call.kinds:
        raise call.refuse_kind(f"Arrow type {name}", kind)
    if not nulls_checked:
        _refuse_nulls(chunk, call)
    if name in _NUMBERS:
        return InputColumn(_numbers(chunk))
    if name.endswith("_view"):
        return InputColumn(_views(chunk, call))
    return InputColumn(_fixed(chunk, call) if name.startswith("fixed") else _variable(chunk, call))


def _dictionary(chunk: Any, call: ArgumentReader) -> InputColumn:
    _refuse_nulls(chunk, call)
    codes = _numbers(chunk.indices)
    entries = chunk.dictionary
    call.check_codes(codes, len(entries))
    if entries.null_count:
        null = entries.is_null().to_numpy(zero_copy_only=False)[codes]
        if null.any():
            raise call.refuse_null(int(null.argmax()))
    return InputColumn(_column(entries, call.entries(), nulls_checked=True).values, codes)


def _refuse_nulls(chunk: Any, call: ArgumentReader) -> None:
    if chunk.null_count:
        raise call.refuse_null(int(chunk.is_null().to_numpy(zero_copy_only=False).argmax()))


def _numbers(chunk: Any) -> NDArray[Any]:
    return _array(chunk.buffers()[1], _NUMBERS[str(chunk.type)], chunk.offset, len(chunk))


def _variable(chunk: Any, call: ArgumentReader) -> Strings:
    from panstream.primitives.kernels.hashing.siphash import first_bad_offset

    _, positions, content = chunk.buffers()
    offsets = _array(positions, np.dtype(_OFFSETS[str(chunk.type)]), chunk.offset, len(chunk) + 1)
    data = _bytes(content)
    # Arrow does not check offsets of imported data, and kernels would read past the end.
    bad = int(first_bad_offset(read_only(offsets), data.size))
    if bad >= 0:
        raise call.refuse("must have Arrow offsets within the data", bad)
    return Strings(call.convert(offsets, offsets.dtype), data)


def _fixed(chunk: Any, call: ArgumentReader) -> Strings:
    width = chunk.type.byte_width
    data = _array(chunk.buffers()[1], np.dtype(np.uint8), chunk.offset * width, len(chunk) * width)
    offsets = call.register(np.arange(len(chunk) + 1, dtype=np.int64))
    offsets *= width
    return Strings(offsets, data)


def _views(chunk: Any, call: ArgumentReader) -> Strings:
    from panstream.primitives.kernels.arrow_gather import gather_views, view_offsets

    _, table, *buffers = chunk.buffers()
    raw = _array(table, _INT32, 4 * chunk.offset, 4 * len(chunk))
    views = read_only(call.convert(raw, _INT32).reshape(-1, 4))
    offsets = call.register(np.empty(len(chunk) + 1, np.int64))
    bad = int(view_offsets(views, np.array([b.size for b in buffers], np.int64), offsets))
    if bad >= 0:
        raise call.refuse("must have Arrow views within the data", bad)
    packed = call.register(np.empty(int(offsets[-1]), np.uint8))
    addresses = np.array([b.address for b in buffers], np.uint64)
    gather_views(views, addresses, offsets, packed)
    return Strings(offsets, packed)


def _bytes(buffer: Any) -> NDArray[np.uint8]:
    return _array(buffer, np.dtype(np.uint8), 0, 0 if buffer is None else buffer.size)


def _array(buffer: Any, dtype: np.dtype[Any], start: int, count: int) -> NDArray[Any]:
    """Return ``count`` elements of an Arrow buffer as a view, which holds a reference to it."""
    if not count:
        return read_only(np.empty(0, dtype))
    return read_only(np.frombuffer(buffer, dtype, count, start * dtype.itemsize))


def dataframe_library(cls: type) -> str:
    """Return the data-frame library that ``cls`` or one of its bases comes from, or an empty string."""
    for base in cls.__mro__:
        root = base.__module__.partition(".")[0]
        if root in ("pandas", "polars", "pyarrow"):
            return root
    return ""


def _read_pandas(data: Any, call: ArgumentReader) -> list[InputColumn]:
    """Read a Series, an Index or a pandas array; only Arrow-backed ones need pyarrow."""
    dimensions = getattr(data, "ndim", None)
    if dimensions == 2:
        raise call.refuse_kind(type(data).__name__, "table")
    dtype = getattr(data, "dtype", None)
    if dimensions != 1 or dtype is None:
        raise call.refuse_container(data)
    if isinstance(dtype, np.dtype):
        return read_values(data.to_numpy(), call)
    values = getattr(data, "array", data)
    family = type(dtype).__name__
    if family == "NumpyEADtype" or (family == "StringDtype" and dtype.storage == "python"):
        return read_values(np.asarray(values, None if family == "NumpyEADtype" else object), call)
    if family == "CategoricalDtype":
        return _read_categorical(values, call)
    native = getattr(dtype, "numpy_dtype", None)
    if hasattr(dtype, "pyarrow_dtype") or family == "StringDtype":
        pyarrow()
        return _read_arrow(values.__arrow_array__(), call)
    if isinstance(native, np.dtype) and native.kind in "iufb":
        missing = values.isna()
        if missing.any():
            raise call.refuse_null(int(missing.argmax()))
        return read_values(values.to_numpy(dtype=native, copy=False), call)
    if not len(values):
        return []
    raise call.refuse_kind(f"pandas {family}", "time" if family in ("DatetimeTZDtype", "PeriodDtype") else "other")


def _read_categorical(values: Any, call: ArgumentReader) -> list[InputColumn]:
    codes = np.asarray(values.codes)
    if not codes.size:
        return []
    if int(codes.min()) < 0:
        raise call.refuse_null(int(np.argmax(codes < 0)))
    call.check_codes(codes, len(values.categories))
    entries = _read_pandas(values.categories, call.entries())
    if any(entry.codes is not None for entry in entries):
        raise call.refuse("must not have categories that are categorical themselves")
    return [InputColumn(_joined([entry.values for entry in entries], call), codes)]


def _joined(pieces: list[NDArray[Any] | Strings], call: ArgumentReader) -> NDArray[Any] | Strings:
    """Concatenate the categories, of which Arrow may have several chunks."""
    if len(pieces) == 1:
        return pieces[0]
    strings = [piece for piece in pieces if isinstance(piece, Strings)]
    if not strings:
        return call.register(np.concatenate([piece for piece in pieces if isinstance(piece, np.ndarray)]))
    lengths = call.register(np.concatenate([np.diff(piece.offsets) for piece in strings]))
    offsets = call.register(np.zeros(lengths.size + 1, np.int64))
    lengths.cumsum(out=offsets[1:])
    used = [piece.data[piece.offsets[0] : piece.offsets[-1]] for piece in strings]
    return Strings(offsets, call.register(np.concatenate(used)))


def _read_polars(data: Any, call: ArgumentReader) -> list[InputColumn]:
    """Read a Series through its Arrow export."""
    dtype = getattr(data, "dtype", None)
    if getattr(dtype, "__name__", type(dtype).__name__) == "Object":
        return read_values(data.to_list(), call)  # exported to Arrow, it would be a column of addresses
    return _read_arrow(data, call)
