"""Columns of strings in Parquet files, decoded by us: pyarrow's own reader is the oracle."""

from __future__ import annotations

import gc
import itertools
import math
import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from panstream.engine.rows.row_batch import RowSchema
from panstream.engine.sources.formats.parquet import _string_columns as cursor
from panstream.engine.sources.formats.parquet._footer import read_footer
from panstream.engine.sources.formats.parquet._page_stream import pages_of
from panstream.engine.sources.formats.parquet._string_columns import Cursor, StringColumn
from panstream.engine.sources.formats.parquet.file import ParquetFile, _chunks_of
from panstream.engine.sources.formats.parquet.pages import Chunk, Damaged, _CutOff, _read_headers
from panstream.errors import FeedError

CODECS = ["none", "snappy", "gzip", "zstd", "brotli"]
SCHEMA = RowSchema(columns={"word": "string", "number": "int"}, user=None)


def words(count: int, seed: int, *, nulls: float = 0.1, kinds: int = 400) -> list[str | None]:
    """Return strings of many lengths, among them empty ones, letters of four bytes and missing values."""
    draw = random.Random(seed)
    known = ["".join(draw.choice("aé€😀z") for _ in range(int(draw.expovariate(0.1)))) for _ in range(kinds)]
    return [None if draw.random() < nulls else draw.choice(known) for _ in range(count)]


def written(path: Path, column: pa.Array, **options: Any) -> Path:
    """Write a file with two columns and small pages."""
    table = pa.table({"number": pa.array(range(len(column)), pa.int64()), "word": column})
    parquet.write_table(table, path, **{"data_page_size": 600, "write_batch_size": 50, **options})
    return path


def chunks_in(path: Path) -> list[Chunk] | None:
    metadata = parquet.read_metadata(path)
    footer = read_footer(path, metadata.num_row_groups, metadata.num_columns)
    return _chunks_of(metadata, footer, "word", "BYTE_ARRAY")


def read(path: Path, rows: int) -> pa.Array:
    """Return the column as our decoder reads it."""
    chunks = chunks_in(path)
    assert chunks is not None
    column = StringColumn(Cursor(path, chunks))
    total = sum(chunk.rows for chunk in chunks)
    try:
        found = [column.take(min(rows, total - start)) for start in range(0, total, rows)]
    finally:
        column.close()
    for part in found:
        part.validate(full=True)
    return pa.chunked_array(found, pa.string()).combine_chunks()


@pytest.mark.slow
@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("dictionary", [False, True])
@pytest.mark.parametrize("codec", CODECS)
def test_every_way_of_writing_is_read_as_pyarrow_reads_it(
    tmp_path: Path, codec: str, dictionary: bool, version: str
) -> None:
    column = pa.array(words(3000, 1), pa.string())
    path = written(
        tmp_path / "f.parquet",
        column,
        compression=codec,
        use_dictionary=dictionary,
        data_page_version=version,
        row_group_size=1100,
        dictionary_pagesize_limit=3000,
    )
    for rows in (1, 7, 333, 10_000):
        assert read(path, rows).equals(column), rows


@pytest.mark.parametrize(
    "column",
    [
        pa.array([], pa.string()),
        pa.array([None] * 70, pa.string()),
        pa.array([""] * 70, pa.string()),
        pa.array(["x" * 5000, None, "", "y"] * 9, pa.string()),
        pa.array([str(number) for number in range(3000)], pa.string()),
    ],
    ids=["no rows", "all missing", "all empty", "longer than a page", "all different"],
)
@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_columns_at_the_edge(tmp_path: Path, column: pa.Array, version: str) -> None:
    path = written(tmp_path / "f.parquet", column, data_page_version=version)
    assert read(path, 17).equals(column)


def test_a_column_that_must_have_values_has_no_levels(tmp_path: Path) -> None:
    column = pa.array(words(500, 2, nulls=0.0), pa.string())
    table = pa.table([column], schema=pa.schema([pa.field("word", pa.string(), nullable=False)]))
    for version in ("1.0", "2.0"):
        parquet.write_table(table, tmp_path / "f.parquet", data_page_version=version, data_page_size=500)
        assert read(tmp_path / "f.parquet", 99).equals(column)


