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

from panstream.engine.rows.row_batch import RowSchema
from panstream.engine.sources.formats.parquet import file as parquet_file
from panstream.engine.sources.formats.parquet.file import ParquetFile
from panstream.errors import SourceError
from panstream.primitives.kernels.sources import parquet_thrift as kernel

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


def ours(path: Path) -> Table | None:
    rows: Table = []
    try:
        file = ParquetFile(path, SCHEMA, rows=100)
    except SourceError:
        return None
    try:
        for piece in file.pieces():
            bad = piece.bad.tolist()
            pairs = zip(*(in_bytes(piece.columns.column(name)) for name in ("id", "kind")), strict=True)
            rows += [pair for pair, skipped in zip(pairs, bad, strict=True) if not skipped]
    except SourceError:
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
    pairs = zip(*(in_bytes(table.column(name)) for name in ("id", "kind")), strict=True)
    return [pair for pair in pairs if pair[0] is not None and readable(pair[1])]


def in_bytes(column: Any) -> list[bytes | None]:
    plain = column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column
    values: list[bytes | None] = plain.cast(pa.binary()).to_pylist()
    return values


def readable(text: bytes | None) -> bool:
    try:
        return text is None or text.decode() is not None
    except UnicodeDecodeError:
        return False


@pytest.mark.slow
def test_damage_never_gives_other_values_than_pyarrow_reads(tmp_path: Path) -> None:
    draw = random.Random(17)
    path = tmp_path / "f.parquet"
    files = {shape: written(*shape) for shape in SHAPES}
    sound = {}
    for shape, data in files.items():
        path.write_bytes(data)
        sound[shape] = ours(path)
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
        found = ours(path)
        expected = theirs(path)
        outcomes["refused" if found is None else "read"] += 1
        assert found in (None, expected, sound[shape]), (number, shape)
    assert min(outcomes.values()) > FILES // 20, outcomes


def test_an_empty_table_without_a_dictionary_is_empty(tmp_path: Path) -> None:
    path = tmp_path / "empty.parquet"
    table = pa.table({"id": pa.array([], pa.string()), "kind": pa.array([], pa.string())})
    parquet.write_table(table, path, use_dictionary=False)
    assert ours(path) == []
    with parquet.ParquetWriter(path, table.schema, use_dictionary=False) as writer:
        writer.write_table(table)
    assert ours(path) == []


CORPUS = Path(__file__).parents[5] / "fuzz" / "corpus" / "parquet"


def varint(number: int) -> bytes:
    out = b""
    while number >= 128:
        out += bytes([number & 127 | 128])
        number >>= 7
    return out + bytes([number])


def index_page(stored: int, size: int = 0) -> bytes:
    """Return the header of a page that readers pass over, with its sizes in the file and decompressed."""
    return b"\x15\x02\x15" + varint(2 * size) + b"\x15" + varint(2 * stored) + b"\x00"


def refuse(path: Path, column: str) -> None:
    file = ParquetFile(path, RowSchema(columns={"user": "string", "n": "int"}, user=column), rows=1_000)
    before = pa.total_allocated_bytes()
    with pytest.raises(SourceError, match=r"row group 0\) could not be read: it is cut off, damaged"):
        next(file.pieces())
    assert pa.default_memory_pool().max_memory() < before + (1 << 28)
    file.close()


def test_positions_that_wrap_do_not_make_the_reader_start_again() -> None:
    """The first page is said to have 2^63 bytes less the 16 of its header, twice: the sum is where it began."""
    for column in ("user", "n"):
        refuse(CORPUS / "page-size-63-bits", column)


@pytest.mark.parametrize("stored", [400, (1 << 31) - 1, 1 << 31, 1 << 40, (1 << 63) - 1])
@pytest.mark.parametrize("size", [0, (1 << 31) - 1, 1 << 31])
def test_no_memory_is_asked_for_beyond_the_row_group(tmp_path: Path, stored: int, size: int) -> None:
    data = bytearray((CORPUS / "page-size-63-bits").read_bytes())
    start = data.index(index_page((1 << 63) - 16))
    header = index_page(stored, size)
    data[start : start + len(header)] = header
    path = tmp_path / "f.parquet"
    path.write_bytes(data)
    refuse(path, "user")


def header_of(data: bytes) -> tuple[int, list[int]]:
    page = np.zeros(kernel.PAGE_FIELDS, np.int64)
    end = kernel.read_page_header(np.frombuffer(data, np.uint8).copy(), page)
    return int(end), page.tolist()


