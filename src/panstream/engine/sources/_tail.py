"""Regular files that another program appends to, renames or truncates."""

from __future__ import annotations

import io
import os
import stat
from pathlib import Path

from panstream.engine.sources.byte_streams import HEAD_BYTES, compression_of
from panstream.engine.sources.error_guard import translate_reader_errors
from panstream.errors import SourceError

_NEWLINE = 0x0A


class TailBytes:
    """A regular file that another program appends to. It ends when it is truncated, or at its end after `finish`."""

    def __init__(self, path: Path, raw: io.FileIO) -> None:
        status = os.fstat(raw.fileno())
        self._path = path
        self._raw = raw
        self._device = status.st_dev
        self.inode = status.st_ino
        self.was_cut = False
        self._is_finished = False
        self._may_be_cut = False  # its end was reached since the last read
        self._line_end = 0  # the position after the last newline that ended a read

    @classmethod
    def open(cls, path: Path) -> TailBytes | None:
        """Open a file; return ``None`` if it does not exist (any more)."""
        try:
            raw = io.FileIO(path, opener=_open_without_waiting)
        except FileNotFoundError:
            return None
        except OSError:
            raise SourceError(f"{path.name} may not be read") from None
        try:
            refuse_special_file(path, os.fstat(raw.fileno()))
        except SourceError:
            raw.close()
            raise
        return cls(path, raw)

    def is_compressed(self) -> bool:
        """Return whether the file begins with the magic number of a compression."""
        head = self._raw.read(HEAD_BYTES) or b""
        self._raw.seek(0)
        return compression_of(head) is not None

    def is_current(self) -> bool:
        """Return whether the path still refers to this file."""
        try:
            status = os.stat(self._path)
        except OSError:
            return False
        return (status.st_dev, status.st_ino) == (self._device, self.inode)

    def finish(self) -> None:
        """Treat the current end of the file as the end of the input."""
        self._is_finished = True

    def readinto(self, view: memoryview, wait: float) -> int | None:
        """Read what was appended; 0 once the file was truncated, even if it has grown again since."""
        if self._may_be_cut and self._is_cut():
            self.was_cut = True
            return 0
        count = translate_reader_errors(lambda: self._raw.readinto(view), label=self._path.name, what="a file")
        self._may_be_cut = not count
        if count:
            if view[count - 1] == _NEWLINE:
                self._line_end = self._raw.tell()
            return count
        return 0 if self._is_finished else None

    def close(self) -> None:
        """Close the file."""
        self._raw.close()

    def _is_cut(self) -> bool:
        """Return whether the file is shorter than what was read, or has no newline where a line ended.

        Only the position of a newline is remembered: text of the file, or a hash of it, would reveal rows. A NUL there
        is a hole, which a program leaves that continues at its old position after a truncation.
        """
        position = self._raw.tell()
        if os.fstat(self._raw.fileno()).st_size < position:
            return True
        if self._line_end == 0:
            return False
        self._raw.seek(self._line_end - 1)
        byte = translate_reader_errors(lambda: self._raw.read(1), label=self._path.name, what="a file")
        self._raw.seek(position)
        return byte not in (b"\n", b"\0")


def refuse_special_file(path: Path, status: os.stat_result) -> None:
    """Raise SourceError for pipes, devices and sockets: they have no position to resume from."""
    if not stat.S_ISREG(status.st_mode):
        raise SourceError(
            f'{path.name} is not a regular file, and only those can be followed; pipe its rows to "-" instead'
        )


def _open_without_waiting(path: str, flags: int) -> int:
    """Open without blocking: opening a FIFO without a writer would block the thread."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
