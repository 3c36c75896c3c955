"""Parse columns of text to declared types, value by value; rows with a value that does not fit are marked."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.engine.arrow import arrow_mask, boolean_bytes, compute, null_of, pa
from panstream.engine.config.text_style import PLAIN, TextStyle, compile_date_formats
from panstream.engine.rows.row_batch import Codes, RowBatch, RowSchema, arrow_type
from panstream.engine.rows.wiping import wipe_unused

_VALUES = ("int", "double", "timestamp", "date", "bool")
_LATEST = 253_402_300_800.0  # seconds to the year 10,000

Mask = NDArray[np.bool_]


def columns_from_spans(
    data: Any,
    schema: RowSchema,
    codes: Codes,
    spans: tuple[NDArray[Any], NDArray[Any]],
    present: NDArray[np.bool_],
    copy: Callable[[int, Any, Any], None],
    woven: NDArray[np.bool_] | None = None,
    *,
    seconds: Collection[str] = (),
    made: Mapping[str, Any] | None = None,
    style: TextStyle = PLAIN,
) -> RowBatch:
    """Parse the declared columns from spans of a buffer.

    Args:
        data: The buffer.
        schema: The declared columns.
        codes: Faults of rows so far; those found here are added.
        spans: Starts and ends of the fields, with a row per column.
        present: Which fields are not NULL.
        copy: Writes the text of a column to offsets and data, removing quotes and escapes.
        woven: Which fields have quotes or escapes within, and must be copied before they are parsed.
        seconds: Columns of times that are numbers of seconds since 1970.
        made: Columns that are computed already.
        style: The form of all other numbers and times.
    """
    columns = {}
    texts = []
    for column, (name, kind) in enumerate(schema.columns.items()):
        first = spans[0][column]
        last = spans[1][column]
        there = present[column]
        if made is not None and name in made:
            columns[name] = made[name]
            bad = None
        elif name in seconds:
            columns[name], bad = _moments(data, first, last, there)
        elif kind in _VALUES and (woven is None or not woven[column].any()):
            columns[name], bad = _values(data, first, last, there, kind, style)
        else:
            texts.append(_text(first, last, there, partial(copy, column)))
            is_ascii_text = kind == "string" and _is_ascii(texts[-1])
            columns[name], bad = (_as(texts[-1], pa.string()), None) if is_ascii_text else parse(texts[-1], kind, style)
        schema.mark(codes, bad, schema.type_error_code(name))
    rows = RowBatch.checked(columns, schema, codes)
    wipe_unused(texts, rows.columns.columns)
    return rows


def parse(array: Any, kind: str, style: TextStyle = PLAIN) -> tuple[Any, Mask | None]:
    """Parse an array of strings or bytes; return a column with NULL where a value does not fit, and a mask of those.

    The mask is None if there are none.
    """
    array = without_views(array)
    if kind == "binary":
        return _as(array, pa.binary()), None
    if kind == "string":
        return validate_utf8(_as(array, pa.string()))
    data, offsets, present = _memory(array)
    return _values(data, offsets[:-1], offsets[1:], present, kind, style)


def validate_utf8(array: Any) -> tuple[Any, Mask | None]:
    """Return an array of strings with NULL where one is not UTF-8, and a mask of those."""
    from panstream.primitives.kernels.sources.text_values import find_bad_utf8

    try:
        array.validate(full=True)
        return array, None
    except (pa.ArrowException, UnicodeDecodeError):
        pass
    data, offsets, present = _memory(array)
    bad = np.empty(len(array), bool)
    find_bad_utf8(data, offsets[:-1], offsets[1:], present, bad)
    return _without(_as(array, pa.binary()), bad).view(pa.string()), bad


def _values(
    data: Any, starts: Any, stops: Any, present: Mask, kind: str, style: TextStyle = PLAIN
) -> tuple[Any, Mask | None]:
    """Parse spans of a buffer to a type other than text; the result is that of ``parse``."""
    from panstream.primitives.kernels.sources import text_values
    from panstream.primitives.kernels.sources.csv_fields import copy_spans

    memory = {"double": np.float64, "date": np.int32, "bool": np.bool_}
    values: NDArray[Any] = np.empty(present.size, memory.get(kind, np.int64))
    bad = np.empty(present.size, bool)
    if kind == "double":
        rest = np.empty(present.size, bool)
        text_values.parse_doubles(data, starts, stops, present, values, bad, rest, ord(style.decimal))
        if rest.any():  # long numbers, which the kernel leaves to pyarrow for correct rounding
            first = starts[rest]
            last = stops[rest]
            text = _text(first, last, rest[rest], partial(copy_spans, data, first, last))
            if style.decimal != ".":
                letters = np.frombuffer(text.buffers()[2], np.uint8)
                letters[letters == ord(style.decimal)] = ord(".")
            texts = compute.ascii_trim(_as(text, pa.string()), " \t")
            values[rest] = np.frombuffer(compute.cast(texts, pa.float64()).buffers()[1], np.float64, len(texts))
        bad |= ~np.isfinite(values)
    elif style.date_formats and kind in ("timestamp", "date"):
        from panstream.primitives.kernels.sources.date_formats import parse_formatted

        steps, ends = compile_date_formats(style.date_formats)
        parse_formatted(data, starts, stops, present, steps, ends, values, bad, kind == "date")
    else:
        parsers: dict[str, Callable[..., None]] = {
            "int": text_values.parse_ints,
            "timestamp": text_values.parse_timestamps,
            "date": text_values.parse_dates,
            "bool": text_values.parse_booleans,
        }
        parsers[kind](data, starts, stops, present, values, bad)
    valid = present & ~bad
    buffer = arrow_mask(values).buffers()[1] if kind == "bool" else pa.py_buffer(values)
    column = pa.Array.from_buffers(arrow_type(kind), present.size, [_bits(valid), buffer])
    return column, bad if bad.any() else None


def _moments(data: Any, starts: Any, stops: Any, present: Mask) -> tuple[Any, Mask | None]:
    """Parse numbers of seconds since 1970 to a column of times."""
    column, wrong = _values(data, starts, stops, present, "double")
    seconds = np.frombuffer(column.buffers()[1], np.float64, len(column))
    bad = np.zeros(present.size, bool) if wrong is None else wrong
    bad |= present & ~(np.abs(seconds) < _LATEST)
    valid = present & ~bad
    values = np.rint(np.where(valid, seconds, 0.0) * 1e6).astype(np.int64)
    times = pa.Array.from_buffers(arrow_type("timestamp"), present.size, [_bits(valid), pa.py_buffer(values)])
    return times, bad if bad.any() else None


def _text(starts: Any, stops: Any, present: Mask, copy: Callable[[Any, Any], None]) -> Any:
    """Return the texts that ``copy`` writes as an array of bytes."""
    from panstream.primitives.kernels.sources.byte_copies import SLACK

    size = int(stops.sum() - starts.sum())
    offsets = np.empty(starts.size + 1, np.int32)
    out = np.empty(size + SLACK, np.uint8)
    copy(offsets, out)
    return pa.Array.from_buffers(pa.binary(), starts.size, [_bits(present), pa.py_buffer(offsets), pa.py_buffer(out)])


def _is_ascii(array: Any) -> bool:
    """Return whether an array that ``_text`` made is ASCII only, which needs no check of UTF-8."""
    return bool(np.frombuffer(array.buffers()[2], np.uint8).max() < 0x80)


def _bits(valid: Mask) -> Any:
    return None if valid.all() else arrow_mask(valid).buffers()[1]


def without_views(array: Any) -> Any:
    """Return an array of strings or bytes as ``pa.binary()``: no views, 32-bit offsets."""
    if array.type in (pa.string_view(), pa.binary_view()):
        return _gathered(array)
    large = array.type in (pa.large_string(), pa.large_binary())
    return compute.cast(_as(array, pa.large_binary()), pa.binary()) if large else _as(array, pa.binary())


def _gathered(array: Any) -> Any:
    """Gather the bytes of views here: pyarrow does not check views under NULL, but follows them."""
    from panstream.primitives.kernels.arrow_gather import gather_views, view_offsets

    if not len(array):
        return pa.nulls(0, pa.binary())
    _, table, *buffers = array.buffers()
    views = np.frombuffer(table, np.int32, 4 * len(array), 16 * array.offset).reshape(-1, 4)
    bits = None
    offsets = np.empty(len(array) + 1, np.int64)
    if array.null_count:
        present = boolean_bytes(array.is_valid())
        views = np.where(present[:, None], views, np.int32(0))
        bits = arrow_mask(present).buffers()[1]
    outside = view_offsets(views, np.array([buffer.size for buffer in buffers], np.int64), offsets) >= 0
    if outside or offsets[-1] >= 1 << 31:
        raise pa.ArrowInvalid("views point outside their data, or to too much of it")
    data = np.empty(int(offsets[-1]), np.uint8)
    gather_views(views, np.array([buffer.address for buffer in buffers], np.uint64), offsets, data)
    offsets_buffer = pa.py_buffer(offsets.astype(np.int32))
    return pa.Array.from_buffers(pa.binary(), len(array), [bits, offsets_buffer, pa.py_buffer(data)])


def _as(array: Any, kind: Any) -> Any:
    """Return the same memory as another type of strings or bytes."""
    if array.type == kind:
        return array
    return pa.Array.from_buffers(kind, len(array), array.buffers(), offset=array.offset)


def _without(array: Any, bad: Mask) -> Any:
    return compute.if_else(arrow_mask(bad), null_of(array.type), array)


def _memory(array: Any) -> tuple[NDArray[np.uint8], NDArray[np.int32], Mask]:
    """Return data, offsets and a mask of the rows that are not NULL, of an array that was checked."""
    _, offsets, data = array.buffers()
    present = boolean_bytes(array.is_valid()) if array.null_count else np.ones(len(array), bool)
    offset_array = (
        np.frombuffer(offsets, np.int32, len(array) + 1, 4 * array.offset) if len(array) else np.zeros(1, np.int32)
    )
    return np.frombuffer(data or b"", np.uint8), offset_array, present
