"""What one person loses over a period, as a configuration plans it and an engine has it in its books."""

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from panstream.distributed.sharded._coordinator import ClusterEngine
from panstream.distributed.sharded._transport import InProcessShardTransport
from panstream.engine.config.config import Config
from panstream.engine.planner.person_period import planned_person_total
from panstream.engine.planner.query_plan import plan_all
from panstream.engine.reporting.explain import explain
from panstream.engine.reporting.person_table import person_table
from panstream.engine.runtime.engine import Engine
from panstream.engine.storage.snapshot_store import SnapshotStore
from panstream.errors import BudgetExceeded, ConfigError
from panstream.privacy.person_loss import PersonShare, PersonTotal
from tests.engine.runtime.streams import config, question, rows

DAY = 86_400.0
DAILY = question("daily", "SELECT COUNT(DISTINCT user) FROM s", expected=1000, window="1 day")
WEEKLY = question("weekly", "SELECT COUNT(DISTINCT user) FROM s", expected=1000, window="7 days")
ALL = question("all", "SELECT COUNT(DISTINCT user) FROM s", expected=1000)
EVENTS = question("events", "SELECT COUNT(*) FROM s", window="1 day")
CAPPED = question("capped", "SELECT COUNT(*) FROM s", window="1 day", contributions=3)
BY_TIME = {"time": "at", "lateness": "1 minute"}


def total(settings: Config) -> PersonTotal:
    return planned_person_total(settings, plan_all(settings))


def only(settings: Config) -> PersonShare:
    (share,) = total(settings).shares
    return share


def test_by_arrival_one_window_is_open_and_none_overlaps(tmp_path: Path) -> None:
    share = only(config(DAILY, directory=tmp_path))
    assert (share.windows, share.open, share.opening, share.bounded_by) == (31, 1, 0, "shape")
    assert share.loss is not None
    assert share.epsilon == pytest.approx(1.0 + 30 * share.loss.answers)
    assert share.epsilon < 5 < 31


def test_lateness_keeps_windows_open_and_batches_open_others(tmp_path: Path) -> None:
    on_disk = only(config(DAILY, directory=tmp_path, **BY_TIME))
    assert (on_disk.windows, on_disk.open, on_disk.opening) == (31, 2, 2)
    in_memory = only(config(DAILY, **BY_TIME))
    assert (in_memory.open, in_memory.opening) == (2, 0)


def test_without_windows_there_is_one_state() -> None:
    assert (only(config(ALL)).windows, only(config(ALL)).epsilon) == (1, 1.0)


def test_the_period_is_declared() -> None:
    assert only(config(DAILY, budget={"period": "7 days"})).windows == 8
    assert total(config(DAILY, budget={"period": "7 days"})).text().startswith("one user, any 1 week, ")


def test_what_protects_events_has_no_bound_and_contributions_give_one() -> None:
    both = total(config(DAILY, EVENTS))
    assert math.isinf(both.epsilon)
    assert [share.name for share in both.unbounded] == ["events"]
    assert "nothing limits the rows of one user that it reads; give contributions" in both.unbounded[0].reason
    capped = only(config(CAPPED))
    assert (capped.contributions, capped.bounded_by, capped.epsilon) == (3, "declared", 31.0)


def test_groups_that_one_user_can_touch_count_each() -> None:
    grouped = {**DAILY, "sql": "SELECT COUNT(DISTINCT user) FROM s GROUP BY region", "groups": {"region": ["n", "s"]}}
    share = only(config(grouped))
    assert share.loss is not None
    assert share.loss.joint == plan_all(config(grouped))[0].claim.epsilon == 2.0
    assert share.loss.answers == pytest.approx(2 * only(config(DAILY)).loss.answers)  # type: ignore[union-attr]


def test_without_noise_there_is_no_number() -> None:
    settings = config(DAILY)
    share = planned_person_total(settings, plan_all(settings, zero_noise=True)).shares[0]
    assert math.isinf(share.epsilon)
    assert share.reason.startswith("has no privacy")


def test_a_budget_for_a_person_is_kept_or_refused_before_anything_is_spent() -> None:
    assert total(config(DAILY, budget={"person": 6.0})).limit == 6.0
    with pytest.raises(BudgetExceeded, match=r"\[stream.budget\] person: one user, any 30 days.* of 2; 'daily' takes"):
        plan_all(config(DAILY, budget={"person": 2.0}))
    with pytest.raises(
        BudgetExceeded, match="person: 'events' protects one event: nothing limits the rows of one user"
    ):
        plan_all(config(DAILY, EVENTS, budget={"person": 9.0}))