def test_a_file_is_read_with_its_other_columns_and_from_any_row_group(tmp_path: Path) -> None:
    column = pa.array(words(2000, 3), pa.string())
    path = written(tmp_path / "f.parquet", column, row_group_size=300)
    for skipped in (0, 299, 300, 1700):
        file = ParquetFile(path, SCHEMA, rows=128)
        start = file.skip(skipped)
        assert start == skipped // 300 * 300
        found = pa.Table.from_batches([piece.columns for piece in file.pieces()])
        file.close()
        assert found.column("word").combine_chunks().equals(column[start:])
        assert found.column("number").to_pylist() == list(range(start, 2000))


def test_other_encodings_and_nested_columns_are_left_to_pyarrow(tmp_path: Path) -> None:
    column = pa.array(words(400, 4), pa.string())
    path = written(
        tmp_path / "delta.parquet", column, use_dictionary=False, column_encoding={"word": "DELTA_BYTE_ARRAY"}
    )
    assert chunks_in(path) is None
    file = ParquetFile(path, SCHEMA, rows=128)
    found = pa.Table.from_batches([piece.columns for piece in file.pieces()])
    file.close()
    assert found.column("word").combine_chunks().equals(column)
    lists = tmp_path / "lists.parquet"
    parquet.write_table(pa.table({"word": pa.array([["a"], ["b", "c"]])}), lists)
    assert chunks_in(lists) is None


@pytest.mark.slow
def test_a_damaged_file_is_refused_or_read_but_nothing_worse(tmp_path: Path) -> None:
    column = pa.array([f"word-{number % 90}" for number in range(800)], pa.string())
    draw = random.Random(5)
    outcomes = {"read": 0, "refused": 0}
    for codec, version, dictionary in itertools.product(("none", "snappy"), ("1.0", "2.0"), (False, True)):
        path = written(
            tmp_path / "f.parquet", column, compression=codec, data_page_version=version, use_dictionary=dictionary
        )
        whole = bytearray(path.read_bytes())
        chunks = chunks_in(path)
        assert chunks is not None
        for _ in range(60):
            broken = whole.copy()
            for _ in range(draw.choice((1, 3))):
                broken[draw.randrange(chunks[0].start, len(whole) - 600)] = draw.choice((0, 1, 127, 128, 255))
            path.write_bytes(broken)
            try:
                column_read = StringColumn(Cursor(path, chunks))
                try:
                    column_read.take(800)
                finally:
                    column_read.close()
                outcomes["read"] += 1
            except (Damaged, pa.ArrowException, OSError):
                outcomes["refused"] += 1
    assert min(outcomes.values()) > 20, outcomes


def test_a_file_that_is_cut_off_is_refused_by_name_alone(tmp_path: Path) -> None:
    path = written(tmp_path / "f.parquet", pa.array(["secret-id"] * 3000), use_dictionary=False, compression="none")
    schema = RowSchema(columns={"word": "string"}, user="word")
    file = ParquetFile(path, schema, rows=10_000)
    path.write_bytes(path.read_bytes()[:2000])  # the end, which says where everything is, was read before
    with pytest.raises(FeedError, match="cut off, damaged") as refused:
        list(file.pieces())
    file.close()
    assert "secret" not in str(refused.value) and refused.value.__cause__ is None


def test_pages_and_dictionaries_are_overwritten_when_their_rows_are_given_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path / "f.parquet", pa.array(words(900, 6, nulls=0.0)), dictionary_pagesize_limit=2000)
    kept = []

    def remembered(*arguments: Any) -> Any:
        for page in pages_of(*arguments):
            kept.append(page.body)
            yield page

    monkeypatch.setattr(cursor, "pages_of", remembered)
    chunks = chunks_in(path)
    assert chunks is not None
    place = Cursor(path, chunks)
    column = StringColumn(place)
    column.take(900)
    dictionary = place.words
    assert dictionary.any()
    column.close()
    assert len(kept) > 5 and not any(body.any() for body in kept) and not dictionary.any()


