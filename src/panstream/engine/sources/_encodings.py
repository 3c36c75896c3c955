"""Transcode text to UTF-8, block by block, in memory that is overwritten after use."""

from __future__ import annotations

import numpy as np

from panstream.engine.config.text_style import Encoding, utf8_table
from panstream.engine.sources.byte_streams import ByteStream
from panstream.primitives.memory.scratch import wipe

_BLOCK_BYTES = 1 << 16
_BYTE_ORDER_MARKS = {b"\xff\xfe": False, b"\xfe\xff": True}  # whether the higher byte comes first


class TranscodedBytes:
    """A byte stream in another encoding, read as UTF-8. An invalid character becomes a byte that is not UTF-8."""

    def __init__(self, stream: ByteStream, encoding: Encoding) -> None:
        from panstream.primitives.kernels.sources.transcode import LONGEST

        self._stream = stream
        self._encoding = encoding
        self._raw = np.zeros(_BLOCK_BYTES, np.uint8)
        self._raw_count = 0
        self._text = np.zeros(LONGEST * _BLOCK_BYTES, np.uint8)
        self._text_start = 0
        self._text_stop = 0
        self._big_endian: bool | None = {"utf-16-le": False, "utf-16-be": True}.get(encoding)

    @property
    def was_cut(self) -> bool:
        """Whether the stream ended in the middle of a record."""
        return self._stream.was_cut

    def readinto(self, view: memoryview, wait: float) -> int | None:
        """Fill ``view`` as far as possible; 0 at the end, ``None`` if nothing came within ``wait`` seconds."""
        while self._text_start == self._text_stop:
            raw = memoryview(self._raw)  # type: ignore[arg-type]
            count = self._stream.readinto(raw[self._raw_count :], wait)
            if count is None or (count == 0 and self._raw_count == 0):
                return count
            self._raw_count += count
            self._transcode(final=count == 0)
        count = min(len(view), self._text_stop - self._text_start)
        taken = self._text[self._text_start : self._text_start + count]
        view[:count] = memoryview(taken)  # type: ignore[arg-type]
        wipe(taken)
        self._text_start += count
        return count

    def close(self) -> None:
        """Overwrite the buffers and close the stream."""
        wipe(self._raw)
        wipe(self._text)
        self._raw_count = self._text_start = self._text_stop = 0
        self._stream.close()

    def _transcode(self, *, final: bool) -> None:
        from panstream.primitives.kernels.sources.transcode import INVALID, expand_bytes, expand_utf16

        data = self._raw[: self._raw_count]
        if self._encoding == "windows-1252" or self._encoding == "latin-1":
            used = data.size
            written = expand_bytes(data, utf8_table(self._encoding), self._text)
        else:
            used = 0
            written = 0
            if self._big_endian is None and data.size >= 2:  # without a byte order mark: little-endian
                mark = data[:2].tobytes()
                self._big_endian = _BYTE_ORDER_MARKS.get(mark, False)
                used = 2 if mark in _BYTE_ORDER_MARKS else 0
            if self._big_endian is not None:
                read, written = expand_utf16(data[used:], self._big_endian, self._text)
                used += read
            if final and used < data.size:  # an incomplete character
                self._text[written] = INVALID
                written += 1
                used = data.size
        remaining = data.size - used
        self._raw[:remaining] = data[used:].copy()
        wipe(self._raw[remaining : self._raw_count])
        self._raw_count = remaining
        self._text_start = 0
        self._text_stop = int(written)


def to_utf8(data: bytearray, encoding: Encoding) -> bytearray:
    """Return the beginning of a text as UTF-8, without an incomplete last character. ``data`` is overwritten."""
    if encoding == "utf-8":
        return data
    stream = TranscodedBytes(_Memory(data), encoding)
    text = bytearray()
    block = bytearray(_BLOCK_BYTES)
    with memoryview(block) as view:
        while count := stream.readinto(view, 0.0):
            text += view[:count]
            view[:count] = bytes(count)
    stream.close()
    return text


class _Memory:
    """Bytes in memory, overwritten as they are read. Their end is not the end of the text."""

    was_cut = False

    def __init__(self, data: bytearray) -> None:
        self._data = data
        self._position = 0

    def readinto(self, view: memoryview, wait: float) -> int | None:
        count = min(len(view), len(self._data) - self._position)
        stop = self._position + count
        view[:count] = self._data[self._position : stop]
        self._data[self._position : stop] = bytes(count)
        self._position = stop
        return count or None

    def close(self) -> None:
        pass
