"""Arrow IPC that lies about its sizes, or comes in parts: refused before anything is unpacked or put together."""

import io
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from panstream.engine.rows.row_batch import RowSchema
from panstream.engine.sources import FileSource
from panstream.engine.sources.formats.arrow_ipc import MAX_UNPACKED_BYTES, _check_file, _CheckedStream
from panstream.errors import SourceError
from panstream.server.ingest.request_bodies import _read_arrow

SCHEMA = RowSchema(columns={"n": "int"})
WORDS = RowSchema(columns={"w": "string"})


def written(table: pa.Table, *, file: bool, chunk: int = 1000, **options: Any) -> bytes:
    sink = io.BytesIO()
    opened = pa.ipc.new_file if file else pa.ipc.new_stream
    with opened(sink, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table, max_chunksize=chunk)
    return sink.getvalue()


def read(path: Path, schema: RowSchema = SCHEMA) -> int:
    return sum(len(batch) for batch in FileSource([str(path)], schema).batches() if batch is not None)


@pytest.mark.parametrize("file", [False, True])
@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_declared_sizes_are_added_up_first(tmp_path: Path, file: bool, codec: str) -> None:
    table = pa.table({"n": list(range(3000)), "other": list(range(3000))})
    data = written(table, file=file, compression=codec)
    path = tmp_path / f"x.{'arrow' if file else 'arrows'}"
    path.write_bytes(data)
    assert read(path) == 3000
    true = struct.pack("<q", 8000)
    assert data.count(true) >= 6
    for lie in (MAX_UNPACKED_BYTES + 1, 1 << 45, 2**63 - 1):
        path.write_bytes(data.replace(true, struct.pack("<q", lie), 5))
        with pytest.raises(SourceError, match="when unpacked"):
            read(path)


