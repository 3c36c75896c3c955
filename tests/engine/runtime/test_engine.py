"""The engine against brute force with all noise off: groups, windows, schedules, bad rows, restarts, the ledger."""

import json
import math
from collections import defaultdict
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from panstream.engine.rows.row_batch import RowBatch
from panstream.engine.rows.row_gather import take_rows
from panstream.engine.rows.wiping import wipe_array
from panstream.engine.runtime import running_query
from panstream.engine.runtime.engine import Engine
from panstream.engine.runtime.intrusions import CopyTime
from panstream.engine.storage.release_log import Release, ReleaseLog
from panstream.errors import BadRowError, BudgetExhausted, ConfigError, NotSupported, StoreError, StoreLocked
from panstream.primitives.noise import SeededSource
from tests.engine.runtime.streams import COUNT, DISTINCT, SUM, Clock, answers, config, question, rows

JUST_NOW = CopyTime(just_now=True)


def exact(*queries: dict[str, Any], **settings: Any) -> Engine:
    keywords = {key: settings.pop(key) for key in ("clock", "publish") if key in settings}
    return Engine(config(*queries, **settings), zero_noise=True, **keywords)


def test_answers_without_noise_are_the_true_ones() -> None:
    with exact(DISTINCT, SUM, COUNT) as engine:
        for start in range(0, 300, 100):
            ids = np.arange(start, start + 150) % 250
            engine.apply(rows(["distinct", "sum", "count"], ids, values=np.full(150, 2.5)))
        engine.finish()
        assert answers(engine, "distinct") == pytest.approx([250])
        assert answers(engine, "sum") == pytest.approx([450 * 2.5])
        assert answers(engine, "count") == [450]
        assert all(release.record["epsilon"] == "inf" for release in engine.log.history())


def test_counts_of_nothing_are_shown_as_possible_ones() -> None:
    """Forty answers about no rows: about half of the unclipped ones are negative, and none that is shown."""
    shown = []
    unclipped = []
    for _ in range(40):
        with Engine(config(COUNT)) as engine:
            engine.finish()
            record = next(iter(engine.log.history("count"))).record
        assert 0.0 <= record["interval"][0] <= record["value"] <= record["interval"][1]
        shown.append(record["value"])
        unclipped.append(record["unclipped"])
    assert min(unclipped) < 0.0 < max(unclipped)  # fails once in 10^12
    assert shown == [max(value, 0.0) for value in unclipped]


def test_a_batch_is_applied_once() -> None:
    with exact(COUNT) as engine:
        batch = rows(["count"], np.arange(10), producer="p", sequence=4)
        assert engine.apply(batch).new
        assert not engine.apply(batch).new
        assert engine.is_applied("p", 3)
        assert not engine.is_applied("p", 5)
        assert engine.last_sequence("p") == 4
        engine.finish()
        assert answers(engine) == [10]


@pytest.mark.slow
def test_where_masks_and_arrow_ids() -> None:
    with exact(question("d", "SELECT COUNT(DISTINCT user) FROM s", expected=100)) as engine:
        ids = pa.array([f"user {i}" for i in range(64)])
        engine.apply(rows(["d"], ids, chosen=np.arange(64) < 20))
        engine.finish()
        # A bitmap without noise still hashes: 20 users of 100 expected hit about 20 cells.
        assert answers(engine) == pytest.approx([20], abs=2)


def test_bad_rows_are_skipped_one_by_one() -> None:
    listed = question("listed", "SELECT COUNT(DISTINCT user) FROM s", universe=[5, 6, 7])
    with exact(DISTINCT, listed, SUM) as engine:
        ids = pa.array([5, None, -1, 1000, 6, 6, 999])
        values = [1.0, 2.0, 3.0, math.nan, math.inf, 4.0, 5.0]
        applied = engine.apply(rows(["distinct", "listed", "sum"], ids, values=values, first_row=100))
        assert applied.skipped.tolist() == [101, 102, 103, 104, 106]
        engine.finish()
        assert answers(engine, "distinct") == pytest.approx([3])
        assert answers(engine, "listed") == pytest.approx([2])
        assert answers(engine, "sum") == pytest.approx([1 + 2 + 3 + 4 + 5], abs=1e-3)


