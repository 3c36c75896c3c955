"""Text that is read block by block: bytes in, whole records to a parser, micro-batches out.

The block lives in one buffer that is reused and overwritten. Blocks end where a record ends, so that a record that does
not parse spoils no other.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from panstream.engine.feeds.coalesce import Coalescer
from panstream.engine.rows import ENDLESS, Rows

__all__ = ["BLOCK_BYTES", "RECORD_BYTES", "SPARE_BYTES", "ByteStream", "RecordParser", "TextReader"]

BLOCK_BYTES = 1 << 20
RECORD_BYTES = 1 << 24  # a longer record is a bad row
SPARE_BYTES = 1 << 16


class ByteStream(Protocol):
    """Where bytes come from. ``was_cut`` tells that the end came in the middle: what is left is no record."""

    was_cut: bool

    def readinto(self, view: memoryview, wait: float) -> int | None:
        """Fill ``view`` as far as possible; 0 at the end, ``None`` if nothing came within ``wait`` seconds."""
        ...

    def close(self) -> None:
        """Give back what is held."""
        ...


class RecordParser(Protocol):
    """How bytes become rows."""

    def start(self, data: bytearray, end: int, *, final: bool) -> int | None:
        """Read the head of the input; return where the records begin, or ``None`` if more bytes are needed."""
        ...

    def cut(self, data: bytearray, end: int) -> int:
        """Return where the last complete record in ``data[:end]`` seems to end, 0 if there is none."""
        ...

    def parse(self, data: bytearray, end: int) -> tuple[Rows, int]:
        """Return the rows of the complete records in ``data[:end]`` and where the last of them really ends.

        Nothing of ``data`` may be kept. There are ``SPARE_BYTES`` behind ``end`` to write on and put back.
        """
        ...


class TextReader:
    """One producer's text. Call ``pump`` until ``ended``; ``idle`` tells that nothing came."""

    def __init__(
        self,
        stream: ByteStream,
        parser: RecordParser,
        coalescer: Coalescer,
        *,
        block_bytes: int = BLOCK_BYTES,
        record_bytes: int = RECORD_BYTES,
    ) -> None:
        self._stream, self._parser, self._coalescer = stream, parser, coalescer
        self._data = bytearray(block_bytes + SPARE_BYTES)
        self._limit = max(record_bytes, block_bytes)
        self._end = 0
        self._started = False
        self._lost = False  # inside a record that is too long
        self.ended = self.idle = False

    @property
    def rows_seen(self) -> int:
        """Rows read so far."""
        return self._coalescer.rows_seen

    def remaining(self) -> float | None:
        """Return the seconds until waiting rows must go, if any do."""
        return self._coalescer.remaining()

    def pump(self, wait: float = 0.0) -> Iterator[Rows]:
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

    def close(self, *, drop: bool = True) -> None:
        """Overwrite the buffer and what waits in it."""
        self._data[:] = bytes(len(self._data))
        self._end = 0
        if drop:
            self._coalescer.close()
        self._stream.close()

    def _fill(self, wait: float) -> bool:
        self.idle = True
        if self._end >= len(self._data) - SPARE_BYTES:
            self._grow()
        room = len(self._data) - SPARE_BYTES
        with memoryview(self._data) as view:
            while self._end < room:
                count = self._stream.readinto(view[self._end : room], wait if self.idle else 0.0)
                if not count:
                    return count == 0
                self._end += count
                self.idle = False
        return False

    def _records(self, *, final: bool) -> Iterator[Rows]:
        broken_off = final and self._stream.was_cut  # then what is left is no record
        if broken_off:
            self._end = self._parser.cut(self._data, self._end)
        if final and self._end and self._data[self._end - 1] != 0x0A:
            self._data[self._end] = 0x0A
            self._end += 1
        while not self._lost or self._skip_line():
            cut = self._parser.cut(self._data, self._end)
            if cut:
                piece, cut = self._parser.parse(self._data, cut)
                self._forget(cut)
                yield from self._coalescer.add(piece)
            if not self._end or broken_off or (not final and self._end < self._limit):
                return
            # One bad row; what follows its first line may be good.
            yield from self._coalescer.add_bad(ENDLESS)
            self._lost = True

    def _skip_line(self) -> bool:
        newline = self._data.find(b"\n", 0, self._end)
        self._forget(newline + 1 if newline >= 0 else self._end)
        self._lost = newline < 0
        return not self._lost

    def _forget(self, begin: int) -> None:
        """Move what is left to the front and overwrite the rest."""
        left = self._end - begin
        with memoryview(self._data) as view:
            view[:left] = view[begin : self._end]
            view[left : self._end] = bytes(begin)
        self._end = left

    def _grow(self) -> None:
        larger = bytearray(2 * (len(self._data) - SPARE_BYTES) + SPARE_BYTES)
        larger[: self._end] = memoryview(self._data)[: self._end]
        self._data[:] = bytes(len(self._data))
        self._data = larger
