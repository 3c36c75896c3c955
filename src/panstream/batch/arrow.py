"""Arrow arrays, chunked arrays, and whatever exports itself through the Arrow C data interface."""

from __future__ import annotations

from contextlib import suppress
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.batch.parts import Strings
from panstream.batch.request import Column, Request, read_only
from panstream.errors import MissingExtra

__all__ = ["pyarrow", "read_arrow"]

_NUMBERS = {f"{sign}int{bits}": np.dtype(f"{sign}int{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64)}
_NUMBERS |= {"halffloat": np.dtype(np.float16), "float": np.dtype(np.float32), "double": np.dtype(np.float64)}
_OFFSETS = {"string": np.int32, "binary": np.int32, "large_string": np.int64, "large_binary": np.int64}
_INT32 = np.dtype(np.int32)
_TIMES = ("date", "time", "duration", "month_day_nano", "interval")  # timestamp begins with time


def pyarrow() -> ModuleType:
    """Import pyarrow, which only Arrow, polars and Arrow-backed pandas input needs."""
    try:
        import pyarrow as module
    except ModuleNotFoundError:
        module = None
    if module is None:
        raise MissingExtra("Arrow input", "arrow")
    return module  # type: ignore[no-any-return]


def read_arrow(data: Any, request: Request) -> list[Column]:
    """Read Arrow data chunk by chunk, without copying integers of 64 bits and string buffers."""
    columns = []
    for chunk in _chunks(data, request):
        kind = _kind(chunk.type)
        if kind == "table":
            raise request.refuse_kind(type(data).__name__, kind)
        if len(chunk):
            columns.append(_column(chunk, request))
            request.start += len(chunk)
    request.start = 0
    return columns


def _chunks(data: Any, request: Request) -> list[Any]:
    arrow = pyarrow()
    if isinstance(data, arrow.ChunkedArray):
        return data.chunks or [arrow.array([], data.type)]
    if isinstance(data, arrow.Array):
        return [data]
    if not any(hasattr(type(data), protocol) for protocol in ("__arrow_c_stream__", "__arrow_c_array__")):
        raise request.refuse_container(data)
    exported = _exported(data, arrow)
    if exported is None:
        raise request.refuse(f"could not be exported to Arrow, got {type(data).__name__}")
    return _chunks(exported, request)


def _exported(data: Any, arrow: ModuleType) -> Any:
    """Return the object as an Arrow array, or ``None``: an error of the exporter may quote values."""
    with suppress(Exception):
        return arrow.chunked_array(data) if hasattr(type(data), "__arrow_c_stream__") else arrow.array(data)
    with suppress(Exception):
        return data.to_arrow()  # polars with a pyarrow that does not know string views
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


def _column(chunk: Any, request: Request, *, nulls_checked: bool = False) -> Column:
    if getattr(chunk.type, "extension_name", None) == "arrow.uuid":
        chunk = chunk.storage
    name = str(chunk.type)
    if name.startswith("dictionary"):
        return _dictionary(chunk, request)
    kind = _kind(chunk.type)
    if kind == "null":
        raise request.refuse_null(0)
    if kind not in request.kinds:
        raise request.refuse_kind(f"Arrow type {name}", kind)
    if not nulls_checked:
        _refuse_nulls(chunk, request)
    if name in _NUMBERS:
        return Column(_numbers(chunk))
    if name.endswith("_view"):
        return Column(_views(chunk, request))
    return Column(_fixed(chunk, request) if name.startswith("fixed") else _variable(chunk, request))


def _dictionary(chunk: Any, request: Request) -> Column:
    _refuse_nulls(chunk, request)
    codes, entries = _numbers(chunk.indices), chunk.dictionary
    request.check_codes(codes, len(entries))
    if entries.null_count:
        null = entries.is_null().to_numpy(zero_copy_only=False)[codes]
        if null.any():
            raise request.refuse_null(int(null.argmax()))
    return Column(_column(entries, request.entries(), nulls_checked=True).values, codes)


def _refuse_nulls(chunk: Any, request: Request) -> None:
    if chunk.null_count:
        raise request.refuse_null(int(chunk.is_null().to_numpy(zero_copy_only=False).argmax()))


def _numbers(chunk: Any) -> NDArray[Any]:
    return _array(chunk.buffers()[1], _NUMBERS[str(chunk.type)], chunk.offset, len(chunk))


def _variable(chunk: Any, request: Request) -> Strings:
    _, positions, content = chunk.buffers()
    offsets = _array(positions, np.dtype(_OFFSETS[str(chunk.type)]), chunk.offset, len(chunk) + 1)
    data = _bytes(content)
    # Arrow does not check offsets that arrive from elsewhere, and kernels would read past the end.
    if int(offsets[0]) < 0 or int(offsets[-1]) > data.size or (offsets[1:] < offsets[:-1]).any():
        bad = (offsets[:-1] < 0) | (offsets[1:] < offsets[:-1]) | (offsets[1:] > data.size)
        raise request.refuse("must have Arrow offsets within the data", int(np.argmax(bad)))
    return Strings(request.settle(offsets, offsets.dtype), data)


def _fixed(chunk: Any, request: Request) -> Strings:
    width = chunk.type.byte_width
    data = _array(chunk.buffers()[1], np.dtype(np.uint8), chunk.offset * width, len(chunk) * width)
    offsets = request.keep(np.arange(len(chunk) + 1, dtype=np.int64))
    offsets *= width
    return Strings(offsets, data)


def _views(chunk: Any, request: Request) -> Strings:
    from panstream._kernels.gather import gather_views, view_offsets

    _, table, *buffers = chunk.buffers()
    raw = _array(table, _INT32, 4 * chunk.offset, 4 * len(chunk))
    views = read_only(request.settle(raw, _INT32).reshape(-1, 4))
    offsets = request.keep(np.empty(len(chunk) + 1, np.int64))
    bad = int(view_offsets(views, np.array([b.size for b in buffers], np.int64), offsets))
    if bad >= 0:
        raise request.refuse("must have Arrow views within the data", bad)
    packed = request.keep(np.empty(int(offsets[-1]), np.uint8))
    addresses = np.array([b.address for b in buffers], np.uint64)
    gather_views(views, addresses, offsets, packed)
    return Strings(offsets, packed)


def _bytes(buffer: Any) -> NDArray[np.uint8]:
    return _array(buffer, np.dtype(np.uint8), 0, 0 if buffer is None else buffer.size)


def _array(buffer: Any, dtype: np.dtype[Any], start: int, count: int) -> NDArray[Any]:
    """Look at ``count`` elements of an Arrow buffer, which the array keeps alive."""
    if not count:
        return read_only(np.empty(0, dtype))
    return read_only(np.frombuffer(buffer, dtype, count, start * dtype.itemsize))
