"""Decode several pages of a Parquet column in one go: all of them plain numbers, or all indices into a dictionary.

Only what is as usual is decoded, without missing values; False is returned for all else, which then goes page by page.
Every place is checked before a byte is read or written.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from panstream.primitives.kernels.machine_words import copy_bytes
from panstream.primitives.kernels.sources.parquet_page_headers import (
    COMPRESSED,
    DATA_2,
    KIND,
    LEVELS,
    SIZE,
    START,
    STOP,
    VALUES,
)
from panstream.primitives.kernels.sources.parquet_pages import all_present, decode_runs
from panstream.primitives.kernels.sources.snappy import unpack_snappy

_WIDTH = 8
_WIDEST, _NARROW = 32, 7  # bits of an index, in a number of 32 bits or of eight


@njit(cache=True, nogil=True)
def decode_page(
    body: NDArray[np.uint8],
    page: NDArray[np.int64],
    optional: bool,
    numbers: NDArray[np.uint8],
    codes: NDArray[Any],
) -> bool:
    """Write a page's numbers, eight bytes each, or its indices: whichever array is as long as the page has rows."""
    at, rows = page[LEVELS] if page[KIND] == DATA_2 else np.int64(0), page[VALUES]
    if at > body.size:
        return False
    if optional:
        start, size = np.int64(0), at
        if page[KIND] != DATA_2:
            if body.size < 4:
                return False
            start, size = np.int64(4), np.int64(body[0]) | np.int64(body[1]) << 8 | np.int64(body[2]) << 16
            size |= np.int64(body[3]) << 24
        at = start + size
        if at > body.size or not all_present(body[:at], int(start), int(rows)):
            return False
    if numbers.size == _WIDTH * rows:
        if numbers.size > body.size - at:
            return False
        copy_bytes(np.uint64(numbers.ctypes.data), np.uint64(body.ctypes.data + at), numbers.size)
        return True
    if codes.size != rows or at >= body.size or body[at] > (_WIDEST if codes.itemsize == 4 else _NARROW):
        return False
    return bool(decode_runs(body, int(at) + 1, int(body[at]), codes) >= 0)


@njit(cache=True, nogil=True)
def decode_pages(
    raw: NDArray[np.uint8],
    pages: NDArray[np.int64],
    snappy: bool,
    optional: bool,
    room: NDArray[np.uint8],
    numbers: NDArray[np.uint8],
    codes: NDArray[Any],
) -> bool:
    """Decode the pages that ``read_headers`` found in ``raw``, one behind the other; one of the arrays is empty.

    Pages are compressed with Snappy or not at all; ``room`` is for the largest of them when decompressed.
    """
    done = np.int64(0)
    for number in range(pages.shape[0]):
        page = pages[number]
        size, rows = page[SIZE], page[VALUES]
        body = raw[page[START] : page[STOP]]
        if snappy and page[COMPRESSED]:
            clear = page[LEVELS] if page[KIND] == DATA_2 else np.int64(0)
            if size > room.size or clear > min(size, body.size):
                return False
            for i in range(clear):
                room[i] = body[i]
            if not unpack_snappy(body[clear:], room[clear:size]):
                return False
            body = room[:size]
        if body.size != size:
            return False
        some_numbers = numbers[_WIDTH * done : _WIDTH * (done + rows)]
        if not decode_page(body, page, optional, some_numbers, codes[done : done + rows]):
            return False
        done += rows
    return bool(done == codes.size or _WIDTH * done == numbers.size)
