"""The planner divides a person's budget: the account of the plan, windows, drops and refusals."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from panstream.cli.app import app
from panstream.engine.config.config import Config, read_config
from panstream.engine.planner.accuracy import planned_error
from panstream.engine.planner.person_division import divide_person_budget
from panstream.engine.planner.person_period import planned_person_total
from panstream.engine.planner.query_plan import plan_all
from panstream.engine.reporting.unusable_share import with_share
from panstream.engine.runtime.engine import Engine
from panstream.engine.runtime.selector import Selector
from panstream.errors import BudgetExceeded, ConfigError

VISITORS = {"name": "visitors", "sql": "SELECT COUNT(DISTINCT u) FROM s", "window": "1 day", "expected": 10_000}
ROWS = {"name": "rows", "sql": "SELECT COUNT(*) FROM s", "window": "1 day", "contributions": 2, "expected": 20_000}
MEDIAN = {
    "name": "median",
    "sql": "SELECT MEDIAN(x) FROM s",
    "window": ["1 day", "7 days", "30 days"],
    "contributions": [2, 3, 5],
    "expected": [20_000, 100_000, 400_000],
    "target_error": 2.0,
    "lower": 0,
    "upper": 100,
}


def config(*queries: dict[str, Any], person: Any = 4.0, unusable_epsilon: float | None = None, **budget: Any) -> Config:
    columns = {"u": "string", "r": "string", "x": "double"}
    stream = {"name": "s", "user": "u", "columns": columns, "budget": {"person": person, **budget}}
    stream |= {} if unusable_epsilon is None else {"unusable_epsilon": unusable_epsilon}
    return read_config({"stream": stream, "query": list(queries)})


@pytest.mark.parametrize("person", [0.8, 4.0, 30.0])
@pytest.mark.parametrize(
    "queries",
    [
        [VISITORS],
        [VISITORS, ROWS],
        [VISITORS, {**VISITORS, "name": "week", "window": "7 days", "expected": 50_000}, ROWS, MEDIAN],
        [VISITORS, {**ROWS, "epsilon": 0.004}],
    ],
    ids=["one", "two", "four", "one of them fixed"],
)
def test_the_account_of_the_plan_is_within_a_hundredth_of_the_budget(queries: list[Any], person: float) -> None:
    divided = divide_person_budget(config(*queries, person=person))
    total = planned_person_total(divided, plan_all(divided))
    assert 0.99 * person <= total.epsilon <= person
    assert all(query.epsilon > 0.0 for query in divided.queries)


@pytest.mark.parametrize("person", [1.0, 4.0])
def test_with_a_delta_rows_get_gaussian_noise_and_smaller_errors_within_the_budget(person: float) -> None:
    queries = [VISITORS, {**VISITORS, "name": "week", "window": "7 days", "expected": 50_000}, ROWS]
    pure, slack = (divide_person_budget(config(*queries, person=person, delta=delta)) for delta in (0.0, 1e-6))
    total = planned_person_total(slack, plan_all(slack))
    assert 0.99 * person <= total.epsilon <= person
    assert total.stated_delta <= 1e-6
    assert [query.delta for query in slack.queries] == [0.0, 0.0, 1e-6]
    errors = [[planned_error(plan) for plan in plan_all(divided)] for divided in (pure, slack)]
    assert all(with_delta < without for without, with_delta in zip(*errors, strict=True))
    assert errors[1][2] < errors[0][2] / 2  # 31 windows: their square root counts


def test_half_the_noise_would_exceed_the_budget() -> None:
    """The account that the budget is held to is the shipped one: twice the epsilons do not pass it."""
    divided = divide_person_budget(config(VISITORS, ROWS))
    doubled = replace(divided, queries=tuple(replace(query, epsilon=2 * query.epsilon) for query in divided.queries))
    with pytest.raises(BudgetExceeded, match="of 4"):
        plan_all(doubled)


def test_no_pair_of_epsilons_on_a_grid_has_smaller_errors() -> None:
    undivided = config(VISITORS, ROWS, person=4.0)
    divided = divide_person_budget(undivided)

    def relative_errors(of: Config) -> float:
        return sum(planned_error(plan) / (0.25 * plan.config.expected) for plan in plan_all(of))

    found = relative_errors(divided)
    fewest = min(
        relative_errors(candidate)
        for first, second in itertools.product([0.5 * 1.15**k for k in range(12)], [0.01 * 1.2**k for k in range(12)])
        if _fits(
            candidate := replace(
                undivided,
                queries=tuple(
                    replace(query, epsilon=epsilon)
                    for query, epsilon in zip(undivided.queries, (first, second), strict=True)
                ),
            )
        )
    )
    assert found <= 1.01 * fewest


def _fits(candidate: Config) -> bool:
    try:
        plan_all(candidate)
    except BudgetExceeded:
        return False
    return True


def test_a_weight_makes_one_answer_more_exact_and_the_other_less() -> None:
    even = divide_person_budget(config(VISITORS, ROWS))
    uneven = divide_person_budget(config(VISITORS, {**ROWS, "weight": 20.0}))
    assert uneven.query("rows").epsilon > 1.5 * even.query("rows").epsilon
    assert uneven.query("visitors").epsilon < even.query("visitors").epsilon


def test_a_query_moves_to_a_longer_window_with_its_own_bounds_and_the_price_as_the_reason() -> None:
    divided = divide_person_budget(config(VISITORS, {**MEDIAN, "target_error": 0.5}, person=0.7))
    median = divided.query("median")
    assert (median.window, median.contributions, median.expected) == (30 * 86400.0, 5, 400_000)
    choice = divided.choices[1]
    assert (choice.name, choice.window, choice.dropped) == ("median", 30 * 86400.0, False)
    assert len(choice.reasons) == 2
    assert choice.reasons[0].startswith("a 95% error of 0.5 in windows of 1 day needs ")
    assert divide_person_budget(config(VISITORS, MEDIAN, person=40.0)).query("median").window == 86400.0


def test_a_query_that_cannot_be_useful_is_dropped_everywhere_and_the_engine_runs_without_it() -> None:
    hourly = {**ROWS, "name": "hourly", "window": "1 hour", "expected": 100}
    undivided = config(VISITORS, hourly, person=3.0)
    divided = divide_person_budget(undivided)
    assert [query.name for query in divided.queries] == ["visitors"]
    assert [statement.name for statement in divided.statements] == ["visitors"]
    assert divided.choices[1].dropped
    assert "windows of 1 hour needs" in divided.choices[1].reasons[0]
    with Engine(undivided) as engine, Selector(undivided):
        assert [plan.config.name for plan in engine.plans] == ["visitors"]
        assert engine.config == divided


def test_the_share_of_unusable_rows_has_its_place_in_the_budget() -> None:
    undivided = config({**ROWS, "window": None}, unusable_epsilon=0.1)
    charged = with_share(divide_person_budget(undivided), 0.1)
    assert 3.95 <= planned_person_total(charged, plan_all(charged)).epsilon <= 4.0


def test_stored_states_continue_under_the_same_division(tmp_path: Path) -> None:
    undivided = replace(config(VISITORS, ROWS), directory=tmp_path / "state")
    totals = []
    for _ in range(2):
        with Engine(undivided) as engine:
            totals.append(engine.person_total.epsilon)
    assert totals[0] == totals[1] <= 4.0


def test_run_says_what_is_dropped(tmp_path: Path) -> None:
    file = tmp_path / "panstream.toml"
    rows = tmp_path / "rows.csv"
    file.write_text(
        '[stream]\nname = "s"\nuser = "u"\ncolumns = { u = "string" }\nbudget = { person = 1.0 }\n\n[[query]]\n'
        'name = "visitors"\nsql = "SELECT COUNT(DISTINCT u) FROM s"\nexpected = 10_000\n\n[[query]]\n'
        'name = "exact"\nsql = "SELECT COUNT(DISTINCT u) FROM s"\nexpected = 10_000\ntarget_error = 5\n'
    )
    rows.write_text("u\na\nb\n")
    result = CliRunner().invoke(app, ["run", "--no-hardening", str(file), str(rows)])
    assert result.exit_code == 0, result.output
    assert "note: exact is dropped: a 95% error of 5" in result.output


def test_a_statement_of_two_states_gets_one_share() -> None:
    both = {
        "name": "both",
        "sql": "SELECT COUNT(*) AS n, AVG(x) AS mean FROM s",
        "window": ["1 day", "7 days"],
        "contributions": 1,
        "expected": [10_000, 70_000],
        "bounds": {"mean": [0, 100]},
    }
    two = {**both, "sql": "SELECT COUNT(DISTINCT u) AS users, AVG(x) AS mean FROM s"}
    for one in (both, two):
        divided = divide_person_budget(config(VISITORS, one))
        parts = [query for query in divided.queries if query.statement == "both"]
        assert len({query.epsilon for query in parts}) == 1
        assert len({query.window for query in parts}) == 1
        assert 3.96 <= planned_person_total(divided, plan_all(divided)).epsilon <= 4.0


def test_division_depends_on_the_configuration_only_and_is_done_once() -> None:
    first, second = (divide_person_budget(config(VISITORS, ROWS, MEDIAN)) for _ in range(2))
    assert first == second
    assert divide_person_budget(first) is first


def test_what_has_no_size_is_never_dropped() -> None:
    unsized = {"name": "any", "sql": "SELECT COUNT(*) FROM s", "window": "1 hour", "contributions": 1}
    divided = divide_person_budget(config(VISITORS, unsized, person=1.5))
    assert not any(choice.dropped for choice in divided.choices)


def test_refusals_name_the_query_and_what_to_do() -> None:
    unbounded = {"name": "all", "sql": "SELECT COUNT(*) FROM s", "window": "1 day"}
    with pytest.raises(BudgetExceeded, match="'all' protects one event.*give contributions.*allow_unbounded"):
        divide_person_budget(config(unbounded))
    with pytest.raises(ConfigError, match="all: epsilon is missing.*has no share"):
        divide_person_budget(config(VISITORS, unbounded, allow_unbounded=["all"]))
    with pytest.raises(ConfigError, match="allow_unbounded: there is no query named 'nothing'"):
        config(VISITORS, allow_unbounded=["nothing"])
    with pytest.raises(ConfigError, match="epsilon is missing"):
        config(VISITORS, person=None)
    with pytest.raises(BudgetExceeded, match=r"no query can be useful with 0\.01.*'visitors'.*needs"):
        divide_person_budget(config(VISITORS, person=0.01))
    with pytest.raises(ConfigError, match="median: contributions must have one entry for each of the 3 windows"):
        config({**MEDIAN, "contributions": [1, 2]})
    with pytest.raises(ConfigError, match="median: window is a list.*leave out epsilon"):
        config({**MEDIAN, "epsilon": 1.0})
    with pytest.raises(ConfigError, match="rows: expected is a list, so window must be a list"):
        config({**ROWS, "expected": [1, 2]})


def test_an_unbounded_query_is_allowed_by_name_and_left_out_of_the_limit() -> None:
    unbounded = {"name": "all", "sql": "SELECT COUNT(*) FROM s", "window": "1 day", "epsilon": 1.0}
    with pytest.raises(BudgetExceeded, match="'all' protects one event"):
        plan_all(config(VISITORS, unbounded))
    divided = divide_person_budget(config(VISITORS, unbounded, allow_unbounded=["all"]))
    total = planned_person_total(divided, plan_all(divided))
    assert not total.is_bounded
    assert 3.96 <= total.bounded.epsilon <= 4.0