def test_bad_row_stop_leaves_everything_as_it_was() -> None:
    with exact(DISTINCT, COUNT, on_bad_row="stop") as engine:
        engine.apply(rows(["distinct", "count"], np.arange(3)))
        with pytest.raises(BadRowError, match="row 1 "):
            engine.apply(rows(["distinct", "count"], np.array([3, 5000, 4])))
        engine.finish()
        assert answers(engine, "count") == [3]


def test_weights_above_the_declared_are_skipped() -> None:
    net = question("net", "SELECT COUNT(DISTINCT user) FROM s", universe=10, max_weight=3)
    with exact(net, weight="w") as engine:
        applied = engine.apply(rows(["net"], np.array([1, 2, 2, 3, 4]), weights=np.array([3, 1, -1, 4, -2])))
        assert applied.skipped.tolist() == [3]
        engine.finish()
        assert answers(engine) == pytest.approx([2])


def test_groups_are_the_declared_ones_and_all_have_a_state() -> None:
    grouped = question(
        "g", "SELECT region, COUNT(*) FROM s GROUP BY region", groups={"region": ["north", "south", "east"]}
    )
    with exact(grouped) as engine:
        engine.apply(rows(["g"], np.arange(6), groups=np.array([0, 1, 1, -1, 0, 1])))
        engine.finish()
        found = {release.query: release.record["value"] for release in engine.log.history()}
        assert found == {"g [region=north]": 2, "g [region=south]": 3, "g [region=east]": 0}


def test_contributions_are_bounded_within_a_batch() -> None:
    bounded = question("b", "SELECT COUNT(*) FROM s", contributions=2)
    with exact(bounded) as engine:
        engine.apply(rows(["b"], np.array([1, 1, 1, 1, 2, 3, 3])))
        engine.finish()
        assert answers(engine) == [5]
        assert engine.plans[0].claim.unit == "user"


TIMES = st.lists(st.integers(0, 60), min_size=1, max_size=40)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(st.lists(TIMES, min_size=1, max_size=4), st.integers(0, 15))
def test_windows_against_brute_force(batches: list[list[int]], lateness: int) -> None:
    """Window w of 10 seconds takes a row as long as the newest time so far, less the lateness, is before its end."""
    window = question("w", "SELECT COUNT(*) FROM s", window=10)
    settings_ = {"time": "at"} | ({"lateness": lateness} if lateness else {})
    expected: dict[int, int] = defaultdict(int)
    late = []
    newest = -math.inf
    number = 0
    for batch in batches:
        for time in batch:
            newest = max(newest, time)
            if time // 10 >= (newest - lateness) // 10:
                expected[time // 10] += 1
            else:
                late.append(number)
            number += 1
    with exact(window, **settings_) as engine:
        reported = []
        start = 0
        for batch in batches:
            reported += engine.apply(rows(["w"], count=len(batch), times=batch, first_row=start)).late.tolist()
            start += len(batch)
        engine.finish()
        found = {release.record["window"][0]: release.record["value"] for release in engine.log.history()}
        assert not engine._queries["w"].monitors
    assert reported == late
    assert {int(stamp[17:19]) // 10 + 6 * int(stamp[14:16]): n for stamp, n in found.items()} == expected


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(st.lists(TIMES, min_size=1, max_size=4))
def test_ticks_against_brute_force(batches: list[list[int]]) -> None:
    """Tick k counts the rows that came while the stream's clock stood before the end of slot k."""
    ticking = question("t", "SELECT COUNT(*) FROM s", every=7, horizon=5)
    marks = []
    newest = -math.inf
    for batch in batches:
        for time in batch:
            newest = max(newest, time)
            marks.append(newest // 7)
    first = int(marks[0])
    last = int(marks[-1])
    expected = [sum(mark <= slot for mark in marks) for slot in range(first, last + 1)][:5]
    with exact(ticking, time="at") as engine:
        for batch in batches:
            engine.apply(rows(["t"], count=len(batch), times=batch))
        engine.finish()
        assert answers(engine) == expected


@pytest.mark.slow
@settings(max_examples=120, deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 50), min_size=1, max_size=5), min_size=1, max_size=3),
    st.integers(0, 25),
    st.sampled_from([{"every": 5, "horizon": 40}, {"window": 10}, {"window": 20, "every": 5}]),
)
def test_an_answer_counts_exactly_the_rows_that_its_label_names(
    batches: list[list[int]], lateness: int, schedule: dict[str, int]
) -> None:
    """Row i is worth 2**i, so that a sum tells which rows are in it.

    An answer counts the rows that came before the stream's time reached ``end``, in a window only those of the
    window; the last of a window those that came before the stream's time, less the lateness, reached its end.
    """
    times = [time for batch in batches for time in batch]
    newest = np.maximum.accumulate(times)
    asked = question("q", "SELECT SUM(value) FROM s", lower=0, upper=2.0**16, **schedule)
    with exact(asked, time="at", **({"lateness": lateness} if lateness else {})) as engine:
        at = 0
        for batch in batches:
            values = 2.0 ** np.arange(at, at + len(batch))
            engine.apply(rows(["q"], count=len(batch), times=batch, values=values))
            at += len(batch)
        engine.finish()
        records = [release.record for release in engine.log.history("q")]
    assert records
    for record in records:
        until = seconds_of(record["end"])
        start, end = map(seconds_of, record.get("window", ["1970-01-01T00:00:00Z", "1970-01-02T00:00:00Z"]))
        waits = lateness if until == end else 0
        before = [i for i, time in enumerate(times) if newest[i] - waits < until and start <= time < end]
        assert all(times[i] < until for i in before)
        assert record["value"] == sum(2.0**i for i in before), (until, before)


