"""Functions for columns of published sketches, in pandas, DuckDB and on a Parquet file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from panstream import Monitor
from panstream.algorithms.distinct import Sketch, SketchBitmap
from panstream.algorithms.distinct.sketch_functions import (
    register_duckdb,
    register_spark,
    sketch_count,
    sketch_overlap,
    sketch_union,
)
from panstream.errors import InvalidBytes, InvalidParameter
from panstream.primitives.noise import SeededSource


@pytest.fixture(scope="module")
def weeks() -> list[bytes]:
    sketches = []
    rng = SeededSource(31)
    for week in range(3):
        monitor = Monitor(SketchBitmap(epsilon=4.0, buckets=4096, levels=12), rng=rng)
        monitor.update(range(1000 * week, 1000 * week + 2000))
        monitor.release()
        sketches.append(Sketch.of(monitor, "site").to_bytes())
    return sketches


def test_the_functions_return_value_and_interval(weeks: list[bytes]) -> None:
    for figures, truth in (
        (sketch_count(weeks[0]), 2000),
        (sketch_overlap(*weeks[:2]), 1000),
        (sketch_union(weeks), 4000),
    ):
        assert figures["low"] < figures["value"] < figures["high"]
        assert abs(figures["value"] - truth) < 2 * (figures["high"] - figures["low"])
    with pytest.raises(InvalidParameter, match="at least one"):
        sketch_union([])
    with pytest.raises(InvalidBytes):
        sketch_count(b"no sketch")


def test_a_column_of_pandas(weeks: list[bytes]) -> None:
    pandas = pytest.importorskip("pandas")
    counts = pandas.Series(weeks).map(sketch_count)
    assert [figures["value"] for figures in counts] == [sketch_count(week)["value"] for week in weeks]


def test_sql_of_duckdb(weeks: list[bytes]) -> None:
    duckdb = pytest.importorskip("duckdb")
    with duckdb.connect() as connection:
        register_duckdb(connection)
        connection.execute("CREATE TABLE weeks (week INTEGER, sketch BLOB)")
        connection.executemany("INSERT INTO weeks VALUES (?, ?)", list(enumerate(weeks)))
        rows = connection.execute("SELECT sketch_count(sketch).value FROM weeks ORDER BY week").fetchall()
        assert [value for (value,) in rows] == [sketch_count(week)["value"] for week in weeks]
        sql = "SELECT sketch_overlap(a.sketch, b.sketch) FROM weeks a, weeks b WHERE a.week = 0 AND b.week = 1"
        assert connection.execute(sql).fetchone()[0] == sketch_overlap(*weeks[:2])
        sql = "SELECT sketch_union(list(sketch ORDER BY week)).high FROM weeks"
        assert connection.execute(sql).fetchone()[0] == sketch_union(weeks)["high"]


def test_functions_of_spark_take_its_bytearrays(weeks: list[bytes]) -> None:
    """A double of the session: what is registered gets bytearrays, and lists of them, from Spark's workers."""

    class Session:
        registered: dict[str, Any] = {}  # noqa: RUF012

        @property
        def udf(self) -> Any:
            return self

        def register(self, name: str, function: Any, kind: str) -> None:
            assert kind == "STRUCT<value: DOUBLE, low: DOUBLE, high: DOUBLE>"
            self.registered[name] = function

    session = Session()
    register_spark(session)
    arrays = [bytearray(week) for week in weeks]
    assert session.registered["sketch_overlap"](*arrays[:2]) == sketch_overlap(*weeks[:2])
    assert session.registered["sketch_union"](arrays) == sketch_union(weeks)


def test_a_parquet_file_has_the_bytes(tmp_path: Path, weeks: list[bytes]) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    from panstream.engine.reporting.sketch_store import StoredSketch, write_sketches

    fields = {name: getattr(Sketch.from_bytes(weeks[0]), name) for name in Sketch.__dataclass_fields__}
    dated = Sketch(**fields | {"start": 0.0, "end": 604_800.0})
    write_sketches([StoredSketch("weeks", dated)], tmp_path / "s.parquet")
    (row,) = parquet.read_table(tmp_path / "s.parquet").to_pylist()
    assert row["name"] == "weeks"
    assert row["end"].isoformat() == "1970-01-08T00:00:00+00:00"
    assert sketch_count(row["sketch"]) == sketch_count(weeks[0])
