"""Fields of CSV records, found 64 bytes at a time: every delimiter and line end outside quotes ends a field.

Compiled vector code, several times as fast as the loop over bytes. Whether a byte is within quotes follows from the
parity of the quotes before it, if quotes are at the edges of fields or doubled inside. Where that does not hold, or a
carriage return is not part of a line end, the rest is read byte by byte, so results never differ.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from panstream.primitives.kernels.jit import njit, part
from panstream.primitives.kernels.machine_words import trailing_zeros
from panstream.primitives.kernels.simd_byte_search import equal_64, find_byte
from panstream.primitives.kernels.sources.csv_fields import (
    ABSENT,
    PLAIN,
    QUOTED,
    WOVEN,
    Bytes,
    Positions,
    split_records_bytewise,
)

_LF = 0x0A
_CR = 0x0D
_NONE = np.uint64(0)
_ONE = np.uint64(1)
_TOP = np.uint64(63)
_ALL = np.uint64(0xFFFFFFFFFFFFFFFF)


@part
def _parities(bits: Any) -> Any:
    """Return the prefix parities of a word: bit i is set if an odd number of bits up to i is."""
    for shift in (1, 2, 4, 8, 16, 32):
        bits ^= bits << np.uint64(shift)
    return bits


@part
def _write_span(
    data: Bytes, column: int, row: int, start: int, stop: int, quote: int, doubled: bool,
    starts: Positions, stops: Positions, forms: Bytes,
) -> None:  # fmt: skip
    form = PLAIN if start < stop else ABSENT
    if form == PLAIN and data[start] == quote:
        if doubled and find_byte(data, start + 1, stop - 1, quote) < stop - 1:
            form = WOVEN
        else:
            form = QUOTED
            start = start + 1
            stop = stop - 1
    starts[column, row] = start
    stops[column, row] = stop
    forms[column, row] = form


@njit(cache=True, nogil=True)
def split_records_simd(
    data: Bytes, end: int, delimiter: int, quote: int, columns: Positions,
    starts: Positions, stops: Positions, forms: Bytes, ragged: Bytes,
) -> tuple[Any, Any]:  # fmt: skip
    """Find the same as ``split_records_bytewise``, as far as that is certain and 64 bytes are readable."""
    row = done = begin = field = nowhere = np.int64(0)
    doubled = False
    inside = closed_before = returned = _NONE
    edge = _ONE  # a field begins at the next byte
    for pos in range(0, min(end, data.size - 63), 64):
        live = _ALL if end - pos >= 64 else (_ONE << np.uint64(end - pos)) - _ONE
        newlines = equal_64(data, pos, _LF) & live
        delimiters = equal_64(data, pos, delimiter) & live
        returns = equal_64(data, pos, _CR) & live
        quotes = equal_64(data, pos, quote) & live if quote >= 0 else _NONE
        if quotes | inside | closed_before:
            within = _parities(quotes) ^ inside
            newlines = newlines & ~within
            delimiters = delimiters & ~within
            returns = returns & ~within
            opened = quotes & within
            closed = quotes & ~within
            first = ((newlines | delimiters) << _ONE) | edge
            behind = ((closed << _ONE) | closed_before) & live
            if (opened & ~(first | behind)) | (behind & ~(newlines | delimiters | returns | opened)):
                break
            doubled = doubled or (opened & behind) != _NONE
            inside = np.uint64(np.int64(within) >> np.int64(63))
            closed_before = closed >> _TOP
        if ((returns << _ONE) | returned) & live & ~newlines:
            break
        returned = returns >> _TOP
        ends = newlines | delimiters
        edge = ends >> _TOP
        while ends:
            bit = trailing_zeros(ends)
            ends &= ends - _ONE
            is_last = (newlines >> bit) & _ONE
            stop = pos + np.int64(bit)
            next_begin = stop + 1
            if is_last:
                stop -= stop > begin and data[stop - 1] == _CR
                if field == 0 and stop == begin:  # a blank line
                    begin = done = next_begin
                    continue
            if field < columns.size and columns[field] >= 0:
                _write_span(data, columns[field], row, begin, stop, quote, doubled, starts, stops, forms)
            field += 1
            begin = next_begin
            if is_last:
                for missing in range(field, columns.size):
                    if columns[missing] >= 0:
                        _write_span(data, columns[missing], row, nowhere, nowhere, quote, doubled, starts, stops, forms)
                ragged[row] = field != columns.size
                row += 1
                field = np.int64(0)
                done = begin
    return row, done


def split_records(
    data: Bytes, end: int, delimiter: int, quote: int, columns: Positions,
    starts: Positions, stops: Positions, forms: Bytes, ragged: Bytes,
) -> tuple[Any, Any]:  # fmt: skip
    """Find the fields of complete records in ``data[:end]``; return their number and the position where they end."""
    row, done = split_records_simd(data, end, delimiter, quote, columns, starts, stops, forms, ragged)
    if done == end:
        return row, done
    # The vector kernel stopped where it is not certain of the result; the loop over bytes continues at that record.
    return split_records_bytewise(data, done, end, delimiter, quote, columns, row, starts, stops, forms, ragged)
