"""Convert Arrow arrays from untrusted input to declared types: NULL where a value does not fit, and the row is marked.

Types that are not listed are refused by the schema, before any row is read. Then all offsets, views and codes are
checked, before any other code follows them: a crafted array could make pyarrow read memory that is not its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.engine.arrow import arrow_mask, boolean_bytes, compute, null_of, numeric_view, pa, string_array
from panstream.engine.rows.row_batch import Codes, RowBatch, RowSchema, arrow_type
from panstream.engine.rows.wiping import NOTHING_BORROWED, BorrowedMemory, wipe_unused
from panstream.engine.sources.formats.text_columns import parse, validate_utf8, without_views
from panstream.errors import SourceError
from panstream.primitives.inputs.argument import read_only

_INTEGER_TYPES = {kind.id for kind in (pa.int8(), pa.int16(), pa.int32(), pa.int64())}
_INTEGER_TYPES |= {kind.id for kind in (pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())}
_REAL = {kind.id for kind in (pa.float16(), pa.float32(), pa.float64())}
_DECIMAL = {kind.id for kind in (pa.decimal32(1), pa.decimal64(1), pa.decimal128(1), pa.decimal256(1))}
_TEXT = {kind.id for kind in (pa.string(), pa.large_string(), pa.string_view())}
_BYTES = {kind.id for kind in (pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(1))}
_DATE = {kind.id for kind in (pa.date32(), pa.date64())}
_TIME = {pa.timestamp("us").id}
_NUMBER = _INTEGER_TYPES | _REAL | _DECIMAL
_READ = {
    "int": _NUMBER,
    "double": _NUMBER,
    "string": _TEXT,
    "binary": _TEXT | _BYTES,
    "bool": {pa.bool_().id},
    "timestamp": _TIME | _DATE | _TEXT,
    "date": _DATE | _TEXT,
}
_OFFSETS = {pa.string(): np.int32, pa.binary(): np.int32, pa.large_string(): np.int64, pa.large_binary(): np.int64}
_NARROW = {pa.large_string(): pa.string(), pa.large_binary(): pa.binary()}
_AS_BYTES = {pa.string(): pa.binary(), pa.large_string(): pa.large_binary(), pa.string_view(): pa.binary_view()}


def check_types(arrow_schema: Any, schema: RowSchema, label: str) -> None:
    """Raise SourceError if an Arrow schema lacks a declared column, or its type cannot be read as declared."""
    for name, kind in schema.columns.items():
        if arrow_schema.get_field_index(name) < 0:
            raise SourceError(f"{label} has no column {name!r}, or has it twice")
        stored = arrow_schema.field(name).type  # or of an extension's storage, or of a dictionary's values
        stored = stored.storage_type if isinstance(stored, pa.BaseExtensionType) else stored
        stored = stored.value_type if pa.types.is_dictionary(stored) else stored
        fits = stored.id in _READ[kind] or pa.types.is_null(stored)
        if stored.id in _DECIMAL and not 0 <= stored.scale <= stored.precision:
            fits = False  # pyarrow computes wrong results with such a scale
        if not fits:
            raise SourceError(
                f"{label}: column {name!r} is declared {kind}, but its type in the table is {_named(stored)}"
            )


def _named(stored: Any) -> str:
    return "nested" if pa.types.is_nested(stored) else str(stored)[:40]


def check_layout(array: Any) -> None:
    """Check that an array of a type that ``check_types`` accepts refers to no memory but its own.

    UTF-8 is not checked here: a string that is not valid is a fault of its row, not of the input.

    Raises:
        ArrowInvalid: An offset, view or code is out of bounds, or a decimal has too many digits.
    """
    array = getattr(array, "storage", array)
    if pa.types.is_dictionary(array.type):
        check_layout(array.indices)
        check_layout(array.dictionary)
        if not _within(array.indices, len(array.dictionary)):
            raise pa.ArrowInvalid("a code is not in its dictionary")
        return
    array.validate()
    if array.type in _OFFSETS and array.buffers()[0] is None:
        if not _has_valid_offsets(array):
            raise pa.ArrowInvalid("an offset is not within its data")
        return
    plain = _AS_BYTES.get(array.type)
    if plain is not None:
        array = pa.Array.from_buffers(plain, len(array), array.buffers(), offset=array.offset)
    if array.type.id not in _DATE:  # pyarrow would refuse the batch for a time of day; here it makes its row bad
        array.validate(full=True)
    if pa.types.is_decimal(array.type) and _has_least_decimal(array):
        raise pa.ArrowInvalid("a decimal has more digits than its type")


def _has_valid_offsets(array: Any) -> bool:
    """Return whether the strings of an array without NULL lie in its data; in half the time of pyarrow's validation."""
    if not len(array):
        return True
    _, positions, data = array.buffers()
    kind = np.dtype(_OFFSETS[array.type])
    offsets = np.frombuffer(positions, kind, len(array) + 1, array.offset * kind.itemsize)
    in_order = not (offsets[1:] < offsets[:-1]).any()
    return bool(in_order and offsets[0] >= 0 and offsets[-1] <= (0 if data is None else data.size))


