"""Fields of access logs in the common and combined formats of Apache and nginx, found in one pass over a block.

::

    host ident user [10/Oct/2000:13:55:36 -0700] "GET /page?q HTTP/1.0" 200 2326 "referrer" "agent" ignored rest

Compiled because addresses and agents must not become Python strings, which are never wiped: fields are positions only.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.primitives.kernels.jit import njit

FIELDS = ("host", "user", "time", "method", "path", "query", "protocol", "status", "bytes", "referrer", "agent")
_HOST, _USER, _TIME, _METHOD, _PATH, _QUERY, _PROTOCOL, _STATUS, _BYTES, _REFERRER, _AGENT = range(len(FIELDS))
_LF = 0x0A
_CR = 0x0D
_SPACE = 0x20
_QUOTE = 0x22
_DASH = 0x2D
_ZERO = 0x30
_MONTHS = np.frombuffer(b"JanFebMarAprMayJunJulAugSepOctNovDec", np.uint8).reshape(12, 3).copy()
_TIME_SIZE = 26

Bytes = NDArray[np.uint8]
Positions = NDArray[np.int64]


@njit(cache=True, nogil=True)
def _find(data: Bytes, pos: int, end: int, byte: int) -> Any:
    while pos < end and data[pos] != byte:
        pos += 1
    return pos


@njit(cache=True, nogil=True)
def _closing_quote(data: Bytes, pos: int, end: int) -> Any:
    """Return the position of the closing quote; a backslash escapes the byte after it."""
    while pos < end and data[pos] != _QUOTE:
        pos += 2 if data[pos] == 0x5C else 1
    return min(pos, end)


@njit(cache=True, nogil=True)
def _write_span(data: Bytes, field: int, row: int, start: int, stop: int, starts: Positions, stops: Positions) -> None:
    """Write the span of a field; an empty field or a dash counts as absent."""
    if stop > start and not (stop == start + 1 and data[start] == _DASH):
        starts[field, row] = start
        stops[field, row] = stop


@njit(cache=True, nogil=True)
def _rewrite_time(data: Bytes, pos: int) -> Any:
    """Rewrite 10/Oct/2000:13:55:36 -0700 in place as 2000-10-10T13:55:36-07:00; return whether it has that form."""
    if data[pos + 2] != 0x2F or data[pos + 6] != 0x2F or data[pos + 11] != 0x3A or data[pos + 20] != _SPACE:
        return False
    month = 0
    while month < 12 and (
        data[pos + 3] != _MONTHS[month, 0] or data[pos + 4] != _MONTHS[month, 1] or data[pos + 5] != _MONTHS[month, 2]
    ):
        month += 1
    if month == 12:
        return False
    day = data[pos]
    more = data[pos + 1]
    for i in range(4):
        data[pos + i] = data[pos + 7 + i]
    data[pos + 4] = data[pos + 7] = _DASH
    data[pos + 5] = _ZERO + (month + 1) // 10
    data[pos + 6] = _ZERO + (month + 1) % 10
    data[pos + 8] = day
    data[pos + 9] = more
    data[pos + 10] = 0x54
    for i in range(8):
        data[pos + 11 + i] = data[pos + 12 + i]
    for i in range(3):
        data[pos + 19 + i] = data[pos + 21 + i]
    data[pos + 22] = 0x3A
    data[pos + 23] = data[pos + 24]
    data[pos + 24] = data[pos + 25]
    return True


@njit(cache=True, nogil=True)
def _write_request(data: Bytes, row: int, start: int, stop: int, starts: Positions, stops: Positions) -> None:
    """Write the spans of method, path, query and protocol; none if the text is no request line."""
    first = _find(data, start, stop, _SPACE)
    if first == stop:
        return
    last = stop
    while last > first + 1 and data[last - 1] != _SPACE:
        last -= 1
    target = last - 1 if last > first + 1 else stop
    mark = _find(data, first + 1, target, 0x3F)
    _write_span(data, _METHOD, row, start, first, starts, stops)
    _write_span(data, _PATH, row, first + 1, mark, starts, stops)
    _write_span(data, _QUERY, row, mark + 1, target, starts, stops)
    if target < stop:
        _write_span(data, _PROTOCOL, row, last, stop, starts, stops)


@njit(cache=True, nogil=True)
def _write_fields(data: Bytes, pos: int, end: int, row: int, starts: Positions, stops: Positions) -> Any:
    """Write the spans of one line's fields; return whether it is a line of an access log."""
    for field in (_HOST, -1, _USER):
        stop = _find(data, pos, end, _SPACE)
        if stop == pos or stop >= end:
            return False
        if field >= 0:
            _write_span(data, field, row, pos, stop, starts, stops)
        pos = stop + 1
    if pos + _TIME_SIZE + 3 >= end or data[pos] != 0x5B or data[pos + 1 + _TIME_SIZE] != 0x5D:
        return False
    pos += 1
    size = _TIME_SIZE - 1 if _rewrite_time(data, pos) else _TIME_SIZE
    starts[_TIME, row] = pos
    stops[_TIME, row] = pos + size
    pos += _TIME_SIZE + 1
    if data[pos] != _SPACE or data[pos + 1] != _QUOTE:
        return False
    stop = _closing_quote(data, pos + 2, end)
    if stop + 1 >= end or data[stop + 1] != _SPACE:
        return False
    _write_request(data, row, pos + 2, stop, starts, stops)
    pos = stop + 2
    for field in (_STATUS, _BYTES):
        stop = _find(data, pos, end, _SPACE)
        if stop == pos:
            return False
        _write_span(data, field, row, pos, stop, starts, stops)
        pos = stop + 1
    for field in (_REFERRER, _AGENT):
        if pos >= end or data[pos] != _QUOTE:
            return True  # the common format ends here
        stop = _closing_quote(data, pos + 1, end)
        if stop >= end:
            return False
        _write_span(data, field, row, pos + 1, stop, starts, stops)
        pos = stop + 2
    return True


@njit(cache=True, nogil=True)
def split_log(data: Bytes, end: int, starts: Positions, stops: Positions, broken: Bytes) -> Any:
    """Find the fields of the lines in ``data[:end]``; return how many there are. Times are rewritten in place.

    ``starts`` and ``stops`` have a row for each of ``FIELDS``; an absent field has length 0. Blank lines are skipped.
    """
    pos = row = 0
    while pos < end:
        line = pos
        pos = _find(data, pos, end, _LF) + 1
        stop = pos - 1
        if stop > line and data[stop - 1] == _CR:
            stop -= 1
        if stop == line:
            continue
        starts[:, row] = 0
        stops[:, row] = 0
        broken[row] = not _write_fields(data, line, stop, row, starts, stops)
        row += 1
    return row
