"""Read a Parquet file on a local disk: what is used of a row group at once, and handed to pyarrow without a copy."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.primitives.memory.scratch import wipe

_MAX_LOADED_BYTES = 1 << 25


def can_load(ranges: Iterable[tuple[int, int]]) -> bool:
    """Return whether ranges (start, bytes) are few enough bytes to hold at once."""
    return sum(max(0, size) for _, size in ranges) <= _MAX_LOADED_BYTES


class LocalBytes(io.RawIOBase):
    """A file on a local disk; what is loaded of it is overwritten by the next row group and on closing.

    Args:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb", buffering=0)
        self._position = 0
        self._buffer = np.empty(0, np.uint8)
        self._loaded: list[tuple[int, NDArray[np.uint8]]] = []

    def load(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Read ranges (start, bytes), and hold them instead of those before, if they are not too many.

        Nothing must refer to those before any more. Ranges of a damaged file may be anything.
        """
        self._loaded.clear()
        wanted = [(start, size) for start, size in ranges if start >= 0 and size > 0]
        if not can_load(wanted):
            wipe(self._buffer)
            return
        total = sum(size for _, size in wanted)
        if total > self._buffer.size:
            wipe(self._buffer)
            self._buffer = np.empty(total, np.uint8)
        used = 0
        for start, size in wanted:
            self._file.seek(start)
            done = 0
            while done < size and (count := self._file.readinto(self._buffer[used + done : used + size].data)):
                done += count
            self._loaded.append((start, self._buffer[used : used + done]))
            used += done
        wipe(self._buffer[used:])

    def view(self, start: int, size: int) -> NDArray[np.uint8] | None:
        """Return ``size`` bytes from ``start`` on, if they are loaded."""
        for first, data in self._loaded:
            if first <= start and start + size <= first + data.size:
                return data[start - first : start - first + size]
        return None

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Set and return the position of the next read."""
        if whence == io.SEEK_CUR:
            offset += self._position
        self._position = self._file.seek(offset, io.SEEK_END if whence == io.SEEK_END else io.SEEK_SET)
        return self._position

    def tell(self) -> int:
        """Return the position of the next read."""
        return self._position

    def read(self, size: int = -1) -> Any:
        """Return bytes; without a copy where they are loaded: that memory must not be used after the next `load`."""
        loaded = self.view(self._position, size) if size > 0 else None
        if loaded is not None:
            self._position += size
            return loaded.data
        return super().read(size)

    def readinto(self, buffer: Any) -> int:
        """Fill the buffer, up to the end of the file."""
        view = memoryview(buffer).cast("B")
        self._file.seek(self._position)
        filled = 0
        while filled < len(view) and (count := self._file.readinto(view[filled:])):
            filled += count
        self._position += filled
        return filled

    def close(self) -> None:
        """Overwrite what was loaded, and close the file."""
        if not self.closed:
            self._loaded.clear()
            wipe(self._buffer)
            self._file.close()
        super().close()
