"""The walk over Arrow messages, against a plain reading of the same format, on streams that are cut, bent and
lengthened.
"""

import ctypes
import mmap
import random
import struct
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest

from panstream.primitives.kernels.sources.arrow_ipc import COMPRESSED, DAMAGED, DELTA, WHOLE, walk_messages


def stream(*, compression: str | None = None, words: bool = True, batches: int = 2) -> bytes:
    columns = {"user": pa.array([f"u{i}" for i in range(50)]), "amount": pa.array(range(50))}
    if words:
        columns["region"] = pa.array(["north", "south"] * 25).dictionary_encode()
    table = pa.table(columns)
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        for _ in range(batches):
            writer.write_table(table)
    return bytes(sink.getvalue().to_pybytes())


def plainly(data: bytes) -> int:
    """Read the messages as the format's description says, with checked accesses only."""
    at = 0
    try:
        while at < len(data):
            (size,) = struct.unpack_from("<i", data, at)
            at += 4
            if size == -1:
                (size,) = struct.unpack_from("<i", data, at)
                at += 4
            if size == 0:
                return WHOLE
            if size < 0 or at + size > len(data):
                return DAMAGED
            body, found = message(data[at : at + size])
            if body < 0:
                return DAMAGED
            if found != WHOLE:
                return found
            at += size
            if at + body > len(data):
                return DAMAGED
            at += body
    except struct.error:
        return DAMAGED
    return WHOLE


def message(metadata: bytes) -> tuple[int, int]:
    root = followed(metadata, 0)
    kind, header, length = (field(metadata, root, number) for number in (1, 2, 3))
    body = 0 if length is None else struct.unpack_from("<q", metadata, length)[0]
    what = 0 if kind is None else metadata[kind]
    if what not in (2, 3) or header is None:
        return body, WHOLE
    table: int | None = followed(metadata, header)
    assert table is not None
    if what == 2:
        inner = field(metadata, table, 1)
        delta = field(metadata, table, 2)
        table = None if inner is None else followed(metadata, inner)
        if delta is not None and metadata[delta]:
            return body, DELTA
    if table is None:
        return body, WHOLE
    return body, COMPRESSED if field(metadata, table, 3) is not None else WHOLE


def followed(data: bytes, at: int) -> int:
    return at + int(struct.unpack_from("<I", data, at)[0])


def field(data: bytes, table: int, number: int) -> int | None:
    (back,) = struct.unpack_from("<i", data, table)
    if table - back < 0:
        raise struct.error
    (size,) = struct.unpack_from("<H", data, table - back)
    struct.unpack_from("<I", data, table - back)  # a table of entries has at least so many bytes
    if 4 + 2 * number + 2 > size:
        return None
    (offset,) = struct.unpack_from("<H", data, table - back + 4 + 2 * number)
    if offset and table + offset >= len(data):
        raise struct.error
    return table + offset if offset else None


def bent(data: bytes, seed: int) -> Iterator[bytes]:
    chance = random.Random(seed)
    for _ in range(400):
        copy = bytearray(data)
        for _ in range(chance.randrange(1, 4)):
            width = chance.choice([1, 2, 4, 8])
            at = chance.randrange(len(copy) - width)
            copy[at : at + width] = chance.choice(
                [
                    bytes(width),
                    b"\xff" * width,
                    chance.randbytes(width),
                    (chance.randrange(64)).to_bytes(width, "little"),
                ]
            )
        yield bytes(copy)
        yield bytes(copy[: chance.randrange(len(copy))])
    for size in range(min(len(data), 700)):
        yield data[:size]
    yield data + b"\0" * 3
    yield chance.randbytes(300)


def walked(data: bytes) -> int:
    """Walk over a copy that ends where the memory ends: to read further would end the process."""
    page = mmap.PAGESIZE
    pages = -(-max(len(data), 1) // page)
    memory = mmap.mmap(-1, (pages + 2) * page)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    protect = ctypes.CDLL(None).mprotect
    protect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    for edge in (0, pages + 1):
        assert protect(start + edge * page, page, 0) == 0
    at = (pages + 1) * page - len(data)
    cells = np.frombuffer(memory, np.uint8, len(data), at)
    cells[:] = np.frombuffer(data, np.uint8)
    return int(walk_messages(cells))


@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
@pytest.mark.parametrize("words", [False, True])
def test_whole_and_compressed_streams(compression: str | None, words: bool) -> None:
    found = walked(stream(compression=compression, words=words))
    assert found == (WHOLE if compression is None else COMPRESSED)


@pytest.mark.parametrize("seed", range(4))
def test_damage_is_found_as_by_a_plain_reading(seed: int) -> None:
    outcomes = {WHOLE: 0, DAMAGED: 0, COMPRESSED: 0, DELTA: 0}
    for data in bent(stream(compression=[None, "lz4"][seed % 2], words=seed > 1), seed):
        found = walked(data)
        assert found == plainly(data), data.hex()
        outcomes[found] += 1
    assert outcomes[WHOLE] + outcomes[COMPRESSED] > 50
    assert outcomes[DAMAGED] > 50
