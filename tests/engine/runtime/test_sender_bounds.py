"""Queries bounded by senders take the first K rows of a sender in a window, and no others."""

from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from panstream.audit.claims.exact import LinearProgram
from panstream.engine.config.config import Config, read_config
from panstream.engine.planner.person_period import planned_person_total
from panstream.engine.planner.query_plan import plan_all
from panstream.engine.reporting.person_table import person_table
from panstream.engine.rows.row_batch import BatchResult, RowBatch
from panstream.engine.rows.sender_counts import NOT_COUNTED, counted_windows
from panstream.engine.runtime.engine import Engine
from panstream.engine.runtime.selector import Selector
from panstream.errors import ConfigError
from panstream.primitives.sender_counts import SentCounts, window_number
from panstream.testing.enumeration import tick, update
from tests.engine.runtime.streams import Clock, answers

DAY = 86_400
START = 20_000.0 * DAY
K = 3
COUNT = "SELECT COUNT(*) FROM s"
COLUMNS = {"value": "double", "region": "string", "name": "string", "sender_counts": "string"}


def config(*queries: dict[str, Any], **stream: Any) -> Config:
    stream = {"name": "s", "columns": COLUMNS, **stream}
    return read_config({"stream": stream, "query": list(queries), "store": {}})


def bounded(name: str = "bounded", sql: str = COUNT, **settings: Any) -> dict[str, Any]:
    usual = {"epsilon": 1.0, "window": "1 day", "contributions": K, "bounded_by": "sender"}
    return {"name": name, "sql": sql, **usual, **settings}


PLAIN = {"name": "all", "sql": COUNT, "epsilon": 1.0, "window": "1 day"}


def entries(*windows: int, number: int = 1) -> list[str]:
    return [f"row:{DAY}:{window}:{number}" for window in windows]


def batch(counts: list[str | None]) -> RowBatch:
    size = len(counts)
    columns = {"value": [1.0] * size, "region": ["n"] * size, "name": ["a"] * size, "sender_counts": counts}
    schema = pa.schema([pa.field(name, pa.string() if name != "value" else pa.float64()) for name in columns])
    return RowBatch(columns=pa.RecordBatch.from_pydict(columns, schema))


def exactly(
    settings: Config, *sent: tuple[float, list[str | None]]
) -> tuple[dict[str, list[float]], list[BatchResult]]:
    """Apply rows at some times without noise; return every query's answers and what the sender was told."""
    clock = Clock(START)
    results = []
    with Engine(settings, clock=clock, zero_noise=True) as engine, Selector(settings) as select:
        for now, counts in sent:
            clock.now = now
            results.append(engine.apply(select(batch(counts))))
        engine.finish()
        return {plan.config.name: answers(engine, plan.series[0]) for plan in engine.plans}, results


def test_numbers_up_to_k_count_in_their_own_window() -> None:
    today = window_number(START, DAY)
    counts = [f"row:{DAY}:{today}:{number}" for number in range(1, 6)]
    found, _ = exactly(config(bounded(), PLAIN), (START, [*counts]))
    assert found == {"bounded": [K], "all": [5]}


@pytest.mark.parametrize(
    "counts",
    [
        entries(20_001),
        entries(19_999),
        entries(20_000, number=K + 1),
        entries(20_000, number=0),
        [f"view:{DAY}:20000:1"],
        ["row:3600:20000:1"],
        ["row:86400:20000"],
        ["xrow:86400:20000:1"],
        ["row:86400:20000:1x"],
        ["row:86400:99999999999999999999:1"],
        ["row:86400:20000:99999999999999999999"],
        [""],
        [None],
    ],
)
def test_other_rows_are_left_out_of_that_query_alone(counts: list[str | None]) -> None:
    found, (result,) = exactly(config(bounded(), PLAIN), (START, counts))
    assert found == {"bounded": [0], "all": [1]}
    assert result.skipped.size == result.late.size == 0


def test_a_row_that_arrives_after_its_window_is_left_out() -> None:
    found, _ = exactly(config(bounded(), PLAIN), (START, entries(20_000)), (START + DAY, entries(20_000)))
    assert found == {"bounded": [1, 0], "all": [1, 1]}


