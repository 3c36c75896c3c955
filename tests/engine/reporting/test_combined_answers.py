"""Answers that are computed from several states: values, intervals, claims, and what HAVING and ORDER BY see."""

import json
import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

import panstream
from panstream.engine.reporting import export
from panstream.engine.reporting.answer import Answer
from panstream.engine.reporting.combined_answers import combine_answers
from panstream.engine.runtime.engine import Engine
from panstream.engine.sql.formulas import Arithmetic, StateValue
from panstream.engine.sql.result_view import CombinedAnswer
from panstream.engine.storage.release_log import Release
from panstream.privacy.claim import Claim
from tests.engine.runtime.streams import config, question, rows
from tests.statistical import ALPHA

RATIO = "SELECT SUM(price) / COUNT(DISTINCT customer) AS per_customer FROM sales"
USERS = 400
ROWS = 3000
DRAW = np.random.default_rng(11)
SALES = pa.table({"customer": np.arange(ROWS) % USERS, "price": DRAW.uniform(0, 10, ROWS).round(2)})
TRUE = SALES.column("price").to_numpy().sum() / USERS


def ask(sql: str = RATIO, **settings: Any) -> Answer:
    given = {"user": "customer", "contributions": 8, "universe": USERS, "lower": 0, "upper": 10, "epsilon": 2.0}
    return panstream.query(SALES, sql, ledger=False, **{**given, **settings})


def test_the_interval_of_a_quotient_covers() -> None:
    """Judged by a binomial law at ALPHA: the box of both intervals covers at least as often as it says."""
    answers = [next(iter(ask())) for _ in range(150)]
    covered = sum(row["low"] <= TRUE <= row["high"] for row in answers)
    assert stats.binom.cdf(covered, len(answers), 0.95) > ALPHA
    widths = [row["high"] - row["low"] for row in answers]
    assert 0 < np.median(widths) < TRUE  # and it says something
    assert all(row["low"] <= row["estimate"] <= row["high"] for row in answers)
    assert {row["standard_error"] for row in answers} == {None}


def test_parts_are_published_at_the_level_at_which_all_hold() -> None:
    queries = question("q", RATIO.replace("customer", "user").replace("price", "value").replace("sales", "s"))
    stream = config({**queries, "universe": 1000, "lower": 0, "upper": 8, "contributions": 2})
    with Engine(stream, zero_noise=True) as engine:
        parts = [plan.config.name for plan in engine.plans]
        engine.apply(rows(parts, ids=np.array([1, 1, 2, 3]), values=[1.0, 2.0, 4.0, 8.0]))
        engine.finish()
        (answer,) = export.answers(engine)
        levels = {release.record["level"] for release in engine.log.history()}
    assert answer["name"] == "q.per_user"
    assert [answer["value"], *answer["interval"]] == pytest.approx([5.0, 5.0, 5.0])
    assert levels == {0.975}
    assert json.loads(json.dumps(answer))["claim"]["unit"] == "user"


def test_what_is_shown_besides_keeps_its_own_interval() -> None:
    answer = ask(RATIO.replace(" FROM", ", SUM(price) AS revenue, COUNT(DISTINCT customer) AS customers FROM"))
    assert [row["aggregate"] for row in answer] == ["per_customer", "revenue", "customers"]
    ratio, revenue, customers = answer
    assert ratio["low"] <= revenue["estimate"] / customers["estimate"] <= ratio["high"]
    assert len(answer.claims) == 2  # the same two states answer all three


def test_groups_having_and_order() -> None:
    regions = pa.array(np.where(np.arange(ROWS) % USERS < USERS // 4, "a", "b"))
    sql = (
        "SELECT region, SUM(price) / COUNT(DISTINCT customer) AS r FROM t GROUP BY region HAVING r > 0 "
        "ORDER BY r DESC, region"
    )
    answer = panstream.query(
        SALES.append_column("region", regions),
        sql,
        user="customer",
        contributions=8,
        universe=USERS,
        lower=0,
        upper=10,
        groups={"region": ["a", "b", "none"]},
        epsilon=300,
        ledger=False,
    )
    by_region = {row["region"]: row["estimate"] for row in answer}
    assert by_region["a"] == pytest.approx(TRUE, rel=0.2)
    assert by_region["b"] == pytest.approx(TRUE, rel=0.2)
    shown = [row["estimate"] for row in answer if row["region"] != "none"]
    assert shown == sorted(shown, reverse=True)


def release(name: str, value: float, interval: list[float | None]) -> Release:
    record = {"value": value, "unclipped": value, "interval": interval, "level": 0.975}
    return Release(query=f"q.{name}", number=1, time="2026-01-01T00:00:00Z", record=record)


def test_a_divisor_that_may_be_zero_has_no_interval() -> None:
    releases = {"sum": release("sum", -5.0, [-6.0, -4.0]), "users": release("users", 2.0, [-1.0, 5.0])}
    claims = {name: Claim(epsilon=1.0, unit="user") for name in releases}
    combine_answers(
        CombinedAnswer(name="r", formula=Arithmetic("/", StateValue("sum"), StateValue("users"))), "q", releases, claims
    )
    record = releases["r"].record
    assert record["interval"] == [None, None]
    assert record["too_uncertain"]
    assert "a divisor may be 0" in record["help"]


def test_claims_add_up_and_are_about_an_event_if_their_units_differ() -> None:
    releases = {"sum": release("sum", 5.0, [4.0, 6.0]), "users": release("users", 2.0, [1.0, None])}
    ratio = CombinedAnswer(name="r", formula=Arithmetic("/", StateValue("sum"), StateValue("users")))
    combine_answers(
        ratio,
        "q",
        releases,
        {"sum": Claim(epsilon=1.0, unit="event"), "users": Claim(epsilon=2.0, unit="user", event_epsilon=0.5)},
    )
    record = releases["r"].record
    assert (record["claim"]["unit"], record["claim"]["epsilon"], record["epsilon"]) == ("event", 1.5, 1.5)
    assert record["interval"] == [0.0, 6.0]
    other = {"sum": releases["sum"]}
    combine_answers(ratio, "q", other, {})
    assert list(other) == ["sum"]  # a part is missing
    assert math.isfinite(record["value"])
