"""The headers of Parquet pages, which are written in Thrift's compact protocol."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["DATA", "DATA_2", "DICTIONARY", "PLAIN", "CutOff", "Damaged", "PageHeader", "read_header"]

DATA, DICTIONARY, DATA_2 = 0, 2, 3
PLAIN = 0
_PLAIN_DICTIONARY, _RLE = 2, 3
_TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _STRUCT = 1, 2, 3, 7, 8, 12
_WHOLE, _INT32 = (4, 5, 6), 5
_LISTS = (9, 10)
_DEEPEST = 8
# Where a page of each kind is described, and which fields parquet.thrift requires there.
_REQUIRED = {
    DATA: (5, frozenset({1, 2, 3, 4})),
    DICTIONARY: (7, frozenset({1, 2})),
    DATA_2: (8, frozenset({1, 2, 3, 4, 5, 6})),
}


class Damaged(ValueError):
    """This is not what a Parquet file has here."""


class CutOff(Damaged):
    """The header goes on behind the bytes that were given."""


@dataclass(frozen=True, slots=True)
class PageHeader:
    """What a page holds; ``levels`` is the size of the definition levels of a page of the second version."""

    kind: int
    size: int
    compressed_size: int
    values: int
    encoding: int
    levels: int
    compressed: bool
    missing: int | None = None  # values that are missing, as a page of the second version says


def read_header(data: memoryview) -> tuple[PageHeader, int]:
    """Return the header at the beginning of ``data``, and its length."""
    try:
        fields, end = _struct(data, 0, 0)
    except IndexError:
        fields, end = None, 0
    if fields is None:
        raise CutOff("the header goes on")
    kind = _number(fields, 1)
    if kind not in _REQUIRED:
        return PageHeader(kind, _number(fields, 2), _number(fields, 3), 0, 0, 0, True), end
    place, required = _REQUIRED[kind]
    page = fields.get(place)
    if not isinstance(page, dict) or not required <= page.keys() or not {1, 2, 3} <= fields.keys():
        raise Damaged("a page is not described in full")
    second = kind == DATA_2
    if second and _number(page, 6):
        raise Damaged("a flat column has no repetition levels")
    if second and _number(page, 3) != _number(page, 1):
        raise Damaged("a flat column has as many values as rows")
    if kind == DATA and _number(page, 3) != _RLE:
        raise Damaged("levels are written in a way that is not in use any more")
    if kind == DICTIONARY and _number(page, 2) not in (PLAIN, _PLAIN_DICTIONARY):
        raise Damaged("a dictionary is written in a way that is not known")
    header = PageHeader(
        kind=kind,
        size=_number(fields, 2),
        compressed_size=_number(fields, 3),
        values=_number(page, 1),
        encoding=_number(page, 4 if second else 2),
        levels=_number(page, 5) if second else 0,
        compressed=page.get(7) is not False if second else True,
        missing=_number(page, 2) if second else None,
    )
    return header, end


def _number(fields: Mapping[int, Any], at: int) -> int:
    value = fields.get(at, 0)
    if not isinstance(value, int) or value < 0:
        raise Damaged("a size is negative or no number")
    return value


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
        if shift > 63:
            raise Damaged("a number is too long")


def _whole(data: memoryview, at: int) -> tuple[int, int]:
    value, at = _varint(data, at)
    return (value >> 1) ^ -(value & 1), at


def _struct(data: memoryview, at: int, depth: int) -> tuple[dict[int, Any], int]:
    fields: dict[int, Any] = {}
    number = 0
    while data[at]:
        step, kind = data[at] >> 4, data[at] & 15
        at += 1
        if step:
            number += step
        else:
            number, at = _whole(data, at)
        if kind in (_TRUE, _FALSE):
            fields[number] = kind == _TRUE
        else:
            fields[number], at = _value(data, at, kind, depth)
    return fields, at + 1


def _value(data: memoryview, at: int, kind: int, depth: int) -> tuple[Any, int]:
    """Return a value and where it ends; text is passed over, since only statistics have some, about people."""
    if depth > _DEEPEST:
        raise Damaged("a header is nested too deep")
    if kind in _WHOLE:
        value, at = _whole(data, at)
        return (value if kind == _INT32 else None), at  # every size in a header has 32 bits
    if kind == _STRUCT:
        return _struct(data, at, depth + 1)
    if kind in _LISTS:
        return _list(data, at, depth)
    if kind in (_BYTE, _DOUBLE):
        size = 1 if kind == _BYTE else 8
    elif kind == _BINARY:
        size, at = _varint(data, at)
    else:
        raise Damaged("a field has a type that headers do not have")
    return None, at + size


def _list(data: memoryview, at: int, depth: int) -> tuple[None, int]:
    count, kind = data[at] >> 4, data[at] & 15
    at += 1
    if count == 15:
        count, at = _varint(data, at)
    if count > len(data) - at:  # every element takes a byte at least
        raise CutOff("the header goes on")
    if kind in (_TRUE, _FALSE):
        return None, at + count
    for _ in range(count):
        _, at = _value(data, at, kind, depth + 1)
    return None, at
