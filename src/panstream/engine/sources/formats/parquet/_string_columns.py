"""Columns of strings in a Parquet file: the cursor that goes from page to page, rows decoded, and ids left in their
pages.

Pages and dictionaries are overwritten when the last of their rows was given away. A thread may decompress the next page
meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.engine.arrow import pa
from panstream.engine.rows.undecoded_ids import StoredIds, StoredNumbers, StoredPage
from panstream.engine.rows.wiping import wipe_array
from panstream.engine.sources._read_ahead import read_ahead
from panstream.engine.sources.error_guard import guarded
from panstream.engine.sources.formats.parquet._page_stream import Reading, pages_of
from panstream.engine.sources.formats.parquet.pages import (
    DATA,
    DATA_2,
    DICTIONARY,
    INDICES,
    PLAIN,
    Chunk,
    Damaged,
    Page,
)
from panstream.primitives.memory.scratch import wipe

SLACK = 16  # bytes that decoders may write, and read, behind the end


class Cursor:
    """Goes through the pages of a column in order. Errors are ``Damaged``, ``OSError`` or pyarrow's own.

    ``at`` is where the page's next item is and, of a page with a dictionary, ``item`` its number among ``indices``;
    ``row`` of ``rows`` rows were given away. ``present`` says by row which have a value, None if all have. Readers move
    these on. ``stored`` is the page as others hold it, who overwrite the rows that were given away themselves, as they
    do with the first ``given`` indices.
    """

    def __init__(
        self,
        path: Path,
        chunks: Sequence[Chunk],
        reading: Reading | None = None,
        *,
        ahead: bool = True,
    ) -> None:
        self.place = path.name
        self.at = self.item = self.row = self.rows = self.given = 0
        self.group = -1
        self.indices: NDArray[Any] | None = None
        self.present: NDArray[np.uint8] | None = None
        self.stored: StoredPage | StoredNumbers | None = None
        self.starts: NDArray[np.int32] | None = None  # of the dictionary's words
        self.words: NDArray[np.uint8] = np.empty(0, np.uint8)
        reading = reading or Reading()
        self._chunks, self._width, self.spare = list(chunks), reading.width, reading.spare
        pages = pages_of(path, chunks, reading)
        self._pages = read_ahead(pages) if ahead else pages
        self._page: Page | None = None

    def reach(self, rows: int) -> int:
        """Have a page with rows that were not given away; return how many it has of the next ``rows``."""
        while self.row == self.rows:
            self._turn()
        return min(rows, self.rows - self.row)

    def known(self, rows: int) -> tuple[int, NDArray[np.uint8] | None]:
        """Return how many of the next rows of the page have a value, and which, None if all have."""
        if self.present is None:
            return rows, None
        known = self.present[self.row : self.row + rows]
        return int(np.count_nonzero(known)), known

    def room(self, count: int) -> int:
        """Return the most bytes that the next items can have."""
        from panstream.primitives.kernels.sources.parquet_pages import dictionary_bytes

        if self.indices is None:
            return self.body.size - self.at
        if self.starts is None:
            raise Damaged("a page points into a dictionary that is not there")
        return _sound(dictionary_bytes(self.indices[self.item : self.item + count], self.starts))

    @property
    def mean(self) -> int:
        """The bytes that a row has, about."""
        chunk = self._chunks[max(self.group, 0)] if self._chunks else None
        return SLACK if chunk is None else chunk.size // max(1, chunk.rows) + 1

    @property
    def body(self) -> NDArray[np.uint8]:
        """The page's bytes."""
        assert self._page is not None
        return self._page.body

    def leave(self) -> Page:
        """Return the page, which is no longer the cursor's to overwrite."""
        page, self._page = self._page, None
        assert page is not None
        return page

    def levels(self, page: Page) -> tuple[int, NDArray[np.uint8] | None]:
        """Return where the values of a page begin, and which rows have one, None if all have."""
        from panstream.primitives.kernels.sources.parquet_pages import all_present, decode_runs

        body, start, size = page.body, 0, page.header.levels
        if not self._chunks[page.group].optional:
            return (size if page.header.kind == DATA_2 else 0), None
        if page.header.kind == DATA:
            if body.size < 4:
                raise Damaged("a page is too short")
            start, size = 4, int(body[:4].view(np.uint32)[0])
        if size > body.size - start:
            raise Damaged("a page is too short")
        stop = start + size
        if all_present(body[:stop], start, page.header.values):
            return stop, None
        present = np.empty(page.header.values, np.uint8)
        _sound(decode_runs(body[:stop], start, 1, present))
        missing = page.header.values - int(np.count_nonzero(present))
        if page.header.kind == DATA_2 and page.header.missing != missing:
            raise Damaged("a page has more or fewer missing values than it says")
        return stop, None if not missing else present

    def close(self) -> None:
        """Close the file and overwrite what is held of it."""
        self._pages.close()
        self._forget_page()
        wipe(self.words)

    def _turn(self) -> None:
        """Go on to the next page."""
        self._forget_page()
        self._page = next(self._pages, None)
        if self._page is None:
            raise Damaged("the file has fewer rows than it says")
        if self._page.group != self.group:
            self.group = self._page.group
            wipe(self.words)
            self.starts = None
        if self._page.header.kind == DICTIONARY:
            self._keep_dictionary(self._page)
        elif self._page.header.kind in (DATA, DATA_2):
            self._open(self._page)

    def _open(self, page: Page) -> None:
        header = page.header
        self.rows = header.values
        if page.codec is not None:
            return
        if page.joined:
            self.at, self.indices, page.indices = 0, page.indices, None
            return
        self.at, self.present = self.levels(page)
        if header.encoding in INDICES:
            self._read_indices(header.values if self.present is None else int(np.count_nonzero(self.present)))
        elif header.encoding != PLAIN:
            raise Damaged("a page is encoded in another way than the file says")

    def _read_indices(self, count: int) -> None:
        from panstream.primitives.kernels.sources.parquet_pages import decode_runs

        self.indices = self.spare.array(count, np.int32)
        if not count:
            return
        if self.at >= self.body.size or self.body[self.at] > 32:
            raise Damaged("a page has indices of no known width")
        _sound(decode_runs(self.body, self.at + 1, int(self.body[self.at]), self.indices))

    def _keep_dictionary(self, page: Page) -> None:
        from panstream.primitives.kernels.sources.parquet_pages import plain_items

        words = page.header.values
        if words > page.body.size // (self._width or 4):
            raise Damaged("a dictionary has more words than bytes")
        wipe(self.words)
        if self._width is not None:
            body, size = self.leave().body, words * self._width
            wipe(body[size:])
            self.words = body[:size]
            return
        self.starts = np.zeros(words + 1, np.int32)
        self.words = np.empty(page.body.size + SLACK, np.uint8)
        _sound(plain_items(page.body, 0, words, self.starts, 0, self.words))

    def _forget_page(self) -> None:
        if self.stored is not None and self.row < self.rows:
            self.stored.wipe(self.row, self.rows)
        if self._page is not None:
            self._page.wipe()
        if self.indices is not None:
            wipe(self.indices[self.given :])
        self._page = self.stored = self.indices = self.present = None
        self.row = self.rows = self.item = self.given = 0


