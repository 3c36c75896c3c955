"""The parts of a running query: which ids it can take, and how rows fall into windows and groups."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from panstream.engine.planner.query_plan import QueryPlan, plan_all
from panstream.engine.reporting.export import answers
from panstream.engine.rows.row_batch import RowBatch
from panstream.engine.runtime.clocks import StreamClock
from panstream.engine.runtime.engine import Engine
from panstream.engine.runtime.id_check import IdValidator
from panstream.engine.runtime.row_routing import RowRoute
from panstream.engine.runtime.running_query import DrawnAnswer, RunningQuery, _unusable_weights
from tests.engine.runtime.streams import COUNT, DISTINCT, config, question, rows


def running(query: dict[str, Any], **settings: Any) -> RunningQuery:
    (plan,) = plan_all(config(query, **settings), zero_noise=True)
    return RunningQuery(plan)


def routed(query: RunningQuery, batch: RowBatch) -> RowRoute:
    assert query.window_rule is not None and batch.times is not None
    return RowRoute.of(query.window_rule, batch.times, StreamClock().watermarks(batch.times))


def named(universe: list[str]) -> IdValidator:
    query = question("d", "SELECT COUNT(DISTINCT name) FROM s", universe=universe)
    (plan,) = plan_all(config(query, user="name"))
    return IdValidator.for_plan(plan)


@pytest.mark.parametrize(
    ("ids", "bad"),
    [
        (pa.array([0, 999, 1000, -1, None]), [2, 3, 4]),
        (pa.array([2**63 + 5, 7], pa.uint64()), [0]),
        (np.array([5, 6]), []),
    ],
)
def test_ids_of_a_sized_universe(ids: Any, bad: list[int]) -> None:
    mask = IdValidator.for_plan(running(DISTINCT).plan).unusable(ids, len(ids))
    assert np.flatnonzero(mask).tolist() == bad


@pytest.mark.parametrize("encoded", [False, True])
def test_ids_of_a_listed_universe(encoded: bool) -> None:
    ids = pa.array(["ann", "eve", None, "bob", "mallory", "ann", ""])
    ids = ids.dictionary_encode() if encoded else ids
    mask = named(["ann", "bob", "cleo"]).unusable(ids, len(ids))
    assert np.flatnonzero(mask).tolist() == [1, 2, 4, 6]
    assert named(["ann"]).unusable(pa.array(["ann", "ann"]), 2).tolist() == [False, False]


def test_values_and_weights() -> None:
    mean = running(question("m", "SELECT AVG(value) FROM s", lower=0, upper=8))
    batch = rows(["m"], count=4, values=[1.0, np.nan, np.inf, np.nan], chosen=[True, True, True, False])
    assert np.flatnonzero(mean.unusable(batch, batch.queries["m"])).tolist() == [1, 2]
    turnstile = running({**DISTINCT, "max_weight": 5}, weight="w").plan.algorithm
    weights = np.array([5, -5, 0, 6, np.iinfo(np.int64).min])
    assert np.flatnonzero(_unusable_weights(weights, turnstile)).tolist() == [3, 4]
    density = running(question("d", "SELECT DENSITY(user) FROM s", universe=9), weight="w").plan.algorithm
    assert np.flatnonzero(_unusable_weights(np.array([1, -1, 0, 2]), density)).tolist() == [2, 3]


def test_every_group_of_a_window_has_a_state_as_soon_as_any_row_falls_into_it() -> None:
    grouped = question("g", "SELECT COUNT(*) FROM s GROUP BY region", groups={"region": ["a", "b"]}, window=10)
    query = running(grouped, time="at")
    batch = rows(["g"], count=3, times=[1, 2, 12], groups=[0, -1, -1], chosen=np.array([True, True, False]))
    drawn: list[DrawnAnswer] = []
    for prepared in query.prepare(batch, batch.queries["g"], np.ones(3, bool), routed(query, batch)):
        query.apply(prepared, drawn.append)
    assert sorted(query.monitors) == [(1, 0), (1, 1)]
    assert [(each.window, each.group, each.estimate().value) for each in drawn] == [(0, 0, 1), (0, 1, 0)]


def test_preparing_touches_nothing() -> None:
    query = running({**COUNT, "window": 10}, time="at")
    batch = rows(["count"], count=2, times=[1, 25])
    prepared = query.prepare(batch, batch.queries["count"], np.ones(2, bool), routed(query, batch))
    assert len(prepared) == 2
    assert not query.monitors
    assert query.schedule is not None
    assert query.schedule.step is None


def test_the_work_for_an_answer_does_not_grow_with_the_number_of_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The names of all groups were made for every answer, and every answer waited for the disk."""
    asked: list[Any] = []

    def counting(plan: QueryPlan, keys: tuple[Any, ...]) -> str:
        asked.append(keys)
        return real(plan, keys)

    real = QueryPlan.group_name
    monkeypatch.setattr(QueryPlan, "group_name", counting)
    groups = {"region": [f"r{number}" for number in range(200)]}
    query = question("g", "SELECT region, COUNT(*) FROM s GROUP BY region", groups=groups, releases=3)
    with Engine(config(query, directory=tmp_path)) as engine:
        commits: list[str] = []
        engine.log._connection.set_trace_callback(lambda text: commits.append(text) if text == "COMMIT" else None)
        for _ in range(3):
            assert len(engine.release("g")) == 200
        list(answers(engine))
        assert len(commits) == 3
    assert len(asked) <= 3 * 200  # once for every plan with another claim
