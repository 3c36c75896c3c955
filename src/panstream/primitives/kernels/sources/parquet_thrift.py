"""Read the footer and the page headers of a Parquet file, in Thrift's compact protocol: numbers and offsets only.

pyarrow trusts them: some footers make it end the process, and it allocates as much memory as a page claims to need.
Statistics are skipped: they quote values. Compiled because metadata are large; memory and depth are bounded.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.primitives.kernels.jit import njit

CUT_OFF = -1
DAMAGED = -2
ABSENT = -1

# A column's numbers are indexed by their field numbers in parquet.thrift's ColumnMetaData; ELSEWHERE marks columns that
# are encrypted or in another file.
ELSEWHERE = 0
TYPE = 1
CODEC = 4
VALUES = 5
SIZE = 6
STORED = 7
DATA = 9
DICTIONARY = 11
COLUMN_FIELDS = 12
PAGE_TYPE, PAGE_SIZE, PAGE_STORED, PAGE_VALUES, PAGE_ENCODING = range(5)
PAGE_FIELDS = 5
DATA_PAGE = 0
DICTIONARY_PAGE = 2
DATA_PAGE_2 = 3
_DEEPEST = 64  # nesting of structures, and of groups in a schema
_TRUE = 1
_FALSE = 2
_BYTE = 3
_DOUBLE = 7
_BINARY = 8
_LIST = 9
_SET = 10
_STRUCT = 12
_INT32 = 5
_INT64 = 6
_INTEGERS = (4, _INT32, _INT64)
_LARGEST_FIELD = 1000


@njit(cache=True, nogil=True)
def _read_varint(data: NDArray[np.uint8], pos: Any) -> Any:
    """Return an unsigned number and its end, or a negative error."""
    value = np.uint64(0)
    shift = np.uint64(0)
    while pos < data.size:
        byte = np.uint64(data[pos])
        pos += 1
        if shift == np.uint64(63) and byte > np.uint64(1):
            return value, np.int64(DAMAGED)
        value |= (byte & np.uint64(127)) << shift
        if byte < np.uint64(128):
            return value, pos
        shift += np.uint64(7)
    return value, np.int64(CUT_OFF)


@njit(cache=True, nogil=True)
def _read_signed(data: NDArray[np.uint8], pos: Any) -> Any:
    """Return a signed (zigzag) number and its end, or a negative error."""
    value, pos = _read_varint(data, pos)
    return np.int64(value >> np.uint64(1)) ^ -np.int64(value & np.uint64(1)), pos


@njit(cache=True, nogil=True)
def _read_field(data: NDArray[np.uint8], pos: Any, last: Any) -> Any:
    """Return kind and number of the next field and the start of its value; kind 0 ends a structure.

    An error in ``pos``, of the value before, is passed on, so that loops over fields need not test for it.
    """
    if pos < 0:
        return 0, last, pos
    if pos >= data.size:
        return 0, last, np.int64(CUT_OFF)
    kind = np.int64(data[pos] & 15)
    step = np.int64(data[pos] >> 4)
    pos += 1
    if kind == 0 or step:
        return kind, last + step, pos
    number, pos = _read_signed(data, pos)
    if pos >= 0 and not 0 <= number <= _LARGEST_FIELD:  # Thrift would cut off the higher bits
        pos = np.int64(DAMAGED)
    return kind, number, pos


@njit(cache=True, nogil=True)
def _read_list(data: NDArray[np.uint8], pos: Any) -> Any:
    """Return kind and number of a list's elements, and the start of the first."""
    if pos >= data.size:
        return 0, 0, np.int64(CUT_OFF)
    kind = np.int64(data[pos] & 15)
    count = np.uint64(data[pos] >> 4)
    pos += 1
    if count == np.uint64(15):
        count, pos = _read_varint(data, pos)
        if pos < 0:
            return 0, 0, pos
    if count > np.uint64(data.size - pos):  # every element takes a byte at least
        return 0, 0, np.int64(CUT_OFF)
    return kind, np.int64(count), pos


