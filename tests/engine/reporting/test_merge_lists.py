"""Published lists of names add up, over sites and windows, and never count the same answer twice."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from panstream.cli.app import app
from panstream.engine.config.config import read_config
from panstream.engine.reporting.merge_lists import MergedNames, merge_lists
from panstream.engine.runtime.engine import Engine
from panstream.engine.runtime.ingest import ingest
from panstream.errors import InvalidParameter, MergeError

SMALL = {"epsilon": 8.0, "delta": 1e-6, "max_item_bytes": 8, "memory": 400_000, "expected": 10_000}
DAY = 86_400


def site(
    directory: Path, *days: dict[Any, int], column: str = "page", window: bool = False, keep: int = 1, **more: Any
) -> Path:
    """Run a store whose days have had so many events of every name."""
    kind = "int" if all(isinstance(name, int) for counts in days for name in counts) else "string"
    asked = {"name": "top", "sql": f"SELECT {column}, COUNT(*) FROM s GROUP BY {column}", **SMALL, **more}
    asked |= {"window": "1 day"} if window else {}
    stream = {"name": "s", "columns": {"at": "int", column: kind, "who": "string"}, "user": "who", "time": "at"}
    loaded = read_config(
        {"stream": stream, "query": [asked], "store": {"directory": str(directory), "keep_prefixes": keep}}
    )
    names = [name for counts in days for name, count in counts.items() for _ in range(count)]
    times = [day * DAY for day, counts in enumerate(days) for count in counts.values() for _ in range(count)]
    with Engine(loaded) as engine:
        ingest(engine, pa.table({"at": times, column: names, "who": ["u"] * len(names)}))
        engine.finish()
    return directory


def assert_right(found: MergedNames, **counts: int) -> None:
    """A list promises .05 wrong names at most; four of them come once in four million lists."""
    listed = {item["name"]: item for item in found.items}
    right = {f"/{name}" for name in counts}
    assert right <= set(listed) and len(set(listed) - right) < 4
    for name, true in counts.items():
        item = listed[f"/{name}"]
        assert abs(item["count"] - true) < 7 * item["standard_error"], name  # 1e-11
        assert item["interval"][0] <= item["count"] <= item["interval"][1]


def test_sites_add_up_and_rarer_names_are_found_in_their_sum(tmp_path: Path) -> None:
    one = site(tmp_path / "one", {"/a": 2000, "/b": 700})
    two = site(tmp_path / "two", {"/a": 1000, "/c": 900})
    found = merge_lists([one, two])
    assert_right(found, a=3000, b=700, c=900)
    alone = json.loads(_printed("merge", str(one), str(two), "--json"))
    assert alone["listing_threshold"] == found.listing_threshold and [part["number"] for part in alone["parts"]] == [
        1,
        1,
    ]
    own = found.parts[0][1].record["listing_threshold"]
    assert own < found.listing_threshold <= 2 * own


@pytest.mark.slow
def test_windows_of_a_site_add_up_where_their_tables_are_kept(tmp_path: Path) -> None:
    days = ({"/a": 2000}, {"/a": 500, "/b": 900}, {"/b": 800})
    week = site(tmp_path / "week", *days, window=True, keep=7)
    found = merge_lists([week], all_windows=True)
    assert_right(found, a=2500, b=1700)
    assert len(found.parts) == 3
    last = site(tmp_path / "last", *days, window=True, keep=2)
    assert len(merge_lists([last], all_windows=True).parts) == 2
    none = site(tmp_path / "none", *days, window=True, keep=0)
    with pytest.raises(InvalidParameter, match="has no published lists of names"):
        merge_lists([last, none])
    with pytest.raises(InvalidParameter, match="one answer only"):
        merge_lists([last])
    first = site(tmp_path / "first", days[0], window=True)
    with pytest.raises(MergeError, match="different windows"):
        merge_lists([first, week])
    assert_right(merge_lists([first, week], all_windows=True), a=4500, b=1700)


def test_an_answer_counts_once(tmp_path: Path) -> None:
    one = site(tmp_path / "one", {"/a": 2000})
    copy = Path(shutil.copytree(one, tmp_path / "copy"))
    for twice in ([one, one], [one, copy]):
        with pytest.raises(MergeError, match="the same answer was given twice"):
            merge_lists(twice)


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"max_item_bytes": 9}, "the same max_item_bytes, expected and memory"),
        ({"key": 5}, "the same key"),
        ({"delta": 0.0, "memory": 400_000}, "the same size|all have a delta or none"),
        ({"column": "title"}, "different keys: page, title"),
    ],
)
def test_tables_that_do_not_fit_are_refused(tmp_path: Path, other: dict[str, Any], words: str) -> None:
    one = site(tmp_path / "one", {"/a": 2000})
    two = site(tmp_path / "two", {"/a": 2000}, **other)
    with pytest.raises(MergeError, match=words):
        merge_lists([one, two])


def test_sites_may_have_different_budgets(tmp_path: Path) -> None:
    strong = site(tmp_path / "strong", {"/a": 3000}, epsilon=4.0)
    weak = site(tmp_path / "weak", {"/a": 1000})
    found = merge_lists([strong, weak])
    assert_right(found, a=4000)
    assert found.costs == ["epsilon 4, delta 1e-06 for one event", "epsilon 8, delta 1e-06 for one event"]


def test_whole_numbers_stay_numbers(tmp_path: Path) -> None:
    stores = [site(tmp_path / name, {7: 900, -20: 800}, column="code") for name in ("one", "two")]
    assert [item["name"] for item in merge_lists(stores).items[:2]] == [7, -20]


def test_the_command_says_what_the_list_promises_and_who_is_protected(tmp_path: Path) -> None:
    stores = [str(site(tmp_path / name, {"/a": 3000, "/b": 2000}, contributions=2)) for name in ("one", "two")]
    text = _printed("merge", *stores, "--limit", "1")
    assert "2 published answers added up" in text and "/a" in text and "/b" not in text
    assert "listed with probability 95%" in text and "1 of the first 1 certainly belongs in it" in text
    assert "epsilon 8, delta 1e-06 for one user" in text and "loses that in each" in text
    refused = CliRunner().invoke(app, ["merge", stores[0], str(tmp_path / "nothing")])
    assert refused.exit_code == 2 and "holds no published answers" in refused.output


def _printed(*given: str) -> str:
    result = CliRunner().invoke(app, [*given])
    assert result.exit_code == 0, result.output
    return result.output
