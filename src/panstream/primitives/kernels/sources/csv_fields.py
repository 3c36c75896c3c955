"""Fields of CSV records (RFC 4180), found byte by byte: their spans, whatever they contain.

Compared with pyarrow's reader this buys that damaged rows are marked one by one and no copy of a row is left in
unwiped memory. A quote counts only at the start of a field; text after the closing quote belongs to the field as it is.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.primitives.kernels.jit import njit, part
from panstream.primitives.kernels.sources.byte_copies import copy_short

# Woven: doubled quotes inside, or text after the closing one. Absent: empty without quotes, or missing.
PLAIN = 0
QUOTED = 1
WOVEN = 2
ABSENT = 3
_LF = 0x0A
_CR = 0x0D

Bytes = NDArray[np.uint8]
Positions = NDArray[np.int64]


@part
def _end_of_plain(data: Bytes, pos: int, end: int, delimiter: int) -> Any:
    while pos < end and data[pos] != delimiter and data[pos] != _LF and data[pos] != _CR:
        pos += 1
    return pos


# A record that is incomplete at ``end`` is not consumed: ``done`` stays at its start, for the next block.
@njit(cache=True, nogil=True)
def split_records_bytewise(
    data: Bytes, pos: int, end: int, delimiter: int, quote: int, columns: Positions, row: int,
    starts: Positions, stops: Positions, forms: Bytes, ragged: Bytes,
) -> tuple[Any, Any]:  # fmt: skip
    """Find the fields of complete records in ``data[pos:end]``, the first of which has number ``row``.

    Returns the number of records including those before, and the position where they end. ``columns`` has the column of
    every field of a record, -1 for fields that are not read; ``starts``, ``stops`` and ``forms`` have a row for each
    column. Blank lines are skipped. Without a ``quote`` (-1) there is no quoting.
    """
    done = pos
    while pos < end:
        if data[pos] == _LF:
            pos += 1
            done = pos
            continue
        if data[pos] == _CR:
            if pos + 1 >= end:
                break
            pos += 2 if data[pos + 1] == _LF else 1
            done = pos
            continue
        for column in range(forms.shape[0]):
            forms[column, row] = ABSENT
            starts[column, row] = stops[column, row] = 0
        field = 0
        while True:
            start = pos
            form = PLAIN
            if pos < end and data[pos] == quote:
                form = QUOTED
                pos += 1
                while pos < end:
                    if data[pos] == quote:
                        if pos + 1 >= end or data[pos + 1] != quote:
                            break
                        form = WOVEN
                        pos += 1
                    pos += 1
                if pos >= end:
                    return row, done
                stop = pos
                pos = _end_of_plain(data, pos + 1, end, delimiter)
                if pos > stop + 1:
                    form = WOVEN
                if form == QUOTED:
                    start += 1
                else:
                    stop = pos
            else:
                pos = _end_of_plain(data, pos, end, delimiter)
                stop = pos
            if pos >= end or (data[pos] == _CR and pos + 1 >= end):
                return row, done
            if field < columns.size and columns[field] >= 0:
                column = columns[field]
                starts[column, row] = start
                stops[column, row] = stop
                forms[column, row] = ABSENT if form == PLAIN and start == stop else form
            field += 1
            if data[pos] == delimiter:
                pos += 1
                continue
            pos += 2 if data[pos] == _CR and data[pos + 1] == _LF else 1
            break
        ragged[row] = field != columns.size
        row += 1
        done = pos
    return row, done


@njit(cache=True, nogil=True)
def copy_spans(data: Bytes, starts: NDArray[Any], stops: NDArray[Any], offsets: NDArray[np.int32], out: Bytes) -> None:
    """Concatenate the spans ``data[starts[i]:stops[i]]``; ``out`` has ``SLACK`` bytes more than their total."""
    offsets[0] = 0
    for row in range(starts.size):
        size = stops[row] - starts[row]
        copy_short(data, starts[row], size, out, offsets[row])
        offsets[row + 1] = offsets[row] + size
    out[offsets[starts.size] :] = 0  # what copies wrote past their end


@njit(cache=True, nogil=True)
def gather_fields(
    data: Bytes,
    starts: Positions,
    stops: Positions,
    forms: Bytes,
    quote: int,
    offsets: NDArray[np.int32],
    out: Bytes,
) -> None:
    """Concatenate one column's fields, unquoted; ``out`` has ``SLACK`` bytes more than their total."""
    to = np.int64(0)
    offsets[0] = 0
    for row in range(starts.size):
        pos = starts[row]
        stop = stops[row]
        if forms[row] == WOVEN:
            pos += 1
            inside = True
            while pos < stop:
                if inside and data[pos] == quote:
                    inside = pos + 1 < stop and data[pos + 1] == quote
                    pos += 1
                    if not inside:
                        continue
                out[to] = data[pos]
                to += 1
                pos += 1
        else:
            copy_short(data, pos, stop - pos, out, to)
            to += stop - pos
        offsets[row + 1] = to
    out[to:] = 0  # what copies wrote past their end