def seconds_of(stamp: str) -> float:
    return datetime.fromisoformat(stamp).timestamp()


def test_windows_with_ticks_inside() -> None:
    both = question("t", "SELECT SUM(value) FROM s", lower=0, upper=8, every=5, window=20)
    with exact(both, time="at") as engine:
        times = np.array([11.0, 13.0, 16.0, 21.0, 39.0, 41.0])
        engine.apply(rows(["t"], count=6, times=times, values=np.ones(6)))
        engine.finish()
        found = [(r.record["end"][14:19], r.record["value"]) for r in engine.log.history("t")]
        assert found == [
            ("00:15", pytest.approx(2)),
            ("00:20", pytest.approx(3)),
            ("00:25", pytest.approx(1)),
            ("00:30", pytest.approx(1)),
            ("00:35", pytest.approx(1)),
            ("00:40", pytest.approx(2)),
            ("00:45", pytest.approx(1)),
        ]


def test_a_window_with_fewer_answers_than_slots_takes_no_rows_after_the_last() -> None:
    both = question("t", "SELECT COUNT(*) FROM s", every=5, window=20, horizon=2)
    with exact(both, time="at") as engine:
        engine.apply(rows(["t"], count=4, times=[1, 6, 11, 16]))
        engine.apply(rows(["t"], count=3, times=[17, 33, 42]))
        engine.finish()
        assert answers(engine) == [1, 2, 1]


def test_nothing_is_written_while_nothing_comes(tmp_path: Path) -> None:
    clock = Clock()
    with exact(COUNT, directory=tmp_path, clock=clock) as engine:
        engine.apply(rows(["count"], count=1))
        before = (tmp_path / "state.sealed").read_bytes()
        clock.now += 1000
        engine.advance()
        assert (tmp_path / "state.sealed").read_bytes() == before


def test_the_clock_of_arrival_ticks_without_rows() -> None:
    clock = Clock(1000.0)
    ticking = question("t", "SELECT COUNT(*) FROM s", every=10, horizon=100)
    with exact(ticking, clock=clock) as engine:
        engine.apply(rows(["t"], count=3))
        clock.now = 1025.0
        engine.advance()
        assert answers(engine) == [3, 3]
        engine.apply(rows(["t"], count=1))
        clock.now = 1030.0
        engine.advance()
        assert answers(engine) == [3, 3, 4]


def test_times_that_a_query_does_not_select_still_move_the_clock() -> None:
    """When an answer comes must depend on public times only, never on which rows fit the condition."""
    ticking = question("t", "SELECT COUNT(*) FROM s", every=10, horizon=100)
    counts = []
    for chosen in (np.array([True, True, True]), np.array([True, False, False])):
        with exact(ticking, time="at") as engine:
            engine.apply(rows(["t"], count=3, times=[1, 15, 25], chosen=chosen))
            counts.append(len(answers(engine)))
    assert counts == [2, 2]


