"""What a footer says of columns, against pyarrow; and footers that say nothing sensible are refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from panstream.errors import InvalidBatch
from panstream.primitives.inputs.parquet_footer import CorruptParquet, read_footer
from panstream.primitives.inputs.table_files import read_columns, read_header
from panstream.primitives.kernels.sources import parquet_thrift as kernel

CODECS = {"UNCOMPRESSED": 0, "SNAPPY": 1, "GZIP": 2, "BROTLI": 4, "ZSTD": 6, "LZ4": 7}
TYPES = {"INT64": 2, "BYTE_ARRAY": 6}


def described(part: Any) -> dict[int, int]:
    """Return what pyarrow says of a column, where the kernel puts it."""
    return {
        kernel.ELSEWHERE: 0,
        kernel.TYPE: TYPES[part.physical_type],
        kernel.CODEC: CODECS[part.compression],
        kernel.VALUES: part.num_values,
        kernel.SIZE: part.total_uncompressed_size,
        kernel.STORED: part.total_compressed_size,
        kernel.DATA: part.data_page_offset,
        kernel.DICTIONARY: part.dictionary_page_offset if part.has_dictionary_page else kernel.ABSENT,
    }


@pytest.mark.parametrize("codec", ["none", "snappy", "gzip", "brotli", "zstd", "lz4"])
@pytest.mark.parametrize("groups", [1, 7])
@pytest.mark.parametrize("statistics", [False, True])
def test_it_is_read_as_pyarrow_reads_it(tmp_path: Path, codec: str, groups: int, statistics: bool) -> None:
    # Lists of 15 and more
    path = tmp_path / "rows.parquet"
    columns = {f"c{i}": list(range(70)) for i in range(20)}
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
    found = read_footer(path)
    assert found.rows == [70 // groups] * groups
    assert found.columns.shape[:2] == (groups, metadata.num_columns)
    for group in range(groups):
        for column in range(metadata.num_columns):
            numbers = found.columns[group, column].tolist()
            part = metadata.row_group(group).column(column)
            assert {place: numbers[place] for place in described(part)} == described(part)


def written(path: Path) -> bytes:
    parquet.write_table(pa.table({"user": ["ann", "bob"], "n": [1, 2]}), path)
    return path.read_bytes()


def footer_of(file: bytes) -> Any:
    size = int.from_bytes(file[-8:-4], "little")
    return np.frombuffer(file[-8 - size : -8], np.uint8).copy()


def test_a_nested_schema_is_counted_by_its_leaves(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    rows = [{"a": 1, "b": [{"c": "x", "d": {"e": 2.0}}], "f": {"g": [[1], [2, 3]]}, "h": None}]
    parquet.write_table(pa.Table.from_pylist(rows), path)
    assert read_footer(path).columns.shape[1] == parquet.read_metadata(path).num_columns


def test_a_footer_that_ends_anywhere_is_refused(tmp_path: Path) -> None:
    footer = footer_of(written(tmp_path / "rows.parquet"))
    rows = np.zeros(1, np.int64)
    columns = np.zeros((1, 2, kernel.COLUMN_FIELDS), np.int64)
    assert kernel.count_footer(footer) == (1, 2, footer.size)
    assert kernel.read_footer(footer, rows, columns) == footer.size
    for end in range(footer.size):
        assert kernel.count_footer(footer[:end])[2] < 0
        assert kernel.read_footer(footer[:end], rows, columns) < 0


def test_another_number_of_groups_or_columns_is_refused(tmp_path: Path) -> None:
    footer = footer_of(written(tmp_path / "rows.parquet"))
    for groups, columns in ((0, 2), (2, 2), (1, 1), (1, 3)):
        numbers = np.zeros((groups, columns, kernel.COLUMN_FIELDS), np.int64)
        assert kernel.read_footer(footer, np.zeros(groups, np.int64), numbers) < 0


@pytest.mark.parametrize("data", [b"", b"PAR1", b"\xff\xff\xff\x7fPAR1", b"\x00\x00\x00\x00PARE"], ids=range(4))
def test_a_file_without_a_footer_is_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "rows.parquet"
    path.write_bytes(data)
    with pytest.raises(CorruptParquet):
        read_footer(path)


def test_altered_footers_never_lead_astray(tmp_path: Path) -> None:
    """Every byte, changed in four ways: refused, or read to an end that is in the footer."""
    whole = footer_of(written(tmp_path / "rows.parquet"))
    rows = np.zeros(1, np.int64)
    columns = np.zeros((1, 2, kernel.COLUMN_FIELDS), np.int64)
    for at in range(whole.size):
        for change in (1, 15, 128, 255):
            footer = whole.copy()
            footer[at] ^= change
            assert kernel.count_footer(footer)[2] <= footer.size
            assert kernel.read_footer(footer, rows, columns) <= footer.size


def group_element(children: int) -> bytes:
    return b"\x35\x02\x18\x01g\x15" + bytes([2 * children]) + b"\x00"


@pytest.mark.parametrize(("depth", "elements"), [(60, 62), (64, 66), (5000, 5002), (3, 4), (3, 6)])
def test_deep_and_contradictory_schemas_are_refused(tmp_path: Path, depth: int, elements: int) -> None:
    """Older releases of pyarrow overflow the stack over 100,000 groups in groups."""
    leaf = b"\x15\x04\x25\x02\x18\x01x\x00"
    count = bytes([elements << 4 | 12]) if elements < 15 else bytes([0xFC, elements & 127 | 128, elements >> 7])
    footer = b"\x15\x02\x19" + count + group_element(1) * (depth + 1) + 3 * leaf + b"\x16\x00\x19\x0c\x00"
    if depth == 60:
        footer = footer.replace(3 * leaf, leaf)
    path = tmp_path / "rows.parquet"
    path.write_bytes(b"PAR1" + footer + len(footer).to_bytes(4, "little") + b"PAR1")
    if depth == 60:
        assert read_footer(path).rows == []
        return
    with pytest.raises(CorruptParquet):
        read_footer(path)
    with pytest.raises(InvalidBatch, match="cannot be read as a table"):
        read_header(path)
    with pytest.raises(InvalidBatch, match="cannot be read as a table"):
        read_columns(path, ["x"])
