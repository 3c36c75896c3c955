"""A column of strings, decoded."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.engine.arrow import pa
from panstream.engine.feeds.parquet_pages.cursor import SLACK, Cursor, sound
from panstream.engine.feeds.parquet_pages.headers import Damaged
from panstream.scratch import wipe

__all__ = ["StringColumn"]

_LARGEST = 2**31 - 1  # bytes of text in a batch
_WIDEST = 256  # bytes a row for which room is made at first


class StringColumn:
    """Reads one column of a file in order. Errors are those of the cursor."""

    def __init__(self, cursor: Cursor) -> None:
        self._cursor = cursor

    def take(self, rows: int) -> Any:
        """Return the next rows as an Arrow array of strings."""
        cursor = self._cursor
        offsets = np.empty(rows + 1, np.int32)
        offsets[0] = 0
        data = np.empty(min(rows * min(cursor.mean, _WIDEST), _LARGEST) + SLACK, np.uint8)
        present: NDArray[np.uint8] | None = None
        done = 0
        try:
            while done < rows:
                part = cursor.reach(rows - done)
                count, known = cursor.known(part)
                data = _grown(data, int(offsets[done]), cursor.room(count))
                self._decode(count, offsets, done, data)
                if known is not None:
                    from panstream._kernels.pages import spread_offsets

                    spread_offsets(offsets, done, known)
                    present = np.ones(rows, np.uint8) if present is None else present
                    present[done : done + part] = known
                cursor.row += part
                done += part
        except BaseException:
            wipe(data)
            raise
        validity = None if present is None else pa.py_buffer(np.packbits(present, bitorder="little"))
        return pa.Array.from_buffers(pa.string(), rows, [validity, pa.py_buffer(offsets), pa.py_buffer(data)])

    def close(self) -> None:
        """Close the file and overwrite what is held of it."""
        self._cursor.close()

    def _decode(self, count: int, offsets: NDArray[np.int32], first: int, data: NDArray[np.uint8]) -> None:
        from panstream._kernels.pages import dictionary_items, plain_items

        cursor = self._cursor
        if cursor.indices is None:
            cursor.at = sound(plain_items(cursor.body, cursor.at, count, offsets, first, data))
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
    wipe(data[:used])
    return larger
