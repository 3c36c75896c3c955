"""What one row loses to several queries: composed where that is less than the sum, with totals that explain prints."""

from __future__ import annotations

from typing import Any

import pytest

from panstream.engine.config.config import read_config
from panstream.engine.planner.event_total import compose_events, event_loss
from panstream.engine.planner.query_plan import plan_all, planned_ledger
from panstream.engine.reporting.explain import explain
from panstream.errors import InvalidParameter
from panstream.privacy.composition import zcdp_epsilon, zcdp_rho
from panstream.privacy.rounding import rounded_up

DELTA = 1e-6
COUNT = "SELECT COUNT(*) FROM s"
VISITORS = "SELECT COUNT(DISTINCT user) FROM s"


def config(*queries: dict[str, Any], **budget: Any) -> Any:
    stream = {"name": "s", "user": "user", "columns": {"user": "int", "x": "int"}, "budget": budget}
    named = [{"name": f"q{number}", "window": "1 day", **query} for number, query in enumerate(queries)]
    return read_config({"stream": stream, "query": named})


def test_losses_of_zcdp_are_composed() -> None:
    gaussian = {"sql": COUNT, "epsilon": 1.0, "delta": DELTA}
    whole = config(*[gaussian] * 4)
    plans = plan_all(whole)
    (total,) = planned_ledger(whole, plans).totals()
    composed = compose_events(total, plans)
    assert (total.epsilon, total.delta) == (4.0, 4 * DELTA)
    assert composed.delta == total.delta
    assert composed.epsilon == event_loss(plans, 4 * DELTA)[0]
    assert composed.epsilon == pytest.approx(zcdp_epsilon(4 * zcdp_rho(1.0, DELTA), 4 * DELTA), rel=1e-3)
    assert composed.epsilon < 2.1
    text = explain(whole).text()
    assert "epsilon 4, delta 4e-06, no limit declared" in text
    assert f"composed by zCDP at this delta: epsilon {rounded_up(composed.epsilon)}" in text


def test_a_sum_that_is_less_stays() -> None:
    whole = config({"sql": COUNT, "epsilon": 1.0}, {"sql": COUNT, "epsilon": 1.0, "delta": DELTA})
    plans = plan_all(whole)
    (total,) = planned_ledger(whole, plans).totals()
    assert compose_events(total, plans).epsilon <= total.epsilon
    visitors = config({"sql": VISITORS, "epsilon": 1.0})
    (other,) = planned_ledger(visitors, plan_all(visitors)).totals()
    assert compose_events(other, plan_all(visitors)) == other
    with pytest.raises(InvalidParameter, match="not one row"):
        event_loss(plan_all(visitors), DELTA)


def test_the_persons_number_stands_above_what_the_ledger_adds_up() -> None:
    queries = [
        {"sql": VISITORS, "epsilon": 1.0, "expected": 1000},
        {"sql": VISITORS, "epsilon": 1.0, "window": "7 days"},
    ]
    lines = explain(config(*queries)).text().splitlines()
    person = next(number for number, line in enumerate(lines) if line.startswith("one user, any 30 days"))
    ledger = next(number for number, line in enumerate(lines) if line.startswith("what the ledger adds up"))
    week = next(number for number, line in enumerate(lines) if line.startswith("  user-window of 1 week"))
    assert person < ledger < week
    assert "epsilon 8" in lines[week]  # seven days and the week itself, each with a copy
    assert "one copy, of the states that are open together, in any 30 days" in lines[week + 1]
    declared = explain(config({"sql": COUNT, "epsilon": 1.0}, {"sql": VISITORS, "epsilon": 1.0})).text()
    assert "not bounded by 'q0': nothing limits how often one user-window has what they protect" in declared
