"""The published share of rows that could not be used: what it counts, what it costs, what it protects."""

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import stats

from panstream.algorithms.continual.sums import ContinualCount
from panstream.engine.adhoc import query
from panstream.engine.config.config import Config
from panstream.engine.planner.query_plan import plan_all
from panstream.engine.reporting.unusable_share import is_published_for, published_share, with_paid_share, with_share
from panstream.engine.runtime.engine import Engine
from panstream.engine.runtime.ingest import ingest_all, open_configured_source
from panstream.engine.runtime.selector import Selector
from panstream.errors import InvalidParameter
from panstream.privacy.rounding import sum_rounded_up
from tests.engine.runtime.streams import COUNT, DISTINCT, SUM, config, question
from tests.statistical import ALPHA

MEAN = question("mean", "SELECT AVG(value) FROM s", lower=0, upper=8)
FEW = {**COUNT, "name": "few", "contributions": 3}
LINES = [
    "1,ann,2.5,north,1,2024-01-01 00:00:00",
    "x,ann,2.5,north,1,2024-01-01 00:00:00",  # the user
    ",ann,2.5,north,1,2024-01-01 00:00:00",
    "1,ann,,north,1,2024-01-01 00:00:00",  # no value
    "1,ann,2.5,north,1,yesterday",  # the time
    "1,ann",
]
GOOD = [True, False, False, False, False, False]


def counted(settings: Config, lines: list[str], folder: Path) -> tuple[list[float], Any]:
    path = folder / "rows.csv"
    path.write_text("user,name,value,region,w,at\n" + "".join(f"{line}\n" for line in lines))
    with Selector(settings) as select, Engine(settings, zero_noise=True) as engine:
        ingest_all(engine, open_configured_source(settings, [str(path)]), select, once=True)
        engine.step()
        engine.finish()
        (plan,) = (plan for plan in engine.plans if plan.config.of_unusable)
        counts = [engine.log.last(series) for series in plan.series]
        return [release.record["value"] for release in counts if release is not None], published_share(engine)


@given(lines=st.lists(st.integers(0, len(LINES) - 1), max_size=12), position=st.integers(0, 12), more=st.integers(0, 5))
@settings(max_examples=8, deadline=None)
def test_every_row_is_in_one_counter(
    tmp_path_factory: pytest.TempPathFactory, lines: list[int], position: int, more: int
) -> None:
    """So one row more moves one counter by one, whatever it holds and wherever it stands."""
    folder = tmp_path_factory.mktemp("rows")
    asked = with_share(config(MEAN, DISTINCT, time="at", max_ahead="any"), 0.05)
    counts, share = counted(asked, [LINES[line] for line in lines], folder)
    good = sum(GOOD[line] for line in lines)
    assert counts == [good, len(lines) - good]
    assert share.value == (None if not lines else pytest.approx(1 - good / len(lines)))
    longer = [*lines[:position], more, *lines[position:]]
    again, _ = counted(asked, [LINES[line] for line in longer], folder)
    assert np.abs(np.subtract(again, counts)).sum() == 1


def test_rows_that_no_query_asked_for_are_usable(tmp_path: Path) -> None:
    """Of a row that WHERE leaves out, the value may be missing; a column that is not read may hold anything."""
    asked = with_share(config(question("q", "SELECT AVG(value) FROM s WHERE region = 'x'", lower=0, upper=1)), 0.05)
    counts, _ = counted(asked, [LINES[3], LINES[4], LINES[1]], tmp_path)
    assert counts == [3, 0]


@given(epsilon=st.floats(1e-3, 50.0), states=st.integers(1, 3))
@example(epsilon=1.0, states=1)
def test_the_share_is_paid_by_the_epsilon_that_is_given(epsilon: float, states: int) -> None:
    queries = [{**COUNT, "name": f"q{number}", "epsilon": epsilon / states} for number in range(states)]
    whole = sum_rounded_up(query["epsilon"] for query in queries)
    asked = with_paid_share(config(*queries), whole)
    spent = [Fraction(query.epsilon) for query in asked.queries]
    assert sum(spent) <= Fraction(whole)
    assert sum(spent) > Fraction(whole) * Fraction(999_999, 1_000_000)
    assert float(spent[-1]) == pytest.approx(whole / 20)
    assert [plan.claim.epsilon for plan in plan_all(asked)] == [query.epsilon for query in asked.queries]


