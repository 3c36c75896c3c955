"""Where bytes come from: files, pipes, either of them compressed, and files that grow."""

from __future__ import annotations

import io
import lzma
import os
import re
import select
import sys
from pathlib import Path
from typing import Any

from panstream.engine.arrow import pa
from panstream.engine.feeds.guard import guarded
from panstream.engine.feeds.text import ByteStream
from panstream.errors import FeedError

__all__ = ["FileBytes", "PipeBytes", "TailBytes", "compression_of", "open_file", "text_bytes", "unpacked"]

_HEAD_BYTES = 10
_CODECS = {
    "gzip": re.compile(rb"\x1f\x8b"),
    "bz2": re.compile(rb"BZh[1-9]1AY&SY"),
    "xz": re.compile(rb"\xfd7zXZ\x00"),
    "zstd": re.compile(rb"\x28\xb5\x2f\xfd"),
}


def compression_of(head: bytes) -> str | None:
    """Return the codec that the first bytes of an input tell of: gzip, bz2, xz, zstd or ``None``.

    >>> compression_of(bytes([0x1f, 0x8b, 8]))
    'gzip'
    """
    return next((codec for codec, magic in _CODECS.items() if magic.match(head)), None)


def open_file(path: Path) -> tuple[io.FileIO, str | None]:
    """Open a file and tell how it is compressed."""
    raw = guarded(lambda: io.FileIO(path), place=path.name, what="a file")
    head = guarded(lambda: raw.read(_HEAD_BYTES), place=path.name, what="a file") or b""
    raw.seek(0)
    return raw, compression_of(head)


def text_bytes(raw: io.FileIO | PipeBytes, codec: str | None, place: str) -> ByteStream:
    """Return the bytes of a file or pipe, decompressed if need be."""
    if codec is not None:
        return _Unpacked(unpacked(raw, codec), place)
    return raw if isinstance(raw, PipeBytes) else FileBytes(raw, place)


def unpacked(raw: io.FileIO | PipeBytes, codec: str | None) -> Any:
    """Return a pyarrow stream, or a file-like object for xz, with the decompressed bytes of ``raw``."""
    plain: Any = _Blocking(raw) if isinstance(raw, PipeBytes) else raw
    if codec == "xz":
        return _Xz(plain)
    handle = pa.PythonFile(plain, "r")
    return handle if codec is None else pa.CompressedInputStream(handle, codec)


class FileBytes:
    """A file that is there as a whole."""

    was_cut = False

    def __init__(self, raw: io.RawIOBase, place: str) -> None:
        self._raw, self._place = raw, place

    def readinto(self, view: memoryview, wait: float) -> int | None:
        """Read on; a file never makes us wait."""
        return guarded(lambda: self._raw.readinto(view), place=self._place, what="a file")

    def close(self) -> None:
        """Close the file."""
        self._raw.close()


class _Xz(lzma.LZMAFile):
    """A file compressed by xz, which is closed with it."""

    def __init__(self, raw: Any) -> None:
        super().__init__(raw)
        self._raw = raw

    def close(self) -> None:
        super().close()
        self._raw.close()


class _Unpacked:
    """A compressed input."""

    was_cut = False

    def __init__(self, unpacking: Any, place: str) -> None:
        self._unpacking, self._place = unpacking, place

    def readinto(self, view: memoryview, wait: float) -> int | None:
        """Read on, for as long as it takes: a compressed pipe cannot be asked whether something will come."""
        return guarded(lambda: int(self._unpacking.readinto(view)), place=self._place, what="compressed data")

    def close(self) -> None:
        """Close the input."""
        self._unpacking.close()


class PipeBytes:
    """Standard input or another pipe, read as data arrives."""

    was_cut = False

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self.raw = io.FileIO(fd, closefd=False)
        self._head = bytearray()
        # Windows cannot wait for a pipe with a limit; there a read takes as long as it takes.
        self._can_wait = sys.platform != "win32"

    def wait(self, seconds: float) -> bool:
        """Tell whether something came, or the end, within ``seconds``."""
        return not self._can_wait or bool(select.select([self._fd], [], [], seconds)[0])

    def compression(self) -> str | None:
        """Tell from its first bytes how the input is compressed, waiting for them but not using them up."""
        while len(self._head) < _HEAD_BYTES:
            more = self.raw.read(_HEAD_BYTES - len(self._head))
            if not more:
                break
            self._head += more
        return compression_of(bytes(self._head))

    def readinto(self, view: memoryview, wait: float) -> int | None:
        """Read what has arrived, or wait for something."""
        if self._head:
            count = min(len(view), len(self._head))
            view[:count] = self._head[:count]
            self._head[:count] = bytes(count)
            del self._head[:count]
            return count
        if not self.wait(wait):
            return None
        return guarded(lambda: self.raw.readinto(view), place="standard input", what="a pipe")

    def close(self) -> None:
        """Leave the pipe open: it belongs to the process."""
        self._head[:] = bytes(len(self._head))
        self._head.clear()


class _Blocking(io.RawIOBase):
    """A pipe as an ordinary file, for decompressors."""

    def __init__(self, pipe: PipeBytes) -> None:
        self._pipe = pipe

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        """Fill the whole buffer: Arrow takes a short read for the end."""
        view, filled = memoryview(buffer).cast("B"), 0
        while filled < len(view):
            count = self._pipe.readinto(view[filled:], 1.0)
            if count == 0:
                break
            filled += count or 0
        return filled


class TailBytes:
    """A file that another program appends to. The end is reached only when the file is replaced or cut."""

    def __init__(self, path: Path, raw: io.FileIO) -> None:
        self._path, self._raw = path, raw
        self.inode = os.fstat(raw.fileno()).st_ino
        self.was_cut = False

    @classmethod
    def open(cls, path: Path) -> TailBytes | None:
        """Open a file, or return ``None`` if it is not there (any more)."""
        try:
            return cls(path, io.FileIO(path))
        except FileNotFoundError:
            return None
        except OSError:
            refused = f"{path.name} may not be read"
        raise FeedError(refused)

    def is_compressed(self) -> bool:
        """Tell whether the file begins as a compressed one does."""
        head = self._raw.read(_HEAD_BYTES) or b""
        self._raw.seek(0)
        return compression_of(head) is not None

    def readinto(self, view: memoryview, wait: float) -> int | None:
        """Read what was appended; 0 once the file under this name is another one or became shorter."""
        count = guarded(lambda: self._raw.readinto(view), place=self._path.name, what="a file")
        if count:
            return count
        if os.fstat(self._raw.fileno()).st_size < self._raw.tell():
            self.was_cut = True
            return 0
        return None if self._is_current() else self._raw.readinto(view)

    def close(self) -> None:
        """Close the file."""
        self._raw.close()

    def _is_current(self) -> bool:
        try:
            return os.stat(self._path).st_ino == self.inode
        except FileNotFoundError:
            return False
