"""Bound the memory that pyarrow will need for a column chunk, by its page headers.

A file of a few kilobytes can declare pages of gigabytes, or refer to one long string of a dictionary from all rows.
pyarrow allocates the memory for the former before it fails, and decodes the latter.
"""

from __future__ import annotations

import io
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from panstream.engine.arrow import pa
from panstream.primitives.inputs.parquet_footer import CorruptParquet, read_at
from panstream.primitives.memory.scratch import wipe, wipe_at

LARGEST_PAGE_BYTES = 1 << 30
_VALUE_BYTES = 16  # upper bound of what pyarrow needs per value of a page, besides the page
_HEADER_BYTES = 1 << 9  # first attempt; longer ones have statistics of long strings
_LARGEST_HEADER_BYTES = 1 << 24
_BYTE_ARRAY = 6
_CODECS = {0: "none", 1: "snappy", 2: "gzip", 4: "brotli", 6: "zstd", 7: "lz4_raw"}
_DELTA_BYTE_ARRAY = 7  # an encoding in which a value may repeat the previous one without taking bytes


class PageLimits(NamedTuple):
    """Memory of a column chunk in bytes.

    Attributes:
        page_bytes: The largest page and the dictionary.
        row_bytes: Upper bound of a decoded row; of plain pages, the mean of the page.
    """

    page_bytes: int
    row_bytes: int


def measure_pages(file: io.RawIOBase, column: NDArray[np.int64], row_limit: int) -> PageLimits:
    """Check the page headers of a column chunk.

    Args:
        file: The file.
        column: The chunk's numbers in the footer.
        row_limit: Bytes of a row that never shrink a batch: only larger dictionaries are decompressed, for the
            length of their longest string.

    Raises:
        CorruptParquet: The pages do not lie in the chunk, are too large, or have fewer values than the footer says.
    """
    from panstream.primitives.kernels.sources import parquet_thrift as thrift

    numbers = column.tolist()
    start, stored = chunk_range(column)
    end = start + stored
    if numbers[thrift.ELSEWHERE] or min(start, numbers[thrift.STORED], numbers[thrift.VALUES]) < 0:
        raise CorruptParquet("a column is not in the file")
    has_strings = numbers[thrift.TYPE] == _BYTE_ARRAY
    values = page_bytes = dictionary_bytes = row_bytes = 0
    while values < numbers[thrift.VALUES]:
        page, start = _read_header(file, start, end)
        kind, size, stored, count, encoding = page.tolist()
        if kind == thrift.DICTIONARY_PAGE:
            dictionary_bytes = size
            if not has_strings:
                row_bytes = max(row_bytes, -(-size // max(1, count)))
            elif size > row_limit:
                row_bytes = max(row_bytes, _longest_string(file, start - stored, page, numbers[thrift.CODEC]))
        elif kind in (thrift.DATA_PAGE, thrift.DATA_PAGE_2):
            values += count
            page_bytes = max(page_bytes, size)
            row_bytes = max(row_bytes, size if encoding == _DELTA_BYTE_ARRAY else -(-size // max(1, count)))
    return PageLimits(page_bytes + dictionary_bytes, row_bytes)


def chunk_range(column: NDArray[np.int64]) -> tuple[int, int]:
    """Return where a column chunk begins, and its bytes in the file, as its numbers in the footer say."""
    from panstream.primitives.kernels.sources import parquet_thrift as thrift

    numbers = column.tolist()
    start = numbers[thrift.DATA]
    if 0 < numbers[thrift.DICTIONARY] < start:
        start = numbers[thrift.DICTIONARY]
    return start, numbers[thrift.STORED]


def _longest_string(file: io.RawIOBase, start: int, page: NDArray[np.int64], codec: int) -> int:
    """Return an upper bound of the strings in a dictionary, any of which all rows may refer to."""
    from panstream.primitives.kernels.sources import parquet_thrift as thrift

    _, size, stored, count, _ = page.tolist()
    if codec not in _CODECS:
        return int(size)
    packed = read_at(file, start, stored)
    try:
        plain = pa.py_buffer(packed) if codec == 0 else pa.decompress(packed, size, _CODECS[codec])
        longest = int(thrift.longest_string(np.frombuffer(plain, np.uint8), count))
        wipe_at(plain.address, plain.size)
    finally:
        wipe(packed)
    if longest < 0:
        raise CorruptParquet("a dictionary has fewer strings than it says")
    return longest


def _read_header(file: io.RawIOBase, start: int, end: int) -> tuple[NDArray[np.int64], int]:
    """Return the fields of the page header at ``start``, and where the page ends."""
    from panstream.primitives.kernels.sources import parquet_thrift as thrift

    page = np.empty(thrift.PAGE_FIELDS, np.int64)
    size = _HEADER_BYTES
    while True:
        data = read_at(file, start, min(size, end - start))
        header_bytes = int(thrift.read_page_header(data, page))
        wipe(data)  # statistics quote values
        if header_bytes != thrift.CUT_OFF or data.size < size or size >= _LARGEST_HEADER_BYTES:
            break
        size *= 8
    if header_bytes < 0:
        raise CorruptParquet("a page header is damaged")
    kind, uncompressed, stored, values, _ = page.tolist()
    has_values = kind in (thrift.DATA_PAGE, thrift.DICTIONARY_PAGE, thrift.DATA_PAGE_2)
    if min(uncompressed, stored) < 0 or (has_values and values < 0) or stored > end - start - header_bytes:
        raise CorruptParquet("a page does not lie in its column chunk")
    if max(uncompressed, _VALUE_BYTES * values) > LARGEST_PAGE_BYTES:
        raise CorruptParquet("a page is too large")
    return page, start + header_bytes + stored
