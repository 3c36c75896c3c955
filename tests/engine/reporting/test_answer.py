"""With all noise off, the engine's answers to SQL over files are DuckDB's, for every aggregate, condition and
grouping.
"""

import csv
import math
import re
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from panstream.cli.commands.run import _answer_table
from panstream.engine.config.config import read_config
from panstream.engine.reporting.export import answers, write_releases
from panstream.engine.runtime.engine import Engine
from panstream.engine.runtime.ingest import ingest

ROWS = 5000
USERS = 700
COLUMNS = {
    "user": "int",
    "value": "double",
    "region": "string",
    "w": "int",
    "at": "timestamp",
    "ok": "bool",
    "age": "int",
}
BOUNDS = {"lower": 0, "upper": 64}


@pytest.fixture(scope="module")
def table() -> pa.Table:
    rng = np.random.default_rng(3)
    value = np.round(rng.uniform(0, 64, ROWS) * 64) / 64
    regions = np.array(["north", "south", "east", "west", None], object)
    minutes = np.sort(rng.integers(0, 3 * 1440, ROWS)).astype("timedelta64[m]")
    return pa.table(
        {
            "user": rng.integers(0, USERS, ROWS),
            "value": value,
            "region": pa.array(regions[rng.integers(0, 5, ROWS)]),
            "w": rng.integers(-3, 4, ROWS),
            "at": pa.array(np.datetime64("2026-03-01T00:00:00", "us") + minutes),
            "ok": rng.random(ROWS) < 0.5,
            "age": pa.array(rng.integers(0, 90, ROWS), mask=rng.random(ROWS) < 0.1),
        }
    )


def quoted(sql: str) -> str:
    """Return the statement with quotes around names that are DuckDB's own words."""
    return re.sub(r"\b(user|at)\b", r'"\1"', sql)


def ask(table: pa.Table, sql: str) -> list[tuple[Any, ...]]:
    """Return DuckDB's rows."""
    with duckdb.connect() as connection:
        connection.register("s", table)
        return connection.execute(sql).fetchall()


def run(table: pa.Table, directory: Path, ending: str, query: dict[str, Any], **stream: Any) -> list[dict[str, Any]]:
    path = directory / f"rows.{ending}"
    if ending == "csv":
        pyarrow.csv.write_csv(table, path)
    else:
        pyarrow.parquet.write_table(table, path, row_group_size=1300)
    config = read_config(
        {
            "stream": {"name": "s", "columns": COLUMNS, "user": "user", **stream},
            "query": [{"name": "q", "epsilon": 1.0, **query}],
            "store": {"batch_rows": 777},
        }
    )
    with Engine(config, zero_noise=True) as engine:
        assert ingest(engine, [str(path)]).rows == ROWS
        engine.finish()
        return list(answers(engine)) if "window" not in query else [r.record for r in engine.log.history("q")]


CONDITIONS = [
    "",
    "WHERE region = 'north'",
    "WHERE region IS NULL OR region <> 'north'",
    "WHERE value > 20 AND value <= 40 AND ok",
    "WHERE region IN ('north', 'east') AND age BETWEEN 18 AND 65",
    "WHERE upper(region) LIKE '%TH' AND value * 2 + age > 50",
    "WHERE CASE WHEN ok THEN value ELSE 0 END > 30",
    "WHERE at >= TIMESTAMP '2026-03-02 00:00:00'",
    "WHERE user < 100",
    "WHERE user IN (1, 5, 9) AND ok",
]


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["csv", "parquet"])
@pytest.mark.parametrize("condition", CONDITIONS)
def test_conditions(table: pa.Table, tmp_path: Path, ending: str, condition: str) -> None:
    for aggregate, settings in (("COUNT(DISTINCT user)", {"universe": USERS}), ("SUM(value)", BOUNDS)):
        sql = f"SELECT {aggregate} FROM s {condition}"
        ((truth,),) = ask(table, quoted(sql))
        (answer,) = run(table, tmp_path, ending, {"sql": sql, **settings})
        assert answer["value"] == pytest.approx(truth or 0, rel=1e-6)


@pytest.mark.parametrize(
    ("aggregate", "settings", "tolerance"),
    [
        ("COUNT(*)", {}, 0),
        ("SUM(value)", BOUNDS, 1e-3),
        ("SUM(w * 2)", {"lower": -8, "upper": 8}, 1e-3),
        ("AVG(value)", BOUNDS, 1e-3),
        ("MIN(value)", BOUNDS, 0.26),
        ("MAX(value)", BOUNDS, 0.26),
        ("QUANTILE_CONT(value, 0.3)", BOUNDS, 0.5),
        ("VAR_POP(value)", BOUNDS, 0.01),
        ("STDDEV_POP(value)", BOUNDS, 1e-3),
        ("COUNT(DISTINCT user)", {"universe": USERS}, 1e-6),
    ],
)
def test_aggregates(
    table: pa.Table, tmp_path: Path, aggregate: str, settings: dict[str, Any], tolerance: float
) -> None:
    ((truth,),) = ask(table, quoted(f"SELECT {aggregate} FROM s"))
    (answer,) = run(table, tmp_path, "parquet", {"sql": f"SELECT {aggregate} FROM s", **settings})
    assert answer["value"] == pytest.approx(float(truth), abs=tolerance)


