"""What ``explain`` foresees is what is printed, and what says too little is called too uncertain, before and after."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from panstream import Monitor
from panstream.cli.app import app
from panstream.cli.commands.run import _answer_table
from panstream.core.estimate import Estimate
from panstream.engine.config.config import load_config
from panstream.engine.planner.accuracy import (
    _at_size,
    _half_width,
    accuracy_warning,
    expected_errors,
    improvement_hint,
    too_uncertain,
)
from panstream.engine.planner.query_plan import QueryPlan, plan_all
from panstream.engine.reporting.explain import explain
from panstream.engine.reporting.export import answers
from panstream.engine.runtime.engine import Engine
from panstream.engine.runtime.ingest import ingest
from panstream.primitives.noise import SeededSource
from tests.engine.runtime.streams import config, question

RUNS = 40
BOUNDS: dict[str, Any] = {"lower": 0, "upper": 100}
EVENLY = np.linspace(0.05, 99.95, 4000)


def _only(what: object) -> Estimate:
    raise AssertionError("the state's own answer is all that is asked")


def plan_of(sql: str, **settings: Any) -> QueryPlan:
    (plan,) = plan_all(config(question("q", f"SELECT {sql} FROM s", **settings)))
    return plan


def printed(plan: QueryPlan, *args: Any, **kwargs: Any) -> list[Estimate]:
    """The last answers of as many runs."""
    rng = SeededSource(8)
    found = []
    for _ in range(RUNS):
        monitor = Monitor(plan.algorithm, rng=rng)
        monitor.update(*args, **kwargs)
        for _ in range(plan.releases if plan.continual else 1):
            estimate = monitor.tick() if plan.continual else monitor.release()
        found.append(plan.answer(plan.outputs[0], estimate, _only))
    return found


USERS = np.arange(2000)
CASES: dict[str, tuple[str, dict[str, Any], float, tuple[Any, ...], float]] = {
    "count": ("COUNT(*)", {"epsilon": 0.5}, 4000, (4000,), 0.01),
    "count at the last of 50": ("COUNT(*)", {"releases": 50}, 4000, (4000,), 0.01),
    "sum": ("SUM(value)", BOUNDS, 4000, (EVENLY,), 0.01),
    "mean": ("AVG(value)", BOUNDS, 4000, (EVENLY,), 0.02),
    "variance": ("VAR_POP(value)", BOUNDS, 4000, (EVENLY,), 0.03),
    "standard deviation": ("STDDEV_POP(value)", BOUNDS, 4000, (EVENLY,), 0.03),
    "median": ("QUANTILE_CONT(value, 0.5)", BOUNDS, 4000, (EVENLY,), 0.1),  # whole cells: half a cell is 4%
    "users of a universe": ("COUNT(DISTINCT user)", {"universe": 5000}, 2000, (USERS,), 0.03),
    "users of any kind": ("COUNT(DISTINCT user)", {"expected": 2000}, 2000, (USERS,), 0.08),
    "density": ("DENSITY(user)", {"universe": 5000}, 2000, (USERS,), 0.03),
    "cropped sum": ("CROPPED_SUM(user, w, 5)", {"universe": 5000}, 2000, (USERS, 5), 0.03),
    "cropped sum of any kind": ("CROPPED_SUM(user, w, 5)", {"expected": 20_000}, 2000, (USERS, 5), 0.05),
    "heavy": ("HEAVY_HITTERS(user, w, 5)", {"universe": 5000}, 2000, (USERS, 9), 0.03),
    "incidence": ("INCIDENCE(user, w, 5)", {"universe": 5000, "upper": 9}, 2000, (USERS, 5), 0.03),
    "cropped squares": ("CROPPED_SQUARES(user, w, 5)", {"universe": 5000, "upper": 9}, 2000, (USERS, 7), 0.03),
    "heavy, a bracket": ("HEAVY_HITTERS(user, w, 50)", {"universe": 5000}, 2000, (USERS, 90), 0.05),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_the_error_foreseen_is_how_far_printed_intervals_reach(case: str) -> None:
    sql, settings, size, rows, tolerance = CASES[case]
    plan = plan_of(sql, **settings)
    found = np.mean([_half_width(estimate) for estimate in printed(plan, *rows)])
    assert _half_width(_at_size(plan, size, plan.outputs[0])) == pytest.approx(found, rel=tolerance)


def test_the_error_of_a_count_is_that_of_its_interval() -> None:
    """It said 14.2 where ± 8.6 was printed."""
    plan = plan_of("COUNT(*)", epsilon=0.5)
    ((at, error),) = expected_errors(plan)
    assert (at, round(error, 1)) == ("at release 1", 8.6)


@pytest.mark.parametrize("sql", ["INCIDENCE(user, w, 2)", "HEAVY_HITTERS(user, w, 3)", "CROPPED_SQUARES(user, w, 3)"])
def test_no_error_is_foreseen_for_more_users_than_buckets(sql: str) -> None:
    """The answer ends at the buckets, so the interval of more users would be narrow, and not contain them."""
    (plan,) = plan_all(config(question("q", f"SELECT {sql} FROM s", expected=10_000, lower=0, upper=8), weight="w"))
    errors = expected_errors(plan)
    assert all("no two in one bucket" in label for label, _ in errors)
    assert not [label for label, _ in errors if "100,000" in label]
    assert len({round(error, -2) for _, error in errors}) == 1


def test_net_weights_foreseen() -> None:
    (plan,) = plan_all(config(question("q", "SELECT COUNT(DISTINCT user) FROM s", universe=5000), weight="w"))
    found = np.mean([_half_width(estimate) for estimate in printed(plan, USERS, 3)])
    assert _half_width(_at_size(plan, 2000, plan.outputs[0])) == pytest.approx(found, rel=0.03)


@pytest.mark.slow
@pytest.mark.parametrize("sql", ["MIN(value)", "MAX(value)"])
def test_how_many_lie_beyond_an_extreme_is_foreseen(sql: str) -> None:
    """Which edge is the outermost that is seen differs from run to run, and the count beyond it with it."""
    plan = plan_of(sql, **BOUNDS, releases=20)
    found = np.mean([estimate.at_most_beyond for estimate in printed(plan, EVENLY)])
    assert _half_width(_at_size(plan, 4000, plan.outputs[0])) == pytest.approx(found, rel=0.25)


USELESS: list[tuple[str, dict[str, Any], str]] = [
    ("COUNT(DISTINCT user)", {"epsilon": 0.05, "expected": 500, "releases": 20}, "fewer releases"),
    ("COUNT(DISTINCT user)", {"epsilon": 0.05, "universe": 200, "window": "1 hour"}, "a longer window"),
    ("COUNT(*)", {"epsilon": 0.001, "expected": 100}, "a larger epsilon"),
    ("SUM(value)", {**BOUNDS, "epsilon": 0.001, "expected": 100}, "a larger epsilon"),
    ("AVG(value)", {**BOUNDS, "epsilon": 0.01, "expected": 100}, "a larger epsilon"),
    ("QUANTILE_CONT(value, 0.5)", {**BOUNDS, "epsilon": 0.01, "expected": 300}, "a larger epsilon"),
    ("MAX(value)", {**BOUNDS, "epsilon": 0.01, "expected": 300}, "a larger epsilon"),
    ("DENSITY(user)", {"epsilon": 0.01, "universe": 200}, "a larger epsilon"),
    ("CROPPED_SUM(user, w, 5)", {"epsilon": 0.01, "universe": 200}, "a larger epsilon"),
    ("HEAVY_HITTERS(user, w, 50)", {"epsilon": 0.01, "universe": 200}, "a larger epsilon"),
]


@pytest.mark.parametrize(("sql", "settings", "way"), USELESS, ids=str)
def test_plans_of_no_use_are_warned_of_and_a_larger_epsilon_helps(sql: str, settings: dict[str, Any], way: str) -> None:
    text = accuracy_warning(plan_of(sql, **settings))
    assert text is not None
    assert "too uncertain to use" in text
    assert way in text
    assert accuracy_warning(plan_of(sql, **{**settings, "epsilon": 50.0, "releases": 1})) is None


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_sound_plans_are_not_warned_of(case: str) -> None:
    sql, settings, size, rows, _ = CASES[case]
    plan = plan_of(sql, **{"expected": int(size), **settings, "epsilon": 2.0})
    assert accuracy_warning(plan) is None
    assert not any(too_uncertain(plan, estimate, plan.outputs[0]) for estimate in printed(plan, *rows)[:5])


def test_an_answer_is_judged_by_what_was_released() -> None:
    plan = plan_of("COUNT(DISTINCT user)")

    def answer(value: float, low: float, high: float) -> Estimate:
        return Estimate(value=value, standard_error=1.0, claim=plan.claim, interval_rule=lambda level: (low, high))

    assert too_uncertain(plan, answer(14_261, 0, 119_676), plan.outputs[0])
    assert too_uncertain(plan, answer(14_261, 0, math.inf), plan.outputs[0])
    assert not too_uncertain(plan, answer(14_261, 9_000, 20_000), plan.outputs[0])
    assert not too_uncertain(plan, answer(0, 0, 9), plan.outputs[0])  # nobody, or next to nobody
    reported = plan_of("COUNT(DISTINCT user)", expected=100_000)
    assert not too_uncertain(reported, answer(14_261, 0, 119_676), reported.outputs[0])  # few of those expected
    assert "expected =" in improvement_hint(plan)
    assert "expected =" not in improvement_hint(reported)
    empty = Estimate(value=math.nan, standard_error=math.inf, claim=plan.claim, support=(0, 9))
    assert not too_uncertain(plan_of("AVG(value)", **BOUNDS), empty, plan_of("AVG(value)", **BOUNDS).outputs[0])


CONFIG = """
[stream]
name = "s"
user = "user"
columns = { user = "int" }

