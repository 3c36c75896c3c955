"""Columns of 64-bit integers in a Parquet file: plain pages are copied, those with a dictionary looked up in it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.engine.arrow import pa
from panstream.engine.rows.undecoded_ids import StoredNumbers
from panstream.engine.sources.formats.parquet._string_columns import Cursor, StoredColumn
from panstream.engine.sources.formats.parquet.pages import Damaged
from panstream.primitives.memory.scratch import wipe

WIDTH = 8


class NumberColumn:
    """Reads one column of a file in order, with a cursor of ``WIDTH``. Errors are those of the cursor."""

    def __init__(self, cursor: Cursor) -> None:
        self._cursor = cursor

    def take(self, rows: int) -> Any:
        """Return the next rows as an Arrow array of int64."""
        cursor = self._cursor
        numbers = cursor.spare.array(rows, np.int64)
        present: NDArray[np.uint8] | None = None
        done = 0
        try:
            while done < rows:
                part = cursor.reach(rows - done)
                count, known = cursor.known(part)
                target = numbers[done : done + part]
                self.decode(target[:count])
                if known is not None:
                    from panstream.primitives.kernels.sources.parquet_pages import spread_numbers

                    spread_numbers(target, count, known)
                    present = np.ones(rows, np.uint8) if present is None else present
                    present[done : done + part] = known
                cursor.row += part
                done += part
        except BaseException:
            wipe(numbers)
            raise
        validity = None if present is None else pa.py_buffer(np.packbits(present, bitorder="little"))
        return pa.Array.from_buffers(pa.int64(), rows, [validity, pa.py_buffer(numbers)])

    def close(self) -> None:
        """Close the file and overwrite what is held of it."""
        self._cursor.close()

    def decode(self, out: NDArray[np.int64]) -> None:
        """Write the next numbers of the page."""
        from panstream.primitives.kernels.sources.parquet_pages import dictionary_numbers

        cursor = self._cursor
        if cursor.indices is None:
            stop = cursor.at + out.nbytes
            if stop > cursor.body.size:
                raise Damaged("a page is too short")
            out.view(np.uint8)[:] = cursor.body[cursor.at : stop]
            cursor.at = stop
            return
        indices = cursor.indices[cursor.item : cursor.item + out.size]
        if dictionary_numbers(indices, cursor.words.view(np.int64), out) < 0:
            raise Damaged("a page points outside its dictionary")
        cursor.item += out.size


class StoredNumberColumn(StoredColumn):
    """Reads one column of a file in order, and leaves its numbers in their pages. Errors are those of the cursor."""

    def __init__(self, cursor: Cursor) -> None:
        super().__init__(cursor)
        self._decoded = NumberColumn(cursor)

    def _stored_page(self) -> StoredNumbers:
        cursor = self._cursor
        if cursor.indices is not None:
            numbers = cursor.spare.array(cursor.rows, np.int64)
            try:
                self._decoded.decode(numbers)
            except Damaged:
                wipe(numbers)
                raise
            return StoredNumbers(numbers.view(np.uint8), 0, cursor.rows, spare=cursor.spare)
        if cursor.at + WIDTH * cursor.rows > cursor.body.size:
            raise Damaged("a page is too short")
        return StoredNumbers(cursor.leave().body, cursor.at, cursor.rows, spare=cursor.spare)
