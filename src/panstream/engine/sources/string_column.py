"""A Parquet column of strings, decoded into buffers of our own.

pyarrow decodes such a column slower than it is hashed, and keeps what it decodes until it needs the room. Here the page and the
dictionary are overwritten when the last of their rows was given away. A thread may decompress the next page meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.engine.arrow import pa
from panstream.engine.rows import wipe_array
from panstream.engine.sources.ahead import read_ahead
from panstream.engine.sources.page_headers import DATA, DATA_2, DICTIONARY, Damaged
from panstream.engine.sources.string_pages import Chunk, Page, pages_of
from panstream.engine.stored_ids import StoredIds, StoredPage
from panstream.scratch import wipe

__all__ = ["StringColumn"]

_PLAIN, _INDICES = 0, (2, 8)
_LARGEST = 2**31 - 1  # bytes of text in a batch
_SLACK = 16  # bytes that the decoder may write, and read, behind the end
_WIDEST = 256  # bytes a row for which room is made at first


class StringColumn:
    """Reads one column of a file in order. Errors are ``Damaged``, ``OSError`` or pyarrow's own.

    Rows are either all decoded, by ``take``, or left in their pages, by ``stored``.
    """

    def __init__(self, path: Path, chunks: Sequence[Chunk], *, ahead: bool = True) -> None:
        self._chunks, self._place = list(chunks), path.name
        self._pages = read_ahead(pages_of(path, chunks)) if ahead else pages_of(path, chunks)
        self._group = -1
        self._page: Page | None = None
        self._stored: StoredPage | None = None  # the same page, once rows of it were given away as they are
        self._at = 0  # where the page's next item is
        self._row = self._rows = 0  # rows of the page: given away, and all
        self._indices: NDArray[np.int32] | None = None  # by item, of a page with a dictionary
        self._item = 0
        self._present: NDArray[np.uint8] | None = None  # by row; None if all have a value
        self._starts: NDArray[np.int32] | None = None
        self._words: NDArray[np.uint8] = np.empty(0, np.uint8)

    def take(self, rows: int) -> Any:
        """Return the next rows as an Arrow array of strings."""
        assert self._stored is None
        offsets = np.empty(rows + 1, np.int32)
        offsets[0] = 0
        data = np.empty(self._guess(rows), np.uint8)
        present: NDArray[np.uint8] | None = None
        done = 0
        try:
            while done < rows:
                while self._row == self._rows:
                    self._turn()
                part = min(rows - done, self._rows - self._row)
                known = None if self._present is None else self._present[self._row : self._row + part]
                count = part if known is None else int(np.count_nonzero(known))
                data = _grown(data, int(offsets[done]), self._room(count))
                self._decode(count, offsets, done, data)
                if known is not None:
                    from panstream._kernels.pages import spread_offsets

                    spread_offsets(offsets, done, known)
                    present = np.ones(rows, np.uint8) if present is None else present
                    present[done : done + part] = known
                self._row += part
                done += part
        except BaseException:
            wipe(data)
            raise
        validity = None if present is None else pa.py_buffer(np.packbits(present, bitorder="little"))
        return pa.Array.from_buffers(pa.string(), rows, [validity, pa.py_buffer(offsets), pa.py_buffer(data)])

    def stored(self, rows: int) -> Any:
        """Return the next rows as ``StoredIds``, or, if a value is missing in one of their pages, as an Arrow array."""
        found: list[Any] = []
        done = 0
        try:
            while done < rows:
                while self._row == self._rows:
                    self._turn()
                part = min(rows - done, self._rows - self._row)
                found.append(self._left(part) if self._present is None else self.take(part))
                done += part
            if all(isinstance(each, StoredIds) for each in found):
                ids, found = StoredIds.joined(found), []
                return ids
            return pa.concat_arrays([each.all() if isinstance(each, StoredIds) else each for each in found])
        finally:
            for each in found:
                each.wipe() if isinstance(each, StoredIds) else wipe_array(each)

    def close(self) -> None:
        """Close the file and overwrite what was decoded of it."""
        self._pages.close()
        self._forget_page()
        wipe(self._words)

    def _guess(self, rows: int) -> int:
        """Return for how many bytes there should be room at first."""
        chunk = self._chunks[max(self._group, 0)] if self._chunks else None
        mean = _SLACK if chunk is None else chunk.size // max(1, chunk.rows) + 1
        return min(rows * min(mean, _WIDEST), _LARGEST) + _SLACK

    def _room(self, count: int) -> int:
        """Return the most bytes that the next items can have."""
        from panstream._kernels.pages import dictionary_bytes

        if self._indices is None:
            return self._body.size - self._at
        if self._starts is None:
            raise Damaged("a page points into a dictionary that is not there")
        return _sound(dictionary_bytes(self._indices[self._item : self._item + count], self._starts))

    def _decode(self, count: int, offsets: NDArray[np.int32], first: int, data: NDArray[np.uint8]) -> None:
        from panstream._kernels.pages import dictionary_items, plain_items

        if self._indices is None:
            self._at = _sound(plain_items(self._body, self._at, count, offsets, first, data))
            return
        assert self._starts is not None
        indices = self._indices[self._item : self._item + count]
        dictionary_items(indices, self._starts, self._words, offsets, first, data)
        self._item += count

    def _turn(self) -> None:
        """Go on to the next page."""
        self._forget_page()
        self._page = next(self._pages, None)
        if self._page is None:
            raise Damaged("the file has fewer rows than it says")
        if self._page.group != self._group:
            self._group = self._page.group
            wipe(self._words)
            self._starts = None
        if self._page.header.kind == DICTIONARY:
            self._keep_dictionary(self._page)
        elif self._page.header.kind in (DATA, DATA_2):
            self._open(self._page)

    def _left(self, rows: int) -> StoredIds:
        """Return rows that are left in their page; one with a dictionary is written anew without it."""
        if self._stored is None:
            body, at = self._body, self._at
            if self._indices is not None:
                body, at = self._without_dictionary(self._indices), 0
            self._stored = StoredPage(body, at, self._rows, self._place)
        self._row += rows
        return StoredIds.of(self._stored, self._row - rows, rows)

    def _without_dictionary(self, indices: NDArray[np.int32]) -> NDArray[np.uint8]:
        from panstream._kernels.pages import dictionary_page

        size = self._room(indices.size) + 4 * indices.size
        if size > _LARGEST:
            raise Damaged("a page has too much text")
        assert self._starts is not None
        page = np.empty(size + _SLACK, np.uint8)
        dictionary_page(indices, self._starts, self._words, page)
        return page

    def _open(self, page: Page) -> None:
        header = page.header
        self._at = 0
        if self._chunks[page.group].optional:
            self._read_levels(page)
        elif header.kind == DATA_2:
            self._at = header.levels
        if header.encoding in _INDICES:
            self._read_indices(header.values if self._present is None else int(np.count_nonzero(self._present)))
        elif header.encoding != _PLAIN:
            raise Damaged("a page is encoded in another way than the file says")
        self._rows = header.values

    def _read_levels(self, page: Page) -> None:
        """Learn which rows have a value."""
        from panstream._kernels.pages import all_present, decode_runs

        body, start, size = page.body, 0, page.header.levels
        if page.header.kind == DATA:
            if body.size < 4:
                raise Damaged("a page is too short")
            start, size = 4, int(body[:4].view(np.uint32)[0])
        if size > body.size - start:
            raise Damaged("a page is too short")
        self._at = start + size
        if all_present(body[: self._at], start, page.header.values):
            return
        present = np.empty(page.header.values, np.uint8)
        _sound(decode_runs(body[: self._at], start, 1, present))
        self._present = None if present.all() else present

    def _read_indices(self, count: int) -> None:
        from panstream._kernels.pages import decode_runs

        self._indices = np.empty(count, np.int32)
        if not count:
            return
        if self._at >= self._body.size or self._body[self._at] > 32:
            raise Damaged("a page has indices of no known width")
        _sound(decode_runs(self._body, self._at + 1, int(self._body[self._at]), self._indices))

    def _keep_dictionary(self, page: Page) -> None:
        from panstream._kernels.pages import plain_items

        words = page.header.values
        if words > page.body.size // 4:
            raise Damaged("a dictionary has more words than bytes")
        self._starts = np.zeros(words + 1, np.int32)
        self._words = np.empty(page.body.size + _SLACK, np.uint8)
        _sound(plain_items(page.body, 0, words, self._starts, 0, self._words))

    @property
    def _body(self) -> NDArray[np.uint8]:
        assert self._page is not None
        return self._page.body

    def _forget_page(self) -> None:
        if self._stored is not None and self._row < self._rows:
            self._stored.wipe(self._row, self._rows)
        if self._page is not None and (self._stored is None or self._stored.body is not self._page.body):
            self._page.wipe()
        if self._indices is not None:
            wipe(self._indices)
        self._page = self._stored = self._indices = self._present = None
        self._row = self._rows = self._item = 0


def _grown(data: NDArray[np.uint8], used: int, more: int) -> NDArray[np.uint8]:
    """Return an array with what is used of ``data`` and room for as many bytes as needed."""
    needed = used + more
    if needed > _LARGEST:
        raise Damaged("a batch has too much text")
    if needed + _SLACK <= data.size:
        return data
    larger = np.empty(max(needed, min(data.size * 3 // 2, _LARGEST)) + _SLACK, np.uint8)
    larger[:used] = data[:used]
    wipe(data[:used])
    return larger


def _sound(end: int) -> int:
    if end < 0:
        raise Damaged("a page is damaged")
    return int(end)
