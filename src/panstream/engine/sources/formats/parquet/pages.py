"""The pages of a Parquet column, one after the other."""

from __future__ import annotations

import io
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from panstream.engine.arrow import pa
from panstream.engine.rows.buffer_pool import Spare
from panstream.primitives.memory.scratch import wipe

DATA, DICTIONARY, DATA_2 = 0, 2, 3
PLAIN = 0
INDICES = (2, 8)  # encodings


class Damaged(ValueError):
    """This is not what a Parquet file has here."""


class _CutOff(Damaged):
    """The header goes on behind the bytes that were given."""


class PageHeader(NamedTuple):
    """What a page holds, as ``_kernels.page_headers`` orders it, and where it lies behind the place that was read.

    ``levels`` is the size of the definition levels, and ``missing`` how many values are missing, -1 where it is not
    said: pages of the second version say both.
    """

    kind: int
    size: int
    values: int
    encoding: int
    levels: int
    compressed: int
    missing: int
    start: int
    stop: int


_PAGES = 64  # that are described at once


def _read_headers(data: NDArray[np.uint8], rows: int) -> tuple[list[PageHeader], NDArray[np.int64]]:
    """Return the headers of the pages in ``data`` that have the next ``rows`` rows, at least one, as numbers too."""
    from panstream.primitives.kernels.sources.parquet_page_headers import CUT_OFF, read_headers

    found = np.empty((_PAGES, len(PageHeader._fields)), np.int64)
    count = read_headers(data, rows, found)
    if count == CUT_OFF:
        raise _CutOff("the header goes on")
    if count < 0:
        raise Damaged("a page is not described in full, or has fields that no header of a flat column has")
    return [PageHeader._make(page) for page in found[:count].tolist()], found[:count]


_HEADER_BYTES = (1 << 9, 1 << 24)  # tried first, and the most
_READ_BYTES = 1 << 21  # that are read at once at most, unless a page has more
_SPARE = 16  # one part in so many is read beyond what is expected


@dataclass(frozen=True, slots=True)
class Chunk:
    """The column's part of one row group."""

    start: int
    stored: int  # bytes in the file
    rows: int
    size: int  # bytes when decompressed
    codec: str | None
    optional: bool
    complete: bool  # no value is missing, as the file says


@dataclass(slots=True, eq=False)
class Page:
    """A page with its bytes, which still are compressed if there is a ``codec``; ``group`` counts the row groups.

    Several pages at once, without missing values, are ``joined``: one of plain numbers and nothing else, or of
    ``indices`` that were decoded.
    """

    header: PageHeader
    body: NDArray[np.uint8] = field(repr=False)
    codec: str | None = None
    group: int = 0
    joined: bool = False
    indices: NDArray[Any] | None = field(default=None, repr=False)

    def unpack(self, spare: Spare) -> None:
        """Decompress the bytes, if they still are compressed."""
        if self.codec is None:
            return
        packed, codec = self.body, self.codec
        self.body, self.codec = packed[:0], None
        try:
            self.body = decompressed(packed, self.header, codec, spare)
        finally:
            wipe(packed)

    def wipe(self) -> None:
        """Overwrite the bytes."""
        wipe(self.body)
        if self.indices is not None:
            wipe(self.indices)