@pytest.mark.parametrize("foreign", [1, 25, 50])
def test_nothing_public_depends_on_how_many_rows_are_left_out(tmp_path: Path, foreign: int) -> None:
    """Two streams of as many rows, of which some claim another day: only noised cells differ."""
    seen = []
    for left_out in (0, foreign):
        directory = tmp_path / str(left_out)
        settings = replace(config(bounded()), directory=directory)
        clock = Clock(START)
        with Engine(settings, clock=clock, operator_key=b"k" * 32) as engine, Selector(settings) as select:
            result = engine.apply(select(batch([*entries(*[20_001] * left_out, *[20_000] * (50 - left_out))])))
            (query,) = engine._queries.values()
            states = sorted(query.monitors), dict(query.ticks_by_window), query.release_count
            files = [(path.name, path.stat().st_size) for path in sorted(directory.iterdir()) if "log" not in path.name]
            engine.finish()
            (release,) = engine.log.history()
            record = {key: release.record[key] for key in ("claim", "standard_error")}
            seen.append((result.new, [*result.skipped, *result.late], engine._stream_clock, states, files, record))
    assert seen[0] == seen[1]


@pytest.mark.parametrize(
    ("sql", "more", "expected"),
    [
        ("SELECT SUM(value) FROM s", {"lower": 0.0, "upper": 2.0}, 2.0),
        ("SELECT region, COUNT(*) FROM s GROUP BY region", {"groups": {"region": ["n"]}}, 2.0),
        ("SELECT AVG(value) FROM s", {"lower": 0.0, "upper": 2.0}, 1.0),
    ],
)
def test_every_statistic_of_rows_can_be_bounded(sql: str, more: dict[str, Any], expected: float) -> None:
    found, _ = exactly(config(bounded(sql=sql, **more)), (START, [*entries(20_000, 20_001, 20_000), None]))
    assert found["bounded"] == pytest.approx([expected])


def test_names_that_nobody_listed_can_be_bounded() -> None:
    sql = "SELECT name, COUNT(*) FROM s GROUP BY name ORDER BY COUNT(*) DESC LIMIT 3"
    settings = config(bounded(sql=sql, expected=1000, memory=1 << 18, max_item_bytes=4))
    clock = Clock(START)
    with Engine(settings, clock=clock, zero_noise=True) as engine, Selector(settings) as select:
        engine.apply(select(batch([*entries(*[20_000] * 40, *[20_001] * 60)])))
        engine.finish()
        (release,) = engine.log.history("bounded")
        (item,) = release.record["items"]
    assert (item["name"], item["count"]) == ("a", 40)


