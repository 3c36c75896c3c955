"""Bound the memory that pyarrow will need for a column chunk, by its page headers.

A file of a few kilobytes can declare pages of gigabytes, or refer to one long string of a dictionary from all rows.
pyarrow allocates the memory for the former before it fails, and decodes the latter.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from panstream.engine.arrow import pa
from panstream.engine.sources.formats.parquet.local_bytes import LocalBytes
from panstream.engine.sources.object_stores import RemoteBytes
from panstream.primitives.inputs.argument import read_only
from panstream.primitives.inputs.parquet_footer import CorruptParquet, read_at
from panstream.primitives.memory.scratch import wipe, wipe_at

LARGEST_PAGE_BYTES = 1 << 30
_HEADER_BYTES = 1 << 9  # first attempt; longer ones have statistics of long strings
_LARGEST_HEADER_BYTES = 1 << 24
_BYTE_ARRAY = 6
_CODECS = {0: "none", 1: "snappy", 2: "gzip", 4: "brotli", 6: "zstd", 7: "lz4_raw"}


class PageLimits(NamedTuple):
    """Memory of a column chunk in bytes.

    Attributes:
        page_bytes: The largest page and the dictionary.
        row_bytes: Upper bound of a decoded row; of plain pages, the mean of the page.
    """

    page_bytes: int
    row_bytes: int


def measure_pages(file: LocalBytes | RemoteBytes, column: NDArray[np.int64], row_limit: int) -> PageLimits:
    """Check the page headers of a column chunk.

    Args:
        file: The file.
        column: The chunk's numbers in the footer.
        row_limit: Bytes of a row that never shrink a batch: only larger dictionaries are decompressed, for the
            length of their longest string.

    Raises:
        CorruptParquet: The pages do not lie in the chunk, are too large, or have fewer values than the footer says.
    """
    from panstream.primitives.kernels.sources import parquet_pages
    from panstream.primitives.kernels.sources import parquet_thrift as thrift

    numbers = column.tolist()
    start, stored = chunk_range(column)
    end = start + stored
    if numbers[thrift.ELSEWHERE] or min(start, numbers[thrift.STORED], numbers[thrift.VALUES]) < 0:
        raise CorruptParquet("a column is not in the file")
    pages = np.zeros(parquet_pages.CHUNK_FIELDS, np.int64)
    _scan_pages(file, start, end, numbers[thrift.VALUES], pages)
    row_bytes = int(pages[parquet_pages.ROW_BYTES])
    dictionary_bytes = int(pages[parquet_pages.DICTIONARY_SIZE])
    if numbers[thrift.TYPE] != _BYTE_ARRAY:
        row_bytes = max(row_bytes, -(-dictionary_bytes // max(1, int(pages[parquet_pages.DICTIONARY_VALUES]))))
    elif dictionary_bytes > row_limit:
        row_bytes = max(row_bytes, _longest_string(file, start, pages, numbers[thrift.CODEC]))
    return PageLimits(int(pages[parquet_pages.LARGEST]) + dictionary_bytes, row_bytes)


def chunk_range(column: NDArray[np.int64]) -> tuple[int, int]:
    """Return where a column chunk begins, and its bytes in the file, as its numbers in the footer say."""
    from panstream.primitives.kernels.sources import parquet_thrift as thrift

    numbers = column.tolist()
    start = numbers[thrift.DATA]
    if 0 < numbers[thrift.DICTIONARY] < start:
        start = numbers[thrift.DICTIONARY]
    return start, numbers[thrift.STORED]


def _longest_string(file: LocalBytes | RemoteBytes, start: int, pages: NDArray[np.int64], codec: int) -> int:
    """Return an upper bound of the strings in a dictionary, any of which all rows may refer to."""
    from panstream.primitives.kernels.sources import parquet_pages

    numbers = pages.tolist()
    size = int(numbers[parquet_pages.DICTIONARY_SIZE])
    if codec not in _CODECS:
        return size
    start += numbers[parquet_pages.DICTIONARY_START]
    loaded = file.view(start, numbers[parquet_pages.DICTIONARY_STORED])
    packed = read_at(file, start, numbers[parquet_pages.DICTIONARY_STORED]) if loaded is None else loaded
    try:
        plain = pa.py_buffer(packed) if codec == 0 else pa.decompress(pa.py_buffer(packed), size, _CODECS[codec])
        count = numbers[parquet_pages.DICTIONARY_VALUES]
        longest = int(parquet_pages.longest_string(np.frombuffer(plain, np.uint8), count))
        if codec != 0:
            wipe_at(plain.address, plain.size)
    finally:
        if loaded is None:
            wipe(packed)
    if longest < 0:
        raise CorruptParquet("a dictionary has fewer strings than it says")
    return longest


def _scan_pages(file: LocalBytes | RemoteBytes, start: int, end: int, values: int, pages: NDArray[np.int64]) -> None:
    """Check all page headers of a chunk: at once where it is loaded, else one by one, without what lies between."""
    from panstream.primitives.kernels.sources import parquet_pages
    from panstream.primitives.kernels.sources.parquet_thrift import CUT_OFF

    loaded = file.view(start, end - start)
    if loaded is not None:
        _check(int(parquet_pages.scan_pages(read_only(loaded), 0, end - start, values, pages)))
        return
    size = _HEADER_BYTES
    while pages[parquet_pages.PAGE_COUNT] < values:
        position = int(pages[parquet_pages.NEXT_PAGE])
        data = read_at(file, start + position, min(size, end - start - position))
        result = int(parquet_pages.scan_pages(read_only(data), position, end - start, values, pages))
        wipe(data)  # statistics quote values
        if result != CUT_OFF:
            _check(result)
        if pages[parquet_pages.NEXT_PAGE] > position:
            size = _HEADER_BYTES
        elif data.size < size or size >= _LARGEST_HEADER_BYTES:
            _check(result)
        else:
            size *= 8


def _check(result: int) -> None:
    from panstream.primitives.kernels.sources import parquet_pages

    if result == parquet_pages.TOO_LARGE:
        raise CorruptParquet("a page is too large")
    if result < 0:
        raise CorruptParquet("a page header is damaged, or a page does not lie in its column chunk")
