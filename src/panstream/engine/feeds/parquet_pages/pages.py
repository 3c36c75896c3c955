"""The pages of a Parquet column of strings, one after the other; headers are in Thrift's compact protocol."""

from __future__ import annotations

import io
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.engine.arrow import pa
from panstream.scratch import wipe

DATA, DICTIONARY, DATA_2 = 0, 2, 3
PLAIN, _PLAIN_DICTIONARY, _RLE = 0, 2, 3
_TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _STRUCT = 1, 2, 3, 7, 8, 12
_WHOLE, _INT32 = (4, 5, 6), 5
_LISTS = (9, 10)
_DEEPEST = 8
# Where a page of each kind is described, and which fields parquet.thrift requires there.
_REQUIRED = {
    DATA: (5, frozenset({1, 2, 3, 4})),
    DICTIONARY: (7, frozenset({1, 2})),
    DATA_2: (8, frozenset({1, 2, 3, 4, 5, 6})),
}


class Damaged(ValueError):
    """This is not what a Parquet file has here."""


class _CutOff(Damaged):
    """The header goes on behind the bytes that were given."""


@dataclass(frozen=True, slots=True)
class _PageHeader:
    """What a page holds; ``levels`` is the size of the definition levels of a page of the second version."""

    kind: int
    size: int
    compressed_size: int
    values: int
    encoding: int
    levels: int
    compressed: bool
    missing: int | None = None  # values that are missing, as a page of the second version says


def _read_header(data: memoryview) -> tuple[_PageHeader, int]:
    """Return the header at the beginning of ``data``, and its length."""
    try:
        fields, end = _struct(data, 0, 0)
    except IndexError:
        fields, end = None, 0
    if fields is None:
        raise _CutOff("the header goes on")
    kind = _number(fields, 1)
    if kind not in _REQUIRED:
        return _PageHeader(kind, _number(fields, 2), _number(fields, 3), 0, 0, 0, True), end
    place, required = _REQUIRED[kind]
    page = fields.get(place)
    if not isinstance(page, dict) or not required <= page.keys() or not {1, 2, 3} <= fields.keys():
        raise Damaged("a page is not described in full")
    second = kind == DATA_2
    if second and _number(page, 6):
        raise Damaged("a flat column has no repetition levels")
    if second and _number(page, 3) != _number(page, 1):
        raise Damaged("a flat column has as many values as rows")
    if kind == DATA and _number(page, 3) != _RLE:
        raise Damaged("levels are written in a way that is not in use any more")
    if kind == DICTIONARY and _number(page, 2) not in (PLAIN, _PLAIN_DICTIONARY):
        raise Damaged("a dictionary is written in a way that is not known")
    header = _PageHeader(
        kind=kind,
        size=_number(fields, 2),
        compressed_size=_number(fields, 3),
        values=_number(page, 1),
        encoding=_number(page, 4 if second else 2),
        levels=_number(page, 5) if second else 0,
        compressed=page.get(7) is not False if second else True,
        missing=_number(page, 2) if second else None,
    )
    return header, end


def _number(fields: Mapping[int, Any], at: int) -> int:
    value = fields.get(at, 0)
    if not isinstance(value, int) or value < 0:
        raise Damaged("a size is negative or no number")
    return value


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
        if shift > 63:
            raise Damaged("a number is too long")


def _whole(data: memoryview, at: int) -> tuple[int, int]:
    value, at = _varint(data, at)
    return (value >> 1) ^ -(value & 1), at


def _struct(data: memoryview, at: int, depth: int) -> tuple[dict[int, Any], int]:
    fields: dict[int, Any] = {}
    number = 0
    while data[at]:
        step, kind = data[at] >> 4, data[at] & 15
        at += 1
        if step:
            number += step
        else:
            number, at = _whole(data, at)
        if kind in (_TRUE, _FALSE):
            fields[number] = kind == _TRUE
        else:
            fields[number], at = _value(data, at, kind, depth)
    return fields, at + 1


