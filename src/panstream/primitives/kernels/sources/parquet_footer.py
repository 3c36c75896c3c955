"""Read the footer of a Parquet file, in Thrift's compact protocol: where its columns lie, with all else passed over.

Statistics are among what is passed over, but for how many values are missing: they quote what people wrote.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from panstream.primitives.kernels.sources.parquet_page_headers import CUT_OFF, DAMAGED, read_signed, read_varint

ABSENT = -1
ELSEWHERE, PLACES = 0, 14  # of a column's numbers: whether its pages are in another file or encrypted; how many
KIND, ENCODINGS, CODEC, VALUES, SIZE, STORED, DATA, DICTIONARY, MISSING = 1, 2, 4, 5, 6, 7, 9, 11, 12
"""A column's numbers stand where parquet.thrift numbers them; encodings as bits, ``MISSING`` from the statistics."""

_LARGEST_ENCODING = 31
_DEEPEST = 32
_TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _LIST, _SET, _STRUCT = 1, 2, 3, 7, 8, 9, 10, 12
_WHOLE = (4, 5, 6)


@njit(cache=True, nogil=True)
def _field(data: NDArray[np.uint8], at: Any, last: Any) -> Any:
    """Return the kind of the next field, its number, and where its value begins; kind 0 ends a structure."""
    if at >= data.size:
        return 0, last, np.int64(CUT_OFF)
    kind, step = np.int64(data[at] & 15), np.int64(data[at] >> 4)
    at += 1
    if kind == 0 or step:
        return kind, last + step, at
    number, at = read_signed(data, at)
    return kind, number, at


@njit(cache=True, nogil=True)
def _list(data: NDArray[np.uint8], at: Any) -> Any:
    """Return the kind of a list's elements, how many there are, and where the first begins."""
    if at >= data.size:
        return 0, 0, np.int64(CUT_OFF)
    kind, count = np.int64(data[at] & 15), np.uint64(data[at] >> 4)
    at += 1
    if count == np.uint64(15):
        count, at = read_varint(data, at)
        if at < 0:
            return 0, 0, at
    if count > np.uint64(data.size - at):  # every element takes a byte at least
        return 0, 0, np.int64(CUT_OFF)
    return kind, np.int64(count), at


@njit(cache=True, nogil=True)
def _pass(data: NDArray[np.uint8], at: Any, kind: Any, element: bool) -> Any:
    """Return where a value ends, whatever is in it; in a list, truths take a byte."""
    left = np.empty(_DEEPEST, np.int64)  # elements of a list that is open; -1: a structure
    kinds = np.empty(_DEEPEST, np.int64)
    depth = 0
    while True:
        if kind in (_TRUE, _FALSE):
            at += np.int64(element)
        elif kind in _WHOLE:
            _, at = read_varint(data, at)
        elif kind == _BYTE:
            at += 1
        elif kind == _DOUBLE:
            at += 8
        elif kind == _BINARY:
            size, at = read_varint(data, at)
            if at >= 0:
                at = at + np.int64(size) if size <= np.uint64(data.size - at) else np.int64(CUT_OFF)
        elif kind in (_STRUCT, _LIST, _SET):
            if depth == _DEEPEST:
                return np.int64(DAMAGED)
            left[depth], kinds[depth] = -1, 0
            if kind != _STRUCT:
                kinds[depth], left[depth], at = _list(data, at)
            depth += 1
        else:
            return np.int64(DAMAGED)
        if at < 0 or at > data.size:
            return min(at, np.int64(CUT_OFF))
        while depth:  # find the next value
            if left[depth - 1] > 0:
                left[depth - 1] -= 1
                kind, element = kinds[depth - 1], True
                break
            if left[depth - 1] < 0:
                kind, _, at = _field(data, at, 0)
                element = False
                if at < 0:
                    return at
                if kind:
                    break
            depth -= 1
        if not depth:
            return at


