"""A column of ids that are left in their pages."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.engine.arrow import pa
from panstream.engine.feeds.guard import guarded
from panstream.engine.feeds.parquet_pages.cursor import SLACK, Cursor
from panstream.engine.feeds.parquet_pages.headers import Damaged
from panstream.engine.feeds.parquet_pages.strings import StringColumn
from panstream.engine.memory import wipe_array
from panstream.engine.stored_ids import StoredIds, StoredPage

__all__ = ["StoredColumn"]

_LARGEST = 2**31 - 1  # bytes of a page


class StoredColumn:
    """Reads one column of a file in order. Errors are those of the cursor."""

    def __init__(self, cursor: Cursor) -> None:
        self._cursor, self._strings = cursor, StringColumn(cursor)

    def take(self, rows: int) -> Any:
        """Return the next rows as ``StoredIds``, or, if a value is missing in one of their pages, as an Arrow array."""
        found: list[Any] = []
        done = 0
        try:
            while done < rows:
                part = self._cursor.reach(rows - done)
                found.append(self._left(part) if self._cursor.present is None else self._strings.take(part))
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

    def _stored_page(self) -> StoredPage:
        cursor = self._cursor
        if cursor.indices is not None:
            return StoredPage(self._without_dictionary(cursor.indices), 0, cursor.rows, cursor.place)
        page, at = cursor.leave(), cursor.at
        if page.codec is None:
            return StoredPage(page.body, at, cursor.rows, cursor.place)

        def unpacked() -> tuple[NDArray[np.uint8], int]:
            try:
                page.unpack()
                at, present = cursor.levels(page)
                if present is not None:
                    raise Damaged("a value is missing where the file says that none is")
            except BaseException:
                page.wipe()
                raise
            return page.body, at

        unpack = partial(guarded, unpacked, place=cursor.place, what="a Parquet file")
        return StoredPage(page.body, 0, cursor.rows, cursor.place, unpack=unpack)

    def _without_dictionary(self, indices: NDArray[np.int32]) -> NDArray[np.uint8]:
        from panstream._kernels.pages import dictionary_page

        size = self._cursor.room(indices.size) + 4 * indices.size
        if size > _LARGEST:
            raise Damaged("a page has too much text")
        assert self._cursor.starts is not None
        page = np.empty(size + SLACK, np.uint8)
        dictionary_page(indices, self._cursor.starts, self._cursor.words, page)
        return page
