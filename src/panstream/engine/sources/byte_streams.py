"""Byte streams (files and pipes, compressed or not), and text that is read from them block by block.

The block is one buffer that is reused and overwritten. Blocks end where a record ends, so that a record that cannot be
parsed affects no other.
"""

from __future__ import annotations

import contextlib
import io
import lzma
import re
import select
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from panstream.engine.arrow import pa
from panstream.engine.rows.row_batch import ENDLESS, RowBatch
from panstream.engine.rows.wiping import grow_buffer
from panstream.engine.sources.coalescer import Coalescer
from panstream.engine.sources.error_guard import translate_reader_errors
from panstream.engine.sources.object_stores import RemoteFile
from panstream.primitives.memory.scratch import wipe

BLOCK_BYTES = 1 << 20
RECORD_BYTES = 1 << 24  # a longer record is a bad row
SPARE_BYTES = 1 << 16  # that kernels may read after the end of a block, which saves bounds checks


class ByteStream(Protocol):
    """A source of bytes. After ``was_cut`` the last bytes are not a complete record."""

    was_cut: bool

    def readinto(self, view: memoryview, wait: float) -> int | None:
        """Fill ``view`` as far as possible; 0 at the end, ``None`` if nothing came within ``wait`` seconds."""

    def close(self) -> None:
        """Release the file, and overwrite what was read ahead."""


class RecordParser(Protocol):
    """A parser of one format."""

    def start(self, data: bytearray, end: int, *, final: bool) -> int | None:
        """Parse the header; return the offset of the first record, or ``None`` if more bytes are needed."""

    def cut(self, data: bytearray, end: int) -> int:
        """Return where the last complete record in ``data[:end]`` may end, 0 if there is none."""

    def parse(self, data: bytearray, end: int) -> tuple[RowBatch, int]:
        """Return the rows of the complete records in ``data[:end]``, and where the last of them ends.

        No reference to ``data`` may remain: it is overwritten. ``SPARE_BYTES`` after ``end`` may be read.
        """


class TextReader:
    """Reads the text of one producer. Call ``pump`` until ``ended``; ``idle`` is true if the last call read nothing."""

    def __init__(
        self,
        stream: ByteStream,
        parser: RecordParser,
        coalescer: Coalescer,
        *,
        block_bytes: int = BLOCK_BYTES,
        record_bytes: int = RECORD_BYTES,
    ) -> None:
        self._stream = stream
        self._parser = parser
        self._coalescer = coalescer
        self._data = bytearray(block_bytes + SPARE_BYTES)
        self._limit = max(record_bytes, block_bytes)
        self._end = 0
        self._started = False
        self._in_long_record = False
        self.ended = self.idle = False

    @property
    def rows_seen(self) -> int:
        """Rows read so far."""
        return self._coalescer.rows_seen

    def remaining(self) -> float | None:
        """Return the seconds until waiting rows must be yielded; ``None`` if there are none."""
        return self._coalescer.remaining()

    def pump(self, wait: float = 0.0) -> Iterator[RowBatch]:
        """Read at most one block and yield the batches that are ready."""
        final = self._fill(wait)
        if not self._started:
            begin = self._parser.start(self._data, self._end, final=final or self._end >= self._limit)
            self._started = begin is not None
            if begin is not None:
                self._forget(begin)
        if self._started:
            yield from self._records(final=final)
        if final:
            self.ended = True
            yield from self._coalescer.flush()
        elif self._coalescer.remaining() == 0.0:
            yield from self._coalescer.flush()

    def close(self) -> None:
        """Overwrite the buffer and the waiting rows, and close the stream."""
        self._data[:] = bytes(len(self._data))
        self._end = 0
        self._coalescer.close()
        self._stream.close()

    def _fill(self, wait: float) -> bool:
        self.idle = True
        if self._end >= len(self._data) - SPARE_BYTES:
            capacity = 2 * (len(self._data) - SPARE_BYTES)
            self._data = grow_buffer(self._data, self._end, capacity + SPARE_BYTES)
        capacity = len(self._data) - SPARE_BYTES
        with memoryview(self._data) as view:
            while self._end < capacity:
                count = self._stream.readinto(view[self._end : capacity], wait if self.idle else 0.0)
                if not count:
                    return count == 0
                self._end += count
                self.idle = False
        return False

    def _records(self, *, final: bool) -> Iterator[RowBatch]:
        broken_off = final and self._stream.was_cut  # then the last bytes are not a record
        if broken_off:
            self._end = self._parser.cut(self._data, self._end)
        if final and self._end and self._data[self._end - 1] != 0x0A:
            self._data[self._end] = 0x0A
            self._end += 1
        while not self._in_long_record or self._skip_line():
            cut = self._parser.cut(self._data, self._end)
            if cut:
                piece, cut = self._parser.parse(self._data, cut)
                self._forget(cut)
                yield from self._coalescer.add(piece)
            if not self._end or broken_off or (not final and self._end < self._limit):
                return
            # The record is one bad row; reading continues after its first line, since a quote may have been left open.
            yield from self._coalescer.add_bad(ENDLESS)
            self._in_long_record = True

    def _skip_line(self) -> bool:
        newline = self._data.find(b"\n", 0, self._end)
        self._forget(newline + 1 if newline >= 0 else self._end)
        self._in_long_record = newline < 0
        return not self._in_long_record

    def _forget(self, begin: int) -> None:
        """Move the bytes from ``begin`` on to the front, and overwrite the rest."""
        remaining = self._end - begin
        with memoryview(self._data) as view:
            view[:remaining] = view[begin : self._end]
        wipe(np.frombuffer(self._data, np.uint8)[remaining : self._end])
        self._end = remaining


