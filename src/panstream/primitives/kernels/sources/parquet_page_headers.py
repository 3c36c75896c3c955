"""Read the headers of Parquet pages, in Thrift's compact protocol: a few numbers, with all else passed over.

Text is among what is passed over: only statistics have some, about people.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

CUT_OFF, DAMAGED = -1, -2
ABSENT, MISFIT = -1, -2  # in place of a number; a negative one does not fit either
PLACES = (5, 7, 8)  # where a header describes a data page, a dictionary, a data page of the second version
FIELDS = 9  # numbered from 1 on
DEEPEST = 8
MAX_INT32 = (1 << 31) - 1
DATA, DICTIONARY, DATA_2 = 0, 2, 3  # kinds of pages
PLAIN, PLAIN_DICTIONARY, RLE = 0, 2, 3  # encodings
KIND, SIZE, VALUES, ENCODING, LEVELS, COMPRESSED, MISSING, START, STOP = range(9)  # what is said of a page

_TRUE, _FALSE, _BYTE, _INT32, _DOUBLE, _BINARY, _LIST, _SET, _STRUCT = 1, 2, 3, 5, 7, 8, 9, 10, 12
_WHOLE = (4, 5, 6)


@njit(cache=True, nogil=True, forceinline=True)
def read_varint(data: NDArray[np.uint8], at: Any) -> Any:
    """Return a number and where it ends, or what is wrong with it."""
    value, shift = np.uint64(0), np.uint64(0)
    while at < data.size:
        byte = np.uint64(data[at])
        at += 1
        if shift == np.uint64(63) and byte > np.uint64(1):
            return value, DAMAGED
        value |= (byte & np.uint64(127)) << shift
        if byte < np.uint64(128):
            return value, at
        shift += np.uint64(7)
    return value, CUT_OFF


@njit(cache=True, nogil=True, forceinline=True)
def _signed(value: np.uint64) -> Any:
    return np.int64(value >> np.uint64(1)) ^ -np.int64(value & np.uint64(1))


@njit(cache=True, nogil=True, forceinline=True)
def read_signed(data: NDArray[np.uint8], at: Any) -> Any:
    """Return a number that may be negative and where it ends, or what is wrong with it."""
    value, at = read_varint(data, at)
    return _signed(value), at


@njit(cache=True, nogil=True)
def read_header(data: NDArray[np.uint8], fields: NDArray[np.int64]) -> Any:
    """Write the header's numbers of 32 bits, and truths as 0 and 1, to ``fields`` (4, ``FIELDS``): its own to the
    first row, then those of the structures at ``PLACES``. Return where it ends, or what is wrong with it.
    """
    fields[:] = ABSENT
    rows = np.empty(DEEPEST + 2, np.int64)  # of ``fields``, for each structure that is open; -1: passed over
    numbers = np.zeros(DEEPEST + 2, np.int64)  # of a structure's last field
    left = np.full(DEEPEST + 2, -1, np.int64)  # elements of a list; -1: a structure
    kinds = np.zeros(DEEPEST + 2, np.int64)  # of a list's elements
    depth, at = 0, np.int64(0)
    rows[0] = 0
    while depth >= 0:
        if left[depth] == 0:
            depth -= 1
            continue
        row = -1
        if left[depth] > 0:
            left[depth] -= 1
            kind = kinds[depth]
        else:
            if at >= data.size:
                return CUT_OFF
            kind, step = np.int64(data[at] & 15), np.int64(data[at] >> 4)
            at += 1
            if kind == 0 and step == 0:
                depth -= 1
                continue
            if step:
                numbers[depth] += step
            else:
                value, at = read_varint(data, at)
                if at < 0:
                    return at
                numbers[depth] = _signed(value)
            row = rows[depth] if 0 < numbers[depth] < FIELDS else -1
            if kind in (_TRUE, _FALSE):
                if row >= 0:
                    fields[row, numbers[depth]] = kind == _TRUE
                continue
        if depth > DEEPEST:
            return DAMAGED
        if row >= 0:
            fields[row, numbers[depth]] = MISFIT
        if kind in _WHOLE:
            value, at = read_varint(data, at)
            if at < 0:
                return at
            # A varint may have 64 bits, whatever its field's type: positions that are computed from it would wrap.
            if row >= 0 and kind == _INT32 and 0 <= _signed(value) <= MAX_INT32:
                fields[row, numbers[depth]] = _signed(value)
        elif kind == _STRUCT:
            depth += 1
            numbers[depth], left[depth], rows[depth] = 0, -1, -1
            if row == 0:
                for place in range(len(PLACES)):
                    if numbers[0] == PLACES[place]:
                        fields[0, numbers[0]] = 1
                        rows[depth] = place + 1
                        fields[place + 1] = ABSENT
        elif kind in (_LIST, _SET):
            if at >= data.size:
                return CUT_OFF
            count, element = np.uint64(data[at] >> 4), np.int64(data[at] & 15)
            at += 1
            if count == np.uint64(15):
                count, at = read_varint(data, at)
                if at < 0:
                    return at
            if count > np.uint64(data.size - at):  # every element takes a byte at least
                return CUT_OFF
            if element in (_TRUE, _FALSE):
                at += np.int64(count)
            elif count:
                depth += 1
                left[depth], kinds[depth], rows[depth] = np.int64(count), element, -1
        else:
            size = np.uint64(1 if kind == _BYTE else 8)
            if kind == _BINARY:
                size, at = read_varint(data, at)
                if at < 0:
                    return at
            elif kind != _BYTE and kind != _DOUBLE:
                return DAMAGED
            if size > np.uint64(data.size - at):
                return CUT_OFF
            at += np.int64(size)
    return at


@njit(cache=True, nogil=True)
def _describe(fields: NDArray[np.int64], page: NDArray[np.int64]) -> bool:
    """Write what a header says to ``page``; return False where it is not described in full, or as no flat column is."""
    kind = fields[0, 1]
    if kind < 0 or fields[0, 2] < 0 or fields[0, 3] < 0:
        return False
    page[:] = 0
    page[KIND], page[SIZE], page[COMPRESSED], page[MISSING] = kind, fields[0, 2], 1, -1
    if kind == DATA:
        own, required = fields[1], 4
    elif kind == DICTIONARY:
        own, required = fields[2], 2
    elif kind == DATA_2:
        own, required = fields[3], 6
    else:
        return True
    for number in range(1, required + 1):  # which parquet.thrift requires
        if own[number] < 0:
            return False
    page[VALUES], page[ENCODING] = own[1], own[2]
    if kind == DATA:
        return bool(own[3] == RLE)  # other levels are not in use any more
    if kind == DICTIONARY:
        return bool(own[2] == PLAIN or own[2] == PLAIN_DICTIONARY)
    page[MISSING], page[ENCODING], page[LEVELS], page[COMPRESSED] = own[2], own[4], own[5], own[7] != 0
    return bool(own[6] == 0 and own[3] == own[1])  # no repetition levels, as many rows as values


@njit(cache=True, nogil=True)
def read_headers(data: NDArray[np.uint8], rows: int, pages: NDArray[np.int64]) -> int:
    """Describe the pages that begin with ``data`` and lie in it, up to the one that makes them ``rows`` rows, a line of
    ``pages`` each; the first page even if it goes on behind ``data``. Return how many, or what is wrong with the first.
    """
    fields = np.empty((1 + len(PLACES), FIELDS), np.int64)
    found, at = 0, 0
    while found < pages.shape[0] and rows > 0:
        end = np.int64(read_header(data[at:], fields))
        page = pages[found]
        if end >= 0 and not _describe(fields, page):
            end = np.int64(DAMAGED)
        if end < 0:
            return found if found else int(end)
        stop = at + end + fields[0, 3]
        if found and stop > data.size:
            break
        page[START], page[STOP] = at + end, stop
        rows -= page[VALUES] if page[KIND] != DICTIONARY else 0
        at = stop
        found += 1
    return found