def test_people_are_told_how_it_is_made_up() -> None:
    settings = config(DAILY, EVENTS, CAPPED)
    lines = person_table(settings, plan_all(settings))
    assert lines[0].startswith(
        "one user, any 30 days, all queries, one intrusion: not bounded by 'events'; 2 other queries: "
    )
    daily, events, capped = lines[lines.index("") + 3 :][:3]
    assert re.fullmatch(r"daily +1 day +31 +1 +any: counted once +\S+ +\S+", daily)
    assert re.fullmatch(r"events +1 day +- +- +not bounded +- +\S+", events)
    assert re.fullmatch(r"capped +1 day +31 +1 +3 as declared +\S+ +\S+", capped)
    assert any("events: not bounded: protects one event" in line for line in lines)
    assert lines[0] in explain(config(DAILY, EVENTS, CAPPED)).text()
    assert explain(config(DAILY)).to_json()["person"]["shares"][0]["windows"] == 31


class Machine:
    """An engine by the time of arrival, and what a copy of its directory would show during every commit."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.directory = directory
        self.now = 1_000_000_000.0
        self.readable: list[set[str]] = []
        before: set[str] = set()
        commit = SnapshotStore.commit

        def watched(store: SnapshotStore, parts: dict[str, bytes], **options: Any) -> None:
            nonlocal before
            after = {label.split("/")[1] for label in parts if label.startswith("state/")}
            self.readable.append(before | after)
            commit(store, parts, **options)
            before = after

        monkeypatch.setattr(SnapshotStore, "commit", watched)

    def open(self, *queries: dict[str, Any], **settings: Any) -> Engine:
        settings.setdefault("directory", self.directory)
        return Engine(config(*queries, **settings), clock=lambda: self.now, elapsed=None, accept_time=True)


@pytest.mark.parametrize("live", [False, True], ids=["batches", "steps of a clock"])
def test_no_commit_shows_a_window_and_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, live: bool) -> None:
    """New states used to be on disk before the old ones were unreadable."""
    machine = Machine(tmp_path, monkeypatch)
    with machine.open(DAILY, max_clock_jump="30 days") as engine:
        engine.declare("http" if live else "calls")
        for _ in range(5):
            engine.apply(rows(["daily"], ids=np.array([1, 2, 3])), commit=not live)
            if live:
                engine.step()
            machine.now += 0.7 * DAY
    assert max(map(len, machine.readable)) == 1
    assert len({window for shown in machine.readable for window in shown}) > 2


def test_batches_with_times_of_their_own_show_both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(tmp_path, monkeypatch)
    with machine.open(DAILY, time="at") as engine:
        for day in range(3):
            engine.apply(rows(["daily"], ids=np.array([1]), times=[1_000_000_000.0 + day * DAY - 3 * DAY]))
    assert max(map(len, machine.readable)) == 2  # which the account has as "opening"


def test_a_process_that_ends_between_closing_and_opening_opens_the_window_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(tmp_path, monkeypatch)
    settings = {"max_clock_jump": "30 days"}
    engine = machine.open(DAILY, **settings)
    engine.declare("http")
    engine.apply(rows(["daily"], ids=np.array([1])), commit=False)
    engine.step()
    machine.now += DAY
    monkeypatch.setattr("panstream.engine.runtime.running_query.RunningQuery.open_window", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        engine.step()
    engine.close()
    monkeypatch.undo()
    with machine.open(DAILY, **settings) as engine:
        assert len(list(engine.log.history("daily"))) == 1
        assert len(engine._queries["daily"].monitors) == 1
        engine.declare("http")
        engine.apply(rows(["daily"], ids=np.array([2])), commit=False)
        machine.now += DAY
        engine.step()
        assert len(list(engine.log.history("daily"))) == 2


def test_a_query_that_was_removed_stays_in_the_total(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(tmp_path, monkeypatch)
    with machine.open(DAILY) as engine:
        one = engine.person_total.epsilon
        engine.advance()
    machine.now += 60.0
    with machine.open(WEEKLY) as engine:
        engine.advance()
        shares = {share.name: share for share in engine.person_total.shares}
        assert shares.keys() == {"daily", "weekly"}
        assert engine.person_total.epsilon > max(one, shares["weekly"].epsilon)
    with machine.open(WEEKLY) as engine:
        assert len(engine._checkpoint.asked) == 2, "nothing changed since"


def test_states_that_are_lost_are_charged_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(tmp_path, monkeypatch)
    totals = []
    for _ in range(3):
        with machine.open(ALL, DAILY, durability="none") as engine:
            engine.apply(rows(["all", "daily"], ids=np.array([1])))
            totals.append(engine.person_total.epsilon)
            engine.commit()
    answers = planned_person_total(engine.config, engine.plans).shares[0].loss
    assert answers is not None
    assert totals[0] < totals[1] < totals[2]
    assert totals[2] < totals[0] + 2.0, "the states of one process only can be copied"


def test_a_process_that_lost_its_states_is_another_one_whatever_was_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without "all", which had started once more often, the number of the start was that of the process before."""
    machine = Machine(tmp_path, monkeypatch)
    for queries in ((ALL,), (ALL, DAILY), (DAILY,)):
        with machine.open(*queries, durability="none") as engine:
            engine.apply(rows([query["name"] for query in queries], ids=np.array([1])))
            engine.commit()
    assert [(query.share.name, query.start) for query in engine._checkpoint.asked] == [
        ("all", 1),
        ("all", 2),
        ("daily", 2),
        ("daily", 3),
    ]


