"""64-bit integers of Parquet files, decoded from their pages: the same as pyarrow reads, damaged files included."""

import io
import itertools
import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from panstream._kernels.pages import spread_numbers
from panstream.engine.feeds.parquet import ParquetFile
from panstream.engine.rows import RowSchema
from panstream.errors import FeedError

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


def ours(path: Path, rows: int = 128) -> dict[str, list[int | None]] | None:
    found: dict[str, list[int | None]] = {"id": [], "value": []}
    try:
        file = ParquetFile(path, SCHEMA, rows=rows, ahead=False)
    except FeedError:
        return None
    try:
        assert set(file._numbers) == {"id", "value"}
        for piece in file.pieces():
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
    for rows in (1, 128, ROWS):
        assert ours(path, rows) == {name: table.column(name).to_pylist() for name in ("id", "value")}


@pytest.mark.parametrize("shape", [SHAPES[5], SHAPES[6], SHAPES[12], SHAPES[3]])
def test_damaged_numbers_are_refused_or_what_pyarrow_reads(shape: tuple[str, bool, str, bool], tmp_path: Path) -> None:
    whole, path, draw = written(*shape), tmp_path / "rows.parquet", random.Random(7)
    footer = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
    path.write_bytes(whole)
    right = ours(path)
    refused = 0
    for _ in range(DAMAGED):
        bad = bytearray(whole)
        for _ in range(draw.choice((1, 1, 4))):
            bad[draw.randrange(4, footer)] = draw.randrange(256)
        path.write_bytes(bad)
        found = ours(path)
        try:
            table = parquet.read_table(path, columns=["id", "value"])
            table.validate(full=True)
            theirs = {name: table.column(name).to_pylist() for name in ("id", "value")}
        except (pa.ArrowException, OSError):
            theirs = None
        refused += found is None
        assert found is None or found in (theirs, right)
    assert refused


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