def _narrowed(array: Any) -> Any:
    """Return strings with offsets of 64 bits as strings with 32 bits, which share their data.

    Raises:
        ArrowInvalid: An offset is out of bounds, or the strings have more than 2 GB.
    """
    from panstream.primitives.kernels.arrow_gather import narrow_offsets

    array.validate()
    kind = _NARROW[array.type]
    if not len(array):
        return pa.nulls(0, kind)
    _, wide, data = array.buffers()
    size = 0 if data is None else data.size
    offsets = np.frombuffer(wide, np.int64, len(array) + 1, 8 * array.offset)
    narrow = np.empty(offsets.size, np.int32)
    if not narrow_offsets(read_only(offsets), size, narrow):
        raise pa.ArrowInvalid("an offset is not within its data")
    valid = arrow_mask(boolean_bytes(array.is_valid())).buffers()[1] if array.null_count else None
    first = int(offsets[0])
    text = None if data is None else data.slice(first, int(offsets[-1]) - first)
    return pa.Array.from_buffers(kind, len(array), [valid, pa.py_buffer(narrow), text])


def _has_least_decimal(array: Any) -> bool:
    """Return whether a decimal is the smallest of its width: pyarrow does not detect it, and its negation overflows."""
    words = array.type.bit_width // 64
    if array.type.bit_width % 64 or array.null_count == len(array):
        return False
    stop = array.offset + len(array)
    parts = np.frombuffer(array.buffers()[1], np.int64, words * stop).reshape(-1, words)[array.offset :]
    is_minimum = (parts[:, -1] == np.iinfo(np.int64).min) & (parts[:, :-1] == 0).all(axis=1)
    return bool((is_minimum & boolean_bytes(array.is_valid())).any())


def _within(codes: Any, size: int) -> bool:
    """Return whether all codes are from 0 up to but not including ``size``."""
    if not codes.null_count:
        plain = numeric_view(codes)
        return not plain.size or int(plain.view(f"u{plain.itemsize}").max()) < size  # a negative one is large then
    ends = compute.min_max(codes).as_py()
    return (ends["min"] or 0) >= 0 and (ends["max"] or 0) < max(1, size)


Mask = NDArray[np.bool_]
Converted = tuple[Any, Mask | None]

_DAY = 86_400_000_000  # microseconds
_UNITS = {"s": 1_000_000, "ms": 1_000}
_MAX_INT64 = 2**63 - 1


def from_arrow(
    batch: Any,
    schema: RowSchema,
    *,
    owned: bool = True,
    label: str = "the input",
) -> RowBatch:
    """Convert the declared columns of an Arrow record batch to their declared types.

    Args:
        batch: The record batch.
        schema: The declared columns.
        owned: Whether its memory is ours: then what had to be copied is overwritten; the caller's memory never is.
        label: What messages call the input.
    """
    arrays = {name: batch.column(name) for name in schema.columns}
    borrowed = NOTHING_BORROWED if owned else BorrowedMemory.of(arrays.values())
    codes = np.zeros(batch.num_rows, np.uint16)
    columns = _converted(arrays, schema, codes, label)
    piece = RowBatch.checked(columns, schema, codes, borrowed=borrowed)
    wipe_unused(arrays.values(), piece.columns.columns, borrowed)
    return piece