def test_headers_are_read_field_by_field() -> None:
    # type 0; sizes 100 and 60; a data page with 7 values, encoding 8, levels 3 and 3, statistics with text
    data = bytes.fromhex("1500 15c801 1578 2c 150e 1510 1506 1506 1c 18 03 616263 00 00 00".replace(" ", ""))
    assert header_of(data) == (len(data), [0, 100, 60, 7, 8])
    for cut in range(len(data)):
        assert header_of(data[:cut])[0] == kernel.CUT_OFF
    # The structure of a dictionary does not stand for that of a data page; the second version has its encoding later.
    assert header_of(bytes.fromhex("1500 1502 1502 4c 150e 1500 00 00".replace(" ", "")))[1][3:] == [-1, -1]
    assert header_of(bytes.fromhex("1506 1502 1502 5c 150e 1500 150e 1510 00 00".replace(" ", "")))[1][3:] == [7, 8]


@pytest.mark.parametrize(
    "data",
    [
        b"\x1c" * 80,  # structures in structures without end
        b"\x15\x00\x16\x02\x15\x02\x00",  # a size of 64 bits, which Thrift would skip
        b"\x05\x84\x80\x08\x02\x00",  # field 65,538, of which Thrift would see the lower bits
        b"\x15" + b"\xff" * 11,
        b"\x1b\x00\x00",  # a map
    ],
    ids=["deep", "wide", "far", "endless", "map"],
)
def test_headers_that_thrift_would_read_in_another_way_are_refused(data: bytes) -> None:
    assert header_of(data)[0] == kernel.DAMAGED


def test_a_list_longer_than_the_header_ends_at_once() -> None:
    booleans = bytes([0x19, 0xF1]) + b"\x80" * 5 + b"\x10"  # field 1: a list of 2**39 booleans
    for kind in (0xF1, 0xF2, 0xF5, 0xFC):
        data = bytearray(booleans)
        data[1] = kind
        assert header_of(bytes(data))[0] == kernel.CUT_OFF


def pieces_of(path: Path) -> list[int]:
    file = ParquetFile(path, RowSchema(columns={"word": "string"}), rows=200)
    try:
        return [len(piece) for piece in file.pieces()]
    finally:
        file.close()


@pytest.mark.parametrize(
    "options",
    [
        {"use_dictionary": True},
        {"use_dictionary": True, "compression": "none"},
        {"use_dictionary": False},
        {"use_dictionary": False, "column_encoding": {"word": "DELTA_BYTE_ARRAY"}},
    ],
    ids=["dictionary", "uncompressed", "plain", "delta"],
)
def test_long_strings_come_in_small_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    """A file of a kilobyte may repeat one string for gigabytes."""
    path = tmp_path / "f.parquet"
    table = pa.table({"word": ["x" * 1000, *(f"{row % 9}" for row in range(199)), *["x" * 1000] * 200]})
    parquet.write_table(table, path, data_page_size=5_000, write_batch_size=10, **options)
    assert pieces_of(path) == [200, 200]
    monkeypatch.setattr(parquet_file, "_BATCH_BYTES", 50_000)
    pieces = pieces_of(path)
    assert sum(pieces) == 400 and max(pieces) <= 50
    monkeypatch.setattr(parquet_file, "LARGEST_PAGE_BYTES", 900)
    with pytest.raises(SourceError, match="row group 0"):
        pieces_of(path)


def test_a_file_that_is_cut_off_is_refused_by_name_alone(tmp_path: Path) -> None:
    path = tmp_path / "f.parquet"
    table = pa.table({"word": ["secret-id"] * 3000})
    parquet.write_table(table, path, use_dictionary=False, compression="none", row_group_size=1000)
    file = ParquetFile(path, RowSchema(columns={"word": "string"}, user="word"), rows=10_000)
    path.write_bytes(path.read_bytes()[:20_000])  # the end, which says where everything is, was read before
    with pytest.raises(SourceError, match=r"f\.parquet \(row group 1\) could not be read: it is cut off") as refused:
        list(file.pieces())
    file.close()
    assert "secret" not in str(refused.value) and refused.value.__cause__ is None


def test_a_row_group_with_fewer_rows_than_it_says_is_refused(tmp_path: Path) -> None:
    """pyarrow gives the rows that there are, and says nothing."""
    path = tmp_path / "f.parquet"
    parquet.write_table(pa.table({"word": ["a"] * 100}), path, use_dictionary=False, write_statistics=False)
    data = path.read_bytes()
    footer = data.index(b"schema") - 10
    wrong = data[:footer] + data[footer:].replace(b"\x16\xc8\x01", b"\x16\xca\x01")  # 101, wherever it said 100
    path.write_bytes(wrong)
    with pytest.raises(SourceError, match="row group 0"):
        pieces_of(path)


def test_a_footer_that_contradicts_itself_does_not_end_the_process() -> None:
    """pyarrow's description of this file's first column calls ``std::terminate``."""
    schema = RowSchema(columns={"user": "string", "n": "int"}, user="user")
    with pytest.raises(SourceError, match="damaged"):
        file = ParquetFile(CORPUS / "contradiction", schema, rows=10)
        try:
            for rows in file.pieces():
                rows.wipe()
        finally:
            file.close()
