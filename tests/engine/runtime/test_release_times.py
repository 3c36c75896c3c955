"""When windows open and answers are due depends on the times of rows, and on nothing else in them."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from panstream.engine.config.config import Config, read_config
from panstream.engine.runtime.engine import Engine
from panstream.engine.runtime.ingest import ingest

COLUMNS = {
    "user": "string",
    "income": "double",
    "age": "int",
    "ok": "bool",
    "day": "date",
    "at": "timestamp",
    "w": "int",
}
START = datetime.datetime(2026, 3, 1)
CLEAN: dict[str, Any] = {"user": "u", "income": 33.0, "age": 5, "ok": True, "day": START.date(), "w": 1}


def config(**stream: Any) -> Config:
    queries = [
        {"name": "hours", "sql": "SELECT COUNT(*) FROM s WHERE ok", "every": "1 hour", "horizon": 100},
        {"name": "sums", "sql": "SELECT SUM(income) FROM s", "window": "1 hour", "lower": 0, "upper": 100},
        {
            "name": "people",
            "sql": "SELECT COUNT(DISTINCT user) FROM s WHERE age > 1",
            "window": "2 hours",
            "expected": 100,
        },
        {"name": "weights", "sql": "SELECT SUM(w) FROM s", "every": "2 hours", "horizon": 50, "lower": 0, "upper": 9},
        {"name": "days", "sql": "SELECT COUNT(*) FROM s WHERE day IS NOT NULL", "every": "1 day", "horizon": 9},
    ]
    return read_config(
        {
            "stream": {"name": "s", "columns": COLUMNS, "user": "user", "time": "at", **stream},
            "query": [{"epsilon": 1.0, **query} for query in queries],
            "store": {"batch_rows": 4},
        }
    )


def rows(odd: dict[str, Any]) -> list[dict[str, Any]]:
    """Nine rows; the fifth is the only one of its hours, and may be odd."""
    hours = [0, 1, 1, 2, 7, 5, 7, 1, 9]
    found = [{**CLEAN, "user": f"u{n}", "at": START + datetime.timedelta(hours=hour)} for n, hour in enumerate(hours)]
    found[4].update(odd)
    return found


def schedule(path: Path, **stream: Any) -> tuple[Any, ...]:
    """Return all that a reader sees of answers but for their numbers, and what the sender hears of times."""
    seen = []
    with Engine(config(lateness="2 hours", **stream), clock=lambda: 2e9, publish=seen.append) as engine:
        fed = ingest(engine, [str(path)])
        engine.finish()
    shown = [
        (each.query, each.number, each.time, each.record.get("window"), each.record.get("end"), each.record["claim"])
        for each in seen
    ]
    return sorted(shown, key=lambda each: each[:2]), fed.rows, fed.late


# --- formats: what a cell may hold, and how rows are written ----------------------------------------------------------


def write_csv(found: list[dict[str, Any]], path: Path) -> None:
    def cell(value: Any) -> str:
        return "" if value is None else value if isinstance(value, str) else str(value).lower()

    lines = [",".join(COLUMNS)]
    for row in found:
        line = ",".join(cell(row[name]) if name != "at" else row["at"].isoformat(" ") for name in COLUMNS)
        lines.append(row["line"](line) if "line" in row else line)
    path.write_bytes("\n".join(lines).encode("utf-8", "surrogateescape"))


def write_json(found: list[dict[str, Any]], path: Path) -> None:
    lines = []
    for row in found:
        plain = {name: row[name].isoformat() if hasattr(row[name], "isoformat") else row[name] for name in COLUMNS}
        line = json.dumps(plain, ensure_ascii=False)
        lines.append(row["line"](line) if "line" in row else line)
    path.write_bytes("\n".join(lines).encode("utf-8", "surrogateescape"))


def table_of(found: list[dict[str, Any]]) -> pa.Table:
    types = {
        "user": pa.large_string(),
        "income": pa.float64(),
        "age": pa.float64(),
        "ok": pa.bool_(),
        "day": pa.string(),
    }
    types |= {"at": pa.timestamp("us", "UTC"), "w": pa.uint64()}
    plain = [{**row, "day": row["day"] and str(row["day"])} for row in found]
    return pa.table({name: pa.array([row[name] for row in plain], types[name]) for name in COLUMNS})


def write_parquet(found: list[dict[str, Any]], path: Path) -> None:
    pq.write_table(table_of(found), path)


def write_arrow(found: list[dict[str, Any]], path: Path) -> None:
    table = table_of(found)
    with pa.ipc.new_file(path, table.schema) as writer:
        writer.write_table(table, max_chunksize=4)


FORMATS: dict[str, Callable[[list[dict[str, Any]], Path], None]] = {
    "csv": write_csv, "jsonl": write_json, "parquet": write_parquet, "arrow": write_arrow,
}  # fmt: skip
ODD: dict[str, list[dict[str, Any]]] = {
    "csv": [
        *({"income": text} for text in ("", "NaN", "inf", "1e999", "x", "1,5e", '"', '""', "\udcff")),
        *({"user": text} for text in ("", "\udcff", '""', '"a""b"')),
        *({"age": text} for text in ("", "1.5", "9" * 30, "-", "x")),
        *({"ok": text} for text in ("", "maybe", "2")),
        *({"day": text} for text in ("", "2026-02-30", "31/12/2026")),
        *({"w": text} for text in ("", "x", "7.5", "99999999999")),
        {"line": lambda line: line + ",more"},
        {"line": lambda line: line + ",\udcff,more"},
        {"line": lambda line: line.rpartition(",")[0]},
        {"line": lambda line: line.replace("u4", '"u\n4"')},
    ],
    "jsonl": [
        *({"income": value} for value in (None, "x", [1], {"a": 1}, True, float("nan"), float("inf"), 10**400, "33")),
        *({"user": value} for value in (None, 5, "\udcff", [])),
        *({"age": value} for value in (None, 1.5, "5", 10**30)),
        *({"ok": value} for value in (None, "true", 1)),
        *({"day": value} for value in (None, "2026-02-30", 5)),
        *({"w": value} for value in (None, "x", 7.5, 2**62)),
        {"line": lambda line: line.replace("{", '{"income": 1, ')},
        {"line": lambda line: line.replace("}", ', "more": [1, {}]}')},
    ],
    "parquet": [
        *({"income": value} for value in (None, float("nan"), float("inf"))),
        *({"user": value} for value in (None, "")),
        *({"age": value} for value in (None, 1.5, float("nan"), 1e300)),
        {"ok": None},
        *({"day": value} for value in (None, "2026-02-30", "x")),
        *({"w": value} for value in (None, 2**64 - 1, 77)),
    ],
}
ODD["arrow"] = ODD["parquet"]
CASES = [(form, number) for form in FORMATS for number in range(len(ODD[form]))]


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Any, ...]]:
    folder = tmp_path_factory.mktemp("clean")
    for form, write in FORMATS.items():
        write(rows({}), folder / f"rows.{form}")
    found = {form: schedule(folder / f"rows.{form}") for form in FORMATS}
    assert all(each == found["csv"] for each in found.values())
    assert len(found["csv"][0]) >= 12  # several answers of several queries
    return found


@pytest.mark.slow
@pytest.mark.parametrize(("form", "number"), CASES)
def test_an_odd_row_changes_no_release(
    form: str, number: int, tmp_path: Path, clean: dict[str, tuple[Any, ...]]
) -> None:
    path = tmp_path / f"rows.{form}"
    FORMATS[form](rows(ODD[form][number]), path)
    assert schedule(path) == clean[form]


@pytest.mark.slow
def test_a_row_without_a_time_moves_nothing(tmp_path: Path) -> None:
    """Whatever else it has; and so does a line of which no time can be reported."""
    without = tmp_path / "without.csv"
    write_csv([row for n, row in enumerate(rows({})) if n != 4], without)
    expected = schedule(without)
    for line in ("u4,33.0,5,true,2026-03-01,,1", "u4,33.0,5,true,2026-03-01,soon,1", "u4,33.0"):
        path = tmp_path / "rows.csv"
        write_csv(rows({"line": lambda _, line=line: line}), path)
        assert schedule(path)[0] == expected[0]
    for line in ("null", "secret", '{"at": "2026-03-01T07:00:00"', '{"at": "2026-03-01T07:00:00", "at": "x"}'):
        path = tmp_path / "rows.jsonl"
        write_json(rows({"line": lambda _, line=line: line}), path)
        assert schedule(path)[0] == expected[0]


@pytest.mark.slow
def test_a_bad_row_counts_for_nothing_but_its_time(tmp_path: Path) -> None:
    """Zero noise: the counts are those without the bad row, in the windows that it opened."""
    path = tmp_path / "rows.csv"
    write_csv(rows({"income": "x"}), path)
    with Engine(config(lateness="2 hours"), clock=lambda: 2e9, zero_noise=True) as engine:
        fed = ingest(engine, [str(path)])
        engine.finish()
        sums = {release.record["window"][0]: release.record["value"] for release in engine.log.history("sums")}
    assert fed.skipped == [5]
    hours = {
        f"2026-03-01T{hour:02}:00:00Z": value for hour, value in {0: 33, 1: 66, 2: 33, 5: 33, 7: 33, 9: 33}.items()
    }
    assert sums == pytest.approx(hours)