def _sound(end: int) -> int:
    """Return what a decoder returned, unless it found damage."""
    if end < 0:
        raise Damaged("a page is damaged")
    return int(end)


_LARGEST = 2**31 - 1  # bytes of text in a batch
_WIDEST = 256  # bytes a row for which room is made at first


class StringColumn:
    """Reads one column of a file in order. Errors are those of the cursor."""

    def __init__(self, cursor: Cursor) -> None:
        self._cursor = cursor

    def take(self, rows: int) -> Any:
        """Return the next rows as an Arrow array of strings."""
        cursor = self._cursor
        offsets = np.empty(rows + 1, np.int32)  # not spare: where slices of them meet, they are not overwritten
        offsets[0] = 0
        data = cursor.spare.array(min(rows * min(cursor.mean, _WIDEST), _LARGEST) + SLACK)
        present: NDArray[np.uint8] | None = None
        done = 0
        try:
            while done < rows:
                part = cursor.reach(rows - done)
                count, known = cursor.known(part)
                data = _grown(data, int(offsets[done]), cursor.room(count))
                self._decode(count, offsets, done, data)
                if known is not None:
                    from panstream.primitives.kernels.sources.parquet_pages import spread_offsets

                    spread_offsets(offsets, done, known)
                    present = np.ones(rows, np.uint8) if present is None else present
                    present[done : done + part] = known
                cursor.row += part
                done += part
        except BaseException:
            wipe(data)
            raise
        wipe(data[offsets[rows] : offsets[rows] + SLACK])  # a part of the next item may be there
        validity = None if present is None else pa.py_buffer(np.packbits(present, bitorder="little"))
        return pa.Array.from_buffers(pa.string(), rows, [validity, pa.py_buffer(offsets), pa.py_buffer(data)])

    def close(self) -> None:
        """Close the file and overwrite what is held of it."""
        self._cursor.close()

    def _decode(self, count: int, offsets: NDArray[np.int32], first: int, data: NDArray[np.uint8]) -> None:
        from panstream.primitives.kernels.sources.parquet_pages import dictionary_items, plain_items

        cursor = self._cursor
        if cursor.indices is None:
            cursor.at = _sound(plain_items(cursor.body, cursor.at, count, offsets, first, data))
            return
        assert cursor.starts is not None
        indices = cursor.indices[cursor.item : cursor.item + count]
        dictionary_items(indices, cursor.starts, cursor.words, offsets, first, data)
        cursor.item += count