class PageReader:
    """Reads pages into one buffer, as many at once as have the next ``rows`` rows, and overwrites each after use."""

    def __init__(self, file: io.FileIO, rows: int) -> None:
        self._file, self._rows = file, rows
        self.raw: NDArray[np.uint8] = np.empty(_HEADER_BYTES[0], np.uint8)
        self._got = 0  # bytes that are there
        self._used = 0  # those of them that were overwritten
        self._guess = 0  # bytes that the next page may have, by the last
        self.place = 0  # where in the file they begin

    def headers(self, chunk: Chunk, left: int) -> tuple[list[PageHeader], NDArray[np.int64]]:
        """Read the next pages, of a row group that has so many rows ``left``; return their headers, as numbers too."""
        headers, table = self._headers(chunk, min(left, self._rows))
        if self.place + headers[0].stop > chunk.start + chunk.stored:  # before that much memory is asked for
            raise Damaged("a page goes beyond its row group")
        if not self._fill(headers[0].stop):
            raise Damaged("a page has no end")
        self._guess = headers[0].stop + headers[0].stop // _SPARE
        return headers, table

    def use(self, header: PageHeader) -> None:
        """Overwrite what was read up to the end of a page, with its header, which may quote values."""
        wipe(self.raw[self._used : header.stop])
        self._used = header.stop

    def go_on(self, place: int) -> None:
        """Overwrite everything that was read, and go on at ``place``."""
        wipe(self.raw[self._used : self._got])
        self._got = self._used = 0
        self.place = place

    def _headers(self, chunk: Chunk, rows: int) -> tuple[list[PageHeader], NDArray[np.int64]]:
        size, most = _HEADER_BYTES
        expected = min(chunk.stored * rows // max(chunk.rows, 1), _READ_BYTES)
        expected = max(expected + expected // _SPARE, self._guess)
        size = max(size, min(expected, chunk.start + chunk.stored - self.place))
        while True:
            whole = self._fill(size)
            try:
                return _read_headers(self.raw[: self._got], rows)
            except _CutOff:
                if not whole or size >= most:
                    raise
            size *= 8

    def _fill(self, stop: int) -> bool:
        """Have the bytes of the next pages up to ``stop`` in ``raw``; return False if the file ends before."""
        if stop > self.raw.size:
            old = self.raw
            self.raw = np.empty(stop, np.uint8)
            self.raw[: self._got] = old[: self._got]
            wipe(old)
        if self._got < stop:
            self._file.seek(self.place + self._got)
        view = memoryview(self.raw)  # type: ignore[arg-type]
        while self._got < stop and (got := self._file.readinto(view[self._got : stop])):
            self._got += got
        return self._got >= stop


def decompressed(page: NDArray[np.uint8], header: PageHeader, codec: str | None, spare: Spare) -> NDArray[np.uint8]:
    """Return the bytes of a page, in memory of their own."""
    clear = header.levels if header.kind == DATA_2 else 0
    if clear > min(page.size, header.size):
        raise Damaged("a page is too short")
    if codec is None or not header.compressed:
        if page.size != header.size:
            raise Damaged("a page is longer or shorter than it says")
        return copied(page, spare)
    if page.size == clear:
        if header.size != clear:
            raise Damaged("a page is shorter than it says")
        return copied(page, spare)
    body = _unpacked(page[clear:], header.size - clear, codec, spare)
    if not clear:
        return body
    whole = np.concatenate([page[:clear], body])
    wipe(body)
    return whole


def copied(page: NDArray[np.uint8], spare: Spare) -> NDArray[np.uint8]:
    """Return the same bytes in memory of their own."""
    found = spare.array(page.size)
    found[:] = page
    return found


def _unpacked(packed: NDArray[np.uint8], size: int, codec: str, spare: Spare) -> NDArray[np.uint8]:
    """Decompress into exactly ``size`` bytes.

    ``pa.decompress`` returns as many bytes as it is told, those that nothing was written to as well. So it is used
    where the compressed bytes say how much they hold, and the decompressor checks; elsewhere a stream tells its end.
    """
    if codec == "snappy":
        return _unsnapped(packed, size, spare)
    if codec == "zstd" and (told := _zstd_size(packed)) is not None:
        if told != size:
            raise Damaged("a page is longer or shorter than it says")
        return _ours(pa.decompress(packed, size, codec))
    with pa.CompressedInputStream(pa.BufferReader(pa.py_buffer(packed)), codec) as stream:
        body = _ours(stream.read_buffer(size + 1))
    if body.size != size:
        wipe(body)
        raise Damaged("a page is longer or shorter than it says")
    return body


def _unsnapped(packed: NDArray[np.uint8], size: int, spare: Spare) -> NDArray[np.uint8]:
    """Decompress Snappy, about twice as fast as pyarrow does on ids."""
    from panstream.primitives.kernels.sources.snappy import unpack_snappy

    body = spare.array(size)
    if not unpack_snappy(packed, body):
        wipe(body)
        raise Damaged("a page is damaged, or longer or shorter than it says")
    return body


def _ours(buffer: Any) -> NDArray[np.uint8]:
    """Return a buffer that nobody else has as an array that can be overwritten."""
    if buffer.is_mutable:
        return np.frombuffer(buffer, np.uint8)
    return np.frombuffer(buffer, np.uint8).copy()


def _zstd_size(packed: NDArray[np.uint8]) -> int | None:
    """Return the size in a frame's header (RFC 8878, 3.1.1.1), None where it has none."""
    head = packed[:18].tobytes()
    if len(head) < 18 or head[:4] != b"\x28\xb5\x2f\xfd":
        return None
    flags = head[4]
    single, width = flags >> 5 & 1, (0, 2, 4, 8)[flags >> 6]
    if width == 0 and not single:
        return None
    width = width or 1
    at = 5 + (1 - single) + (0, 1, 2, 4)[flags & 3]
    value = int.from_bytes(head[at : at + width], "little")
    return value + 256 if width == 2 else value
