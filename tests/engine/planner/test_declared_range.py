"""A declared range of the number of users: SQL has the bitmap whose start is released, and its intervals cover."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from panstream.algorithms.auto import DistinctCount
from panstream.algorithms.continual_users.continual_bitmap import ContinualBitmap
from panstream.engine.config.config import read_config
from panstream.engine.planner.accuracy import expected_errors
from panstream.engine.planner.query_plan import plan_all
from panstream.engine.reporting.explain import explain
from panstream.engine.runtime.engine import Engine
from panstream.errors import ConfigError
from tests.engine.runtime.streams import rows
from tests.statistical import assert_rate

RANGE = {"expected": 10_000, "at_most": 160_000}


def asked(sql: str = "SELECT COUNT(DISTINCT user) FROM s", stream: dict[str, Any] | None = None, **query: Any) -> Any:
    columns = {"user": "int", "w": "int"}
    whole = {"name": "s", "user": "user", "columns": columns, **(stream or {})}
    return read_config({"stream": whole, "query": [{"name": "q", "sql": sql, "epsilon": 1.0, **query}]})


def test_sql_chooses_what_python_chooses() -> None:
    (plan,) = plan_all(asked(**RANGE))
    wanted = DistinctCount(1.0, hash="siphash", **RANGE).algorithm
    assert isinstance(plan.algorithm, ContinualBitmap)
    assert plan.algorithm == wanted
    assert plan.algorithm.relative_error(10_000) == pytest.approx(0.0167, abs=0.0002)
    text = explain(asked(**RANGE)).text()
    assert "the start released once" in text
    (wider,) = plan_all(asked(expected=10_000))
    assert wider.algorithm.relative_error(10_000) == pytest.approx(0.0290, abs=0.0002)
    errors = [dict(expected_errors(one)) for one in (plan, wider)]
    size = next(label for label in errors[0] if "10,000" in label)
    assert errors[0][size] < 0.62 * errors[1][size]


def test_windows_and_rows_after_the_answer() -> None:
    (plan,) = plan_all(asked(window="1 day", **RANGE))
    assert isinstance(plan.algorithm, ContinualBitmap)
    engine = Engine(asked(**RANGE))
    engine.apply(rows(["q"], np.arange(9_000)))
    record = engine.release("q")[0].record
    assert abs(record["value"] - 9_000) < 9_000
    assert record["interval"][0] < record["value"] < record["interval"][1]
    engine.apply(rows(["q"], np.arange(10)))  # not counted: there is no further answer


@pytest.mark.parametrize(
    ("query", "stream", "reason"),
    [
        ({"at_most": 100}, {}, "expected beside at_most"),
        ({"expected": 200, "at_most": 100}, {}, "at_most must be at least expected"),
        ({**RANGE, "releases": 2}, {}, "for one answer"),
        ({**RANGE, "every": "1 hour", "horizon": 24}, {}, "for one answer"),
        ({**RANGE, "announced": 1}, {}, "for one answer"),
        ({**RANGE, "sql": "SELECT COUNT(*) FROM s"}, {}, "on one machine"),
        (RANGE, {"weight": "w"}, "without a weight"),
    ],
)
def test_refused(query: dict[str, Any], stream: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        plan_all(asked(stream=stream, **query))


@pytest.mark.slow
@pytest.mark.parametrize(("users", "expected"), [(200, 2_000), (2_000, 2_000), (20_000, 2_000)])
def test_intervals_cover_far_from_what_was_expected(users: int, expected: int) -> None:
    """A tenth, once and ten times the expected number: 100 runs each. False alarm with probability ALPHA."""
    (plan,) = plan_all(asked(expected=expected, at_most=10 * expected))
    covered = 0
    for run in range(100):
        monitor = plan.algorithm.start()
        monitor.update(np.arange(users) + run * 1_000_003)
        low, high = monitor.release().interval(0.95)
        covered += low <= users <= high
    assert_rate(min(covered, 95), 100, 0.95, "covered")
