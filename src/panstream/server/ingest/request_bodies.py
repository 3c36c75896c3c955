"""Request bodies: received and decompressed within limits, parsed, and wiped.

Bodies are untrusted: every size is checked before memory is reserved for it, and every offset before it is used.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from panstream.engine.arrow import boolean_bytes, compute, pa
from panstream.engine.rows.row_batch import RowBatch, RowSchema
from panstream.engine.sources.byte_streams import SPARE_BYTES
from panstream.engine.sources.coalescer import concat_batches
from panstream.engine.sources.error_guard import translate_reader_errors
from panstream.engine.sources.formats.arrow_columns import check_layout, check_types, from_arrow
from panstream.engine.sources.formats.arrow_ipc import check_body
from panstream.engine.sources.formats.beacons import parse_beacons
from panstream.engine.sources.formats.csv import CsvParser
from panstream.engine.sources.formats.json_lines import JsonParser
from panstream.errors import SourceError
from panstream.primitives.memory.scratch import clear_registers
from panstream.server.auth import QuotaTracker
from panstream.server.errors import HttpError
from panstream.server.ingest.buffer_wiping import BUFFERS

if TYPE_CHECKING:
    from starlette.requests import Request

FORMATS = {"application/x-ndjson": "json", "text/csv": "csv", "application/vnd.apache.arrow.stream": "arrow"}
BEACONS = "beacons"  # many, gathered by the server
_FORM = "application/x-www-form-urlencoded"  # what curl -d sends
_LABEL = "the body"
_STREAM = "an Arrow IPC stream"
_VIEWS = (pa.string_view(), pa.binary_view())
_STRINGS = (pa.string(), pa.large_string(), pa.binary(), pa.large_binary())
_INITIAL_CAPACITY = 1 << 20  # bytes reserved at most before any of a body is received


@dataclass(slots=True, eq=False)
class RequestBody:
    """The body of a request, in the first ``size`` bytes of ``data``, which can be wiped."""

    quotas: QuotaTracker
    kind: str
    encoding: str
    data: bytearray = field(default_factory=bytearray, repr=False)
    size: int = 0
    reserved: int = 0
    expected: int = 0  # the declared length; 0 if there is none
    token: str = ""  # whose quota it counts for

    @classmethod
    def from_headers(cls, headers: Mapping[str, str], quotas: QuotaTracker, token: str) -> RequestBody:
        """Return an empty body for a request, with memory reserved.

        Raises:
            HttpError: If the media type is unsupported, the body is too large, or the token's memory is used up.
        """
        kind, encoding = _media_type(headers)
        declared = headers.get("content-length", "")
        length = int(declared) if declared.isascii() and declared.isdecimal() and len(declared) < 19 else 0
        if length > quotas.limits.body:
            raise _too_large(quotas.limits.body)
        body = cls(quotas, kind, encoding, expected=length, token=token)
        try:
            body.ensure_capacity(min(length, _INITIAL_CAPACITY))
        except HttpError:
            body.release_reservation()
            raise
        return body

    def ensure_capacity(self, size: int) -> None:
        """Grow the buffer to ``size`` bytes and the spare ones that parsers need; the old buffer is wiped."""
        needed = size + SPARE_BYTES
        if needed > len(self.data):
            capacity = max(needed, min(2 * len(self.data), self.quotas.limits.unpacked + SPARE_BYTES))
            self.reserve(capacity - self.reserved)  # released with the body, should allocation fail
            old = self.data
            self.data = _memory(capacity)
            if old:
                with memoryview(old) as view:
                    self.data[: self.size] = view[: self.size]
                BUFFERS.give_back(old)

    def append(self, data: bytes) -> None:
        """Append bytes; the buffer grows if necessary."""
        end = self.size + len(data)
        self.ensure_capacity(end)
        self.data[self.size : end] = data
        self.size = end

    def reserve(self, more: int) -> None:
        """Reserve ``more`` bytes of the token's memory for this body, or raise HttpError."""
        if 2 * (self.reserved + more) > self.quotas.limits.memory:
            raise HttpError("too_large", "the body needs more memory than is allowed; send it in smaller parts")
        self.quotas.reserve(more, self.token)
        self.reserved += more

    def free_space(self) -> memoryview:
        """Return memory for the next bytes; the buffer grows as they come, not as the sender declared."""
        if self.size + SPARE_BYTES >= len(self.data):
            self.ensure_capacity(min(self.expected, 2 * self.size))
        return memoryview(self.data)[self.size : min(self.expected, len(self.data) - SPARE_BYTES)]

    def overwrite(self) -> None:
        """Wipe the body; from any thread. Views of its memory must not be used afterwards."""
        BUFFERS.give_back(self.data)
        self.data = bytearray()
        self.size = 0
        clear_registers()

    def release_reservation(self) -> None:
        """Return the reserved memory to the token's quota."""
        self.quotas.release_memory(self.reserved, self.token)
        self.reserved = 0

    def wipe(self) -> None:
        """Wipe the body, and return its memory reservation."""
        self.overwrite()
        self.release_reservation()


