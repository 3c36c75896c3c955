"""[[sketch]] in the engine: published when a window closes, stored before they are shown, answered from the log."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from panstream.algorithms.distinct import Sketch
from panstream.engine.config.config import read_config
from panstream.engine.planner.person_period import planned_person_total
from panstream.engine.planner.query_plan import plan_all
from panstream.engine.reporting.sketch_store import ask_sketches, read_sketches
from panstream.engine.runtime.engine import Engine
from panstream.engine.sql.parser import table_read
from panstream.engine.storage.release_log import Release
from panstream.errors import BudgetExceeded, ConfigError, InvalidParameter, MergeError, UnsupportedQuery
from tests.engine.runtime.streams import COLUMNS, rows

WEEK = 604_800.0
FIRST = 2900  # 2025-07-31
SKETCH = {
    "name": "weeks",
    "sql": "SELECT SKETCH(user) FROM s",
    "window": "7 days",
    "epsilon": 4.0,
    "expected": 6000,
    "publish": True,
}
SOME = {**SKETCH, "name": "some", "sql": "SELECT SKETCH(user) FROM s WHERE value > 0"}


def settings(directory: Path, *sketches: dict[str, Any], **stream: Any) -> Any:
    columns = {"name": "s", "columns": COLUMNS, "user": "user", "time": "at", **stream}
    return read_config(
        {"stream": columns, "sketch": list(sketches or [SKETCH]), "store": {"directory": str(directory)}}
    )


def feed(engine: Engine, week: int) -> None:
    ids = np.arange(1500 * week, 1500 * week + 2000)
    names = [query.name for query in engine.config.queries]
    times = np.full(ids.size, (FIRST + week + 0.5) * WEEK)
    engine.apply(rows(names, ids, times=times))


@pytest.fixture
def store(tmp_path: Path) -> Path:
    with Engine(settings(tmp_path, SKETCH, SOME)) as engine:
        for week in range(4):
            feed(engine, week)
        engine.finish()
    return tmp_path


def test_every_window_publishes_its_sketch(store: Path) -> None:
    stored = read_sketches(store, "weeks")
    assert stored[0].label == "weeks, 2025-07-31 to 2025-08-07"
    assert len(stored) == 4
    for one in stored:
        low, high = one.sketch.count().interval(0.999999)
        assert low <= 2000 <= high
    back = stored[0].sketch.intersection(stored[1].sketch)
    assert abs(back.unclipped - 500) < 6 * back.standard_error
    assert "weeks: SELECT SKETCH" in stored[0].sketch.name


def test_the_state_of_a_closed_window_is_gone(tmp_path: Path) -> None:
    with Engine(settings(tmp_path)) as engine:
        feed(engine, 0)
        before = set(engine._queries["weeks"].monitors)
        feed(engine, 1)
        assert not before & set(engine._queries["weeks"].monitors)


def test_the_same_sketch_is_published_after_a_crash(tmp_path: Path) -> None:
    """A process ends between the draw, the write and the publication; the second start publishes what was stored."""
    shown: list[Release] = []

    def fail(release: Release) -> None:
        shown.append(release)
        raise OSError("ended")

    with Engine(settings(tmp_path)) as engine:
        feed(engine, 0)
    with Engine(settings(tmp_path)) as engine:  # drawn, and not stored
        times = np.full(10, (FIRST + 1.5) * WEEK)
        engine.apply(rows(["weeks"], np.arange(10), times=times), commit=False)
    with pytest.raises(InvalidParameter, match="no sketches"):
        read_sketches(tmp_path)
    with pytest.raises(OSError, match="ended"), Engine(settings(tmp_path), publish=fail) as engine:
        feed(engine, 1)
    with Engine(settings(tmp_path)):
        (first,) = read_sketches(tmp_path)
    with Engine(settings(tmp_path)) as engine:
        engine.finish()
    assert shown[0].record["sketch"] == first.sketch.id
    assert read_sketches(tmp_path)[0].sketch.bits == first.sketch.bits == Sketch.from_bytes(shown[0].table).bits


def test_a_range_of_whole_windows_is_a_union(store: Path) -> None:
    (answer,) = ask_sketches(
        store, "SELECT COUNT(DISTINCT user) FROM weeks WHERE window BETWEEN '2025-07-31' AND '2025-08-20'"
    )
    low, high = answer.estimate.interval(0.999999)
    assert low <= 5000 <= high
    assert answer.label == "users of the range, 2025-07-31 to 2025-08-21"


def test_any_other_range_is_bracketed(store: Path) -> None:
    sql = "SELECT COUNT(DISTINCT user) FROM weeks WHERE window BETWEEN '2025-08-02' AND '2025-08-21'"
    inside, around = ask_sketches(store, sql)
    assert inside.label == "at least: the windows inside the range, 2025-08-07 to 2025-08-21"
    assert around.label == "at most: the windows around the range, 2025-07-31 to 2025-08-28"
    assert inside.estimate.value < around.estimate.value
    (only,) = ask_sketches(store, sql.replace("2025-08-21", "2025-08-03"))
    assert only.label.startswith("at most")
    with pytest.raises(InvalidParameter, match="do not reach over this range: they are of 2025-07-31 to 2025-08-28"):
        ask_sketches(store, sql.replace("2025-08-21", "2025-09-21"))
    with pytest.raises(InvalidParameter, match="after the last"):
        ask_sketches(store, sql.replace("2025-08-21", "2025-07-21"))
    with pytest.raises(UnsupportedQuery, match="must be dates"):
        ask_sketches(store, sql.replace("2025-08-21", "2025-13-21"))
    with pytest.raises(InvalidParameter, match="no sketches were published by 'days'"):
        ask_sketches(store, sql.replace("weeks", "days"))


def test_segments_are_compared_window_by_window(store: Path) -> None:
    answers = ask_sketches(store, "SELECT OVERLAP(weeks, some)")
    assert len(answers) == 4
    assert all(abs(answer.estimate.unclipped - 2000) < 6 * answer.estimate.standard_error for answer in answers)
    with pytest.raises(UnsupportedQuery, match="published sketches answer"):
        ask_sketches(store, "SELECT COUNT(*) FROM weeks")
    with pytest.raises(MergeError, match="cannot be compared with itself"):
        ask_sketches(store, "SELECT OVERLAP(weeks, weeks)")


@pytest.mark.parametrize(("change", "what"), [({"expected": 500}, "buckets"), ({"key": 5}, "hash key")])
def test_sketches_of_other_tables_and_keys_are_not_compared(tmp_path: Path, change: Any, what: str) -> None:
    with Engine(settings(tmp_path, SKETCH, {**SOME, **change})) as engine:
        feed(engine, 0)
        engine.finish()
    with pytest.raises(MergeError, match=f"they differ in {what}"):
        ask_sketches(tmp_path, "SELECT OVERLAP(weeks, some)")


def test_groups_are_asked_by_their_name(tmp_path: Path) -> None:
    by_value = {"sql": "SELECT value, SKETCH(user) FROM s GROUP BY value", "groups": {"value": [0.0, 1.0]}}
    with Engine(settings(tmp_path, {**SKETCH, **by_value})) as engine:
        feed(engine, 0)
        engine.finish()
    with pytest.raises(InvalidParameter, match=r"weeks has groups: name one in double quotes, of weeks \[value=0.0\]"):
        ask_sketches(tmp_path, "SELECT OVERLAP(weeks, weeks)")
    sql = """SELECT OVERLAP("weeks [value=0.0]", "weeks [value=1.0]")"""
    assert len(ask_sketches(tmp_path, sql)) == 1


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT OVERLAP(weeks, some)",
        "SELECT COUNT(DISTINCT user) FROM weeks WHERE window BETWEEN '2026-03-02' AND '2026-03-22'",
    ],
)
def test_where_rows_are_asked_the_command_is_named(sql: str) -> None:
    with pytest.raises(UnsupportedQuery, match="published sketches, not rows.*panstream sketch ask STORE"):
        table_read(sql)


def test_the_person_account_has_the_published_windows(tmp_path: Path) -> None:
    config = settings(tmp_path)
    plans = plan_all(config)
    (share,) = planned_person_total(config, plans).shares
    loss = plans[0].algorithm.window_loss()
    assert share.windows == 6
    assert share.of_answers == pytest.approx(6 * loss.answers)
    assert share.epsilon > share.of_answers
    with pytest.raises(BudgetExceeded):
        plan_all(settings(tmp_path, budget={"person": 10}))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"publish": None}, "publish = true is missing"),
        ({"publish": False}, "publish = true is missing"),
        ({"sql": "SELECT COUNT(DISTINCT user) FROM s"}, "must be SELECT SKETCH"),
        ({"sql": "SELECT SKETCH(user) + 1 FROM s"}, "on its own"),
        ({"window": None}, "needs window"),
        ({"expected": None}, "needs expected"),
        ({"epsilon": 9.0}, "at most 8"),
        ({"every": "1 day"}, "every"),
    ],
)
def test_what_a_sketch_cannot_do_is_refused(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    table = {key: value for key, value in {**SKETCH, **change}.items() if value is not None}
    with pytest.raises(ConfigError, match=message):
        plan_all(settings(tmp_path, table))
