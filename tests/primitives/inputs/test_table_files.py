"""Tables in files, and the errors for files that are not tables."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from panstream.errors import InvalidBatch, InvalidParameter
from panstream.primitives.inputs.table_files import read_columns


def test_columns_of_both_formats(tmp_path: Path) -> None:
    table = pa.table({"a": [1, 2], "b": ["x", "y"], "c": [0.5, 1.5]})
    pq.write_table(table, tmp_path / "t.parquet")
    (tmp_path / "t.csv").write_text("a,b,c\n1,x,0.5\n2,y,1.5\n")
    for name in ("t.parquet", "t.csv"):
        assert read_columns(tmp_path / name, ["c", "a", "missing"]).select(["a", "c"]).equals(table.select(["a", "c"]))


@pytest.mark.parametrize(("text", "line"), [("a,b\n1,2\n3,4\n5\n6,7\n", 4), ("a,b\n1,2,secret\n", 2)])
def test_a_row_of_another_length_is_told_by_its_line(tmp_path: Path, text: str, line: int) -> None:
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(InvalidBatch, match=rf"t\.csv .* line {line} has") as caught:
        read_columns(tmp_path / "t.csv", ["a", "b"])
    assert "secret" not in str(caught.value)


def test_no_file_and_no_table(tmp_path: Path) -> None:
    with pytest.raises(InvalidParameter, match="no file"):
        read_columns(tmp_path / "none.csv", ["a"])
    (tmp_path / "t.parquet").write_bytes(b"PAR1 and so on")
    with pytest.raises(InvalidBatch, match="as a table$"):
        read_columns(tmp_path / "t.parquet", ["a"])