def _grown(data: NDArray[np.uint8], used: int, more: int) -> NDArray[np.uint8]:
    """Return an array with what is used of ``data`` and room for as many bytes as needed."""
    needed = used + more
    if needed > _LARGEST:
        raise Damaged("a batch has too much text")
    if needed + SLACK <= data.size:
        return data
    larger = np.empty(max(needed, min(data.size * 3 // 2, _LARGEST)) + SLACK, np.uint8)
    larger[:used] = data[:used]
    wipe(data[: used + SLACK])  # a part of the next item may be there
    return larger


_LARGEST = 2**31 - 1  # bytes of a page


class StoredColumn:
    """Reads one column of a file in order. Errors are those of the cursor."""

    def __init__(self, cursor: Cursor) -> None:
        self._cursor = cursor
        self._decoded: Any = StringColumn(cursor)  # where a value is missing

    def take(self, rows: int) -> Any:
        """Return the next rows as ``StoredIds``, or, if a value is missing in one of their pages, as an Arrow array."""
        found: list[Any] = []
        done = 0
        try:
            while done < rows:
                part = self._cursor.reach(rows - done)
                found.append(self._left(part) if self._cursor.present is None else self._decoded.take(part))
                done += part
            if all(isinstance(each, StoredIds) for each in found):
                ids, found = StoredIds.joined(found), []
                return ids
            return pa.concat_arrays([each.all() if isinstance(each, StoredIds) else each for each in found])
        finally:
            for each in found:
                each.wipe() if isinstance(each, StoredIds) else wipe_array(each)

    def close(self) -> None:
        """Close the file and overwrite what was not given away."""
        self._cursor.close()

    def _left(self, rows: int) -> StoredIds:
        """Return rows that are left in their page; one with a dictionary is written anew without it."""
        cursor = self._cursor
        if cursor.stored is None:
            cursor.stored = self._stored_page()
        cursor.row += rows
        return StoredIds.of(cursor.stored, cursor.row - rows, rows)

    def _stored_page(self) -> StoredPage | StoredNumbers:
        cursor = self._cursor
        if cursor.indices is not None:
            return StoredPage(
                self._without_dictionary(cursor.indices), 0, cursor.rows, cursor.place, spare=cursor.spare
            )
        page, at = cursor.leave(), cursor.at
        if page.codec is None:
            return StoredPage(page.body, at, cursor.rows, cursor.place, spare=cursor.spare)

        def unpacked() -> tuple[NDArray[np.uint8], int]:
            try:
                page.unpack(cursor.spare)
                at, present = cursor.levels(page)
                if present is not None:
                    raise Damaged("a value is missing where the file says that none is")
            except BaseException:
                page.wipe()
                raise
            return page.body, at

        unpack = partial(guarded, unpacked, place=cursor.place, what="a Parquet file")
        return StoredPage(page.body, 0, cursor.rows, cursor.place, spare=cursor.spare, unpack=unpack)

    def _without_dictionary(self, indices: NDArray[Any]) -> NDArray[np.uint8]:
        from panstream.primitives.kernels.sources.parquet_pages import dictionary_page

        size = self._cursor.room(indices.size) + 4 * indices.size
        if size > _LARGEST:
            raise Damaged("a page has too much text")
        assert self._cursor.starts is not None
        page = self._cursor.spare.array(size + SLACK)
        dictionary_page(indices, self._cursor.starts, self._cursor.words, page)
        return page
