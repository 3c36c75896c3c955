"""`delta` in a query about rows: what is planned, charged and answered."""

from pathlib import Path
from typing import Any

import pytest

from panstream.engine.planner.accuracy import expected_errors
from panstream.engine.planner.query_plan import QueryPlan, plan_all, planned_ledger
from panstream.engine.runtime.engine import Engine
from panstream.errors import ConfigError
from panstream.privacy.composition import zcdp_rho
from tests.engine.runtime.streams import Clock, config, question, rows

BOUNDS = {"lower": 0.0, "upper": 10.0}
LINEAR = ["COUNT(*)", *(f"{name}(value)" for name in ("SUM", "AVG", "VAR_POP", "STDDEV", "MIN", "MAX", "MEDIAN"))]


def planned(sql: str, **options: Any) -> tuple[QueryPlan, ...]:
    return plan_all(config(question("q", sql, epsilon=1.0, delta=1e-6, **options)))


@pytest.mark.parametrize("what", LINEAR)
def test_every_query_about_rows_takes_a_delta(what: str) -> None:
    bounds = {} if what == "COUNT(*)" else BOUNDS
    (plan,) = planned(f"SELECT {what} FROM s", window="1 day", contributions=8, **bounds)
    assert (plan.claim.epsilon, plan.claim.delta, plan.claim.inputs) == (1.0, 1e-6, "adaptive")
    assert plan.algorithm.window_loss().rho_joint == pytest.approx(zcdp_rho(1.0, 1e-6), rel=1e-3)
    assert 1e-6 < plan.loss_exceeds() < 1e-4


def test_groups_that_one_user_can_touch_count_each_in_the_ledger() -> None:
    groups = {"groups": {"region": ["n", "s", "w"]}, "groups_per_user": 2}
    settings = config(
        question("q", "SELECT COUNT(*) FROM s GROUP BY region", epsilon=1.0, delta=1e-6, contributions=3, **groups)
    )
    plans = plan_all(settings)
    assert (plans[0].claim.epsilon, plans[0].claim.delta) == (2.0, 2e-6)
    assert plans[0].loss_exceeds() == pytest.approx(2 * plans[0].algorithm.loss_exceeds())
    (total,) = [total for total in planned_ledger(settings, plans).totals() if total.unit == "user"]
    assert (total.epsilon, total.delta) == (2.0, 2e-6)


def test_parts_of_a_statement_divide_delta() -> None:
    plans = planned("SELECT COUNT(*), AVG(value), MAX(value) FROM s", **BOUNDS)
    assert len(plans) > 1
    assert sum(plan.claim.delta for plan in plans) == pytest.approx(1e-6)
    assert sum(plan.claim.epsilon for plan in plans) <= 1.0


@pytest.mark.parametrize("sql", ["SELECT COUNT(DISTINCT user) FROM s", "SELECT DENSITY(user) FROM s"])
def test_queries_about_users_have_none(sql: str) -> None:
    with pytest.raises(ConfigError, match="delta is for queries about rows; .* has noise in its bits"):
        planned(sql, universe=100)


@pytest.mark.parametrize("delta", [-1.0, 1.0])
def test_a_wrong_delta_is_refused(delta: float) -> None:
    with pytest.raises(ConfigError, match=r"\[\[query\]\] q: delta must be in \[0, 1\)"):
        plan_all(config(question("q", "SELECT COUNT(*) FROM s", delta=delta)))


def test_an_answer_carries_its_delta() -> None:
    with Engine(config(question("q", "SELECT COUNT(*) FROM s", epsilon=1.0, delta=1e-6))) as engine:
        engine.apply(rows(["q"], count=200))
        engine.release("q")
        (release,) = engine.log.history("q")
    assert release.record["claim"]["delta"] == 1e-6
    assert abs(release.record["value"] - 200) < 60  # 9 standard deviations


@pytest.mark.parametrize(("horizon", "name"), [(20, "ContinualCount"), (1000, "GaussMarkovCount")])
def test_long_counts_have_correlated_noise_where_it_is_less(horizon: int, name: str) -> None:
    (plan,) = planned("SELECT COUNT(*) FROM s", every="1 hour", horizon=horizon)
    assert type(plan.algorithm).__name__ == name
    assert ("correlated over time" in plan.why) == (name == "GaussMarkovCount")
    assert (plan.claim.epsilon, plan.claim.delta) == (1.0, 1e-6)
    assert all(error > 0 for _, error in expected_errors(plan))


def test_a_long_count_is_answered(tmp_path: Path) -> None:
    """At a budget at which the answers are within six standard deviations; the second life reads the stored state."""
    query = question("q", "SELECT COUNT(*) FROM s", epsilon=20.0, delta=1e-6, every=10, horizon=1000)
    settings = config(query, directory=tmp_path)
    clock = Clock(1000.0)
    for _ in range(2):
        with Engine(settings, clock=clock) as engine:
            assert type(engine.plans[0].algorithm).__name__ == "GaussMarkovCount"
            engine.apply(rows(["q"], count=600))
            clock.now += 25.0
            engine.advance()
            records = [release.record for release in engine.log.history("q")]
    assert len(records) == 5
    assert abs(records[1]["value"] - 600) < 6 * records[1]["standard_error"] < 60
    assert abs(records[-1]["value"] - 1200) < 6 * records[-1]["standard_error"] < 60
