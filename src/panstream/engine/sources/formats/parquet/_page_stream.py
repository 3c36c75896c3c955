"""All pages of a Parquet column in order, those that are alike joined to one.

Most writers end a page after 20,000 rows, and going from one to the next would take about as long as decoding it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.engine.arrow import pa
from panstream.engine.rows.buffer_pool import Spare
from panstream.engine.sources.formats.parquet.pages import (
    DATA,
    DATA_2,
    DICTIONARY,
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
from panstream.primitives.memory.scratch import wipe

_WIDTH = 8  # bytes of a number
_OWN_CODECS = (None, "snappy")
_NARROW_WORDS = 128  # of a dictionary, whose indices fit into a byte


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """How pages are read: into ``spare`` memory, of about ``rows`` rows at once, one page at least.

    Values have ``width`` bytes each, None if each has a length. ``narrow`` indices are bytes where they can. To
    ``hurry``, plain pages without missing values stay compressed.
    """

    spare: Spare = field(default_factory=Spare)
    rows: int = 1
    width: int | None = None
    narrow: bool = False
    hurry: Callable[[], bool] = lambda: False


def pages_of(path: Path, chunks: Sequence[Chunk], reading: Reading) -> Generator[Page, None, None]:
    """Yield the pages of all row groups in order; each is the caller's to wipe.

    Raises ``Damaged``, ``OSError`` or ArrowException.
    """
    with path.open("rb", buffering=0) as file:
        reader = PageReader(file, reading.rows)
        try:
            for group, chunk in enumerate(chunks):
                reader.go_on(chunk.start)
                left, words = chunk.rows, 0
                while left:
                    for page in _next_pages(reader, chunk, left, reading, words <= _NARROW_WORDS):
                        page.group, header = group, page.header
                        if header.kind == DICTIONARY:
                            words = header.values
                        left -= header.values if header.kind in (DATA, DATA_2) else 0
                        if left < 0 or reader.place + header.stop > chunk.start + chunk.stored:
                            page.wipe()
                            raise Damaged("a page goes beyond its row group")
                        yield page
        finally:
            reader.go_on(0)


def _next_pages(reader: PageReader, chunk: Chunk, left: int, reading: Reading, few: bool) -> Iterator[Page]:
    """Yield the pages that were read at once, of a row group that has so many rows left and perhaps few words."""
    headers, table = reader.headers(chunk, left)
    first = 0
    for _, alike in itertools.groupby(headers, lambda header: (header.kind, header.encoding)):
        several = list(alike)
        first, start = first + len(several), first
        joined = None
        if chunk.complete and sum(each.values for each in several) <= left:
            joined = _joined(reader.raw, several, table[start:first], chunk, reading, few)
        if joined is not None:
            reader.use(several[-1])
            yield joined
            continue
        for header in several:
            few = few and (header.kind != DICTIONARY or header.values <= _NARROW_WORDS)
            page = _page(reader.raw[header.start : header.stop], header, chunk, reading)
            reader.use(header)
            yield page
    if headers[-1].stop <= 0:
        raise Damaged("a page ends before it begins")
    reader.go_on(reader.place + headers[-1].stop)


def _page(packed: NDArray[np.uint8], header: PageHeader, chunk: Chunk, reading: Reading) -> Page:
    plain = header.kind in (DATA, DATA_2) and header.encoding == PLAIN
    if plain and chunk.complete and chunk.codec is not None and reading.hurry():
        return Page(header, copied(packed, reading.spare), chunk.codec)
    return Page(header, decompressed(packed, header, chunk.codec, reading.spare))


def _joined(
    raw: NDArray[np.uint8],
    several: list[PageHeader],
    table: NDArray[np.int64],
    chunk: Chunk,
    reading: Reading,
    few: bool,
) -> Page | None:
    """Return several pages as one, None if they are not as they usually are: each on its own shows what is wrong."""
    header = several[-1]._replace(values=sum(each.values for each in several))
    plain, indices = header.encoding == PLAIN and reading.width == _WIDTH, header.encoding in INDICES
    # Numbers of one page stay where they are, and those that pyarrow unpacks: copying them costs more than it saves.
    plain = plain and len(several) > 1 and chunk.codec in _OWN_CODECS
    if header.kind not in (DATA, DATA_2) or not (plain or indices):
        return None
    if plain and any(_WIDTH * each.values > each.size for each in several):
        return None
    numbers = reading.spare.array(_WIDTH * header.values if plain else 0)
    codes = reading.spare.array(header.values if indices else 0, np.int8 if reading.narrow and few else np.int32)
    sound = False
    try:
        sound = _decoded(raw, several, table, chunk, numbers, codes, reading.spare)
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
    codes: NDArray[Any],
    spare: Spare,
) -> bool:
    from panstream.primitives.kernels.sources.parquet_uniform_pages import decode_page, decode_pages

    if chunk.codec in _OWN_CODECS:
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
        sound = decode_page(body, line, chunk.optional, numbers, codes[done:until])  # there are no numbers
        wipe(body)
        if not sound:
            return False
        done = until
    return True
