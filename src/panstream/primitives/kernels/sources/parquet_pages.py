"""Check the pages of a Parquet column chunk by their headers: pyarrow allocates the memory that they claim to need."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.primitives.kernels.jit import njit
from panstream.primitives.kernels.sources.parquet_thrift import (
    CUT_OFF,
    DAMAGED,
    DATA_PAGE,
    DATA_PAGE_2,
    DICTIONARY_PAGE,
    PAGE_ENCODING,
    PAGE_FIELDS,
    PAGE_SIZE,
    PAGE_STORED,
    PAGE_TYPE,
    PAGE_VALUES,
    read_page_header,
)

TOO_LARGE = -3
# Of all pages of a column chunk; positions are relative to its start.
(
    NEXT_PAGE,
    PAGE_COUNT,
    LARGEST,
    ROW_BYTES,
    DICTIONARY_START,
    DICTIONARY_STORED,
    DICTIONARY_SIZE,
    DICTIONARY_VALUES,
) = range(8)
CHUNK_FIELDS = 8

_LARGEST_PAGE = 1 << 30
_VALUE_BYTES = 16  # upper bound of what pyarrow needs per value of a page, besides the page
_DELTA_BYTE_ARRAY = 7  # an encoding in which a value may repeat the previous one without taking bytes


# One call per chunk: a call per page took longer than decoding pages of integers does.
@njit(cache=True, nogil=True)
def scan_pages(data: NDArray[np.uint8], first: int, end: int, values: int, chunk: NDArray[np.int64]) -> int:
    """Check the page headers of a column chunk, from its next page on, until all values have a page.

    Args:
        data: Bytes of the chunk.
        first: The position of the first of them.
        end: The bytes of the chunk.
        values: The values of the chunk.
        chunk: What is known of its pages: zeros at first. With another part of the chunk, it goes on there.

    Returns:
        0, or a negative error: ``CUT_OFF`` if the next page's header is not within the data.
    """
    page = np.empty(PAGE_FIELDS, np.int64)
    while chunk[PAGE_COUNT] < values:
        start = chunk[NEXT_PAGE] - first
        if start >= data.size:
            return CUT_OFF
        header = read_page_header(data[start:], page)
        if header < 0:
            return int(header)
        size = page[PAGE_SIZE]
        stored = page[PAGE_STORED]
        count = page[PAGE_VALUES]
        is_data = page[PAGE_TYPE] == DATA_PAGE or page[PAGE_TYPE] == DATA_PAGE_2
        is_dictionary = page[PAGE_TYPE] == DICTIONARY_PAGE
        body = chunk[NEXT_PAGE] + header
        if min(size, stored) < 0 or stored > end - body or ((is_data or is_dictionary) and count < 0):
            return DAMAGED
        if size > _LARGEST_PAGE or count > _LARGEST_PAGE // _VALUE_BYTES:
            return TOO_LARGE
        if is_data:
            chunk[PAGE_COUNT] += count
            chunk[LARGEST] = max(chunk[LARGEST], size)
            per_row = size if page[PAGE_ENCODING] == _DELTA_BYTE_ARRAY else -(-size // max(np.int64(1), count))
            chunk[ROW_BYTES] = max(chunk[ROW_BYTES], per_row)
        elif is_dictionary:
            if chunk[DICTIONARY_START]:
                return DAMAGED  # pyarrow takes one dictionary only
            chunk[DICTIONARY_START] = body
            chunk[DICTIONARY_STORED] = stored
            chunk[DICTIONARY_SIZE] = size
            chunk[DICTIONARY_VALUES] = count
        chunk[NEXT_PAGE] = body + stored
    return 0


# All rows may have the longest entry of a dictionary: it bounds the bytes that pyarrow allocates per row.
@njit(cache=True, nogil=True)
def longest_string(page: NDArray[np.uint8], count: int) -> Any:
    """Return the length of the longest of ``count`` strings in plain encoding, or a negative error."""
    longest = pos = np.int64(0)
    for _ in range(count):
        if pos > page.size - 4:
            return np.int64(DAMAGED)
        length = np.int64(page[pos]) | np.int64(page[pos + 1]) << 8 | np.int64(page[pos + 2]) << 16
        length |= np.int64(page[pos + 3]) << 24
        pos += 4 + length
        if pos > page.size:
            return np.int64(DAMAGED)
        longest = max(longest, length)
    return longest