def _converted(arrays: Mapping[str, Any], schema: RowSchema, codes: Codes, label: str) -> dict[str, Any]:
    columns = {}
    name = ""
    try:
        for name, array in arrays.items():
            storage = getattr(array, "storage", array)
            if storage.type in _NARROW:
                array = _narrowed(storage)
            else:
                check_layout(array)
            columns[name], bad = _convert(array, schema.columns[name], is_user=name == schema.user)
            schema.mark(codes, bad, schema.type_error_code(name))
        return columns
    except pa.ArrowException:  # its message may quote a value
        pass
    raise SourceError(f"{label} could not be read: column {name!r} points outside its data")


def _convert(array: Any, kind: str, *, is_user: bool) -> Converted:
    """Return a column of a declared kind, NULL where a value does not fit, and a mask of those (None: none).

    Ids may stay unsigned; as strings they are compared and hashed as bytes, so their UTF-8 is not checked. Strings may
    stay dictionary-encoded; ids only if the dictionary is not larger than the batch, since all of it is hashed.
    """
    is_ = pa.types
    array = getattr(array, "storage", array)
    if is_.is_dictionary(array.type):
        if kind == "string" and (not is_user or len(array.dictionary) <= len(array)):
            return _dictionary(array, is_user=is_user)
        array = _decoded(array)
    if is_.is_null(array.type):
        return pa.nulls(len(array), arrow_type(kind)), None
    if kind == "string" and is_user:
        return _unchecked_letters(array), None
    if kind == "string":
        return parse(array, "string")
    if kind == "int":
        return (array, None) if is_user and is_.is_uint64(array.type) else _integers(array)
    if kind == "double":
        return compute.cast(_wide(array), pa.float64(), safe=False), None
    if kind == "binary":
        fixed = is_.is_fixed_size_binary(array.type)
        return (compute.cast(array, pa.binary()), None) if fixed else parse(array, "binary")
    if kind != "bool" and array.type.id in _TEXT:
        return parse(array, kind)
    return (array, None) if kind == "bool" else _time(array) if kind == "timestamp" else _date(array)


def _wide(array: Any) -> Any:
    """Widen types that pyarrow cannot compute with, or not correctly."""
    if pa.types.is_decimal32(array.type) or pa.types.is_decimal64(array.type):
        return compute.cast(array, pa.decimal128(array.type.precision, array.type.scale))
    return compute.cast(array, pa.float32()) if pa.types.is_float16(array.type) else array


def _integers(array: Any) -> Converted:
    array = _wide(array)
    source_type = array.type
    bad = None
    if pa.types.is_uint64(source_type):
        array, bad = _only(array, numeric_view(array) <= np.uint64(_MAX_INT64))
    elif pa.types.is_floating(source_type):
        numbers = numeric_view(array)
        with np.errstate(invalid="ignore"):  # signalling NaNs
            is_integer = (np.trunc(numbers) == numbers) & (np.abs(numbers) < 2.0**63)
        array, bad = _only(array, is_integer)
    elif pa.types.is_decimal(source_type):
        good = compute.equal(compute.trunc(array), array)
        if source_type.precision - source_type.scale > 18:
            ends = [pa.array([end]).cast(pa.decimal256(19, 0)) for end in (-_MAX_INT64 - 1, _MAX_INT64)]
            for end, within in zip(ends, (compute.greater_equal, compute.less_equal), strict=True):
                good = compute.and_(good, within(array, end[0]))
        array, bad = _only(array, boolean_bytes(good))
        if array.null_count:  # pyarrow would cast the values under NULL, too
            array = compute.if_else(array.is_valid(), array, compute.cast(string_array(["0"]), source_type)[0])
            is_integer = compute.cast(array, pa.int64())
            return compute.if_else(arrow_mask(boolean_bytes(good)), is_integer, null_of(is_integer.type)), bad
    return (array if array.type == pa.int64() else compute.cast(array, pa.int64())), bad


