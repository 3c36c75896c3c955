"""Damaged Parquet files: what pyarrow refuses is refused here too, or read as it was written, never with other values.

A fixed set of a few hundred damaged files is tried in every run; PANSTREAM_FULL=1 tries 12,000.
"""

import io
import itertools
import os
import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from panstream.engine.rows.buffer_pool import Spare
from panstream.engine.rows.row_batch import RowSchema
from panstream.engine.sources.coalescer import _with_ids
from panstream.engine.sources.formats.parquet.file import ParquetFile
from panstream.engine.sources.formats.parquet.pages import (
    Chunk,
    Damaged,
    PageReader,
    _CutOff,
    _read_headers,
    _unpacked,
)
from panstream.errors import FeedError

SCHEMA = RowSchema(columns={"id": "string", "kind": "string"}, user="id")
ROWS = 300
FILES = 12_000 if os.environ.get("PANSTREAM_FULL") else 400
SHAPES = list(
    itertools.product(("none", "snappy", "gzip", "zstd", "brotli"), (False, True), ("1.0", "2.0"), (False, True))
)
Table = list[tuple[Any, ...]]


def written(codec: str, dictionary: bool, version: str, missing: bool) -> bytes:
    ids = [f"user-{row * row % 83}" * (1 + row % 3) for row in range(ROWS)]
    table = pa.table(
        {
            "id": [None if missing and row % 7 == 0 else each for row, each in enumerate(ids)],
            "kind": [f"k{row * 37 % 101}-{row}" for row in range(ROWS)],
        }
    )
    out = io.BytesIO()
    parquet.write_table(
        table,
        out,
        compression=codec,
        use_dictionary=["id"] if dictionary else False,
        data_page_version=version,
        data_page_size=700,
        row_group_size=150,
    )
    return out.getvalue()


def ours(path: Path, stored: bool) -> Table | None:
    rows: Table = []
    try:
        file = ParquetFile(path, SCHEMA, rows=100, ahead=False, stored_ids=stored)
    except FeedError:
        return None
    try:
        for piece in file.pieces():
            bad = piece.bad.tolist()
            columns = _with_ids(piece, SCHEMA).columns
            pairs = zip(*(columns.column(name).cast(pa.binary()).to_pylist() for name in ("id", "kind")), strict=True)
            rows += [pair for pair, skipped in zip(pairs, bad, strict=True) if not skipped]
    except FeedError:
        return None
    finally:
        file.close()
    return rows


def theirs(path: Path) -> Table | None:
    """Return what pyarrow reads, less the rows that are bad rows to us: without an id, or with other letters than
    UTF-8.
    """
    try:
        table = parquet.read_table(path, columns=["id", "kind"])
        table.validate()
    except (pa.ArrowException, OSError):
        return None
    pairs = zip(*(table.column(name).cast(pa.binary()).to_pylist() for name in ("id", "kind")), strict=True)
    return [pair for pair in pairs if pair[0] is not None and readable(pair[1])]


def readable(text: bytes | None) -> bool:
    try:
        return text is None or text.decode() is not None
    except UnicodeDecodeError:
        return False


@pytest.mark.slow
@pytest.mark.parametrize("stored", [False, True], ids=["decoded", "left in pages"])
def test_damage_never_gives_other_values_than_pyarrow_reads(tmp_path: Path, stored: bool) -> None:
    draw, path = random.Random(17), tmp_path / "f.parquet"
    files = {shape: written(*shape) for shape in SHAPES}
    sound = {}
    for shape, data in files.items():
        path.write_bytes(data)
        sound[shape] = ours(path, stored)
        assert sound[shape] == theirs(path)
    outcomes = {"refused": 0, "read": 0}
    for number in range(FILES):
        shape = SHAPES[number % len(SHAPES)]
        data = bytearray(files[shape])
        end = data.rindex(b"ARROW:schema") - 900  # pyarrow itself ends the process over some damaged footers
        for _ in range(draw.choice((1, 1, 2, 4))):
            at = draw.randrange(4, end)
            data[at] = draw.choice((data[at] ^ 1 << draw.randrange(8), draw.randrange(256), 0, 127, 128, 255))
        path.write_bytes(data)
        found, expected = ours(path, stored), theirs(path)
        outcomes["refused" if found is None else "read"] += 1
        assert found in (None, expected, sound[shape]), (number, shape)
    assert min(outcomes.values()) > FILES // 20, outcomes