@pytest.mark.parametrize(("ahead", "skipped"), [(60, [1, 2, 3]), (None, [2, 3]), ("any", [3])])
def test_rows_from_the_future_are_bad_rows(ahead: Any, skipped: list[int]) -> None:
    settings = {} if ahead is None else {"max_ahead": ahead}
    with exact(COUNT, time="at", clock=Clock(100.0), **settings) as engine:
        assert engine.apply(rows(["count"], count=4, times=[90, 200, 4000, math.nan])).skipped.tolist() == skipped
        engine.finish()
        assert answers(engine) == [4 - len(skipped)]


def test_a_row_from_the_future_spends_no_answers() -> None:
    """One row a month ahead closed 30 days' windows for everybody, for ever."""
    ticking = question("t", "SELECT COUNT(*) FROM s", every=10, horizon=100)
    daily = question("w", "SELECT COUNT(*) FROM s", window=20)
    clock = Clock(50.0)
    with exact(ticking, daily, time="at", clock=clock) as engine:
        engine.apply(rows(["t", "w"], count=3, times=[1, 30 * 86400, 2]))
        assert answers(engine) == []
        engine.apply(rows(["t", "w"], count=2, times=[11, 21]))
        assert answers(engine, "t") == [2, 3]
        assert answers(engine, "w") == [3]


def test_a_row_from_the_future_opens_no_window() -> None:
    """The end of the input closed the window of a year ahead, and every row after that was late."""
    daily = question("w", "SELECT COUNT(*) FROM s", window=20)
    with exact(daily, time="at", clock=Clock(50.0)) as engine:
        engine.apply(rows(["w"], count=3, times=[1, 30 * 86400, 2]))
        engine.finish()
        assert answers(engine, "w") == [2]
        assert engine.apply(rows(["w"], count=1, times=[25])).late.tolist() == []


def test_rows_before_the_first_known_time_do_not_start_the_clock() -> None:
    ticking = question("t", "SELECT COUNT(*) FROM s", every=10, horizon=100)
    with exact(ticking, time="at") as engine:
        assert engine.apply(rows(["t"], count=2, times=[math.nan, math.nan])).skipped.tolist() == [0, 1]
        engine.apply(rows(["t"], count=3, times=[math.nan, 41, 52]))
        engine.finish()
        assert answers(engine) == [1, 2]


def test_a_stored_state_goes_on(tmp_path: Path) -> None:
    queries = (
        DISTINCT,
        question("w", "SELECT COUNT(*) FROM s", window=10),
        question("e", "SELECT COUNT(*) FROM s", every=10, horizon=9),
    )
    names = ["distinct", "w", "e"]
    with exact(*queries, directory=tmp_path, time="at") as engine:
        engine.apply(rows(names, np.arange(4), times=[1, 2, 3, 12], producer="p", sequence=1))
    with exact(*queries, directory=tmp_path, time="at") as engine:
        assert not engine.apply(rows(names, np.arange(4), times=[1, 2, 3, 12], producer="p", sequence=1)).new
        engine.apply(rows(names, np.arange(4) + 4, times=[9, 13, 14, 25], producer="p", sequence=2))
        engine.finish()
        assert answers(engine, "distinct") == pytest.approx([8])
        assert answers(engine, "w") == [3, 3, 1]
        assert answers(engine, "e") == [3, 7, 8]
        assert [name for name, _ in engine.ledger] == names
    with exact(*queries, directory=tmp_path, time="at") as engine:
        engine.finish()  # no input since the last end: nothing is drawn
        assert len(answers(engine)) == 7


@pytest.mark.parametrize("durability", ["batch", "interval", "none"])
def test_charged_once_per_state(tmp_path: Path, durability: str) -> None:
    for start in (1, 2):
        with exact(COUNT, directory=tmp_path, durability=durability) as engine:
            engine.apply(rows(["count"], count=5))
            engine.finish()
            entries = [name for name, _ in engine.ledger]
        assert entries == (["count"] if durability != "none" else ["count", "count (start 2)"][:start])
    with ReleaseLog(tmp_path / "releases.sqlite") as log:
        assert [release.number for release in log.history()] == ([1] if durability != "none" else [1, 2])


