"""The smallest budget of a person that reaches stated errors."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from panstream.cli.app import app
from panstream.engine.config.config import Config, read_config
from panstream.engine.planner.accuracy import planned_error
from panstream.engine.planner.person_division import divide_person_budget
from panstream.engine.planner.query_plan import plan_all
from panstream.engine.planner.smallest_budget import smallest_person_budget
from panstream.errors import BudgetExceeded, InvalidParameter

VISITORS = {"name": "visitors", "sql": "SELECT COUNT(DISTINCT u) FROM s", "window": "1 day", "expected": 10_000}
ROWS = {
    "name": "rows",
    "sql": "SELECT COUNT(*) FROM s",
    "window": ["1 day", "30 days"],
    "contributions": 2,
    "target_error": 900,
}


def config(*queries: dict[str, Any]) -> Config:
    stream = {"name": "s", "user": "u", "columns": {"u": "string"}, "budget": {"person": 1.0}}
    return read_config({"stream": stream, "query": list(queries)})


def test_every_error_is_reached_and_hardly_less_is_not_enough() -> None:
    found = smallest_person_budget(config(VISITORS, ROWS), {"visitors": 400.0})
    visitors, rows = plan_all(found)
    assert 0.99 * 400.0 <= planned_error(visitors) <= 400.0
    assert 0.99 * 900.0 <= planned_error(rows) <= 900.0
    limit = found.stream.person.epsilon
    assert limit is not None
    less = replace(found, stream=replace(found.stream, person=replace(found.stream.person, epsilon=0.999 * limit)))
    with pytest.raises(BudgetExceeded):
        plan_all(less)


def test_the_planner_asks_everything_with_that_budget_and_drops_something_with_less() -> None:
    undivided = config(VISITORS, {**ROWS, "window": "1 day"})
    limit = smallest_person_budget(undivided, {}).stream.person.epsilon
    assert limit is not None

    def dropped(person: float) -> list[bool]:
        stream = replace(undivided.stream, person=replace(undivided.stream.person, epsilon=person))
        return [choice.dropped for choice in divide_person_budget(replace(undivided, stream=stream)).choices]

    assert dropped(1.05 * limit) == [False, False]  # the planner interpolates prices, by a few percent
    assert any(dropped(0.9 * limit))


def test_longer_windows_need_less() -> None:
    first, last = (smallest_person_budget(config(VISITORS, ROWS), {}, longest=longest) for longest in (False, True))
    assert (first.query("rows").window, last.query("rows").window) == (86400.0, 30 * 86400.0)
    assert (last.stream.person.epsilon or 0.0) < (first.stream.person.epsilon or 0.0)


def test_own_epsilons_stay_unless_an_error_is_stated() -> None:
    own = {**ROWS, "window": "1 day", "epsilon": 0.5}
    assert smallest_person_budget(config(VISITORS, own), {}).query("rows").epsilon == 0.5
    assert smallest_person_budget(config(VISITORS, own), {"rows": 900.0}).query("rows").epsilon != 0.5


def test_refusals() -> None:
    with pytest.raises(InvalidParameter, match="no query named 'nothing'; known: visitors"):
        smallest_person_budget(config(VISITORS), {"nothing": 1.0})
    with pytest.raises(InvalidParameter, match="'visitors' states no error: give target_error"):
        smallest_person_budget(config({**VISITORS, "expected": None}), {})
    with pytest.raises(BudgetExceeded, match="visitors: no epsilon reaches an error of 1"):
        smallest_person_budget(config(VISITORS), {"visitors": 1.0})


def test_the_command_prints_the_budget_and_the_table(tmp_path: Path) -> None:
    file = tmp_path / "panstream.toml"
    file.write_text(
        '[stream]\nname = "s"\nuser = "u"\ncolumns = { u = "string" }\nbudget = { person = 1.0 }\n\n[[query]]\n'
        'name = "visitors"\nsql = "SELECT COUNT(DISTINCT u) FROM s"\nwindow = "1 day"\nexpected = 10_000\n'
    )
    run = CliRunner().invoke(app, ["plan", "person", str(file), "--error", "visitors=400"])
    assert run.exit_code == 0, run.output
    last = run.output.splitlines()[-1]
    assert last.startswith("smallest budget: [stream.budget] person = 3.")
    document = json.loads(
        CliRunner().invoke(app, ["plan", "person", str(file), "--error", "visitors=400", "--json"]).output
    )
    assert last.endswith(f"{document['limit']:g}")
    for wrong in ("visitors", "visitors=-1", "=3"):
        assert CliRunner().invoke(app, ["plan", "person", str(file), "--error", wrong]).exit_code == 2
