"""The pages of a Parquet column, one after the other."""

from __future__ import annotations

import io
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from panstream.engine.arrow import pa
from panstream.scratch import wipe

DATA, DICTIONARY, DATA_2 = 0, 2, 3
PLAIN, _PLAIN_DICTIONARY, _RLE = 0, 2, 3
# Where a page of each kind is described, and how many fields, from the first on, parquet.thrift requires there.
_REQUIRED = {DATA: (5, 4), DICTIONARY: (7, 2), DATA_2: (8, 6)}


class Damaged(ValueError):
    """This is not what a Parquet file has here."""


class _CutOff(Damaged):
    """The header goes on behind the bytes that were given."""


class _PageHeader(NamedTuple):
    """What a page holds; ``levels`` is the size of the definition levels of a page of the second version."""

    kind: int
    size: int
    compressed_size: int
    values: int
    encoding: int
    levels: int
    compressed: bool
    missing: int | None = None  # values that are missing, as a page of the second version says


def _read_header(data: NDArray[np.uint8]) -> tuple[_PageHeader, int]:
    """Return the header at the beginning of ``data``, and its length."""
    from panstream._kernels.page_headers import CUT_OFF, FIELDS, PLACES, read_header

    found = np.empty((1 + len(PLACES), FIELDS), np.int64)
    end = read_header(data, found)
    if end == CUT_OFF:
        raise _CutOff("the header goes on")
    if end < 0:
        raise Damaged("a header is nested too deep, or has fields that no header has")
    fields, *places = found.tolist()
    kind = fields[1]
    if min(fields[1:4]) < 0:
        raise Damaged("a page is not described in full")
    if kind not in _REQUIRED:
        return _PageHeader(kind, fields[2], fields[3], 0, 0, 0, True), end
    place, required = _REQUIRED[kind]
    page = places[PLACES.index(place)]
    if min(page[1 : required + 1]) < 0:
        raise Damaged("a page is not described in full")
    second = kind == DATA_2
    if second and page[6]:
        raise Damaged("a flat column has no repetition levels")
    if second and page[3] != page[1]:
        raise Damaged("a flat column has as many values as rows")
    if kind == DATA and page[3] != _RLE:
        raise Damaged("levels are written in a way that is not in use any more")
    if kind == DICTIONARY and page[2] not in (PLAIN, _PLAIN_DICTIONARY):
        raise Damaged("a dictionary is written in a way that is not known")
    header = _PageHeader(
        kind=kind,
        size=fields[2],
        compressed_size=fields[3],
        values=page[1],
        encoding=page[4 if second else 2],
        levels=page[5] if second else 0,
        compressed=page[7] != 0 if second else True,
        missing=page[2] if second else None,
    )
    return header, end


_HEADER_BYTES = (1 << 9, 1 << 24)  # tried first, and the most
_SPARE = 16  # one part in so many is read beyond the size of the last page


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
    """A page with its bytes, which still are compressed if there is a ``codec``; ``group`` counts the row groups."""

    group: int
    header: _PageHeader
    body: NDArray[np.uint8] = field(repr=False)
    codec: str | None = None

    def unpack(self) -> None:
        """Decompress the bytes, if they still are compressed."""
        if self.codec is None:
            return
        packed, codec = self.body, self.codec
        self.body, self.codec = packed[:0], None
        try:
            self.body = _decompressed(packed, self.header, codec)
        finally:
            wipe(packed)

    def wipe(self) -> None:
        """Overwrite the bytes."""
        wipe(self.body)


def pages_of(
    path: Path, chunks: Sequence[Chunk], hurry: Callable[[], bool] = lambda: False
) -> Generator[Page, None, None]:
    """Yield the pages of all row groups in order; each is the caller's to wipe.

    To ``hurry``, plain pages without missing values stay compressed. Raises ``Damaged``, ``OSError`` or ArrowException.
    """
    with path.open("rb", buffering=0) as file:
        reader = _Reader(file)
        for group, chunk in enumerate(chunks):
            reader.next, left = chunk.start, chunk.rows
            while left:
                header, body, codec = reader.page(chunk, hurry)
                if header.kind in (DATA, DATA_2):
                    left -= header.values
                page = Page(group, header, body, codec)
                if left < 0 or reader.next > chunk.start + chunk.stored:
                    page.wipe()
                    raise Damaged("a page goes beyond its row group")
                yield page


