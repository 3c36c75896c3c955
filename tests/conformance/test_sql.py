"""The SQL that is accepted, with DuckDB's answers on the same rows, and the SQL that is refused, with the reason."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from panstream.engine.config.config import read_config
from panstream.engine.planner.query_plan import plan_all
from panstream.engine.reporting.export import answers
from panstream.engine.runtime.engine import Engine
from panstream.engine.runtime.ingest import ingest
from panstream.engine.runtime.selector import Selector
from panstream.errors import ConfigError

HERE = Path(__file__).parent / "sql"
ROWS = 900
COLUMNS = {
    "visitor": "int",
    "page": "string",
    "country": "string",
    "amount": "double",
    "age": "int",
    "ok": "bool",
    "moment": "timestamp",
    "day": "date",
    "note": "string",
    "score": "double",
}
ASIDE = {"sql", "duckdb", "within", "states", "refused", "at"}


def statements(file: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = tomllib.loads((HERE / file).read_text("utf-8"))["statement"]
    return found


ACCEPTED = [each for each in statements("accepted.toml") if "refused" not in each]
REFUSED = statements("refused.toml") + [
    {"sql": each["sql"], "says": each["refused"], "at": each["at"]}
    for each in statements("accepted.toml")
    if "refused" in each
]


def stream(*queries: dict[str, Any]) -> dict[str, Any]:
    derived = {"section": "split_part(page, '/', 2)"}
    return {
        "stream": {"name": "s", "columns": COLUMNS, "user": "visitor", "derived": derived},
        "lookup": {
            "countries": {"file": "countries.csv", "key": "code"},
            "notes": {"file": "notes.csv", "key": "note"},
        },
        "query": [{"name": f"q{number}", "epsilon": 1.0, **query} for number, query in enumerate(queries)],
        "store": {"batch_rows": 250},
    }


def table() -> pa.Table:
    rng = np.random.default_rng(11)

    def some(values: list[Any], weights: list[float] | None = None) -> Any:
        return pa.array([values[at] for at in rng.choice(len(values), ROWS, p=weights)])

    minutes = np.sort(rng.integers(0, 3 * 1440, ROWS)).astype("timedelta64[m]")
    moments = np.datetime64("2026-03-01T00:00:00", "us") + minutes
    return pa.table(
        {
            "visitor": rng.integers(0, 50, ROWS),
            "page": some(["/", "/news/a", "/news/b", "/shop/x", "/shop/y/z", "/about"]),
            "country": some(["de", "fr", "us", "xx", None], [0.4, 0.25, 0.15, 0.1, 0.1]),
            "amount": pa.array(np.round(rng.uniform(0, 64, ROWS) * 64) / 64, mask=rng.random(ROWS) < 0.1),
            "age": pa.array(rng.integers(0, 90, ROWS), mask=rng.random(ROWS) < 0.1),
            "ok": rng.random(ROWS) < 0.4,
            "moment": pa.array(moments),
            "day": pa.array(moments.astype("datetime64[D]")),
            "note": some(["12", "7", "x9", "", None]),
            "score": np.round(rng.uniform(-32, 32, ROWS) * 64) / 64,
        }
    )


@pytest.fixture(scope="module")
def rows() -> pa.Table:
    return table()


@pytest.fixture(scope="module")
def duck(rows: pa.Table) -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        connection.register("s", rows)
        for lookup in ("countries", "notes"):
            connection.execute(f"CREATE TABLE {lookup} AS FROM read_csv('{HERE / lookup}.csv')")
        yield connection


@pytest.fixture(scope="module")
def answered(rows: pa.Table, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, list[list[dict[str, Any]]]]:
    """Ask all accepted statements at once, without noise."""
    file = tmp_path_factory.mktemp("rows") / "rows.parquet"
    pyarrow.parquet.write_table(rows, file)
    queries = [{key: value for key, value in each.items() if key not in ASIDE} for each in ACCEPTED]
    asked = [{**query, "sql": each["sql"]} for query, each in zip(queries, ACCEPTED, strict=True)]
    config = read_config(stream(*asked), base=HERE)
    with Engine(config, zero_noise=True) as engine:
        ingest(engine, [str(file)])
        engine.finish()
        shown = list(answers(engine))
        found = []
        for statement in config.statements:
            own = re.compile(rf"{statement.name}(\.| \[|$)")
            found.append([answer for answer in shown if own.match(answer["name"])])
    return config, found


def plain(value: Any) -> str:
    """Return a value as text, a day by its date."""
    return str(value).removesuffix(" 00:00:00")


def close(ours: Any, theirs: Any, within: float) -> bool:
    if ours is None or theirs is None:
        return ours is theirs
    return bool(float(ours) == pytest.approx(float(theirs), rel=1e-9, abs=within))


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(ACCEPTED)), ids=[each["sql"] for each in ACCEPTED])
def test_without_noise_the_answers_are_those_of_duckdb(number: int, duck: Any, answered: Any) -> None:
    case = ACCEPTED[number]
    config, found = answered
    statement = config.statements[number]
    ours = found[number]
    theirs = duck.execute(case.get("duckdb", case["sql"])).fetchall()
    width = len(statement.view.shown)
    lines = [ours[at : at + width] for at in range(0, len(ours), width)]
    got = [([plain(v) for v in each[0].get("group", {}).values()], [a["value"] for a in each]) for each in lines]
    want = [([plain(v) for v in row[:-width]], list(row[-width:])) for row in theirs]
    if "ORDER BY" not in case["sql"].replace("(ORDER BY", ""):
        got = sorted(got, key=repr)
        want = sorted(want, key=repr)
    keyed = any(keys for keys, _ in want)
    if not keyed:
        got = sorted((values for _, values in got), key=repr)
        want = sorted((v for _, v in want), key=repr)
        got = [([], values) for values in got]
        want = [([], values) for values in want]
    assert [keys for keys, _ in got] == [keys for keys, _ in want]
    within = case.get("within", 1e-6)
    for (_, mine), (_, yours) in zip(got, want, strict=True):
        assert all(close(one, other, within) for one, other in zip(mine, yours, strict=True)), (got, want)
    if "states" in case:
        assert len(statement.queries) == case["states"]


@pytest.mark.parametrize("case", REFUSED, ids=[each["sql"] or "nothing" for each in REFUSED])
def test_what_is_refused_says_why_and_where(case: dict[str, Any]) -> None:
    query = {"sql": case["sql"] or " ", "lower": 0, "upper": 1}
    with pytest.raises(ConfigError) as caught:
        config = read_config(stream(query), base=HERE)
        with Selector(config):
            plan_all(config)
    assert case["says"] in str(caught.value)
    if "at" in case:
        place = re.search(r"line (\d+), column (\d+)", str(caught.value))
        assert place is not None, str(caught.value)
        assert case["sql"][int(place[2]) - 1 :].startswith(case["at"]), str(caught.value)


def test_there_are_enough_of_them() -> None:
    assert len(ACCEPTED) + len(REFUSED) >= 150
    assert len({each["sql"] for each in ACCEPTED + REFUSED}) == len(ACCEPTED) + len(REFUSED)