def test_interval_commits_when_the_interval_is_over(tmp_path: Path) -> None:
    clock = Clock()
    settings_: dict[str, Any] = {"directory": tmp_path, "durability": "interval", "interval": 5, "clock": clock}
    with exact(COUNT, **settings_) as engine:
        engine.apply(rows(["count"], count=1, producer="p", sequence=1))
        clock.now += 6
        engine.apply(rows(["count"], count=1, producer="p", sequence=2))
        engine.apply(rows(["count"], count=1, producer="p", sequence=3))
    with exact(COUNT, **settings_) as engine:
        assert engine.last_sequence("p") == 2


def test_drawn_releases_survive_a_crash_before_publishing(tmp_path: Path) -> None:
    config_ = config(COUNT, directory=tmp_path)

    class Crash(Exception):
        pass

    engine = Engine(config_)
    engine.apply(rows(["count"], count=1000))
    drawn = []

    def crash(release: Release) -> bool:
        drawn.append(release)
        raise Crash

    engine.log.publish = crash  # type: ignore[method-assign]
    with pytest.raises(Crash):
        engine.finish()
    with pytest.raises(StoreError, match="discarded"):
        engine.finish()
    engine.close()
    published: list[Release] = []
    with Engine(config_, publish=published.append) as again:
        assert published == drawn == list(again.log.history())
    with Engine(config_, publish=published.append) as again:
        assert len(published) == 1


def test_a_failed_commit_acknowledges_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with exact(COUNT, directory=tmp_path) as engine:
        engine.apply(rows(["count"], count=1, producer="p", sequence=1))

        def full(parts: Any) -> None:
            raise StoreError("cannot use the store: No space left on device")

        monkeypatch.setattr(engine._store, "commit", full)
        with pytest.raises(StoreError, match="No space"):
            engine.apply(rows(["count"], count=1, producer="p", sequence=2))
        with pytest.raises(StoreError, match="discarded"):
            engine.apply(rows(["count"], count=1, producer="p", sequence=2))
    with exact(COUNT, directory=tmp_path) as engine:
        assert engine.last_sequence("p") == 1
        engine.apply(rows(["count"], count=1, producer="p", sequence=2))
        engine.finish()
        assert answers(engine) == [2]


def test_two_processes_are_refused(tmp_path: Path) -> None:
    with exact(COUNT, directory=tmp_path), pytest.raises(StoreLocked):
        exact(COUNT, directory=tmp_path)


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"epsilon": 2.0}, "epsilon"),
        ({"sql": "SELECT COUNT(*) FROM s WHERE value > 1"}, "sql"),
        ({"window": 60}, "window"),
        ({"contributions": 3}, "contributions"),
    ],
)
def test_a_changed_query_is_refused(tmp_path: Path, change: dict[str, Any], key: str) -> None:
    with Engine(config(COUNT, directory=tmp_path)):
        pass
    with pytest.raises(ConfigError, match=f"count: {key} was changed"):
        Engine(config({**COUNT, **change}, directory=tmp_path))
    with Engine(config({**COUNT, **change, "name": "new"}, directory=tmp_path)) as engine:
        assert [name for name, _ in engine.ledger] == ["count", "new"]
    with Engine(config(COUNT, {**COUNT, **change, "name": "new"}, directory=tmp_path)) as engine:
        assert [name for name, _ in engine.ledger] == ["count", "new"]


def test_a_query_that_was_left_out_comes_back_with_its_state(tmp_path: Path) -> None:
    with exact(COUNT, SUM, directory=tmp_path) as engine:
        engine.apply(rows(["count", "sum"], count=3, values=np.ones(3)))
    with exact(SUM, directory=tmp_path) as engine:
        engine.apply(rows(["sum"], count=1, values=np.ones(1)))
    with exact(COUNT, SUM, directory=tmp_path) as engine:
        engine.finish()
        assert answers(engine, "count") == [3]
        assert answers(engine, "sum") == pytest.approx([4])


def test_the_budget_holds_over_restarts(tmp_path: Path) -> None:
    with Engine(config({**DISTINCT, "name": "a"}, directory=tmp_path, budget={"user": 2.5})):
        pass
    with Engine(config({**DISTINCT, "name": "b"}, directory=tmp_path, budget={"user": 2.5})) as engine:
        assert engine.ledger.total("user")[0] == pytest.approx(2.0)
    with pytest.raises(BudgetExhausted):
        Engine(config({**DISTINCT, "name": "c"}, directory=tmp_path, budget={"user": 2.5}))
    with Engine(config({**DISTINCT, "name": "b"}, directory=tmp_path, budget={"user": 2.5})) as engine:
        assert [name for name, _ in engine.ledger] == ["a", "b"]


