"""Values that pass between Arrow and NumPy as memory: the same as Arrow's own conversion, and without pandas."""

from __future__ import annotations

import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import csv

from panstream.engine.arrow import arrow_mask, boolean_bytes, null_of, numeric_view, string_array

KINDS = [pa.int8(), pa.uint8(), pa.int16(), pa.uint16(), pa.int32(), pa.uint32(), pa.int64(), pa.uint64()]
KINDS += [pa.float16(), pa.float32(), pa.float64()]


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("holes", [False, True])
def test_numbers_are_those_of_the_array(kind: Any, holes: bool) -> None:
    values = [None if holes and i % 3 == 0 else np.float16(i) if kind == pa.float16() else i for i in range(20)]
    whole = pa.array(values, kind)
    for array in (whole, whole.slice(3), whole.slice(5, 9), whole.slice(20), whole.slice(0, 0)):
        found = numeric_view(array)
        assert found.dtype == np.dtype(kind.to_pandas_dtype())
        assert found.size == len(array)
        assert [n for n, there in zip(found.tolist(), array.is_valid().to_pylist(), strict=True) if there] == [
            n for n in array.to_pylist() if n is not None
        ]


def test_other_numbers_are_converted() -> None:
    array = pa.array([Decimal(7), None, Decimal(9)], pa.decimal128(5, 0))
    assert np.asarray(numeric_view(array), np.int64)[[0, 2]].tolist() == [7, 9]


def test_truth_is_that_of_the_array_and_false_where_there_is_none() -> None:
    values = [True, None, False, True, True, None, False, False, True, True, None]
    whole = pa.array(values * 5)
    for start in range(20):
        for size in (0, 1, 7, 8, 9, 30):
            array = whole.slice(start, size)
            assert boolean_bytes(array).tolist() == [bool(each) for each in array.to_pylist()]
    plain = pa.array([True, False, True])
    assert boolean_bytes(plain.slice(1)).tolist() == [False, True]
    assert boolean_bytes(pa.array([], pa.bool_())).tolist() == []


def test_masks_nulls_and_words() -> None:
    mask = np.arange(19) % 3 == 0
    assert arrow_mask(mask).to_pylist() == mask.tolist()
    assert null_of(pa.int32()).as_py() is None
    assert null_of(pa.string()).type == pa.string()
    for words in ([], [""], ["YES", "", "größer", "\0"]):
        assert string_array(words).equals(pa.array(words, pa.string()))


CONFIG = """
[stream]
name = "visits"
user = "ip"
time = "at"
[stream.columns]
ip = "string"
symptom = "string"
age = "int"
amount = "double"
at = "timestamp"
agreed = "bool"
[[query]]
name = "visitors"
sql = "SELECT COUNT(DISTINCT ip) FROM visits WHERE symptom = 'YES' AND age >= 18 AND amount IS NOT NULL"
epsilon = 1.0
[[query]]
name = "visits"
sql = "SELECT symptom, COUNT(*) FROM visits WHERE agreed GROUP BY symptom"
groups = {symptom = ["YES", "NO"]}
epsilon = 1.0
"""


@pytest.mark.slow
def test_an_engine_runs_without_pandas(tmp_path: Path) -> None:
    """Nulls, bad rows and strings in a dictionary included; pandas is installed, or this would show nothing."""
    import pandas

    assert pandas.__version__
    rows = range(3000)
    table = pa.table(
        {
            "ip": pa.array([f"10.0.{n % 97}.{n % 7}" if n % 11 else None for n in rows]),
            "symptom": pa.array([("YES", "NO", None)[n % 3] for n in rows]).dictionary_encode(),
            "age": pa.array([n % 90 if n % 5 else None for n in rows]),
            "amount": pa.array([float("inf") if n == 7 else n / 3 if n % 13 else None for n in rows]),
            "at": pa.array([n * 1_000_000 for n in rows], pa.timestamp("us")),
            "agreed": pa.array([n % 4 == 0 if n % 17 else None for n in rows]),
        }
    )
    pq.write_table(table, tmp_path / "rows.parquet")
    csv.write_csv(table.set_column(1, "symptom", table["symptom"].cast(pa.string())), tmp_path / "rows.csv")
    (tmp_path / "panstream.toml").write_text(CONFIG)
    script = """
import sys
from panstream.engine.config.config import load_config
from panstream.engine.runtime.engine import Engine
from panstream.engine.runtime.ingest import ingest
with Engine(load_config("panstream.toml")) as engine:
    print(ingest(engine, ["rows.parquet", "rows.csv"]).rows)
    engine.finish()
print("pandas" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["6000", "False"], done.stderr