def test_an_empty_table_without_a_dictionary_is_empty(tmp_path: Path) -> None:
    path = tmp_path / "empty.parquet"
    table = pa.table({"id": pa.array([], pa.string()), "kind": pa.array([], pa.string())})
    parquet.write_table(table, path, use_dictionary=False)
    assert ours(path, True) == ours(path, False) == []
    with parquet.ParquetWriter(path, table.schema, use_dictionary=False) as writer:
        writer.write_table(table)
    assert ours(path, True) == ours(path, False) == []


def test_a_list_longer_than_the_header_ends_at_once() -> None:
    booleans = bytes([0x19, 0xF1]) + b"\x80" * 5 + b"\x10"  # field 1: a list of 2**39 booleans
    for kind in (0xF1, 0xF2, 0xF5, 0xFC):
        data = bytearray(booleans)
        data[1] = kind
        with pytest.raises(_CutOff):
            _read_headers(np.frombuffer(data, np.uint8).copy(), 1)


SEED = Path(__file__).parents[5] / "fuzz" / "corpus" / "parquet" / "page-size-63-bits"


def index_page(stored: int) -> bytes:
    """Return the header of a page that readers pass over, with its size in the file."""
    number, size = 2 * stored, b""
    while number >= 128:
        size += bytes([number & 127 | 128])
        number >>= 7
    return b"\x15\x02\x15\x00\x15" + size + bytes([number]) + b"\x00"


@pytest.mark.parametrize("stored", [1 << 31, 1 << 40, (1 << 63) - 16, (1 << 63) - 1])
def test_a_size_of_more_than_31_bits_is_refused(stored: int) -> None:
    header = np.frombuffer(index_page(stored), np.uint8).copy()
    with pytest.raises(Damaged, match="described"):
        _read_headers(header, 1)
    header = np.frombuffer(index_page((1 << 31) - 1), np.uint8).copy()
    ((page,), _) = _read_headers(header, 1)
    assert page.stop == header.size + (1 << 31) - 1


def test_positions_that_wrap_do_not_make_the_reader_start_again() -> None:
    """The first page is said to have 2^63 bytes less the 16 of its header, twice: the sum is where it began."""
    for column in ("user", "n"):
        schema = RowSchema(columns={"user": "string", "n": "int"}, user=column)
        file = ParquetFile(SEED, schema, rows=1_000, ahead=False, stored_ids=True)
        with pytest.raises(FeedError, match="damaged"):
            next(file.pieces())
        file.close()


def test_no_memory_is_asked_for_beyond_the_row_group(tmp_path: Path) -> None:
    header = index_page((1 << 31) - 1)
    data = bytearray(SEED.read_bytes())
    start = data.index(index_page((1 << 63) - 16))
    data[start : start + len(header)] = header
    path = tmp_path / "f.parquet"
    path.write_bytes(data)
    with path.open("rb", buffering=0) as opened:
        reader = PageReader(opened, 1_000)
        reader.go_on(start)
        with pytest.raises(Damaged, match="beyond its row group"):
            reader.headers(Chunk(start, 400, 40, 400, None, False, True), 40)
        assert reader.raw.size < 1 << 20


@pytest.mark.parametrize("codec", ["snappy", "gzip", "zstd", "brotli"])
@pytest.mark.parametrize("told", [-700, -1, 1, 700])
def test_a_page_of_another_size_than_it_says_is_refused(codec: str, told: int) -> None:
    text = bytes(range(256)) * 4
    packed = np.frombuffer(pa.compress(text, codec, asbytes=True), np.uint8).copy()
    assert _unpacked(packed, len(text), codec, Spare()).tobytes() == text
    with pytest.raises((Damaged, pa.ArrowException, OSError)):
        _unpacked(packed, len(text) + told, codec, Spare())


def test_a_frame_that_does_not_say_its_size_is_measured() -> None:
    out = pa.BufferOutputStream()
    with pa.CompressedOutputStream(out, "zstd") as stream:
        stream.write(b"word" * 500)
    packed = np.frombuffer(out.getvalue(), np.uint8).copy()
    assert _unpacked(packed, 2000, "zstd", Spare()).tobytes() == b"word" * 500
    for size in (1999, 2001):
        with pytest.raises(Damaged):
            _unpacked(packed, size, "zstd", Spare())