@pytest.mark.parametrize(
    ("queries", "unit"),
    [
        ([COUNT], "event"),
        ([DISTINCT, SUM], "event"),
        ([DISTINCT], None),
        ([FEW], "user"),
        ([FEW, {**FEW, "name": "more", "contributions": 7}], "user"),
        ([FEW, DISTINCT], None),
        ([{**FEW, "window": "1 day"}], None),
        ([{**DISTINCT, "unit": "event", "every": "1 hour", "horizon": 5}], "event"),
        ([question("names", "SELECT name, COUNT(*) FROM s GROUP BY name")], "event"),
    ],
)
def test_the_unit_is_that_of_the_answers(queries: list[dict[str, Any]], unit: str | None) -> None:
    """So no total that was bounded without the share loses its bound."""
    asked = config(*queries)
    assert is_published_for(asked.queries) == (unit is not None)
    if unit is None:
        with pytest.raises(InvalidParameter, match="contributions"):
            with_share(asked, 0.05)
        return
    *plans, share = plan_all(with_share(asked, 0.05))
    assert share.claim.unit == unit
    assert share.claim.unit in {plan.claim.unit for plan in plans}
    assert share.claim.epsilon == 0.05


def test_rows_of_one_user_are_protected_together() -> None:
    """K rows move both counters by K in total, and each of them loses epsilon / K: no id is needed, nor remembered."""
    share = plan_all(with_share(config(FEW, {**FEW, "name": "more", "contributions": 7}), 0.07))[-1]
    assert share.algorithm == ContinualCount(epsilon=0.07, horizon=1, contributions=7)
    assert share.claim.event_epsilon == pytest.approx(0.01)
    assert share.claim.epsilon == 0.07
    assert len(share.groups) == 2


def test_rows_without_a_user_are_counted_where_users_are_protected(tmp_path: Path) -> None:
    counts, _ = counted(with_share(config(FEW), 0.05), [*LINES[:3], LINES[0], LINES[0], LINES[0]], tmp_path)
    assert counts == [4, 2]  # all four rows of user 1, though answers count three


def test_the_interval_covers(tmp_path: Path) -> None:
    """In 95% of runs at least, with a chance of ALPHA that the test fails although it does."""
    asked = with_share(config(COUNT), 0.5)
    truth = 30 / 430
    covered = 0
    for _ in range(200):
        with Engine(asked) as engine:
            query = engine._queries["unusable rows"]
            for group, count in enumerate((400, 30)):
                monitor = query.monitors[0, group]
                monitor.apply(monitor.algorithm.batch(count))
            engine.finish()
            share = published_share(engine)
        assert share is not None
        assert 0 <= share.low <= share.high <= 1
        covered += share.low <= truth <= share.high
    assert stats.binom.cdf(covered, 200, 0.95) > ALPHA


def test_an_answer_about_a_file(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("n\n" + "1\n" * 900 + "x\n" * 100)
    options: dict[str, Any] = {"lower": 0, "upper": 1, "types": {"n": "int"}}
    answer = query(path, "SELECT SUM(n) FROM rows", epsilon=1.0, **options)
    assert answer.unusable is not None
    assert "Rows that could not be used: about" in str(answer)
    assert answer.to_dict()["unusable"]["interval"] == [answer.unusable.low, answer.unusable.high]
    assert answer.cost == "epsilon 1 for one event"
    assert [claim.epsilon for claim in answer.claims] == [pytest.approx(0.95), pytest.approx(0.05)]
    lines = (tmp_path / "rows.csv.ledger").read_text().splitlines()
    assert ["unusable rows" in line for line in lines] == [False, False, True]
    without = query(path, "SELECT SUM(n) FROM rows", epsilon=1.0, unusable_share=False, **options)
    assert without.unusable is None
    assert [claim.epsilon for claim in without.claims] == [1.0]


def test_an_answer_that_protects_users_keeps_its_epsilon(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("user\n" + "ann\nbob\n" * 20)
    answer = query(path, "SELECT COUNT(DISTINCT user) FROM rows", epsilon=1.0, user="user")
    assert answer.unusable is None
    assert [(claim.unit, claim.epsilon) for claim in answer.claims] == [("user", 1.0)]
