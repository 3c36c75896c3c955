"""Tables of every library give the same codes; what is not declared is refused by row, without its content."""

import sys
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from panstream.errors import InvalidBatch, InvalidParameter, MissingExtra
from panstream.models.networks import Bins, Domain, Records

DOMAIN = Domain(
    {"sex": ["f", "m"], "code": ["1", "2", "10"], "age": Bins([0, 18, 65, 120])}, missing={"sex": "?", "age": "unknown"}
)
COLUMNS: dict[str, list[Any]] = {
    "sex": ["f", "m", None, "f", "x"],
    "code": [1, 10, 2, 2, 1],
    "age": [0.0, 17.9, None, 120.0, 300.0],
    "note": ["is", "not", "looked", "at", "!"],
}
CODES = [[0, 1, 2, 0, 2], [0, 2, 1, 1, 0], [0, 0, 3, 2, 3]]

TABLES: dict[str, Any] = {
    "columns": COLUMNS,
    "rows": [dict(zip(COLUMNS, row, strict=True)) for row in zip(*COLUMNS.values(), strict=True)],
    "pandas": pd.DataFrame(COLUMNS),
    "pandas-object": pd.DataFrame(COLUMNS, dtype=object),
    "pandas-categorical": pd.DataFrame(COLUMNS).astype({"sex": "category"}),
    "pandas-nullable": pd.DataFrame(COLUMNS).convert_dtypes(),
    "pandas-arrow": pd.DataFrame(COLUMNS).convert_dtypes(dtype_backend="pyarrow"),
    "polars": pl.DataFrame(COLUMNS),
    "polars-categorical": pl.LazyFrame(COLUMNS).with_columns(pl.col("sex").cast(pl.Categorical)),
    "arrow": pa.table(COLUMNS),
    "arrow-chunked": pa.concat_tables([pa.table(COLUMNS).slice(0, 2), pa.table(COLUMNS).slice(2)]),
    "arrow-dictionary": pa.table({**COLUMNS, "sex": pa.array(COLUMNS["sex"]).dictionary_encode()}),
    "arrow-batch": pa.RecordBatch.from_pydict(COLUMNS),
    "numpy": {
        "sex": np.array(COLUMNS["sex"], object),
        "code": np.array(COLUMNS["code"], np.int8),
        "age": np.array([0.0, 17.9, np.nan, 120.0, 300.0], np.float32),
    },
    "text": {"sex": COLUMNS["sex"], "code": ["1", "10", "2", "2", "1"], "age": ["0", "17.9", "", "120", "unknown"]},
}


def table(kind: str) -> Any:
    """Return a table; an expression of polars starts threads, which a fork of the collecting process would not have."""
    content = TABLES[kind]
    return content.collect() if isinstance(content, pl.LazyFrame) else content


@pytest.mark.parametrize("kind", sorted(TABLES))
def test_every_kind_of_table_reads_the_same(kind: str) -> None:
    records = Records.read(table(kind), DOMAIN)
    assert records.codes.tolist() == CODES
    assert records.codes.dtype == np.uint16
    assert records.codes.flags.c_contiguous
    assert len(records) == 5


def test_floats_that_hold_whole_numbers_match_their_category() -> None:
    domain = Domain({"code": ["1", "2"]})
    assert Records.read({"code": [1.0, 2.0]}, domain).codes.tolist() == [[0, 1]]


@pytest.mark.parametrize("kind", sorted(set(TABLES) - {"text"}))
def test_what_is_not_declared_is_refused_by_row_and_not_shown(kind: str) -> None:
    strict = Domain({"sex": ["f", "m", "?"], "age": Bins([0, 18, 65, 120])})
    with pytest.raises(InvalidBatch) as refused:
        Records.read(table(kind), strict)
    assert refused.value.row == 2
    assert str(refused.value) == (
        "row 2: 'sex' must be one of the declared categories, or declare other = true for all others"
    )


def test_a_number_outside_the_edges_is_refused_by_row() -> None:
    with pytest.raises(InvalidBatch, match="row 1: 'age' must be a number inside the declared edges") as refused:
        Records.read({"age": [3, 321]}, Domain({"age": Bins([0, 120])}))
    assert "321" not in str(refused.value)
    with pytest.raises(InvalidBatch, match="row 1: 'age' must hold numbers"):
        Records.read({"age": ["3", "secret"]}, Domain({"age": Bins([0, 120])}))


def test_shapes_are_checked() -> None:
    domain = Domain({"a": ["x", "y"], "b": ["x"]})
    with pytest.raises(InvalidBatch, match="no column 'b'"):
        Records.read({"a": ["x"]}, domain)
    with pytest.raises(InvalidBatch, match="as long as the others"):
        Records.read({"a": ["x"], "b": ["x", "x"]}, domain)
    with pytest.raises(InvalidBatch, match="mapping of columns"):
        Records.read(3, domain)
    with pytest.raises(InvalidBatch, match="shape"):
        Records(domain, np.zeros((3, 2), np.uint16))
    with pytest.raises(InvalidBatch, match="integers"):
        Records(domain, np.zeros((2, 2)))  # type: ignore[arg-type]
    with pytest.raises(InvalidBatch, match="row 1: codes of 'a' must be in 0..1"):
        Records(domain, np.array([[0, 2], [0, 0]]))  # type: ignore[arg-type]
    with pytest.raises(InvalidBatch, match="row 0"):
        Records(domain, np.array([[-1, 1], [0, 0]]))  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["polars", "arrow"])
def test_without_pyarrow_the_command_is_told(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtra, match="-m pip install 'pyarrow"):
        Records.read(table(kind), DOMAIN)


def test_nothing_of_the_records_is_shown() -> None:
    assert repr(Records.read(COLUMNS, DOMAIN)) == "Records(3 attributes)"


@given(st.lists(st.tuples(st.sampled_from("fm?"), st.integers(0, 2)), max_size=20), st.integers(1, 4))
def test_labels_come_back_and_parts_hold_everything_once(rows: list[tuple[str, int]], parts: int) -> None:
    domain = Domain({"sex": ["f", "m", "?"], "n": ["0", "1", "2"]})
    columns = {"sex": [row[0] for row in rows], "n": [str(row[1]) for row in rows]}
    records = Records.read(columns, domain)
    assert records.to_columns() == columns
    split = records.split(parts)
    assert sorted(map(len, split)) == sorted(len(rows) // parts + (at < len(rows) % parts) for at in range(parts))
    assert [part.codes.tolist() for part in split] == [records.codes[:, at::parts].tolist() for at in range(parts)]
    assert records.take(np.arange(len(rows))[::-1]).codes.tolist() == records.codes[:, ::-1].tolist()
    assert records.select((1,)).to_columns() == {"n": columns["n"]}


def test_parts_must_be_positive() -> None:
    with pytest.raises(InvalidParameter, match="parts"):
        Records.read(COLUMNS, DOMAIN).split(0)