def _value(data: memoryview, at: int, kind: int, depth: int) -> tuple[Any, int]:
    """Return a value and where it ends; text is passed over, since only statistics have some, about people."""
    if depth > _DEEPEST:
        raise Damaged("a header is nested too deep")
    if kind in _WHOLE:
        value, at = _whole(data, at)
        return (value if kind == _INT32 else None), at  # every size in a header has 32 bits
    if kind == _STRUCT:
        return _struct(data, at, depth + 1)
    if kind in _LISTS:
        return _list(data, at, depth)
    if kind in (_BYTE, _DOUBLE):
        size = 1 if kind == _BYTE else 8
    elif kind == _BINARY:
        size, at = _varint(data, at)
    else:
        raise Damaged("a field has a type that headers do not have")
    return None, at + size


def _list(data: memoryview, at: int, depth: int) -> tuple[None, int]:
    count, kind = data[at] >> 4, data[at] & 15
    at += 1
    if count == 15:
        count, at = _varint(data, at)
    if count > len(data) - at:  # every element takes a byte at least
        raise _CutOff("the header goes on")
    if kind in (_TRUE, _FALSE):
        return None, at + count
    for _ in range(count):
        _, at = _value(data, at, kind, depth + 1)
    return None, at


_HEADER_BYTES = (1 << 9, 1 << 24)  # tried first, and the most


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
        self.next = 0  # where the next page begins

    def page(self, chunk: Chunk, hurry: Callable[[], bool]) -> tuple[_PageHeader, NDArray[np.uint8], str | None]:
        """Return the next page, and how it still is compressed."""
        got = 0
        try:
            header, start, got = self._header()
            stop = start + header.compressed_size
            if got < stop:
                got = self._fill(got, stop)
            if got < stop:
                raise Damaged("a page has no end")
            self.next += stop
            plain = header.kind in (DATA, DATA_2) and header.encoding == PLAIN
            if plain and chunk.complete and chunk.codec is not None and hurry():
                return header, self._raw[start:stop].copy(), chunk.codec
            return header, _decompressed(self._raw[start:stop], header, chunk.codec), None
        finally:
            wipe(self._raw[:got])

    def _header(self) -> tuple[_PageHeader, int, int]:
        """Return the next header, its length, and how many bytes were read to find it."""
        got, (size, most) = 0, _HEADER_BYTES
        while True:
            got = self._fill(got, size)
            try:
                return *_read_header(memoryview(self._raw[:got])), got  # type: ignore[arg-type]
            except _CutOff:
                if got < size or size >= most:
                    raise
            size *= 8

    def _fill(self, start: int, stop: int) -> int:
        """Have the next page's bytes up to ``stop`` in ``_raw``; return where they end, or where the file does."""
        if stop > self._raw.size:
            old = self._raw
            self._raw = np.empty(stop, np.uint8)
            self._raw[:start] = old[:start]
            wipe(old)
        self._file.seek(self.next + start)
        view = memoryview(self._raw)  # type: ignore[arg-type]
        while start < stop and (got := self._file.readinto(view[start:stop])):
            start += got
        return start


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
    if codec == "snappy" or (codec == "zstd" and _zstd_size(packed) is not None):
        told = _snappy_size(packed) if codec == "snappy" else _zstd_size(packed)
        if told != size:
            raise Damaged("a page is longer or shorter than it says")
        return _ours(pa.decompress(packed, size, codec))
    with pa.CompressedInputStream(pa.BufferReader(pa.py_buffer(packed)), codec) as stream:
        body = _ours(stream.read_buffer(size + 1))
    if body.size != size:
        wipe(body)
        raise Damaged("a page is longer or shorter than it says")
    return body


def _ours(buffer: Any) -> NDArray[np.uint8]:
    """Return a buffer that nobody else has as an array that can be overwritten."""
    if buffer.is_mutable:
        return np.frombuffer(buffer, np.uint8)
    return np.frombuffer(buffer, np.uint8).copy()


def _snappy_size(packed: NDArray[np.uint8]) -> int:
    size = 0
    for at in range(min(5, packed.size)):
        size |= int(packed[at] & 127) << (7 * at)
        if packed[at] < 128:
            return size
    raise Damaged("a page is cut off")


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