HEAD_BYTES = 10
_CODECS = {
    "gzip": re.compile(rb"\x1f\x8b"),
    "bz2": re.compile(rb"BZh[1-9]1AY&SY"),
    "xz": re.compile(rb"\xfd7zXZ\x00"),
    "zstd": re.compile(rb"\x28\xb5\x2f\xfd"),
}


def compression_of(head: bytes | bytearray) -> str | None:
    """Return the codec by the first bytes of an input: gzip, bz2, xz, zstd or ``None``.

    >>> compression_of(bytes([0x1f, 0x8b, 8]))
    'gzip'
    """
    return next((codec for codec, magic in _CODECS.items() if magic.match(head)), None)


def open_file(path: Path | RemoteFile) -> tuple[io.RawIOBase, str | None]:
    """Open a file; return it with its codec."""
    raw: io.RawIOBase = translate_reader_errors(
        lambda: path.open() if isinstance(path, RemoteFile) else io.FileIO(path), label=path.name, what="a file"
    )
    head = translate_reader_errors(lambda: raw.read(HEAD_BYTES), label=path.name, what="a file") or b""
    raw.seek(0)
    return raw, compression_of(head)


def text_bytes(raw: io.RawIOBase | PipeBytes, codec: str | None, label: str) -> ByteStream:
    """Return the byte stream of a file or pipe, decompressed if ``codec`` is given."""
    if codec is not None:
        return _FileBytes(open_decompressed(raw, codec), label, "compressed data")
    return raw if isinstance(raw, PipeBytes) else _FileBytes(raw, label, "a file")


def open_decompressed(raw: io.RawIOBase | PipeBytes, codec: str | None) -> Any:
    """Return a pyarrow stream, or a file-like object for xz, with the decompressed bytes of ``raw``."""
    plain: Any = _Blocking(raw) if isinstance(raw, PipeBytes) else raw
    if codec == "xz":
        return _Xz(plain)
    handle = pa.PythonFile(plain, "r")
    return handle if codec is None else pa.CompressedInputStream(handle, codec)


def decompress_prefix(head: bytearray, codec: str, size: int) -> bytearray:
    """Return up to ``size`` decompressed bytes of the input that begins with ``head``."""
    unpacked_bytes = bytearray()
    raw: Any = io.BytesIO(head)
    stream = _Xz(raw) if codec == "xz" else pa.CompressedInputStream(pa.PythonFile(raw, "r"), codec)
    with contextlib.suppress(pa.ArrowException, OSError, EOFError, lzma.LZMAError):  # head is incomplete
        while len(unpacked_bytes) < size and (piece := stream.read(min(1 << 14, size - len(unpacked_bytes)))):
            unpacked_bytes += piece
    return unpacked_bytes


class _FileBytes:
    """A file, or a compressed input; reads block, since a decompressor cannot be asked whether bytes will come."""

    was_cut = False

    def __init__(self, raw: Any, label: str, what: str) -> None:
        self._raw = raw
        self._label = label
        self._what = what

    def readinto(self, view: memoryview, wait: float) -> int | None:
        return translate_reader_errors(lambda: int(self._raw.readinto(view)), label=self._label, what=self._what)

    def close(self) -> None:
        self._raw.close()


class _Xz(lzma.LZMAFile):
    """Decompresses xz; unlike ``LZMAFile`` it closes the file it was given."""

    def __init__(self, raw: Any) -> None:
        super().__init__(raw)
        self._raw = raw

    def close(self) -> None:
        super().close()
        self._raw.close()


class PipeBytes:
    """Standard input or another pipe, read as data arrives."""

    was_cut = False

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self.raw = io.FileIO(fd, closefd=False)
        self._head = bytearray()
        # On Windows select does not work with pipes; there a read blocks.
        self._can_wait = sys.platform != "win32"

    def wait(self, seconds: float) -> bool:
        """Return whether bytes, or the end, arrived within ``seconds``."""
        return bool(self._head) or not self._can_wait or bool(select.select([self._fd], [], [], seconds)[0])

    def compression(self) -> str | None:
        """Return the codec; waits for the first bytes, which will be read again."""
        return compression_of(self.head(HEAD_BYTES))

    def head(self, size: int) -> bytearray:
        """Return the first bytes; waits for them. They will be read again."""
        while len(self._head) < size:
            more = self.raw.read(size - len(self._head))
            if not more:
                break
            self._head += more
        return self._head[:size]

    def readinto(self, view: memoryview, wait: float) -> int | None:
        """Read what has arrived; ``None`` if nothing did within ``wait`` seconds."""
        if self._head:
            count = min(len(view), len(self._head))
            view[:count] = self._head[:count]
            self._head[:count] = bytes(count)
            del self._head[:count]
            return count
        if not self.wait(wait):
            return None
        return translate_reader_errors(lambda: self.raw.readinto(view), label="standard input", what="a pipe")

    def close(self) -> None:
        """Overwrite the first bytes; the pipe stays open, since it belongs to the process."""
        self._head[:] = bytes(len(self._head))
        self._head.clear()


class _Blocking(io.RawIOBase):
    """A pipe as a blocking file, for decompressors."""

    def __init__(self, pipe: PipeBytes) -> None:
        self._pipe = pipe

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        """Fill the buffer: Arrow treats a short read as the end."""
        view = memoryview(buffer).cast("B")
        filled = 0
        while filled < len(view):
            count = self._pipe.readinto(view[filled:], 1.0)
            if count == 0:
                break
            filled += count or 0
        return filled