def test_a_longer_period_opens_as_many_windows_as_lateness_does(tmp_path: Path) -> None:
    settings = {"directory": tmp_path, "time": "at", "lateness": "5 days"}
    with Engine(config(DAILY, budget={"period": "1 hour"}, **settings)) as engine:
        (share,) = engine.person_total.shares
        assert (share.windows, share.open) == (2, 2)
    with Engine(config(DAILY, **settings)) as engine:
        (share,) = engine.person_total.shares
        assert (share.windows, share.open, share.opening) == (31, 6, 6)


def test_on_a_cluster_old_and_new_windows_are_readable_together(tmp_path: Path) -> None:
    settings = config(DAILY, directory=tmp_path)
    with ClusterEngine(settings, InProcessShardTransport(2)) as engine:
        (share,) = engine.person_total.shares
    assert (share.windows, share.open, share.opening) == (31, 1, 1)


GAUSSIAN = question("views", "SELECT COUNT(*) FROM s", window="1 day", contributions=3, epsilon=0.5, delta=1e-9)


def test_a_declared_delta_is_that_of_the_total() -> None:
    added = total(config(GAUSSIAN, DAILY))
    declared = total(config(GAUSSIAN, DAILY, budget={"delta": 1e-6}))
    assert (added.stated_delta, declared.stated_delta) == (pytest.approx(31e-9), 1e-6)
    assert declared.epsilon < added.epsilon < sum(share.epsilon for share in added.shares)
    assert declared.text().endswith("delta 1e-06")
    assert explain(config(GAUSSIAN, budget={"delta": 1e-6})).to_json()["person"]["delta"] == 1e-6
    plan_all(config(GAUSSIAN, DAILY, budget={"person": declared.epsilon + 0.01, "delta": 1e-6}))
    with pytest.raises(BudgetExceeded, match="delta 1e-06, of "):
        plan_all(config(GAUSSIAN, DAILY, budget={"person": 0.9 * declared.epsilon, "delta": 1e-6}))


@pytest.mark.parametrize("delta", [-0.1, 1.0])
def test_a_wrong_delta_of_a_budget_is_refused(delta: float) -> None:
    with pytest.raises(ConfigError, match=r"\[stream.budget\]: delta must be in \[0, 1\)"):
        config(DAILY, budget={"delta": delta})


def test_announced_intrusions_are_in_the_total_of_a_running_engine() -> None:
    with Engine(config(GAUSSIAN, budget={"delta": 1e-6})) as engine:
        engine.apply(rows(["views"], np.array([1, 2, 3])))
        before = engine.person_total
        engine.announce_intrusion()
        after = engine.person_total
    assert (before.copies, after.copies) == (1, 2)
    assert before.epsilon < after.epsilon < 1.05 * before.epsilon  # one more window's copy among 31


def test_a_stored_history_keeps_the_zcdp(tmp_path: Path) -> None:
    settings = config(GAUSSIAN, directory=tmp_path, budget={"delta": 1e-6})
    with Engine(settings) as engine:
        engine.apply(rows(["views"], np.array([1, 2, 3])))
        before = engine.person_total
    with Engine(settings) as engine:
        assert engine.person_total == before