def _media_type(headers: Mapping[str, str]) -> tuple[str, str]:
    """Return format and compression, or raise HttpError."""
    if (plain := FORMATS.get(headers.get("content-type", ""))) and "content-encoding" not in headers:
        return plain, "identity"
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    encoding = headers.get("content-encoding", "identity").strip().lower()
    if kind not in FORMATS:
        hint = "; curl -d sends another one and drops line breaks: use --data-binary" if kind == _FORM else ""
        raise HttpError("unsupported_media_type", f"Content-Type must be one of {', '.join(FORMATS)}{hint}")
    if encoding not in ("identity", "gzip", "zstd"):
        raise HttpError("unsupported_media_type", "Content-Encoding must be identity, gzip or zstd")
    return FORMATS[kind], encoding


async def receive(request: Request, quotas: QuotaTracker, token: str) -> RequestBody:
    """Receive a body within the limits of size and time.

    Raises:
        HttpError: If a limit is exceeded or the sender disconnects; the body is wiped.
    """
    limits = quotas.limits
    body = RequestBody.from_headers(request.headers, quotas, token)
    refusal: HttpError | None = None
    try:
        begin = asyncio.get_running_loop().time()
        async with asyncio.timeout(None) as timer:
            more = True
            while more:
                timer.reschedule(begin + limits.body_timeout(body.size))
                message = await request.receive()
                if message["type"] == "http.disconnect":
                    refusal = HttpError("bad_request", "the sender went away")
                    break
                chunk: bytes = message.get("body", b"")
                more = message.get("more_body", False)
                if body.size + len(chunk) > limits.body:
                    refusal = _too_large(limits.body)
                    break
                body.append(chunk)
    except TimeoutError:
        refusal = HttpError("request_timeout")
    except BaseException:
        body.wipe()
        raise
    if refusal is not None:
        body.wipe()
        raise refusal
    return body


async def receive_small(request: Request, max_bytes: int, seconds: float, name: str) -> bytes:
    """Receive a body of at most ``max_bytes`` bytes within ``seconds``; ``name`` is for the message of HttpError."""
    data = b""
    slow = False
    try:
        async with asyncio.timeout(seconds):
            async for chunk in request.stream():
                data += chunk
                if len(data) > max_bytes:
                    raise HttpError("too_large", f"{name} may have {max_bytes:,} bytes")
    except TimeoutError:
        slow = True
    if slow:
        raise HttpError("request_timeout")
    return data


def parse(body: RequestBody, schema: RowSchema) -> RowBatch:
    """Parse a body; the rows are copies, or share the body's memory: wipe both after use.

    Raises:
        HttpError: If the body is malformed, or too large when unpacked.
    """
    refusal: HttpError | None = None
    try:
        if body.encoding != "identity":
            _unpack(body)
        rows = _rows(body, schema)
        rows.first_row = 1
        return _reserve_rows(body, rows)
    except SourceError as error:
        refusal = HttpError("bad_body", str(error))
    finally:
        clear_registers()  # those of this thread: another one wipes the body
    raise refusal


def _reserve_rows(body: RequestBody, batch: RowBatch) -> RowBatch:
    """Reserve memory for rows beyond that of the body, or raise HttpError: they are held until the commit."""
    try:
        body.reserve(max(0, int(batch.columns.nbytes) - body.reserved))
    except BaseException:
        batch.wipe()
        raise
    return batch


def _rows(body: RequestBody, schema: RowSchema) -> RowBatch:
    limits = body.quotas.limits
    data = body.data
    if body.kind == BEACONS:
        return parse_beacons(data, body.size, schema)
    if body.kind == "arrow":
        return _read_arrow(memoryview(data)[: body.size], schema, rows=limits.rows, unpacked=limits.unpacked)
    if body.size and data[body.size - 1] != 0x0A:
        data[body.size] = 0x0A
        body.size += 1
    if data.count(b"\n", 0, body.size) > limits.rows + 1:
        raise _too_large(limits.rows, "rows")
    parser: Any = JsonParser(schema) if body.kind == "json" else CsvParser(schema, label=_LABEL)
    begin = parser.start(data, body.size, final=True)
    if begin is None or begin >= body.size:
        return RowBatch.none(schema)
    if begin:
        with memoryview(data) as view:
            view[: body.size - begin] = view[begin : body.size]
        body.size -= begin
    piece: RowBatch
    piece, end = parser.parse(data, body.size)
    if end < body.size:
        raise SourceError(f"{_LABEL} ends within a quoted field")
    return piece