class _Reader:
    """Reads pages into one buffer, which is overwritten after each."""

    def __init__(self, file: io.FileIO) -> None:
        self._file = file
        self._raw: NDArray[np.uint8] = np.empty(_HEADER_BYTES[0], np.uint8)
        self._got = 0  # bytes of the next page that are there
        self._guess = 0  # bytes that it may have, by the last one
        self.next = 0  # where the next page begins

    def page(self, chunk: Chunk, hurry: Callable[[], bool]) -> tuple[_PageHeader, NDArray[np.uint8], str | None]:
        """Return the next page, and how it still is compressed."""
        try:
            header, start = self._header(chunk.start + chunk.stored - self.next)
            stop = start + header.compressed_size
            if not self._fill(stop):
                raise Damaged("a page has no end")
            self.next += stop
            self._guess = stop + stop // _SPARE
            plain = header.kind in (DATA, DATA_2) and header.encoding == PLAIN
            if plain and chunk.complete and chunk.codec is not None and hurry():
                return header, self._raw[start:stop].copy(), chunk.codec
            return header, _decompressed(self._raw[start:stop], header, chunk.codec), None
        finally:
            wipe(self._raw[: self._got])
            self._got = 0

    def _header(self, left: int) -> tuple[_PageHeader, int]:
        """Return the next header and its length, of a column that has so many bytes left."""
        size, most = _HEADER_BYTES
        size = max(size, min(self._guess, left))
        while True:
            whole = self._fill(size)
            try:
                return _read_header(self._raw[: self._got])
            except _CutOff:
                if not whole or size >= most:
                    raise
            size *= 8

    def _fill(self, stop: int) -> bool:
        """Have the next page's bytes up to ``stop`` in ``_raw``; return False if the file ends before."""
        if stop > self._raw.size:
            old = self._raw
            self._raw = np.empty(stop, np.uint8)
            self._raw[: self._got] = old[: self._got]
            wipe(old)
        if self._got < stop:
            self._file.seek(self.next + self._got)
        view = memoryview(self._raw)  # type: ignore[arg-type]
        while self._got < stop and (got := self._file.readinto(view[self._got : stop])):
            self._got += got
        return self._got >= stop


def _decompressed(page: NDArray[np.uint8], header: _PageHeader, codec: str | None) -> NDArray[np.uint8]:
    clear = header.levels if header.kind == DATA_2 else 0
    if clear > min(page.size, header.size):
        raise Damaged("a page is too short")
    if codec is None or not header.compressed:
        if page.size != header.size:
            raise Damaged("a page is longer or shorter than it says")
        return page.copy()
    if page.size == clear:
        if header.size != clear:
            raise Damaged("a page is shorter than it says")
        return page.copy()
    body = _unpacked(page[clear:], header.size - clear, codec)
    if not clear:
        return body
    whole = np.concatenate([page[:clear], body])
    wipe(body)
    return whole


def _unpacked(packed: NDArray[np.uint8], size: int, codec: str) -> NDArray[np.uint8]:
    """Decompress into exactly ``size`` bytes.

    ``pa.decompress`` returns as many bytes as it is told, those that nothing was written to as well. So it is used
    where the compressed bytes say how much they hold, and the decompressor checks; elsewhere a stream tells its end.
    """
    if codec == "snappy":
        return _unsnapped(packed, size)
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


def _unsnapped(packed: NDArray[np.uint8], size: int) -> NDArray[np.uint8]:
    """Decompress Snappy, about twice as fast as pyarrow does on ids."""
    from panstream._kernels.snappy import unpack_snappy

    body = np.empty(size, np.uint8)
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
    if packed.size < 18 or packed[:4].tobytes() != b"\x28\xb5\x2f\xfd":
        return None
    flags = int(packed[4])
    single, width = flags >> 5 & 1, (0, 2, 4, 8)[flags >> 6]
    if width == 0 and not single:
        return None
    width = width or 1
    at = 5 + (1 - single) + (0, 1, 2, 4)[flags & 3]
    value = int.from_bytes(packed[at : at + width].tobytes(), "little")
    return value + 256 if width == 2 else value