@given(
    steps=st.lists(
        st.one_of(
            st.tuples(st.just("send"), st.integers(1, 4)),
            st.tuples(st.just("sender"), st.sampled_from([-2 * DAY, -DAY, -1, 1, DAY // 2, DAY, 30 * DAY])),
            st.tuples(st.just("server"), st.sampled_from([1, DAY // 2, DAY])),
            st.tuples(st.just("restart"), st.just(0)),
        ),
        max_size=40,
    )
)
def test_no_sequence_of_sends_restarts_and_clock_steps_admits_more_than_k(steps: list[tuple[str, int]]) -> None:
    settings = config(bounded())
    caps = {("row", DAY): K}
    sender = SentCounts(caps)
    stored = ""
    at_sender = START
    at_server = START
    sent: list[tuple[float, list[str | None]]] = []
    for step, amount in steps:
        if step == "send":
            rows: list[str | None] = [sender.number(("row",), at_sender) for _ in range(amount)]
            stored = sender.text()  # before the rows leave
            sent.append((at_server, rows))
        elif step == "sender":
            at_sender = max(0.0, at_sender + amount)
        elif step == "server":
            at_server += amount
        else:
            sender = SentCounts(caps, stored)
    found, _ = exactly(settings, *sent)
    assert all(count <= K for count in found["bounded"])


def test_without_the_window_number_a_wrong_clock_counts_twice_k(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: a sender whose clock passes midnight early numbers its rows from 1 again."""
    sender = SentCounts({("row", DAY): K})
    early: list[str | None] = [sender.number(("row",), START) for _ in range(K)]
    ahead: list[str | None] = [sender.number(("row",), START + DAY) for _ in range(K)]
    sent = (START, early), (START + 1, ahead)
    assert exactly(config(bounded()), *sent)[0]["bounded"] == [K]
    monkeypatch.setattr("panstream.engine.rows.row_batch.QuerySelection.admitted", _any_window)
    assert exactly(config(bounded()), *sent)[0]["bounded"] == [2 * K]


def _any_window(selection: Any, windows: Any) -> Any:
    return selection.counted != NOT_COUNTED


def test_claims_say_what_they_assume() -> None:
    settings = config(bounded())
    (plan,) = plan_all(settings)
    assert (plan.claim.unit, plan.claim.window, plan.claim.epsilon) == ("user-window", DAY, 1.0)
    assert "the person's own sender numbers at most 3 rows in a window of 1 day" in plan.claim.assumption
    assert settings.needed_columns == {"sender_counts"}
    total = planned_person_total(settings, (plan,))
    assert total.shares[0].bounded_by == "sender"
    assert "3 numbered by her sender" in "\n".join(person_table(settings, (plan,)))


@pytest.mark.parametrize(
    ("query", "stream", "message"),
    [
        (bounded(window=None), {}, "needs window"),
        (bounded(window=0.5), {}, "of whole seconds"),
        (bounded(contributions=None), {}, "needs contributions"),
        (bounded(), {"columns": {"value": "double"}}, 'declare sender_counts = "string"'),
        (bounded(counter="view"), {}, "counter is for beacons"),
        (
            bounded(sql="SELECT COUNT(DISTINCT name) FROM s"),
            {"user": "name"},
            "COUNT\\(DISTINCT user\\) and DENSITY need no bound",
        ),
    ],
)
def test_what_senders_cannot_bound_is_refused(query: dict[str, Any], stream: dict[str, Any], message: str) -> None:
    query = {key: value for key, value in query.items() if value is not None}
    with pytest.raises(ConfigError, match=message):
        plan_all(config(query, **stream))


def test_entries_are_read_as_python_reads_them() -> None:
    texts = [f"row:60:{window}:{number}" for window in (-3, 0, 7) for number in (0, 1, 8, 9)]
    mixed = pa.array([*texts, " ".join(["view:60:4:1", "row:60:5:2", "row:3600:6:1"])])
    expected = [w if 1 <= n <= 8 else NOT_COUNTED for w in (-3, 0, 7) for n in (0, 1, 8, 9)]
    assert counted_windows(mixed, "row", 60.0, 8).tolist() == [*expected, 5]


GROUPED = {"sql": "SELECT region, COUNT(*) FROM s GROUP BY region", "groups": {"region": ["n", "s", "e", "w"]}}


def test_groups_lose_together_what_one_group_loses() -> None:
    """By linear program on the planned algorithm: k of K rows lose k/K, so all parts together at most epsilon."""
    (plan,) = plan_all(config(bounded(**GROUPED)))
    assert (plan.groups_touched, plan.claim.epsilon) == (1, 1.0)
    (declared,) = plan_all(config({**bounded(**GROUPED), "bounded_by": "declared"}, columns=COLUMNS, user="name"))
    assert (declared.groups_touched, declared.claim.epsilon) == (4, 4.0)
    losses = [_loss_of(plan.algorithm, rows) for rows in range(K + 1)]
    assert losses == pytest.approx([rows / K for rows in range(K + 1)], rel=1e-6)
    divisions = [split for split in product(range(K + 1), repeat=4) if sum(split) <= K]
    worst = max(sum(losses[rows] for rows in split) for split in divisions)
    assert worst <= plan.claim.epsilon * (1 + 1e-9)
    assert worst > plan.claim.epsilon * 0.999
    (half,) = plan_all(config(bounded(**GROUPED, contributions=K - 1)))  # noise for fewer rows than are sent
    assert K * _loss_of(half.algorithm, 1) > plan.claim.epsilon * 1.4


def _loss_of(algorithm: Any, rows: int) -> float:
    stream = [update(values=(1, 1)), tick()]
    return LinearProgram(algorithm, stream, [[update(values=(1,) * (2 + rows)), tick()]])().loss


def test_gaussian_groups_lose_together_what_one_group_loses() -> None:
    """With Gaussian noise k rows lose (k/K)^2 of the zCDP of K rows, and squares of parts add up to less."""
    rows = [split for split in product(range(K + 1), repeat=4) if sum(split) <= K]
    assert max(sum(part**2 for part in split) for split in rows) == K**2
    (plan,) = plan_all(config(bounded(**GROUPED, delta=1e-6)))
    (one,) = plan_all(config(bounded(delta=1e-6)))
    assert (plan.claim.epsilon, plan.claim.delta) == (one.claim.epsilon, one.claim.delta)