@pytest.mark.slow
@pytest.mark.parametrize("file", [False, True])
def test_a_bomb_takes_no_memory(tmp_path: Path, file: bool) -> None:
    """1.2 GB of zeros in some kilobytes, read where 1.5 GB can be had."""
    sink = io.BytesIO()
    zeros = pa.array(memoryview(bytes(8 << 20)).cast("q"))
    chunk = pa.concat_arrays([zeros] * 36)
    schema = pa.schema([(f"n{i}" if i else "n", pa.int64()) for i in range(4)])
    with (pa.ipc.new_file if file else pa.ipc.new_stream)(
        sink, schema, options=pa.ipc.IpcWriteOptions(compression="zstd")
    ) as writer:
        writer.write_batch(pa.RecordBatch.from_arrays([chunk] * 4, schema=schema))
    assert len(sink.getvalue()) < 1 << 20
    path = tmp_path / f"x.{'arrow' if file else 'arrows'}"
    path.write_bytes(sink.getvalue())
    script = f"""
import resource
resource.setrlimit(resource.RLIMIT_AS, (3 << 29, 3 << 29))
from panstream.engine.rows.row_batch import RowSchema

from panstream.errors import SourceError
from panstream.engine.sources import FileSource
try:
    list(FileSource([{str(path)!r}], RowSchema(columns={{"n": "int"}})).batches())
except SourceError as error:
    print("when unpacked" in str(error))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.stdout == "True\n", done.stderr


def delta_stream() -> bytes:
    sink = io.BytesIO()
    kind = pa.dictionary(pa.int32(), pa.string())
    options = pa.ipc.IpcWriteOptions(emit_dictionary_deltas=True)
    with pa.ipc.new_stream(sink, pa.schema([("w", kind)]), options=options) as writer:
        for words in (["a", "b"], ["a", "b", "c"]):
            array = pa.DictionaryArray.from_arrays(pa.array([0, len(words) - 1], pa.int32()), pa.array(words))
            writer.write_batch(pa.record_batch({"w": array}))
    return sink.getvalue()


def test_dictionaries_in_parts_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.arrows"
    path.write_bytes(delta_stream())
    with pytest.raises(SourceError, match="dictionaries in parts"):
        read(path, WORDS)
    with pytest.raises(SourceError, match="dictionaries in parts"):
        _read_arrow(memoryview(bytearray(delta_stream())), WORDS, rows=100)


def test_dictionaries_that_are_replaced(tmp_path: Path) -> None:
    """A stream may send another dictionary for later batches, with nulls among its words too."""
    sink = io.BytesIO()
    kind = pa.dictionary(pa.int8(), pa.string())
    with pa.ipc.new_stream(sink, pa.schema([("w", kind)])) as writer:
        for words in (["a", "b"], ["c", None]):
            array = pa.DictionaryArray.from_arrays(pa.array([0, 1, None], pa.int8()), pa.array(words))
            writer.write_batch(pa.record_batch({"w": array}))
    piece = _read_arrow(memoryview(bytearray(sink.getvalue())), WORDS, rows=100)
    assert piece.columns["w"].to_pylist() == ["a", "b", None, "c", None, None]
    path = tmp_path / "x.arrows"
    path.write_bytes(sink.getvalue())
    assert read(path, WORDS) == 6


def test_columns_that_are_not_declared_are_not_read() -> None:
    """Whatever they are: only the schema is looked at."""
    table = pa.table({"n": [1, 2], "tree": [{"a": [1]}, None], "ends": pa.RunEndEncodedArray.from_arrays([2], ["x"])})
    piece = _read_arrow(memoryview(bytearray(written(table, file=False))), SCHEMA, rows=10)
    assert piece.columns["n"].to_pylist() == [1, 2]


def test_every_cut_of_a_file_is_refused() -> None:
    data = written(pa.table({"n": list(range(50))}), file=True, chunk=20, compression="zstd")
    _check_file(pa.BufferReader(data), "x")
    for size in range(len(data)):
        with pytest.raises(SourceError, match="not Arrow IPC"):
            _check_file(pa.BufferReader(data[:size]), "x")


def test_a_checked_stream_is_the_stream() -> None:
    data = written(pa.table({"n": list(range(50)), "w": ["a", "b"] * 25}), file=False, chunk=20)
    copy = _CheckedStream(pa.BufferReader(data), "x")
    found = b""
    while part := copy.read(7):
        found += part
    assert pa.ipc.open_stream(found).read_all().equals(pa.ipc.open_stream(data).read_all())


def test_a_view_behind_a_null_is_not_followed() -> None:
    """pyarrow's full check passes over it, and its cast does not."""
    long = b"a word of more than twelve letters"
    far = struct.pack("<i4sii", 100, b"none", 7, 2**30)
    near = struct.pack("<i4sii", len(long), long[:4], 0, 0)
    buffers = [pa.py_buffer(b"\x02"), pa.py_buffer(far + near), pa.py_buffer(long)]
    views = pa.Array.from_buffers(pa.string_view(), 2, buffers)
    views.validate(full=True)
    coded = pa.DictionaryArray.from_arrays(pa.array([1, 0, 1], pa.int8()), views)
    for array in (views, coded):
        for schema in (WORDS, RowSchema(columns={"w": "string"}, user="w"), RowSchema(columns={"w": "binary"})):
            data = written(pa.table({"w": array}), file=False)
            piece = _read_arrow(memoryview(bytearray(data)), schema, rows=10)
            found = [None if each is None else str(each, "utf-8") if isinstance(each, bytes) else each
                     for each in piece.columns["w"].to_pylist()]  # fmt: skip
            words = [None, long.decode()]
            assert found == (words if array is views else [words[1], None, words[1]])


@pytest.mark.parametrize("scale", [-1, 41, 14_417_921])
def test_a_decimal_of_impossible_scale_is_refused(scale: int) -> None:
    table = pa.table({"n": pa.nulls(3, pa.decimal256(40, scale))})
    for kind in ("int", "double"):
        with pytest.raises(SourceError, match="'n' is declared"):
            _read_arrow(memoryview(bytearray(written(table, file=False))), RowSchema(columns={"n": kind}), rows=10)


@pytest.mark.parametrize("kind", [pa.decimal64(10, 1), pa.decimal128(20, 1), pa.decimal256(40, 1)], ids=str)
def test_the_least_decimal_is_refused_since_its_sign_would_turn(kind: Any) -> None:
    size = kind.bit_width // 8
    good = (7).to_bytes(size, "little")
    least = bytes(size - 1) + b"\x80"
    for data, nulls, refused in ((good + good, None, False), (good + least, None, True), (good + least, b"\1", False)):
        validity = None if nulls is None else pa.py_buffer(nulls)
        x = pa.Array.from_buffers(kind, 2, [validity, pa.py_buffer(data)])
        out = io.BytesIO()
        with pa.ipc.new_stream(out, pa.schema([("x", kind)])) as writer:
            writer.write_batch(pa.record_batch([x], names=["x"]))
        schema = RowSchema(columns={"x": "double"})
        if refused:
            with pytest.raises(SourceError):
                _read_arrow(memoryview(bytearray(out.getvalue())), schema, rows=10)
        else:
            assert len(_read_arrow(memoryview(bytearray(out.getvalue())), schema, rows=10)) == 2
