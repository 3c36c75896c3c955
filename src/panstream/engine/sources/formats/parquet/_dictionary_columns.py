"""Columns of few different strings in a Parquet file: rows keep their codes, and a row group's words are kept once."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.engine.arrow import pa
from panstream.engine.rows.wiping import wipe_array
from panstream.engine.sources.formats.parquet._string_columns import Cursor, StringColumn
from panstream.engine.sources.formats.parquet.pages import Damaged
from panstream.primitives.memory.scratch import wipe


class WordColumn:
    """Reads one column of a file in order. Errors are those of the cursor."""

    def __init__(self, cursor: Cursor) -> None:
        self._cursor, self._strings = cursor, StringColumn(cursor)
        self._starts: NDArray[np.int32] | None = None  # of the words below
        self._words: Any = None

    def take(self, rows: int) -> Any:
        """Return the next rows as an Arrow array with a dictionary, or of strings if a page has none."""
        found: list[Any] = []
        done = 0
        try:
            while done < rows:
                found.append(self._alike(rows - done, first=not found))
                done += len(found[-1])
            if len(found) == 1:
                return found.pop()
            if len({each.type for each in found}) == 1:
                return pa.concat_arrays(found)
            return pa.concat_arrays([each.cast(pa.string()) for each in found])
        finally:
            for each in found:
                wipe_array(each)

    def close(self) -> None:
        """Close the file and overwrite what is held of it."""
        self._cursor.close()

    def _alike(self, rows: int, *, first: bool) -> Any:
        """Return as many of the next rows as have the same dictionary, or one page's that has none."""
        cursor = self._cursor
        part = cursor.reach(rows)
        if cursor.indices is None:
            return self._strings.take(part)
        starts, words = cursor.starts, self._dictionary()
        if first and part == rows and cursor.present is None:
            return _with_words(self._given(rows), None, words)
        codes = cursor.spare.array(rows, np.int32)
        present: NDArray[np.uint8] | None = None
        done = 0
        try:
            while True:
                known = self._decode(codes[done : done + part])
                if known is not None:
                    present = np.ones(rows, np.uint8) if present is None else present
                    present[done : done + part] = known
                cursor.row += part
                done += part
                if done == rows:
                    break
                part = cursor.reach(rows - done)
                if cursor.indices is None or cursor.starts is not starts:
                    break
        except BaseException:
            wipe(codes)
            raise
        validity = None if present is None else pa.py_buffer(np.packbits(present[:done], bitorder="little"))
        return _with_words(codes[:done], validity, words)

    def _given(self, rows: int) -> NDArray[Any]:
        """Return the codes of the page's next rows where they are; whoever has them overwrites them.

        They may be bytes: only codes of 32 bits can be joined to others, whose dictionary may be another.
        """
        cursor = self._cursor
        assert cursor.indices is not None
        wipe(cursor.indices[cursor.given : cursor.item])  # which were copied
        codes = cursor.indices[cursor.item : cursor.item + rows]
        if codes.size and int(codes.view(np.uint8 if codes.itemsize == 1 else np.uint32).max()) >= len(self._words):
            raise Damaged("a page points outside its dictionary")
        cursor.row += rows
        cursor.item = cursor.given = cursor.item + rows
        return codes

    def _decode(self, out: NDArray[np.int32]) -> NDArray[np.uint8] | None:
        """Write the codes of the page's next rows; return which rows have one, None if all have."""
        from panstream.primitives.kernels.sources.parquet_pages import dictionary_codes, spread_numbers

        cursor = self._cursor
        count, known = cursor.known(out.size)
        assert cursor.indices is not None
        indices = cursor.indices[cursor.item : cursor.item + count]
        if dictionary_codes(indices, len(self._words), out) < 0:
            raise Damaged("a page points outside its dictionary")
        if known is not None:
            spread_numbers(out, count, known)
        cursor.item += count
        return known

    def _dictionary(self) -> Any:
        """Return the words of the page's dictionary; batches share them, and the cursor overwrites its own."""
        starts = self._cursor.starts
        if self._words is None or starts is not self._starts:
            self._starts = starts
            ends = np.zeros(1, np.int32) if starts is None else starts
            buffers = [None, pa.py_buffer(ends.copy()), pa.py_buffer(self._cursor.words[: ends[-1]].copy())]
            self._words = pa.Array.from_buffers(pa.string(), ends.size - 1, buffers)
        return self._words


def _with_words(codes: NDArray[Any], validity: Any, words: Any) -> Any:
    """Return codes, which were checked, with their dictionary."""
    kind = pa.int8() if codes.itemsize == 1 else pa.int32()
    indices = pa.Array.from_buffers(kind, codes.size, [validity, pa.py_buffer(codes)])
    return pa.DictionaryArray.from_arrays(indices, words, safe=False)
