"""All pages of a Parquet column in order, those that are alike joined to one.

Most writers end a page after 20,000 rows, and going from one to the next would take about as long as decoding it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from panstream.engine.arrow import pa
from panstream.engine.feeds.parquet_pages.pages import (
    DATA,
    DATA_2,
    INDICES,
    PLAIN,
    Chunk,
    Damaged,
    Page,
    PageHeader,
    PageReader,
    copied,
    decompressed,
)
from panstream.engine.spare import Spare
from panstream.scratch import wipe

_WIDTH = 8  # bytes of a number
_Hurry = Callable[[], bool]


def pages_of(
    path: Path,
    chunks: Sequence[Chunk],
    spare: Spare,
    rows: int = 1,
    width: int | None = None,
    hurry: _Hurry = lambda: False,
) -> Generator[Page, None, None]:
    """Yield the pages of all row groups in order; each is the caller's to wipe. About ``rows`` rows are read at once.

    Values have ``width`` bytes each, None if each has a length. To ``hurry``, plain pages without missing values stay
    compressed. Raises ``Damaged``, ``OSError`` or ArrowException.
    """
    with path.open("rb", buffering=0) as file:
        reader = PageReader(file, rows)
        try:
            for group, chunk in enumerate(chunks):
                reader.go_on(chunk.start)
                left = chunk.rows
                while left:
                    for page in _next_pages(reader, group, chunk, left, width, hurry, spare):
                        left -= page.header.values if page.header.kind in (DATA, DATA_2) else 0
                        if left < 0 or reader.place + page.header.stop > chunk.start + chunk.stored:
                            page.wipe()
                            raise Damaged("a page goes beyond its row group")
                        yield page
        finally:
            reader.go_on(0)


def _next_pages(
    reader: PageReader, group: int, chunk: Chunk, left: int, width: int | None, hurry: _Hurry, spare: Spare
) -> Iterator[Page]:
    """Yield the pages that were read at once, of a row group that has so many rows left."""
    headers, table = reader.headers(chunk, left)
    first = 0
    for _, alike in itertools.groupby(headers, lambda header: (header.kind, header.encoding)):
        several = list(alike)
        first, start = first + len(several), first
        joined = None
        if len(several) > 1 and chunk.complete and sum(each.values for each in several) <= left:
            joined = _joined(reader.raw, several, table[start:first], chunk, width, spare)
        if joined is not None:
            reader.use(several[-1])
            joined.group = group
            yield joined
            continue
        for header in several:
            page = _page(reader.raw[header.start : header.stop], header, chunk, hurry, spare)
            reader.use(header)
            page.group = group
            yield page
    reader.go_on(reader.place + headers[-1].stop)


def _page(packed: NDArray[np.uint8], header: PageHeader, chunk: Chunk, hurry: _Hurry, spare: Spare) -> Page:
    plain = header.kind in (DATA, DATA_2) and header.encoding == PLAIN
    if plain and chunk.complete and chunk.codec is not None and hurry():
        return Page(header, copied(packed, spare), chunk.codec)
    return Page(header, decompressed(packed, header, chunk.codec, spare))


def _joined(
    raw: NDArray[np.uint8],
    several: list[PageHeader],
    table: NDArray[np.int64],
    chunk: Chunk,
    width: int | None,
    spare: Spare,
) -> Page | None:
    """Return several pages as one, None if they are not as they usually are: each on its own shows what is wrong."""
    header = several[-1]._replace(values=sum(each.values for each in several))
    plain, indices = header.encoding == PLAIN and width == _WIDTH, header.encoding in INDICES
    if header.kind not in (DATA, DATA_2) or not (plain or indices):
        return None
    if plain and any(_WIDTH * each.values > each.size for each in several):
        return None
    numbers = spare.array(_WIDTH * header.values if plain else 0)
    codes = spare.array(header.values if indices else 0, np.int32)
    sound = False
    try:
        sound = _decoded(raw, several, table, chunk, numbers, codes, spare)
    finally:
        if not sound:
            wipe(numbers)
            wipe(codes)
    return Page(header, numbers, joined=True, indices=codes if indices else None) if sound else None


def _decoded(
    raw: NDArray[np.uint8],
    several: list[PageHeader],
    table: NDArray[np.int64],
    chunk: Chunk,
    numbers: NDArray[np.uint8],
    codes: NDArray[np.int32],
    spare: Spare,
) -> bool:
    from panstream._kernels.alike_pages import decode_page, decode_pages

    if chunk.codec in (None, "snappy"):
        snappy = chunk.codec == "snappy"
        room = spare.array(max(each.size for each in several) if snappy else 0)
        try:
            return bool(decode_pages(raw, table, snappy, chunk.optional, room, numbers, codes))
        finally:
            wipe(room)
    done = 0
    for header, line in zip(several, table, strict=True):
        try:
            body = decompressed(raw[header.start : header.stop], header, chunk.codec, spare)
        except (Damaged, pa.ArrowException, OSError):
            return False
        until = done + header.values
        sound = decode_page(body, line, chunk.optional, numbers[_WIDTH * done : _WIDTH * until], codes[done:until])
        wipe(body)
        if not sound:
            return False
        done = until
    return True