def test_a_log_without_its_state_is_refused(tmp_path: Path) -> None:
    with Engine(config(COUNT, directory=tmp_path)) as engine:
        engine.finish()
    (tmp_path / "state.sealed").unlink()
    with pytest.raises(StoreError, match="state is gone"):
        Engine(config(COUNT, directory=tmp_path))


def test_releases_when_asked() -> None:
    three = {**DISTINCT, "releases": 2}
    scheduled = question("t", "SELECT COUNT(*) FROM s", every=10, horizon=3)
    with exact(three, scheduled) as engine:
        engine.apply(rows(["distinct", "t"], np.arange(5)))
        assert engine.release("distinct")[0].record["value"] == pytest.approx(5)
        engine.apply(rows(["distinct", "t"], np.arange(9)))
        assert engine.release("distinct")[0].record["value"] == pytest.approx(9)
        with pytest.raises(BudgetExhausted, match="no release left"):
            engine.release("distinct")
        with pytest.raises(NotSupported, match="schedule"):
            engine.release("t")
        with pytest.raises(ConfigError, match="no query named"):
            engine.release("other")


def refreshed(engine: Engine) -> dict[str, bool]:
    return {state.query: state.done for state in engine.announce_intrusion(JUST_NOW)}


def test_announced_intrusions_are_recorded(tmp_path: Path) -> None:
    with Engine(config(COUNT, DISTINCT, directory=tmp_path)) as engine:
        assert refreshed(engine) == {"count": True, "distinct": False}
    with Engine(config(COUNT, DISTINCT, directory=tmp_path)) as engine:
        assert len(engine.intrusions) == 1


def test_names_that_nobody_listed_are_refreshed_after_an_announced_intrusion() -> None:
    names = question("names", "SELECT region, COUNT(*) FROM s GROUP BY region", max_item_bytes=2, memory=300_000)
    with Engine(config(names)) as engine:
        assert [str(state) for state in engine.announce_intrusion(JUST_NOW)] == ["names: refreshed, covered"]


def test_announced_intrusions_that_were_paid_for(tmp_path: Path) -> None:
    """Bits and cells are frozen and start afresh, and users from before and after are counted together."""
    bits = question("bits", "SELECT DENSITY(user) FROM s", universe=4000, announced=1, epsilon=40.0)
    cells = question("cells", "SELECT COUNT(DISTINCT user) FROM s", expected=1000, announced=1, epsilon=40.0)
    settings = config(bits, cells, directory=tmp_path)
    names = ["bits", "cells"]
    with Engine(settings) as engine:
        for plan in engine.plans:
            assert plan.claim.epsilon <= 40.0
            assert plan.claim.intrusions.announced == 1
        engine.apply(rows(names, np.arange(600)))
        assert refreshed(engine) == {"bits": True, "cells": True}
    with Engine(settings) as engine:
        engine.apply(rows(names, np.arange(400, 1000)))
        assert refreshed(engine) == {"bits": False, "cells": False}, "one was paid for"
        engine.finish()
        found = {name: engine.log.last(name).record for name in names}  # type: ignore[union-attr]
    assert found["bits"]["value"] == pytest.approx(0.25, abs=0.02)
    assert found["cells"]["value"] == pytest.approx(1000, abs=6 * found["cells"]["standard_error"])


