"""64-bit integers of Parquet files, decoded from their pages: the same as pyarrow reads, damaged files included."""

import io
import itertools
import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from panstream.engine.rows.row_batch import RowSchema
from panstream.engine.rows.undecoded_ids import StoredIds
from panstream.engine.sources.coalescer import _with_ids
from panstream.engine.sources.formats.parquet.file import ParquetFile
from panstream.errors import FeedError
from panstream.primitives.kernels.sources.parquet_pages import spread_numbers

SCHEMA = RowSchema(columns={"id": "int", "value": "int", "kind": "string"}, user="id")
ROWS, DAMAGED = 700, 150
SHAPES = list(itertools.product(("none", "snappy", "zstd", "gzip"), (False, True), ("1.0", "2.0"), (False, True)))


def written(codec: str, dictionary: bool, version: str, missing: bool) -> bytes:
    rng = np.random.default_rng(3)
    ids = rng.integers(-(2**63), 2**63 - 1, ROWS) if not dictionary else rng.integers(-40, 40, ROWS)
    values = [None if missing and row % 5 == 0 else row * row - 1000 for row in range(ROWS)]
    fields = [
        pa.field("id", pa.int64(), nullable=missing),
        pa.field("value", pa.int64()),
        pa.field("kind", pa.string()),
    ]
    table = pa.Table.from_arrays(
        [pa.array(ids), pa.array(values, pa.int64()), pa.array([f"k{row % 3}" for row in range(ROWS)])],
        schema=pa.schema(fields),
    )
    out = io.BytesIO()
    parquet.write_table(
        table,
        out,
        compression=codec,
        use_dictionary=dictionary,
        data_page_version=version,
        data_page_size=600,
        row_group_size=300,
        dictionary_pagesize_limit=400,  # so that a column goes on plainly
    )
    return out.getvalue()


def ours(path: Path, rows: int = 128, *, stored: bool = False) -> dict[str, list[int | None]] | None:
    found: dict[str, list[int | None]] = {"id": [], "value": []}
    try:
        file = ParquetFile(path, SCHEMA, rows=rows, ahead=False, stored_ids=stored)
    except FeedError:
        return None
    try:
        assert set(file._numbers) == {"id", "value"}
        for piece in file.pieces():
            assert (piece.ids is not None) == stored
            piece = _with_ids(piece, SCHEMA)
            for name, column in found.items():
                column += piece.columns.column(name).to_pylist()
            piece.wipe()
    except FeedError:
        return None
    finally:
        file.close()
    return found


@pytest.mark.parametrize(("codec", "dictionary", "version", "missing"), SHAPES)
def test_numbers_are_those_that_were_written(
    codec: str, dictionary: bool, version: str, missing: bool, tmp_path: Path
) -> None:
    path = tmp_path / "rows.parquet"
    path.write_bytes(written(codec, dictionary, version, missing))
    table = parquet.read_table(path)
    for rows, stored in itertools.product((1, 128, ROWS), (False, True)):
        assert ours(path, rows, stored=stored) == {name: table.column(name).to_pylist() for name in ("id", "value")}


@pytest.mark.parametrize("stored", [False, True], ids=["decoded", "left in pages"])
@pytest.mark.parametrize("shape", [SHAPES[5], SHAPES[6], SHAPES[12], SHAPES[3]])
def test_damaged_numbers_are_refused_or_what_pyarrow_reads(
    shape: tuple[str, bool, str, bool], stored: bool, tmp_path: Path
) -> None:
    whole, path, draw = written(*shape), tmp_path / "rows.parquet", random.Random(7)
    footer = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
    path.write_bytes(whole)
    right = ours(path, stored=stored)
    refused = 0
    for _ in range(DAMAGED):
        bad = bytearray(whole)
        for _ in range(draw.choice((1, 1, 4))):
            bad[draw.randrange(4, footer)] = draw.randrange(256)
        path.write_bytes(bad)
        found = ours(path, stored=stored)
        try:
            table = parquet.read_table(path, columns=["id", "value"])
            table.validate(full=True)
            theirs = {name: table.column(name).to_pylist() for name in ("id", "value")}
        except (pa.ArrowException, OSError):
            theirs = None
        refused += found is None
        assert found is None or found in (theirs, right)
    assert refused


@pytest.mark.parametrize("dictionary", [False, True])
@pytest.mark.parametrize("codec", ["none", "snappy", "zstd"])
def test_kept_numbers_are_those_that_pyarrow_keeps(codec: str, dictionary: bool, tmp_path: Path) -> None:
    """Every share of a page overwrites its own rows, and the last one leaves nothing of the page."""
    path, draw = tmp_path / "rows.parquet", np.random.default_rng(5)
    path.write_bytes(written(codec, dictionary, "1.0", True))
    column = parquet.read_table(path).column("id").combine_chunks()
    for rows, share in itertools.product((7, 128, ROWS), (0.0, 0.3, 1.0)):
        start, pages = 0, {}
        file = ParquetFile(path, SCHEMA, rows=rows, ahead=False, stored_ids=True)
        for piece in file.pieces():
            assert isinstance(piece.ids, StoredIds)
            early, late = piece.ids.split(rows // 3)
            pages |= {id(part.page): part.page.body for ids in (early, late) for part in ids._parts}
            for ids in (late, early):
                first = start if ids is early else start + len(early)
                here, keep = column[first : first + len(ids)], draw.random(len(ids)) < share
                if len(ids):
                    assert ids.chosen(keep).equals(here.filter(pa.array(keep)))
            start += len(piece)
            early.wipe()
            late.wipe()
        file.close()
        assert start == ROWS and pages
        assert not any(body.any() for body in pages.values())


def test_a_column_with_missing_numbers_is_not_left_in_its_pages(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    ids = [None if row == 350 else row for row in range(500)]
    parquet.write_table(pa.table({"id": pa.array(ids, pa.int64())}), path, row_group_size=100)
    file = ParquetFile(path, RowSchema(columns={"id": "int"}, user="id"), rows=100, ahead=False, stored_ids=True)
    kinds, found = [], []
    for piece in file.pieces():
        kinds.append(piece.ids is not None)
        found += (piece.columns.column("id") if piece.ids is None else piece.ids.all()).to_pylist()
    file.close()
    assert kinds == [True, True, True, False, True]
    assert found == ids


def test_numbers_are_spread_to_the_rows_that_have_one() -> None:
    rng = np.random.default_rng(1)
    for size in (1, 7, 100):
        present = rng.integers(0, 2, size).astype(np.uint8)
        numbers, wanted = np.zeros(size, np.int64), np.zeros(size, np.int64)
        count = int(present.sum())
        numbers[:count] = wanted[present.astype(bool)] = np.arange(1, count + 1)
        numbers[count:] = 99
        spread_numbers(numbers, count, present)
        assert numbers.tolist() == wanted.tolist()