@njit(cache=True, nogil=True)
def _skip(data: NDArray[np.uint8], pos: Any, kind: Any) -> Any:
    """Return the end of a field's value, or a negative error; a loop with a bounded stack, not recursion."""
    remaining = np.empty(_DEEPEST, np.int64)  # elements of a list that is open; -1: a structure
    kinds = np.empty(_DEEPEST, np.int64)
    depth = 0
    is_element = False
    while True:
        if kind in (_TRUE, _FALSE):
            pos += np.int64(is_element)  # a field's truth is in its kind, a list's takes a byte
        elif kind in _INTEGERS:
            _, pos = _read_varint(data, pos)
        elif kind == _BYTE:
            pos += 1
        elif kind == _DOUBLE:
            pos += 8
        elif kind == _BINARY:
            size, pos = _read_varint(data, pos)
            if pos >= 0:
                pos = pos + np.int64(size) if size <= np.uint64(data.size - pos) else np.int64(CUT_OFF)
        elif kind in (_STRUCT, _LIST, _SET):
            if depth == _DEEPEST:
                return np.int64(DAMAGED)
            remaining[depth] = -1
            kinds[depth] = 0
            if kind != _STRUCT:
                kinds[depth], remaining[depth], pos = _read_list(data, pos)
            depth += 1
        else:
            return np.int64(DAMAGED)
        if pos < 0 or pos > data.size:
            return min(pos, np.int64(CUT_OFF))
        while depth:  # find the next value
            if remaining[depth - 1] > 0:
                remaining[depth - 1] -= 1
                kind = kinds[depth - 1]
                is_element = True
                break
            if remaining[depth - 1] < 0:
                kind, _, pos = _read_field(data, pos, 0)
                is_element = False
                if pos < 0:
                    return pos
                if kind:
                    break
            depth -= 1
        if not depth:
            return pos


@njit(cache=True, nogil=True)
def _count_columns(data: NDArray[np.uint8], pos: Any, elements: Any) -> Any:
    """Return the number of leaf columns of a schema, which lists its tree depth first, and its end."""
    children_left = np.zeros(_DEEPEST, np.int64)  # of every group that is open
    depth = columns = 0
    for element in range(elements):
        children = np.int64(0)
        last = 0
        while True:
            kind, last, pos = _read_field(data, pos, last)
            if pos < 0 or kind == 0:
                break
            if last == 5 and kind == _INT32:
                children, pos = _read_signed(data, pos)
            else:
                pos = _skip(data, pos, kind)
        if pos < 0:
            return 0, pos
        if (element and not depth) or (children > 0 and depth == _DEEPEST):
            return 0, np.int64(DAMAGED)
        if depth:
            children_left[depth - 1] -= 1
        if children > 0:
            children_left[depth] = children
            depth += 1
        elif element:
            columns += 1
        while depth and not children_left[depth - 1]:
            depth -= 1
    return columns, pos if not depth else np.int64(DAMAGED)


# Reads the footer once before `read_footer`, so that the arrays of that have the right size.
@njit(cache=True, nogil=True)
def count_footer(data: NDArray[np.uint8]) -> Any:
    """Return the numbers of row groups and columns of a footer, and its end or a negative error."""
    groups = columns = last = 0
    pos = np.int64(0)
    while True:
        kind, last, pos = _read_field(data, pos, last)
        if pos < 0 or kind == 0:
            return groups, columns, pos
        if last == 2 and kind == _LIST:
            element, count, pos = _read_list(data, pos)
            if pos >= 0:
                columns, pos = _count_columns(data, pos, count) if element == _STRUCT else (0, np.int64(DAMAGED))
        else:
            if last == 4 and kind == _LIST:
                groups = _read_list(data, pos)[1]
            pos = _skip(data, pos, kind)


@njit(cache=True, nogil=True)
def _read_integers(data: NDArray[np.uint8], pos: Any, numbers: NDArray[np.int64], first_wide: int) -> Any:
    """Write a structure's integers at their field numbers, of 64 bits from ``first_wide`` on, else of 32.

    An integer of another width is damage: Thrift would skip it, and then pyarrow would use a value not checked here.
    """
    last = 0
    while True:
        kind, last, pos = _read_field(data, pos, last)
        if pos < 0 or kind == 0:
            return pos
        if kind in _INTEGERS and 0 < last < numbers.size:
            if kind != (_INT64 if last >= first_wide else _INT32):
                return np.int64(DAMAGED)
            numbers[last], pos = _read_signed(data, pos)
        else:
            pos = _skip(data, pos, kind)