def test_a_window_without_refreshes_left_does_not_keep_the_others_from_theirs() -> None:
    """The first window has used up what was paid for, the second has not."""
    daily = question(
        "daily",
        "SELECT DENSITY(user) FROM s",
        universe=40,
        announced=1,
        epsilon=40.0,
        window=10,
        groups={"region": ["a", "b"]},
    )
    daily["sql"] += " GROUP BY region"
    with Engine(config(daily, time="at", lateness=10)) as engine:
        engine.apply(rows(["daily"], np.arange(4), times=[1, 2, 3, 4], groups=[0, 1, 0, 1]))
        first = engine.announce_intrusion(JUST_NOW)
        engine.apply(rows(["daily"], np.arange(4), times=[11, 12, 13, 14], groups=[0, 1, 0, 1]))
        second = engine.announce_intrusion(JUST_NOW)
    begin = "1970-01-01T00:00:00Z"
    then = "1970-01-01T00:00:10Z"
    by_state = {(state.window, state.group): state.done for state in second if state.query == "daily"}
    assert all(state.done for state in first)
    assert by_state == {(window, f"region={name}"): window == then for window in (begin, then) for name in "ab"}
    assert len(second) == 4
    assert str(second[2]) == f"daily (window from {then}; region=a): refreshed, covered"


def test_claims_and_records(tmp_path: Path) -> None:
    with Engine(config(COUNT, directory=tmp_path)) as engine:
        engine.apply(rows(["count"], count=10_000))
        engine.finish()
        (release,) = engine.log.history()
        assert json.loads(json.dumps(release.record, allow_nan=False)) == release.record
        assert release.record["epsilon"] == 1.0
        assert release.record["claim"]["locations"] == ["memory", "disk"]
        assert "the number and the times of batches" in release.record["claim"]["public"]
        low, high = release.record["interval"]
        assert low < release.record["value"] < high
    with Engine(config(COUNT), rng=SeededSource(1)) as engine:
        engine.finish()
        (release,) = engine.log.history()
        assert release.record["epsilon"] == "inf"
        assert release.record["claim"]["locations"] == ["memory"]


def test_no_data_is_null_and_not_a_number() -> None:
    """Without noise the count is 0; with noise it may be above, and the mean of nothing a number."""
    with exact(question("m", "SELECT AVG(value) FROM s", lower=0, upper=1)) as engine:
        engine.finish()
        (release,) = engine.log.history()
        assert release.record["value"] is None
        json.dumps(release.record, allow_nan=False)


@pytest.mark.parametrize("settings", [{}, {"groups": np.arange(100) % 3}])
def test_copies_of_ids_are_wiped(monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any]) -> None:
    ids = np.arange(100)
    copies = []

    def spy(column: Any, taken: Any) -> Any:
        copies.append(take_rows(column, taken))
        return copies[-1]

    monkeypatch.setattr(running_query, "take_rows", spy)
    query = {**DISTINCT, "sql": "SELECT region, COUNT(DISTINCT user) FROM s GROUP BY region"} if settings else DISTINCT
    groups = {"groups": {"region": ["a", "b", "c"]}} if settings else {}
    with exact({**query, **groups}) as engine:
        engine.apply(rows(["distinct"], ids, chosen=ids % 2 == 0, **settings))
    assert copies
    assert all(owned and data.size == 50 and not data.any() for data, owned in copies)
    assert ids.sum() == 4950


def test_arrow_copies_are_wiped_and_the_original_is_not() -> None:
    ids = pa.array([f"user-{i}" for i in range(50)])
    taken, owned = rows(["d"], ids).some_ids(np.arange(50) < 10)
    assert owned and taken[3].as_py() == "user-3"
    wipe_array(taken)
    assert not any(taken.buffers()[2].to_pybytes())
    assert ids[3].as_py() == "user-3"


@pytest.mark.parametrize("ids", [pa.array(range(-20, 30)), pa.array([None, *range(49)]), np.arange(50)])
def test_some_numbers_are_copied_and_nothing_behind_them(ids: Any) -> None:
    whole = ids.tolist()
    for keep in (np.arange(50) % 3 == 1, np.arange(50) < 10, np.zeros(50, bool)):
        taken, owned = rows(["d"], ids).some_ids(keep)
        assert owned and taken.tolist() == [each for each, kept in zip(whole, keep, strict=True) if kept]
        if isinstance(taken, np.ndarray) and taken.base is not None:
            assert not taken.base[taken.size :].any()
    assert ids.tolist() == whole


def test_empty_batches_are_fine() -> None:
    with exact(DISTINCT, COUNT, time="at") as engine:
        engine.apply(
            RowBatch(
                count=0,
                queries=rows(["distinct", "count"], np.empty(0, np.int64)).queries,
                ids=np.empty(0, np.int64),
                times=np.empty(0),
            )
        )
        engine.finish()
        assert answers(engine, "count") == [0]
