"""Arrow IPC, as a stream or as a file; a stream may also come through a pipe or compressed.

Messages are checked before pyarrow decodes them. A compressed buffer declares its size, and pyarrow allocates as much,
so the sum is bounded first. Delta dictionaries are refused: pyarrow would join them before their offsets are checked.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from panstream.engine.arrow import pa
from panstream.engine.rows.row_batch import RowBatch, RowSchema
from panstream.engine.sources.error_guard import translate_reader_errors
from panstream.engine.sources.formats.arrow_columns import check_types, from_arrow
from panstream.errors import SourceError
from panstream.primitives.kernels.sources.arrow_ipc import (
    COMPRESSED,
    DAMAGED,
    DELTA,
    block_offsets,
    buffer_spans,
    classify_message,
    walk_messages,
)

MAX_UNPACKED_BYTES = 1 << 30  # of one message
_MAX_METADATA_BYTES = 1 << 26
_CONTINUATION = b"\xff\xff\xff\xff"
_MAGIC = b"ARROW1"


def check_body(data: memoryview, label: str) -> None:
    """Raise SourceError if a stream in memory is incomplete or damaged, or has compressed buffers."""
    status = walk_messages(np.frombuffer(data, np.uint8))
    if status == COMPRESSED:
        raise SourceError(f"{label} has compressed buffers; compress the whole body instead, by Content-Encoding")
    _check(status, label)


class _CheckedStream(io.RawIOBase):
    """A stream whose messages are checked before pyarrow gets their first byte."""

    def __init__(self, handle: Any, label: str) -> None:
        self._messages = pa.ipc.MessageReader.open_stream(handle)
        self._label = label
        self._waiting = memoryview(b"")

    def readable(self) -> bool:
        """Return True."""
        return True

    def read(self, size: int = -1) -> bytes:
        """Return ``size`` bytes, or fewer at the end."""
        parts: list[bytes] = []
        while size > 0 and (self._waiting or self._next()):
            taken = self._waiting[:size]
            parts.append(bytes(taken))
            self._waiting = self._waiting[len(taken) :]
            size -= len(taken)
        return b"".join(parts)

    def _next(self) -> bool:
        try:
            message = self._messages.read_next_message()
        except StopIteration:
            return False
        body = memoryview(message.body if message.body is not None else b"")
        _check_message(
            np.frombuffer(message.metadata, np.uint8), lambda offset, size: body[offset : offset + size], self._label
        )
        self._waiting = memoryview(message.serialize())
        return True


def _check_file(handle: Any, label: str) -> None:
    """Check all messages in the footer of a file; the handle must be seekable, and is left at its beginning."""
    size = handle.size()

    def read(offset: int, count: int) -> bytes:
        handle.seek(offset)
        return bytes(handle.read(count))

    tail = read(max(0, size - 10), 10)
    length = int.from_bytes(tail[:4], "little")
    if tail[4:] != _MAGIC or length > min(size - 10, _MAX_METADATA_BYTES):
        _check(DAMAGED, label)
    footer = np.frombuffer(read(size - 10 - length, length), np.uint8)
    for block_offset in block_offsets(footer).tolist():
        head = read(block_offset, 8) if 0 <= block_offset < size else b""
        begin = block_offset + (8 if head.startswith(_CONTINUATION) else 4)
        count = int.from_bytes(head[begin - block_offset - 4 : begin - block_offset], "little")
        if len(head) < 8 or count > min(size - begin, _MAX_METADATA_BYTES):
            _check(DAMAGED, label)
        metadata = np.frombuffer(read(begin, count), np.uint8)
        _check_message(metadata, lambda start, wide, body=begin + count: read(body + start, wide), label)  # type: ignore[misc]
    handle.seek(0)


def _check_message(metadata: Any, body: Callable[[int, int], Any], label: str) -> None:
    _, status = classify_message(metadata)
    if status != COMPRESSED:
        _check(status, label)
        return
    total = 0
    for offset, size in buffer_spans(metadata).tolist():
        if offset < 0 or size < 0:
            _check(DAMAGED, label)
        declared = int.from_bytes(body(offset, min(size, 8)), "little", signed=True)
        total += size if declared == -1 else max(0, declared)  # -1: not compressed
    if total > MAX_UNPACKED_BYTES:
        raise SourceError(
            f"{label} has a batch of more than {MAX_UNPACKED_BYTES >> 20:,} MiB when unpacked; write smaller ones"
        )


def _check(status: int, label: str) -> None:
    if status == DELTA:
        raise SourceError(f"{label} has dictionaries in parts; write each as a whole")
    if status == DAMAGED:
        raise SourceError(f"{label} could not be read: it is cut off, damaged or not Arrow IPC")


class ArrowInput:
    """Reads one input. Memory is bounded by the largest record batch that its writer made.

    ``handle`` is a pyarrow file or stream. It must not be memory-mapped: batches are overwritten after use.
    """

    def __init__(self, handle: Any, schema: RowSchema, *, label: str, seekable: bool) -> None:
        self._handle = handle
        self._schema = schema
        self._label = label
        head = (
            translate_reader_errors(lambda: handle.read(len(_MAGIC)), label=label, what="Arrow IPC")
            if seekable
            else b""
        )
        if seekable:
            handle.seek(0)
        self._is_file = head == _MAGIC
        try:
            self._reader = self._guarded(self._open)
            check_types(self._reader.schema, schema, label)
        except SourceError:
            handle.close()
            raise

    def pieces(self) -> Iterator[RowBatch]:
        """Yield the rows in order."""
        number = 0
        while (batch := self._guarded(lambda number=number: self._batch(number))) is not None:  # type: ignore[misc]
            number += 1
            yield from_arrow(batch, self._schema, label=self._label)

    def close(self) -> None:
        """Close the input."""
        self._handle.close()

    def _open(self) -> Any:
        if not self._is_file:
            return pa.ipc.open_stream(pa.PythonFile(_CheckedStream(self._handle, self._label), "r"))
        _check_file(self._handle, self._label)
        names = pa.ipc.open_file(self._handle).schema
        wanted = [names.get_field_index(name) for name in self._schema.columns]
        # Other columns are not read. If a declared one is missing, all are, and check_types reports it.
        options = pa.ipc.IpcReadOptions(included_fields=sorted(wanted) if min(wanted) >= 0 else None)
        return pa.ipc.open_file(self._handle, options=options)

    def _batch(self, number: int) -> Any:
        if self._is_file:
            if number >= self._reader.num_record_batches:
                return None
            return self._reader.get_batch(number)
        return next(iter(self._reader), None)

    def _guarded(self, call: Callable[[], Any]) -> Any:
        return translate_reader_errors(call, label=self._label, what="Arrow IPC")