def test_rows_that_were_taken_have_nothing_of_those_behind_them(tmp_path: Path) -> None:
    path = written(tmp_path / "f.parquet", pa.array([f"{i:05d}" for i in range(200)]), use_dictionary=False)
    chunks = chunks_in(path)
    assert chunks is not None
    column = StringColumn(Cursor(path, chunks))
    taken = column.take(10)
    column.close()
    data = taken.buffers()[2].to_pybytes()
    assert data.startswith(b"000000000100002") and b"00010" not in data[5 * 10 :]


def test_a_column_closed_early_leaves_no_thread_and_no_page(tmp_path: Path) -> None:
    import threading

    path = written(tmp_path / "f.parquet", pa.array(words(3000, 7)))
    before = set(threading.enumerate())
    chunks = chunks_in(path)
    assert chunks is not None
    column = StringColumn(Cursor(path, chunks))
    column.take(10)
    column.close()
    assert set(threading.enumerate()) <= before


def test_headers_are_read_field_by_field() -> None:
    # type 0; sizes 100 and 60; a data page with 7 values, encoding 8, levels 3 and 3, statistics with text
    data = bytes.fromhex("1500 15c801 1578 2c 150e 1510 1506 1506 1c 18 03 616263 00 00 00".replace(" ", ""))
    (header,), _ = _read_headers(np.frombuffer(data, np.uint8).copy(), 1000)
    assert (header.kind, header.size, header.values, header.encoding) == (0, 100, 7, 8)
    assert (header.start, header.stop) == (len(data), len(data) + 60)
    for cut in range(len(data)):
        with pytest.raises(_CutOff):
            _read_headers(np.frombuffer(data[:cut], np.uint8).copy(), 1000)
    with pytest.raises(Damaged):
        _read_headers(np.frombuffer(bytes.fromhex("1501" + "00"), np.uint8).copy(), 1000)  # a negative type
    with pytest.raises(Damaged):
        _read_headers(np.frombuffer(b"\x1c" * 40, np.uint8).copy(), 1000)  # structures in structures without end


@pytest.mark.parametrize("width", [1, 2, 3, 7, 8, 9, 17, 31, 32])
def test_runs_are_decoded_as_the_format_describes_them(width: int) -> None:
    """Every number is written by hand, as bits of one large number, and in runs of one value."""
    from panstream.primitives.kernels.sources.parquet_pages import decode_runs

    draw = random.Random(width)
    values = [draw.getrandbits(width) for _ in range(24)]
    packed = sum(value << (at * width) for at, value in enumerate(values)).to_bytes(3 * width, "little")
    repeated = draw.getrandbits(width)
    page = (
        bytes([3 << 1 | 1])
        + packed
        + bytes([200 & 127 | 128, 200 >> 7])
        + repeated.to_bytes(math.ceil(width / 8), "little")
    )
    out = np.empty(24 + 90, np.int64)
    assert decode_runs(np.frombuffer(page, np.uint8).copy(), 0, width, out) == len(page)
    assert out.tolist() == values + [repeated] * 90
    for cut in range(len(page)):
        assert decode_runs(np.frombuffer(page[:cut], np.uint8).copy(), 0, width, out) == -1, cut


@pytest.mark.slow
def test_the_footer_is_gone_with_the_file(tmp_path: Path) -> None:
    """It holds the smallest and the largest id of every row group."""
    path = tmp_path / "ids.parquet"
    parquet.write_table(pa.table({"word": [f"id-{number}" for number in range(100)]}), path)
    gc.collect()
    gc.disable()
    try:
        file = ParquetFile(path, RowSchema(columns={"word": "string"}, user="word"), rows=30)
        assert sum(len(piece) for piece in file.pieces()) == 100
        file.close()
        del file
        assert not [each for each in gc.get_objects() if isinstance(each, parquet.FileMetaData)]
    finally:
        gc.enable()