@pytest.mark.parametrize("epsilon", [math.inf, 20.0])
def test_what_is_said_of_an_extreme_and_of_a_bracket(table: pa.Table, tmp_path: Path, epsilon: float) -> None:
    """Both are public records with words, and every way out has them."""
    queries = [
        {"name": "highest", "sql": "SELECT MAX(value) FROM s", "epsilon": 20.0, **BOUNDS},
        {
            "name": "heavy",
            "sql": "SELECT HEAVY_HITTERS(user, age, 150) FROM s WHERE age IS NOT NULL",
            "universe": USERS,
            "epsilon": 20.0,
        },
    ]
    pyarrow.csv.write_csv(table, tmp_path / "rows.csv")
    stream = {"name": "s", "user": "user", "time": "at", "columns": COLUMNS}
    config = read_config({"stream": stream, "query": queries})
    with Engine(config, zero_noise=math.isinf(epsilon)) as engine:
        ingest(engine, [str(tmp_path / "rows.csv")])
        engine.finish()
        highest, heavy = answers(engine)
        table_text = _answer_table(engine, [highest, heavy])
        write_releases(engine, tmp_path / "out.csv")
        write_releases(engine, tmp_path / "out.parquet")
    assert highest["standard_error"] is None
    assert highest["interval"] == [highest["value"], 64.0]
    assert highest["description"].startswith("at least ")
    assert isinstance(highest["at_most_beyond"], int)
    assert heavy["value"] is None is heavy["standard_error"]
    low, high = heavy["interval"]
    assert heavy["description"].startswith("between ")
    if math.isinf(epsilon):
        net = ask(table, 'SELECT count(*) FROM (SELECT sum(age) AS n FROM s GROUP BY "user") WHERE n >= 150')[0][0]
        assert low <= net <= high
        assert 63.5 <= highest["value"] <= 64.0
    assert "between" in table_text
    assert f"highest: {highest['description']}" in " ".join(table_text.split())
    rows = list(csv.DictReader((tmp_path / "out.csv").read_text().splitlines()))
    assert [row["description"] for row in rows] == [each["description"] for each in (highest, heavy)]
    assert pyarrow.parquet.read_table(tmp_path / "out.parquet")["at_most_beyond"].to_pylist() == [
        highest["at_most_beyond"],
        None,
    ]


def test_users_questions(table: pa.Table, tmp_path: Path) -> None:
    net = [int(row[0]) for row in ask(table, 'SELECT sum(w) FROM s WHERE w > 0 GROUP BY "user"')]
    positive = {"universe": USERS, "max_weight": 3}
    (cropped,) = run(table, tmp_path, "csv", {"sql": "SELECT CROPPED_SUM(user, w, 8) FROM s WHERE w > 0", **positive})
    assert cropped["value"] == pytest.approx(np.minimum(net, 8).sum(), rel=0.2)
    (density,) = run(table, tmp_path, "csv", {"sql": "SELECT DENSITY(user) FROM s WHERE ok", "universe": USERS})
    came = table.filter(pa.compute.field("ok"))["user"].unique()
    assert density["value"] == pytest.approx(len(came) / USERS)


def test_turnstile_distinct(table: pa.Table, tmp_path: Path) -> None:
    query = {"sql": "SELECT COUNT(DISTINCT user) FROM s", "universe": USERS, "max_weight": 3}
    (answer,) = run(table, tmp_path, "csv", query, weight="w")
    ((truth,),) = ask(table, 'SELECT count(*) FROM (SELECT "user" FROM s GROUP BY "user" HAVING sum(w) <> 0)')
    assert answer["value"] == pytest.approx(truth)


def test_groups(table: pa.Table, tmp_path: Path) -> None:
    sql = "SELECT region, ok, COUNT(*) FROM s WHERE value < 50 GROUP BY region, ok"
    groups = {"region": ["north", "south", "nowhere"], "ok": [True, False]}
    found = run(table, tmp_path, "parquet", {"sql": sql, "groups": groups})
    truth = {(region, ok): count for region, ok, count in ask(table, quoted(sql))}
    assert len(found) == 6
    for answer in found:
        assert answer["value"] == truth.get((answer["group"]["region"], answer["group"]["ok"]), 0)


def test_windows(table: pa.Table, tmp_path: Path) -> None:
    query = {"sql": "SELECT COUNT(DISTINCT user) FROM s WHERE ok", "universe": USERS, "window": "1 day"}
    found = run(table, tmp_path, "csv", query, time="at")
    truth = ask(table, 'SELECT count(DISTINCT "user") FROM s WHERE ok GROUP BY "at"::date ORDER BY "at"::date')
    assert [answer["value"] for answer in found] == pytest.approx([count for (count,) in truth])
    assert [answer["window"][0] for answer in found] == [f"2026-03-0{day}T00:00:00Z" for day in (1, 2, 3)]


def test_values_that_are_missing_are_skipped(table: pa.Table, tmp_path: Path) -> None:
    (answer,) = run(table, tmp_path, "csv", {"sql": "SELECT AVG(age) FROM s", "lower": 0, "upper": 128})
    assert answer["value"] == pytest.approx(ask(table, "SELECT avg(age) FROM s")[0][0], abs=1e-3)