@njit(cache=True, nogil=True)
def _read_chunk(data: NDArray[np.uint8], pos: Any, numbers: NDArray[np.int64]) -> Any:
    """Read a column chunk: field 3 is its metadata, field 1 another file's path, fields 8 and 9 encryption keys."""
    last = 0
    while True:
        kind, last, pos = _read_field(data, pos, last)
        if pos < 0 or kind == 0:
            return pos
        if last == 3 and kind == _STRUCT:
            pos = _read_integers(data, pos, numbers, VALUES)
        else:
            if last == 1 or last >= 8:
                numbers[ELSEWHERE] = 1
            pos = _skip(data, pos, kind)


@njit(cache=True, nogil=True)
def _read_group(data: NDArray[np.uint8], pos: Any, rows: NDArray[np.int64], columns: NDArray[np.int64]) -> Any:
    """Read a row group: field 1 is its columns, field 3 its number of rows."""
    last = 0
    while True:
        kind, last, pos = _read_field(data, pos, last)
        if pos < 0 or kind == 0:
            return pos
        if last == 1 and kind == _LIST:
            element, count, pos = _read_list(data, pos)
            if pos >= 0 and (element != _STRUCT or count != columns.shape[0]):
                return np.int64(DAMAGED)
            for column in range(count):
                pos = _read_chunk(data, pos, columns[column])
                if pos < 0:
                    return pos
        elif last == 3 and kind == _INT64:
            rows[0], pos = _read_signed(data, pos)
        else:
            pos = _skip(data, pos, kind)


@njit(cache=True, nogil=True)
def read_footer(data: NDArray[np.uint8], rows: NDArray[np.int64], columns: NDArray[np.int64]) -> Any:
    """Write the rows of every row group, and the numbers of its columns (groups, columns, ``COLUMN_FIELDS``).

    Return the end of the footer or a negative error; ``count_footer`` gives the sizes of the arrays.
    """
    rows[:] = ABSENT
    columns[:] = ABSENT
    columns[:, :, ELSEWHERE] = 0
    last = 0
    pos = np.int64(0)
    while True:
        kind, last, pos = _read_field(data, pos, last)
        if pos < 0 or kind == 0:
            return pos
        if last == 4 and kind == _LIST:
            element, count, pos = _read_list(data, pos)
            if pos >= 0 and ((count and element != _STRUCT) or count != rows.size):
                return np.int64(DAMAGED)
            for group in range(count):
                pos = _read_group(data, pos, rows[group : group + 1], columns[group])
                if pos < 0:
                    return pos
        else:
            pos = _skip(data, pos, kind)


@njit(cache=True, nogil=True)
def read_page_header(data: NDArray[np.uint8], page: NDArray[np.int64]) -> Any:
    """Write the fields of the page header at the start of ``data``; return its end or a negative error."""
    sizes = np.full(4, ABSENT, np.int64)
    inner = np.full((9, 5), ABSENT, np.int64)  # of the structures for data pages, dictionaries, data pages 2
    last = 0
    pos = np.int64(0)
    while True:
        kind, last, pos = _read_field(data, pos, last)
        if pos < 0:
            return pos
        if kind == 0:
            break
        if 0 < last < sizes.size and kind in _INTEGERS:
            if kind != _INT32:
                return np.int64(DAMAGED)
            sizes[last], pos = _read_signed(data, pos)
        elif kind == _STRUCT and last in (5, 7, 8):
            pos = _read_integers(data, pos, inner[last], inner.shape[1])
        else:
            pos = _skip(data, pos, kind)
    page[PAGE_TYPE : PAGE_STORED + 1] = sizes[1:]
    page[PAGE_VALUES:] = ABSENT
    if sizes[1] == DATA_PAGE:
        page[PAGE_VALUES] = inner[5, 1]
        page[PAGE_ENCODING] = inner[5, 2]
    elif sizes[1] == DICTIONARY_PAGE:
        page[PAGE_VALUES] = inner[7, 1]
        page[PAGE_ENCODING] = inner[7, 2]
    elif sizes[1] == DATA_PAGE_2:
        page[PAGE_VALUES] = inner[8, 1]
        page[PAGE_ENCODING] = inner[8, 4]
    return pos