@njit(cache=True, nogil=True)
def _missing(data: NDArray[np.uint8], at: Any, numbers: NDArray[np.int64]) -> Any:
    """Read statistics: how many values are missing is the third field."""
    last = 0
    while True:
        kind, last, at = _field(data, at, last)
        if at < 0 or kind == 0:
            return at
        if last == 3 and kind in _WHOLE:
            numbers[MISSING], at = read_signed(data, at)
        else:
            at = _pass(data, at, kind, False)
        if at < 0:
            return at


@njit(cache=True, nogil=True)
def _column(data: NDArray[np.uint8], at: Any, numbers: NDArray[np.int64]) -> Any:
    """Read what is told of a column: whole numbers, its encodings, and what is missing."""
    last = 0
    while True:
        kind, last, at = _field(data, at, last)
        if at < 0 or kind == 0:
            return at
        if kind in _WHOLE and 0 < last < MISSING:
            numbers[last], at = read_signed(data, at)
        elif kind == _LIST and last == ENCODINGS:
            element, count, at = _list(data, at)
            numbers[ENCODINGS] = 0
            if at >= 0 and count and element not in _WHOLE:
                return np.int64(DAMAGED)
            for _ in range(count):
                encoding, at = read_signed(data, at)
                if at < 0:
                    return at
                if not 0 <= encoding < _LARGEST_ENCODING:
                    encoding = np.int64(_LARGEST_ENCODING)
                numbers[ENCODINGS] |= np.int64(1) << encoding
        elif kind == _STRUCT and last == MISSING:
            at = _missing(data, at, numbers)
        else:
            at = _pass(data, at, kind, False)
        if at < 0:
            return at


@njit(cache=True, nogil=True)
def _chunk(data: NDArray[np.uint8], at: Any, numbers: NDArray[np.int64]) -> Any:
    """Read a column's part of a row group: its place is the third field, another file the first, a key the eighth."""
    last = 0
    while True:
        kind, last, at = _field(data, at, last)
        if at < 0 or kind == 0:
            return at
        if last == 3 and kind == _STRUCT:
            at = _column(data, at, numbers)
        else:
            if last == 1 or last >= 8:
                numbers[ELSEWHERE] = 1
            at = _pass(data, at, kind, False)
        if at < 0:
            return at


@njit(cache=True, nogil=True)
def _group(data: NDArray[np.uint8], at: Any, rows: NDArray[np.int64], numbers: NDArray[np.int64]) -> Any:
    """Read a row group: its columns are the first field, its number of rows the third."""
    last = 0
    while True:
        kind, last, at = _field(data, at, last)
        if at < 0 or kind == 0:
            return at
        if last == 1 and kind == _LIST:
            element, count, at = _list(data, at)
            if at >= 0 and (element != _STRUCT or count != numbers.shape[0]):
                return np.int64(DAMAGED)
            for column in range(count):
                at = _chunk(data, at, numbers[column])
                if at < 0:
                    return at
        elif last == 3 and kind in _WHOLE:
            rows[0], at = read_signed(data, at)
        else:
            at = _pass(data, at, kind, False)
        if at < 0:
            return at


@njit(cache=True, nogil=True)
def read_footer(data: NDArray[np.uint8], rows: NDArray[np.int64], numbers: NDArray[np.int64]) -> Any:
    """Write the rows of every row group, and the numbers of its columns (groups, columns, ``PLACES``).

    Return where the footer ends, or what is wrong with it: it must have as many groups and columns as there is room.
    """
    rows[:] = ABSENT
    numbers[:] = ABSENT
    numbers[:, :, ELSEWHERE] = 0
    last, at, found = 0, np.int64(0), 0
    while True:
        kind, last, at = _field(data, at, last)
        if at < 0:
            return at
        if kind == 0:
            return at if found == rows.size else np.int64(DAMAGED)
        if last == 4 and kind == _LIST:
            element, found, at = _list(data, at)
            if at >= 0 and ((found and element != _STRUCT) or found != rows.size):
                return np.int64(DAMAGED)
            for group in range(found):
                at = _group(data, at, rows[group : group + 1], numbers[group])
                if at < 0:
                    return at
        else:
            at = _pass(data, at, kind, False)
        if at < 0:
            return at