[[query]]
name = "visitors"
sql = "SELECT COUNT(DISTINCT user) FROM s"
epsilon = 0.05
universe = 200
"""


def test_check_explain_and_answers_say_so(tmp_path: Path) -> None:
    file = tmp_path / "s.toml"
    file.write_text(CONFIG)
    runner = CliRunner()
    checked = runner.invoke(app, ["check", str(file)])
    assert checked.exit_code == 0
    assert "warning: [[query]] visitors: with 200 users the 95% error is" in checked.stderr
    assert "What would help: a larger epsilon" in checked.stderr
    reported = json.loads(runner.invoke(app, ["explain", str(file), "--json"]).stdout)
    assert len(reported["warnings"]) == 1
    assert "  warning     with 200 users" in explain(load_config(file)).text()
    (tmp_path / "rows.csv").write_text("user\n" + "\n".join(map(str, range(50))) + "\n")
    with Engine(load_config(file), rng=SeededSource(3)) as engine:
        ingest(engine, [str(tmp_path / "rows.csv")])
        engine.finish()
        (answer,) = answers(engine)
        text = _answer_table(engine, [answer])
    assert answer["too_uncertain"] is True
    assert isinstance(answer["value"], float)  # the number stays readable
    assert answer["help"] == "a larger epsilon"
    assert "too uncertain" in text
    assert "visitors: too uncertain to use; what would help: a larger epsilon" in text