def _time(array: Any) -> Converted:
    source_type = array.type
    if pa.types.is_date32(source_type):
        return _scaled(array.view(pa.int32()).cast(pa.int64()), _DAY)
    integers = array.view(pa.int64())
    if pa.types.is_date64(source_type):
        return _scaled(integers, 1_000)
    if source_type.unit == "ns":
        return compute.cast(integers.view(pa.timestamp("ns")), pa.timestamp("us"), safe=False), None
    return (
        (integers.view(pa.timestamp("us")), None)
        if source_type.unit == "us"
        else _scaled(integers, _UNITS[source_type.unit])
    )


def _scaled(integers: Any, factor: int) -> Converted:
    """Return times in microseconds, from units of ``factor`` microseconds."""
    numbers = numeric_view(integers)
    integers, bad = _only(integers, (numbers <= _MAX_INT64 // factor) & (numbers >= -(_MAX_INT64 // factor)))
    values = np.where(np.abs(numeric_view(integers)) <= _MAX_INT64 // factor, numeric_view(integers), 0) * factor
    valid = arrow_mask(boolean_bytes(integers.is_valid())).buffers()[1] if integers.null_count else None
    return pa.Array.from_buffers(pa.timestamp("us"), len(integers), [valid, pa.py_buffer(values)]), bad


def _date(array: Any) -> Converted:
    if pa.types.is_date32(array.type):
        return array, None
    integers = array.view(pa.int64())
    numbers = numeric_view(integers)
    days, rest = np.divmod(numbers, _DAY // 1_000)
    _, bad = _only(integers, (rest == 0) & (days >= -(2**31)) & (days < 2**31))
    valid = boolean_bytes(integers.is_valid()) if integers.null_count else np.ones(len(integers), bool)
    valid = valid if bad is None else valid & ~bad
    bits = None if valid.all() else arrow_mask(valid).buffers()[1]
    return pa.Array.from_buffers(pa.date32(), len(integers), [bits, pa.py_buffer(days.astype(np.int32))]), bad


def _only(array: Any, good: Mask) -> Converted:
    """Return the array with NULL where a value is not good, and a mask of those (None: none)."""
    bad: Mask = ~good
    if array.null_count:
        bad &= boolean_bytes(array.is_valid())
    if not bad.any():
        return array, None
    return compute.if_else(arrow_mask(bad), null_of(array.type), array), bad


def _decoded(array: Any) -> Any:
    words = getattr(array.dictionary, "storage", array.dictionary)
    views = words.type in (pa.string_view(), pa.binary_view())  # pyarrow cannot take from views
    return (without_views(words) if views else words).take(array.indices)


def _unchecked_letters(array: Any) -> Any:
    plain, _ = parse(array, "binary")
    return pa.Array.from_buffers(pa.string(), len(array), plain.buffers(), offset=plain.offset)


def _dictionary(array: Any, *, is_user: bool) -> Converted:
    words = array.dictionary
    codes = array.indices
    plain = words.type == pa.string() and codes.type in (pa.int32(), pa.int8())
    if is_user:
        words = _unchecked_letters(words)
        broken = None
    else:
        words, broken = validate_utf8(words) if plain else parse(words, "string")
    if plain and broken is None and not words.null_count:
        return array, None
    numbers = numeric_view(codes).astype(np.int64)  # checked to be in range, except under NULL
    there = boolean_bytes(codes.is_valid()) if codes.null_count else np.ones(len(codes), bool)
    numbers = np.where(there, numbers, 0)
    if words.null_count:
        there &= boolean_bytes(words.is_valid())[numbers]
        words = compute.coalesce(words, string_array([""])[0])  # pyarrow cannot join dictionaries with NULL
    bad = None if broken is None else broken[numbers] & ~there
    bits = None if there.all() else arrow_mask(there).buffers()[1]
    plain_codes = pa.Array.from_buffers(pa.int32(), len(codes), [bits, pa.py_buffer(numbers.astype(np.int32))])
    return pa.DictionaryArray.from_arrays(plain_codes, words, safe=False), bad
