"""RETENTION in the engine: one state over all windows, its answers, late rows, restarts, and what is refused."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from panstream.algorithms.continual_users import RetainedBitmap
from panstream.engine.config.config import Config
from panstream.engine.planner.accuracy import error_at, expected_errors, planned_error
from panstream.engine.planner.person_period import planned_person_total
from panstream.engine.planner.query_plan import plan_all
from panstream.engine.runtime.engine import Engine
from panstream.engine.storage.release_log import Release
from panstream.errors import BudgetExceeded, ConfigError
from panstream.privacy.person_history import AskedQuery, worst_total
from panstream.privacy.person_loss import PERIOD
from tests.engine.runtime.streams import COUNT, Clock, config, question, rows

WEEK = 604_800.0
BACK = question("back", "SELECT RETENTION(user, 2) FROM s", window="7 days", expected=2000, epsilon=4.0, horizon=40)
NAMES = ["users", "new", "back_1", "back_2", "rate_1", "rate_2"]


def planned(directory: Path | None = None, **settings: Any) -> Config:
    return config(BACK, directory=directory, **{"time": "at", **settings})


def feed(engine: Engine, week: int, ids: Any, late: int = 0) -> None:
    size = len(ids)
    times = np.full(size, (week + 0.5) * WEEK)
    times[:late] -= WEEK
    engine.apply(rows(["back"], np.asarray(ids), times=times))


def visitors(week: int) -> Any:
    return np.arange(1200 * week, 1200 * week + 2000)


def values(engine: Engine, name: str) -> list[float]:
    return [release.record["value"] for release in engine.log.history(f"back.{name}")]


def test_every_window_is_compared_with_those_before_it() -> None:
    with Engine(planned(), zero_noise=True) as engine:
        for week in range(5):
            feed(engine, 2900 + week, visitors(week))
        engine.finish()
        assert sorted({release.query for release in engine.log.history()}) == sorted(f"back.{name}" for name in NAMES)
        assert values(engine, "users") == pytest.approx([2000] * 5, rel=0.05)
        assert values(engine, "back_1")[1:] == pytest.approx([800] * 4, rel=0.15)
        assert values(engine, "new")[1:] == pytest.approx([1200] * 4, rel=0.1)
        assert values(engine, "rate_1")[-1] == pytest.approx(0.4, rel=0.1)
        assert values(engine, "back_1")[0] is None
        assert values(engine, "back_2")[:2] == [None, None]
        record = list(engine.log.history("back.back_2"))[-1].record
        assert record["lag"] == 2
        assert record["cohort"] == ["2025-08-14T00:00:00Z", "2025-08-21T00:00:00Z"]
        assert record["window"] == ["2025-08-28T00:00:00Z", "2025-09-04T00:00:00Z"]
        assert next(iter(engine.log.history("back.users"))).record.get("lag") is None


def test_a_week_without_rows_is_a_window() -> None:
    with Engine(planned(), zero_noise=True) as engine:
        feed(engine, 2900, visitors(0))
        feed(engine, 2902, visitors(0))
        engine.finish()
        assert values(engine, "users") == pytest.approx([2000, 0, 2000], rel=0.05, abs=5)
        assert values(engine, "back_1")[1:] == pytest.approx([0, 0], abs=30)
        assert values(engine, "back_2")[2] == pytest.approx(2000, rel=0.1)


def test_rows_of_windows_that_are_over_are_late_and_dropped() -> None:
    with Engine(planned(lateness="1 day"), zero_noise=True) as engine:
        feed(engine, 2900, visitors(0))
        times = np.full(500, 2901.5 * WEEK)
        times[1:401] -= WEEK
        result = engine.apply(rows(["back"], np.arange(100_000, 100_500), times=times))
        assert len(result.late) == 400
        engine.finish()
        assert values(engine, "users") == pytest.approx([2000, 100], rel=0.1)


def test_a_restart_goes_on_with_retained_windows(tmp_path: Path) -> None:
    shown: dict[tuple[str, int], Release] = {}

    def publish(release: Release) -> None:
        shown[release.query, release.number] = release

    for week in range(4):
        with Engine(planned(tmp_path), publish=publish) as engine:
            feed(engine, 2900 + week, visitors(week))
    with Engine(planned(tmp_path)) as engine:
        engine.finish()
        assert len(values(engine, "users")) == 4
        last = list(engine.log.history("back.back_1"))[-1].record
        assert abs(last["unclipped"] - 800) < 6 * last["standard_error"]
        for key, release in shown.items():
            stored = next(r for r in engine.log.history(key[0]) if r.number == key[1])
            assert stored.record == release.record


def test_answers_that_were_stored_and_not_shown_are_shown_unchanged(tmp_path: Path) -> None:
    """A process ends after it has stored a drawn answer, and before it has shown it."""

    def fail(release: Release) -> None:
        raise OSError("ended")

    with Engine(planned(tmp_path)) as engine:
        feed(engine, 2900, visitors(0))
    with pytest.raises(OSError, match="ended"), Engine(planned(tmp_path), publish=fail) as engine:
        feed(engine, 2901, visitors(1))
    with Engine(planned(tmp_path)) as engine:
        first = values(engine, "users")
        assert len(first) == 1
    with Engine(planned(tmp_path)) as engine:
        assert values(engine, "users") == first


def test_a_step_that_was_not_stored_shows_nothing(tmp_path: Path) -> None:
    """A process ends between the draw and the store: nothing was shown, and the stored cells are those before it."""
    shown: list[Release] = []
    with Engine(planned(tmp_path)) as engine:
        feed(engine, 2900, visitors(0))
    with Engine(planned(tmp_path), publish=shown.append) as engine:
        times = np.full(2000, 2901.5 * WEEK)
        engine.apply(rows(["back"], visitors(1), times=times), commit=False)
    assert not shown
    with Engine(planned(tmp_path)) as engine:
        assert not values(engine, "users")
        feed(engine, 2901, visitors(1))
        engine.finish()
        assert len(values(engine, "users")) == 2


def test_arrival_time_closes_windows_without_rows() -> None:
    clock = Clock(2900 * WEEK + 5)
    query = {key: value for key, value in BACK.items() if key != "horizon"}
    with Engine(config(query), clock=clock, zero_noise=True) as engine:
        for week in range(3):
            clock.now = (2900 + week) * WEEK + 10
            engine.apply(rows(["back"], visitors(0)))
        clock.now = 2904 * WEEK + 1
        engine.advance()
        assert values(engine, "users") == pytest.approx([2000, 2000, 2000, 0], rel=0.05, abs=5)


def test_the_person_account_has_every_window_that_a_copy_shows() -> None:
    plans = plan_all(planned())
    (plan,) = plans
    (share,) = planned_person_total(planned(), plans).shares
    loss = plan.algorithm.window_loss()
    assert (share.windows, share.open, share.opening, share.retained) == (6, 1, 0, 2)
    assert share.epsilon == pytest.approx(
        6 * loss.answers + (loss.joint - loss.answers) + 2 * (loss.closed - loss.answers), rel=1e-9
    )
    stored = planned_person_total(planned(Path("state")), plan_all(planned(Path("state")))).shares[0]
    assert (stored.open, stored.opening, stored.retained) == (1, 1, 2)


def test_the_history_of_a_person_account_is_read_back() -> None:
    plan = plan_all(planned())[0]
    share = planned_person_total(planned(), [plan]).shares[0]
    asked = AskedQuery(share=share, window=WEEK)
    assert AskedQuery.from_json(asked.to_json()) == asked
    assert asked.shortened(2).retained == 1
    assert worst_total([asked], PERIOD).epsilon == pytest.approx(share.epsilon)
    at_delta = worst_total([asked], PERIOD, None, 1e-6)
    assert at_delta.epsilon <= share.epsilon * (1 + 1e-9)


def test_a_budget_that_is_too_small_is_refused() -> None:
    total = planned_person_total(planned(), plan_all(planned())).epsilon
    with pytest.raises(BudgetExceeded, match="'back' takes"):
        plan_all(planned(budget={"person": 0.9 * total}))
    assert plan_all(planned(budget={"person": 1.01 * total}))


def test_a_budget_is_divided_between_retention_and_others() -> None:
    undivided = {key: value for key, value in BACK.items() if key != "epsilon"}
    counts = question("users", "SELECT COUNT(DISTINCT user) FROM s", window="7 days", expected=2000)
    counts.pop("epsilon")
    settings = config(undivided, counts, time="at", budget={"person": 16})
    plans = plan_all(settings)
    total = planned_person_total(settings, plans)
    assert 0.99 * 16 <= total.epsilon <= 16


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"window": None}, "needs window"),
        ({"expected": None}, "needs expected"),
        ({"every": "1 day"}, "takes no every"),
        ({"announced": 1}, "takes no announced"),
        ({"universe": 1000}, "takes no universe"),
        ({"horizon": None}, "needs horizon"),
        ({"expected": 50}, "it needs about 380 at this epsilon"),
        ({"epsilon": 0.1, "expected": 100}, "it needs"),
        ({"sql": "SELECT RETENTION(user, 13) FROM s"}, "1 to 12"),
        ({"sql": "SELECT RETENTION(user, 1.5) FROM s"}, "whole number"),
        ({"sql": "SELECT RETENTION(name, 2) FROM s"}, "RETENTION\\(user, windows\\)"),
        ({"sql": "SELECT RETENTION(user, 2), COUNT(*) FROM s"}, "on its own"),
        ({"sql": "SELECT 2 * RETENTION(user, 2) FROM s"}, "on its own"),
        ({"sql": "SELECT RETENTION(user, 2) FROM s LIMIT 3"}, "on its own"),
    ],
)
def test_what_retention_cannot_do_is_refused(change: dict[str, Any], message: str) -> None:
    query = {key: value for key, value in {**BACK, **change}.items() if value is not None}
    with pytest.raises(ConfigError, match=message):
        plan_all(config(query, time="at"))


def test_signed_weights_are_refused() -> None:
    with pytest.raises(ConfigError, match="cannot forget a user"):
        plan_all(config(BACK, time="at", weight="w"))


def test_groups_have_states_of_their_own() -> None:
    query = {
        **BACK,
        "sql": "SELECT region, RETENTION(user) FROM s WHERE value > 0 GROUP BY region",
        "groups": {"region": ["north", "south"]},
    }
    (plan,) = plan_all(config(query, time="at"))
    assert len(plan.series) == 2 * 10
    assert plan.groups_touched == 2
    assert plan.algorithm.lags == 4


def test_errors_are_stated_for_three_sizes() -> None:
    (plan,) = plan_all(planned())
    assert isinstance(plan.algorithm, RetainedBitmap)
    errors = expected_errors(plan)
    assert len(errors) == 9
    assert all(math.isfinite(error) for _, error in errors)
    assert planned_error(plan) == error_at(plan, 2000)


def test_other_queries_are_not_changed_by_it() -> None:
    with Engine(config(COUNT, BACK, time="at"), zero_noise=True) as engine:
        engine.apply(rows(["count", "back"], visitors(0), times=np.full(2000, 2900.5 * WEEK)))
        engine.finish()
        assert next(iter(engine.log.history("count"))).record["value"] == 2000


def test_windows_of_the_calendar() -> None:
    with Engine(config({**BACK, "window": "week"}, time="at", time_zone="Europe/Berlin"), zero_noise=True) as engine:
        for week in range(3):
            feed(engine, 2900 + week, visitors(week))
        engine.finish()
        record = list(engine.log.history("back.back_1"))[-1].record
        assert record["window"] == ["2025-08-10T22:00:00Z", "2025-08-17T22:00:00Z"]
        assert record["cohort"] == ["2025-08-03T22:00:00Z", "2025-08-10T22:00:00Z"]
        assert record["value"] == pytest.approx(800, rel=0.15)
