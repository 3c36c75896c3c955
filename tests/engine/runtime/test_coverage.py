"""An answer of a question that was added later, or was away for a time, says which rows it has not seen."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import pytest

from panstream.cli.commands.run import period
from panstream.engine.reporting.export import answers, to_csv
from panstream.engine.runtime.engine import Engine
from panstream.engine.sinks.release_rows import COLUMNS, rows_of
from panstream.server.service import release_json
from tests.engine.runtime.streams import config, question, rows

FIRST = question("first", "SELECT COUNT(*) FROM s", releases=40)
ADDED = question("added", "SELECT COUNT(*) FROM s", releases=40)
HOURS = question("hours", "SELECT COUNT(*) FROM s", window="1 hour")
NOON = 1_800_014_400.0  # 2027-01-15 12:00:00


def answer(directory: Path, hour: float, *queries: dict[str, Any], **settings: Any) -> dict[str, Any]:
    """Start at an hour, take a row, and return the answers by name."""
    with Engine(config(*queries, directory=directory, **settings), clock=lambda: NOON + 3600 * hour) as engine:
        engine.apply(rows([query["name"] for query in queries], count=1))
        for query in queries:
            if "window" not in query:
                engine.release(query["name"])
        engine.finish()
        return {each["name"]: each for each in answers(engine)}


def test_a_question_that_is_there_from_the_beginning_has_seen_all_data(tmp_path: Path) -> None:
    answer(tmp_path, 0, FIRST)
    found = answer(tmp_path, 1, FIRST)["first"]
    assert period(found) == "all data"
    assert not {"since", "gaps"} & found.keys()


def test_a_question_that_is_added_later_says_since_when(tmp_path: Path) -> None:
    """It was labelled "all data"."""
    answer(tmp_path, 0, FIRST)
    for hour in (1, 2):  # and says the same after a restart
        found = answer(tmp_path, hour, FIRST, ADDED)
        assert period(found["first"]) == "all data"
        assert period(found["added"]) == "since 2027-01-15 13:00:00"


def test_a_question_that_was_removed_for_a_time_names_the_gap(tmp_path: Path) -> None:
    answer(tmp_path, 0, FIRST, ADDED)
    for hour in (1, 2):  # the gap begins with the first start without it
        answer(tmp_path, hour, FIRST)
    found = answer(tmp_path, 3, FIRST, ADDED)["added"]
    assert found["gaps"] == [["2027-01-15T13:00:00Z", "2027-01-15T15:00:00Z"]]
    assert period(found) == "all data, without 2027-01-15 13:00:00 to 2027-01-15 15:00:00"
    answer(tmp_path, 4, FIRST)
    assert len(answer(tmp_path, 5, FIRST, ADDED)["added"]["gaps"]) == 2


def test_a_state_that_is_not_kept_has_seen_what_came_since_the_start(tmp_path: Path) -> None:
    assert period(answer(tmp_path, 0, FIRST, durability="none")["first"]) == "all data"
    assert period(answer(tmp_path, 1, FIRST, durability="none")["first"]) == "since 2027-01-15 13:00:00"


def test_windows_say_it_only_if_they_had_begun(tmp_path: Path) -> None:
    answer(tmp_path, 0, FIRST)
    found = answer(tmp_path, 1.5, FIRST, HOURS)["hours"]
    assert period(found) == "2027-01-15 13:00:00 to 2027-01-15 14:00:00, since 2027-01-15 13:30:00"
    assert period(answer(tmp_path, 2.5, FIRST, HOURS)["hours"]) == "2027-01-15 14:00:00 to 2027-01-15 15:00:00"
    answer(tmp_path, 3.25, FIRST)
    found = answer(tmp_path, 3.75, FIRST, HOURS)["hours"]
    assert found["gaps"] == [["2027-01-15T15:15:00Z", "2027-01-15T15:45:00Z"]] and "since" not in found
    assert not {"since", "gaps"} & answer(tmp_path, 5, FIRST, HOURS)["hours"].keys()


def test_files_sinks_and_http_say_it(tmp_path: Path) -> None:
    answer(tmp_path, 0, FIRST, ADDED)
    answer(tmp_path, 1, FIRST)
    late = question("late", "SELECT COUNT(*) FROM s", releases=40)
    answer(tmp_path, 2, FIRST, ADDED, late)
    settings = config(FIRST, ADDED, late, directory=tmp_path)
    with Engine(settings, clock=lambda: NOON + 7200) as engine:
        last = {name: engine.log.last(name) for name in ("added", "late")}
    gap = ["2027-01-15T13:00:00Z", "2027-01-15T14:00:00Z"]
    since = "2027-01-15T14:00:00Z"
    lines = {row["query"]: row for row in csv.DictReader(io.StringIO(to_csv(last.values())))}
    sent = {name: dict(zip(COLUMNS, next(iter(rows_of("s", each))), strict=True)) for name, each in last.items()}
    for found in (lines, sent):
        assert found["added"]["gaps"] == "/".join(gap) and found["late"]["since"] == since
        assert not found["added"]["since"] and not found["late"]["gaps"]
    shown = {name: release_json(each, settings) for name, each in last.items()}
    assert shown["added"]["gaps"] == [gap] and shown["late"]["since"] == since


@pytest.mark.parametrize("count", [0, 1, 1000])
def test_dates_do_not_depend_on_rows(tmp_path: Path, count: int) -> None:
    answer(tmp_path, 0, FIRST)
    with Engine(config(FIRST, ADDED, directory=tmp_path), clock=lambda: NOON + 3600) as engine:
        engine.apply(rows(["first", "added"], count=count))
        assert engine.release("added")[0].record["since"] == "2027-01-15T13:00:00Z"
