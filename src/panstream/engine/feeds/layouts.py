"""Which Arrow types are read at all, and the check of arrays that anyone may have made.

Every type that is not on the list is refused by its name in the schema, before any row is looked at. Arrays from outside then have all
their offsets, views and codes checked, here and in this process, before anything else reads them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from panstream.engine.arrow import compute, numbers_of, pa, truth_of
from panstream.engine.rows import RowSchema
from panstream.errors import FeedError

__all__ = ["check_layout", "check_types", "is_text", "storage_of"]

_WHOLE = {kind.id for kind in (pa.int8(), pa.int16(), pa.int32(), pa.int64())}
_WHOLE |= {kind.id for kind in (pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())}
_REAL = {kind.id for kind in (pa.float16(), pa.float32(), pa.float64())}
_DECIMAL = {kind.id for kind in (pa.decimal32(1), pa.decimal64(1), pa.decimal128(1), pa.decimal256(1))}
_TEXT = {kind.id for kind in (pa.string(), pa.large_string(), pa.string_view())}
_BYTES = {kind.id for kind in (pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(1))}
_DATE = {kind.id for kind in (pa.date32(), pa.date64())}
_TIME = {pa.timestamp("us").id}
_NUMBER = _WHOLE | _REAL | _DECIMAL
_READ = {
    "int": _NUMBER,
    "double": _NUMBER,
    "string": _TEXT,
    "binary": _TEXT | _BYTES,
    "bool": {pa.bool_().id},
    "timestamp": _TIME | _DATE | _TEXT,
    "date": _DATE | _TEXT,
}
_AS_BYTES = {pa.string(): pa.binary(), pa.large_string(): pa.large_binary(), pa.string_view(): pa.binary_view()}


def is_text(found: Any) -> bool:
    """Return whether a type is one of text."""
    return found.id in _TEXT


def storage_of(found: Any) -> Any:
    """Return the type in which values are stored: an extension's storage, and a dictionary's words."""
    if isinstance(found, pa.BaseExtensionType):
        found = found.storage_type
    return found.value_type if pa.types.is_dictionary(found) else found


def check_types(found: Any, schema: RowSchema, place: str) -> None:
    """Refuse an input whose Arrow schema lacks a declared column or has it in a type that is not read as declared."""
    for name, kind in schema.columns.items():
        if found.get_field_index(name) < 0:
            raise FeedError(f"{place} has no column {name!r}, or has it twice")
        stored = storage_of(found.field(name).type)
        fits = stored.id in _READ[kind] or pa.types.is_null(stored)
        if stored.id in _DECIMAL and not 0 <= stored.scale <= stored.precision:
            fits = False  # pyarrow goes astray with such a scale
        if not fits:
            raise FeedError(f"{place}: column {name!r} is declared {kind}, but its type there is another kind")


def check_layout(array: Any) -> None:
    """Check an array of a type that ``check_types`` has let pass; raise ``ArrowInvalid`` if it is not sound.

    Letters are not checked: what is not UTF-8 is a matter of its row.
    """
    array = getattr(array, "storage", array)
    if pa.types.is_dictionary(array.type):
        check_layout(array.indices)
        check_layout(array.dictionary)
        if not _within(array.indices, len(array.dictionary)):
            raise pa.ArrowInvalid("a code is not in its dictionary")
        return
    array.validate()
    plain = _AS_BYTES.get(array.type)
    if plain is not None:
        array = pa.Array.from_buffers(plain, len(array), array.buffers(), offset=array.offset)
    if array.type.id not in _DATE:  # there a time of day is found, which is left out like anybody's
        array.validate(full=True)
    if pa.types.is_decimal(array.type) and _has_least_decimal(array):
        raise pa.ArrowInvalid("a decimal has more digits than its type")


def _has_least_decimal(array: Any) -> bool:
    """Return whether a decimal is the least that fits its bits: it has no opposite, so pyarrow lets it pass and turns its sign."""
    words = array.type.bit_width // 64
    if array.type.bit_width % 64 or array.null_count == len(array):
        return False
    stop = array.offset + len(array)
    parts = np.frombuffer(array.buffers()[1], np.int64, words * stop).reshape(-1, words)[array.offset :]
    least = (parts[:, -1] == np.iinfo(np.int64).min) & (parts[:, :-1] == 0).all(axis=1)
    return bool((least & truth_of(array.is_valid())).any())


def _within(codes: Any, size: int) -> bool:
    """Return whether all codes are from 0 up to but not including ``size``."""
    if not codes.null_count:
        plain = numbers_of(codes)
        return not plain.size or (int(plain.min()) >= 0 and int(plain.max()) < size)
    ends = compute.min_max(codes).as_py()
    return (ends["min"] or 0) >= 0 and (ends["max"] or 0) < max(1, size)
