"""Arrow arrays, checked before, to columns as declared: null where a value does not fit, which is found by comparing."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.engine.arrow import arrow_mask, compute, missing, numbers_of, pa, truth_of, words_of
from panstream.engine.feeds.layouts import is_text
from panstream.engine.feeds.text_columns import checked_letters, parse, plain_bytes
from panstream.engine.rows import arrow_type

__all__ = ["convert"]

Mask = NDArray[np.bool_]
Converted = tuple[Any, Mask | None]

_DAY = 86_400_000_000  # microseconds
_UNITS = {"s": 1_000_000, "ms": 1_000}
_MOST = 2**63 - 1


def convert(array: Any, kind: str, *, is_user: bool) -> Converted:
    """Return a column of a declared kind, null where a value does not fit, and where that is (None: nowhere).

    Ids may stay unsigned, and are compared and hashed as bytes, so that nobody checks their letters; other strings may
    stay in a dictionary.
    """
    is_ = pa.types
    array = getattr(array, "storage", array)
    if is_.is_dictionary(array.type):
        if kind == "string" and not is_user:
            return _dictionary(array)
        array = _decoded(array)
    if is_.is_null(array.type):
        return pa.nulls(len(array), arrow_type(kind)), None
    if kind == "string":
        return _string(array) if is_user else parse(array, "string")
    if kind == "int":
        return (array, None) if is_user and is_.is_uint64(array.type) else _whole(array)
    if kind == "double":
        return compute.cast(_wide(array), pa.float64(), safe=False), None
    if kind == "binary":
        fixed = is_.is_fixed_size_binary(array.type)
        return (compute.cast(array, pa.binary()), None) if fixed else parse(array, "binary")
    if kind != "bool" and is_text(array.type):
        return parse(array, kind)
    return (array, None) if kind == "bool" else _time(array) if kind == "timestamp" else _date(array)


def _string(array: Any) -> Converted:
    bytes_, _ = parse(array, "binary")
    return pa.Array.from_buffers(pa.string(), len(array), bytes_.buffers(), offset=bytes_.offset), None


def _wide(array: Any) -> Any:
    """Return numbers in a type that pyarrow can compute with: of the narrow ones it cannot, or not rightly."""
    if pa.types.is_decimal32(array.type) or pa.types.is_decimal64(array.type):
        return compute.cast(array, pa.decimal128(array.type.precision, array.type.scale))
    return compute.cast(array, pa.float32()) if pa.types.is_float16(array.type) else array


def _whole(array: Any) -> Converted:
    array = _wide(array)
    found, bad = array.type, None
    if pa.types.is_uint64(found):
        array, bad = _only(array, numbers_of(array) <= np.uint64(_MOST))
    elif pa.types.is_floating(found):
        numbers = numbers_of(array)
        with np.errstate(invalid="ignore"):  # of NaNs that signal
            whole = (np.trunc(numbers) == numbers) & (np.abs(numbers) < 2.0**63)
        array, bad = _only(array, whole)
    elif pa.types.is_decimal(found):
        good = compute.equal(compute.trunc(array), array)
        if found.precision - found.scale > 18:
            ends = [pa.array([end]).cast(pa.decimal256(19, 0)) for end in (-_MOST - 1, _MOST)]
            for end, within in zip(ends, (compute.greater_equal, compute.less_equal), strict=True):
                good = compute.and_(good, within(array, end[0]))
        array, bad = _only(array, truth_of(good))
        if array.null_count:  # pyarrow would cast what lies behind a null, too
            array = compute.if_else(array.is_valid(), array, compute.cast(words_of(["0"]), found)[0])
            return _emptied(compute.cast(array, pa.int64()), good), bad
    return (array if array.type == pa.int64() else compute.cast(array, pa.int64())), bad


def _emptied(array: Any, good: Any) -> Any:
    return compute.if_else(arrow_mask(truth_of(good)), array, missing(array.type))


def _time(array: Any) -> Converted:
    found = array.type
    if pa.types.is_date32(found):
        return _scaled(array.view(pa.int32()).cast(pa.int64()), _DAY)
    whole = array.view(pa.int64())
    if pa.types.is_date64(found):
        return _scaled(whole, 1_000)
    if found.unit == "ns":
        return compute.cast(whole.view(pa.timestamp("ns")), pa.timestamp("us"), safe=False), None
    return (whole.view(pa.timestamp("us")), None) if found.unit == "us" else _scaled(whole, _UNITS[found.unit])


def _scaled(whole: Any, factor: int) -> Converted:
    """Return times in microseconds, of so many each."""
    numbers = numbers_of(whole)
    whole, bad = _only(whole, (numbers <= _MOST // factor) & (numbers >= -(_MOST // factor)))
    values = np.where(np.abs(numbers_of(whole)) <= _MOST // factor, numbers_of(whole), 0) * factor
    valid = arrow_mask(truth_of(whole.is_valid())).buffers()[1] if whole.null_count else None
    return pa.Array.from_buffers(pa.timestamp("us"), len(whole), [valid, pa.py_buffer(values)]), bad


def _date(array: Any) -> Converted:
    if pa.types.is_date32(array.type):
        return array, None
    whole = array.view(pa.int64())
    numbers = numbers_of(whole)
    days, rest = np.divmod(numbers, _DAY // 1_000)
    _, bad = _only(whole, (rest == 0) & (days >= -(2**31)) & (days < 2**31))
    valid = truth_of(whole.is_valid()) if whole.null_count else np.ones(len(whole), bool)
    valid = valid if bad is None else valid & ~bad
    bits = None if valid.all() else arrow_mask(valid).buffers()[1]
    return pa.Array.from_buffers(pa.date32(), len(whole), [bits, pa.py_buffer(days.astype(np.int32))]), bad


def _only(array: Any, good: Mask) -> Converted:
    """Return the array with null where a value is there and not good, and where that is."""
    bad: Mask = ~good
    if array.null_count:
        bad &= truth_of(array.is_valid())
    if not bad.any():
        return array, None
    return compute.if_else(arrow_mask(bad), missing(array.type), array), bad


def _decoded(array: Any) -> Any:
    words = getattr(array.dictionary, "storage", array.dictionary)
    views = words.type in (pa.string_view(), pa.binary_view())  # from which pyarrow cannot take
    return (plain_bytes(words) if views else words).take(array.indices)


def _dictionary(array: Any) -> Converted:
    words, codes = array.dictionary, array.indices
    plain = words.type == pa.string() and codes.type == pa.int32()
    words, broken = parse(words, "string") if not plain else checked_letters(words)
    if plain and broken is None and not words.null_count:
        return array, None
    numbers = numbers_of(codes).astype(np.int64)  # checked: within the dictionary, but behind nulls
    there = truth_of(codes.is_valid()) if codes.null_count else np.ones(len(codes), bool)
    numbers = np.where(there, numbers, 0)
    if words.null_count:
        there &= truth_of(words.is_valid())[numbers]
        words = compute.coalesce(words, words_of([""])[0])  # dictionaries with nulls cannot be joined
    bad = None if broken is None else broken[numbers] & ~there
    bits = None if there.all() else arrow_mask(there).buffers()[1]
    plain_codes = pa.Array.from_buffers(pa.int32(), len(codes), [bits, pa.py_buffer(numbers.astype(np.int32))])
    return pa.DictionaryArray.from_arrays(plain_codes, words, safe=False), bad