def _read_arrow(data: memoryview, schema: RowSchema, *, rows: int, unpacked: int = 64 << 20) -> RowBatch:
    """Parse an Arrow IPC stream; the rows may share the memory of ``data``.

    Args:
        data: The stream.
        schema: The columns to read.
        rows: Maximum number of rows.
        unpacked: Maximum size of strings after decoding dictionaries and views, which can be small when sent.
    """
    check_body(data, _LABEL)
    reader = _open_stream(data)
    check_types(reader.schema, schema, _LABEL)
    if len(reader.schema) > len(schema.columns):  # others are not even read
        reader = _open_stream(data, sorted(reader.schema.get_field_index(name) for name in schema.columns))
    pieces: list[RowBatch] = []
    total = size = 0
    while (batch := translate_reader_errors(lambda: next(iter(reader), None), label=_LABEL, what=_STREAM)) is not None:
        total += batch.num_rows
        if total > rows:
            raise _too_large(rows, "rows")
        size += translate_reader_errors(lambda: _decoded_size(batch, schema), label=_LABEL, what=_STREAM)
        if size > unpacked:
            raise HttpError("too_large", f"the words of a body may have {unpacked:,} bytes written out")
        if batch.num_rows:
            pieces.append(from_arrow(batch, schema, label=_LABEL))
    return concat_batches(pieces, schema) if total else RowBatch.none(schema)


def _open_stream(data: memoryview, fields: list[int] | None = None) -> Any:
    options = pa.ipc.IpcReadOptions(
        use_threads=False, ensure_alignment=pa.ipc.Alignment.DataTypeSpecific, included_fields=fields
    )
    return translate_reader_errors(
        lambda: pa.ipc.open_stream(pa.BufferReader(data), options=options), label=_LABEL, what=_STREAM
    )


def _decoded_size(batch: Any, schema: RowSchema) -> int:
    """Return the decoded size of dictionary and view columns, which the body may hold once for many rows."""
    size = 0
    for name, kind in schema.columns.items():
        array = getattr(batch.column(name), "storage", batch.column(name))
        coded = pa.types.is_dictionary(array.type)
        words = array.dictionary if coded else array
        if coded and kind == "string" and name != schema.user:
            continue  # not decoded
        if words.type in _VIEWS or (coded and words.type in _STRINGS):
            check_layout(array)
            lengths = _lengths(words)
            size += int(compute.sum(lengths.take(array.indices) if coded else lengths).as_py() or 0)
    return size


def _lengths(words: Any) -> Any:
    if words.type not in _VIEWS:
        return compute.binary_length(words)
    stop = words.offset + len(words)
    views = np.frombuffer(words.buffers()[1] or b"", np.int32, 4 * stop).reshape(-1, 4)[words.offset :, 0]
    valid_views = np.where(boolean_bytes(words.is_valid()), views, 0)  # the view of a null is arbitrary
    return pa.Array.from_buffers(pa.int32(), len(valid_views), [None, pa.py_buffer(valid_views.astype(np.int32))])


def _unpack(body: RequestBody) -> None:
    """Decompress a body in place, up to the limit, and wipe the compressed bytes."""
    packed = RequestBody(body.quotas, body.kind, "identity", body.data, body.size, body.reserved, token=body.token)
    body.data = bytearray()
    body.size = 0
    body.reserved = 0
    limit = body.quotas.limits.unpacked
    failed = False
    try:
        # Without ``with``: after an error the reader still holds the view, and releasing it would raise.
        part = memoryview(packed.data)[: packed.size]
        stream = pa.CompressedInputStream(pa.BufferReader(part), body.encoding)
        body.ensure_capacity(min(4 * packed.size, limit))
        while True:
            body.ensure_capacity(min(body.size + (1 << 20), limit + 1))
            with memoryview(body.data) as buffer:
                count = int(stream.readinto(buffer[body.size : len(body.data) - SPARE_BYTES]))
            if not count:
                break
            body.size += count
            if body.size > limit:
                raise _too_large(limit)
    except (pa.ArrowException, OSError):
        failed = True
    finally:
        packed.overwrite()
        body.reserved += packed.reserved
    if failed:
        raise SourceError(f"{_LABEL} is not compressed as Content-Encoding says")


def _memory(size: int) -> bytearray:
    try:
        return BUFFERS.take(size)
    except MemoryError:
        pass
    raise HttpError("unavailable", "there is no memory for the body; try again", retry_after=1)


def _too_large(limit: int, what: str = "bytes") -> HttpError:
    return HttpError("too_large", f"a body may have {limit:,} {what}")
