"""What a footer says of columns, against pyarrow; and footers that say nothing sensible are refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from panstream.engine.rows.row_batch import RowSchema
from panstream.engine.sources.formats.parquet._footer import KINDS, read_footer
from panstream.engine.sources.formats.parquet.file import ParquetFile
from panstream.engine.sources.formats.parquet.pages import Damaged
from panstream.errors import FeedError
from panstream.primitives.kernels.sources import parquet_footer as kernel

CODECS = {"UNCOMPRESSED": 0, "SNAPPY": 1, "GZIP": 2, "BROTLI": 4, "ZSTD": 6, "LZ4": 7}
ENCODINGS = {"PLAIN": 0, "PLAIN_DICTIONARY": 2, "RLE": 3, "DELTA_BINARY_PACKED": 5, "RLE_DICTIONARY": 8}
CONTRADICTION = Path(__file__).parents[5] / "fuzz" / "corpus" / "parquet" / "contradiction"


def described(part: Any) -> dict[int, int]:
    """Return what pyarrow says of a column, where the kernel puts it."""
    return {
        kernel.ELSEWHERE: 0,
        kernel.KIND: KINDS.get(part.physical_type, -7),
        kernel.ENCODINGS: sum(1 << ENCODINGS[name] for name in set(part.encodings)),
        kernel.CODEC: CODECS[part.compression],
        kernel.VALUES: part.num_values,
        kernel.SIZE: part.total_uncompressed_size,
        kernel.STORED: part.total_compressed_size,
        kernel.DATA: part.data_page_offset,
        kernel.DICTIONARY: part.dictionary_page_offset if part.has_dictionary_page else kernel.ABSENT,
        kernel.MISSING: part.statistics.null_count if part.is_stats_set else kernel.ABSENT,
    }


@pytest.mark.parametrize("codec", ["none", "snappy", "gzip", "brotli", "zstd", "lz4"])
@pytest.mark.parametrize("groups", [1, 7])
@pytest.mark.parametrize("statistics", [False, True])
def test_it_is_read_as_pyarrow_reads_it(tmp_path: Path, codec: str, groups: int, statistics: bool) -> None:
    path, columns = tmp_path / "rows.parquet", {f"c{i}": list(range(70)) for i in range(20)}  # lists of 15 and more
    table = pa.table({"user": ["ann", None] * 35, "n": range(70), **columns})
    encoding = {"n": "DELTA_BINARY_PACKED"}
    parquet.write_table(
        table,
        path,
        compression=codec,
        row_group_size=70 // groups,
        write_statistics=statistics,
        use_dictionary=["user"],
        column_encoding=encoding,
    )
    metadata = parquet.read_metadata(path)
    found = read_footer(path, metadata.num_row_groups, metadata.num_columns)
    assert found.rows.tolist() == [70 // groups] * groups
    for group in range(groups):
        for column in range(metadata.num_columns):
            numbers = found.numbers[group, column].tolist()
            part = metadata.row_group(group).column(column)
            assert {place: numbers[place] for place in described(part)} == described(part)


def written(path: Path) -> bytes:
    parquet.write_table(pa.table({"user": ["ann", "bob"], "n": [1, 2]}), path)
    return path.read_bytes()


def test_a_footer_that_ends_anywhere_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    whole = written(path)
    size = int.from_bytes(whole[-8:-4], "little")
    footer = np.frombuffer(whole[-8 - size : -8], np.uint8).copy()
    rows, numbers = np.zeros(1, np.int64), np.zeros((1, 2, kernel.PLACES), np.int64)
    assert kernel.read_footer(footer, rows, numbers) == size
    for end in range(size):
        assert kernel.read_footer(footer[:end], rows, numbers) < 0


def test_another_number_of_groups_or_columns_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    written(path)
    for groups, columns in ((0, 2), (2, 2), (1, 1), (1, 3), (1 << 20, 1 << 20)):
        with pytest.raises(Damaged):
            read_footer(path, groups, columns)


@pytest.mark.parametrize("data", [b"", b"PAR1", b"\xff\xff\xff\x7fPAR1", b"\x00\x00\x00\x00PARE"], ids=range(4))
def test_a_file_without_a_footer_is_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "rows.parquet"
    path.write_bytes(data)
    with pytest.raises(Damaged):
        read_footer(path, 1, 1)


def test_bent_footers_never_lead_astray(tmp_path: Path) -> None:
    """Every byte, changed in four ways: refused, or read to an end that is in the footer."""
    whole = written(tmp_path / "rows.parquet")
    size = int.from_bytes(whole[-8:-4], "little")
    rows, numbers = np.zeros(1, np.int64), np.zeros((1, 2, kernel.PLACES), np.int64)
    for at in range(size):
        for change in (1, 15, 128, 255):
            footer = np.frombuffer(whole[-8 - size : -8], np.uint8).copy().copy()
            footer[at] ^= change
            assert kernel.read_footer(footer, rows, numbers) <= size


def test_a_footer_that_contradicts_itself_does_not_end_the_process(tmp_path: Path) -> None:
    """pyarrow's description of this file's first column calls ``std::terminate``."""
    schema = RowSchema(columns={"user": "string", "n": "int"}, user="user")
    with pytest.raises(FeedError, match="damaged"):
        file = ParquetFile(CONTRADICTION, schema, rows=10)
        try:
            for rows in file.pieces():
                rows.wipe()
        finally:
            file.close()
