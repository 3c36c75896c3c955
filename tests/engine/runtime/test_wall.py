"""A clock that jumps ahead spends no answers, and one that goes back repeats none."""

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from panstream.engine.rows.row_batch import QuerySelection, RowBatch
from panstream.engine.runtime.clocks import _JumpGuardedClock, _since_boot
from panstream.engine.runtime.engine import Engine
from panstream.engine.runtime.ingest import ingest
from panstream.errors import ClockJumped
from tests.engine.runtime.streams import answers, config, question, rows

DAY = 86400.0
TICKING = question("t", "SELECT COUNT(*) FROM s", every="1 hour", horizon=1000)
HOURLY = question("w", "SELECT COUNT(*) FROM s", window="1 hour")


class Machine:
    """A clock that can be set, and one that cannot."""

    def __init__(self) -> None:
        self.now = 1_000_000_000.0
        self.passed = 50.0

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.passed += seconds

    def open(self, *queries: dict[str, Any], accept_time: bool = False, **settings: Any) -> Engine:
        return Engine(
            config(*(queries or (TICKING, HOURLY)), **settings),
            zero_noise=True,
            clock=lambda: self.now,
            elapsed=lambda: self.passed,
            accept_time=accept_time,
        )


def test_a_jump_of_thirty_days_draws_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """It spent 720 answers for ever. Rows are taken in, and counted in the slot in which time stands still."""
    machine = Machine()
    with machine.open() as engine, caplog.at_level(logging.WARNING, "panstream"):
        engine.apply(rows(["t", "w"], count=3))
        machine.now += 30 * DAY
        engine.advance()
        engine.apply(rows(["t", "w"], count=4))
        assert engine.jumped
        assert answers(engine, "t") == answers(engine, "w") == []
        engine.advance()
        assert [record.levelname for record in caplog.records] == ["WARNING"], "reported once"
        assert "--accept-time" in caplog.text
        machine.now -= 30 * DAY
        machine.wait(3600)
        engine.advance()
        assert not engine.jumped
        assert answers(engine, "t") == answers(engine, "w") == [7]


@pytest.mark.parametrize(("jump", "drawn"), [(3599, 1), (3700, 0)])
def test_up_to_the_public_maximum_it_is_believed(jump: float, drawn: int) -> None:
    machine = Machine()
    machine.now = 1_000_000_000 // 3600 * 3600 + 100.0
    with machine.open(TICKING) as engine:
        machine.now += jump
        engine.advance()
        assert len(answers(engine, "t")) == drawn


@pytest.mark.parametrize(("back", "passed", "drawn"), [(0.0, 30 * DAY, 720), (2 * DAY, 3600.0, 1)])
def test_time_that_passes_is_no_jump(back: float, passed: float, drawn: int) -> None:
    """Nor is a machine that slept, whose own clock counts that; nor a clock that goes back and forth again."""
    machine = Machine()
    with machine.open(TICKING) as engine:
        machine.now -= back
        engine.advance()
        machine.now += back
        machine.wait(passed)
        engine.advance()
        assert not engine.jumped
        assert len(answers(engine, "t")) == drawn


@pytest.mark.parametrize(("stopped", "jumped"), [(6.9 * DAY, False), (30 * DAY, True)])
def test_after_a_stop_that_is_too_long_an_operator_is_asked(tmp_path: Path, stopped: float, jumped: bool) -> None:
    machine = Machine()
    with machine.open(directory=tmp_path) as engine:
        engine.apply(rows(["t", "w"], count=3))
    machine.now += stopped
    machine.passed = 5.0  # started afresh
    with machine.open(directory=tmp_path) as engine:
        engine.advance()
        assert engine.jumped is jumped
        assert bool(answers(engine, "t")) is not jumped
    with machine.open(directory=tmp_path, accept_time=True) as engine:
        engine.advance()
        assert not engine.jumped
        assert answers(engine, "t")[0] == answers(engine, "w")[0] == 3
        machine.now += 2 * 3600
        engine.advance()
        assert engine.jumped, "once accepted, it is watched again"


def test_a_run_ends_with_an_error(tmp_path: Path) -> None:
    machine = Machine()
    with machine.open(directory=tmp_path) as engine:
        engine.apply(rows(["t", "w"], count=3))
    machine.now += 30 * DAY
    (tmp_path / "more.csv").write_text("user,name,value,region,w,at\n1,a,1,x,1,2001-01-01\n")
    with machine.open(directory=tmp_path) as engine, pytest.raises(ClockJumped, match="--accept-time"):
        ingest(engine, [str(tmp_path / "more.csv")])


def test_event_time_needs_no_watch() -> None:
    machine = Machine()
    with machine.open(TICKING, time="at") as engine:
        machine.now += 30 * DAY
        engine.advance()
        assert not engine.jumped


def test_the_clock_that_nobody_sets_goes_on() -> None:
    before = _since_boot()
    assert _since_boot() >= before
    believed = _JumpGuardedClock(lambda: 7.0, None, max_jump=1.0)
    assert (believed(), believed.jumped) == (7.0, False)


BACK = (3.0, 12.0, 3600.0, DAY)
BY_TEN = (
    question("w", "SELECT COUNT(*) FROM s", window=10),
    question("ticked", "SELECT COUNT(*) FROM s", window=10, every=5),
    question("grouped", "SELECT region, COUNT(*) FROM s GROUP BY region", window=10, groups={"region": ["a", "b"]}),
    question("t", "SELECT COUNT(*) FROM s", every=10, horizon=1000),
)


def batch(count: int) -> RowBatch:
    found = rows([query["name"] for query in BY_TEN], count=count)
    found.queries["grouped"] = QuerySelection.select_all(count, groups=np.zeros(count, np.int64))
    return found


def slots(engine: Engine, name: str) -> list[tuple[str, str]]:
    found = [release.record for release in engine.log.history(name)]
    return [(record.get("window", [""])[0], record["end"]) for record in found]


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("back", BACK)
def test_a_clock_that_goes_back_opens_no_window_again(tmp_path: Path, back: float, restarted: bool) -> None:
    """Every post drew another answer about a window that was over. No window is skipped and no row is lost either."""
    machine = Machine()
    machine.now = 1_000_000_000.0 + 9.0
    engine = machine.open(*BY_TEN, directory=tmp_path)
    try:
        engine.apply(batch(3))
        machine.wait(2.0)  # one second into the next window
        engine.advance()
        machine.now -= back
        for _ in range(4):
            if restarted:
                engine.close()
                engine = machine.open(*BY_TEN, directory=tmp_path)
            engine.advance()
            assert engine.apply(batch(1)).late.size == 0
        assert [len(slots(engine, name)) for name in ("w", "ticked", "t")] == [1, 1, 1], "of the window before"
        machine.now += back
        for _ in range(6):
            machine.wait(5.0)
            engine.advance()
        ends = [(f"2001-09-09T01:46:{at}Z", f"2001-09-09T01:4{end}Z") for at, end in ((40, "6:50"), (50, "7:00"))]
        assert slots(engine, "w")[:2] == ends
        for name in ("w", "ticked", "t", "grouped [region=a]"):
            found = slots(engine, name)
            assert found == sorted(set(found)), "every slot once, in order"
        assert sum(answers(engine, "w")) == sum(answers(engine, "grouped [region=a]")) == 7
        assert answers(engine, "w")[:3] == [3, 4, 0]
        assert answers(engine, "t")[:3] == [3, 7, 7]
    finally:
        engine.close()


@pytest.mark.parametrize("back", BACK)
def test_a_question_that_is_added_while_the_clock_is_back_answers_no_past_window(tmp_path: Path, back: float) -> None:
    machine = Machine()
    with machine.open(BY_TEN[0], directory=tmp_path):
        machine.wait(1.0)
    machine.now -= back
    new = question("new", "SELECT COUNT(*) FROM s", window=10)
    with machine.open(BY_TEN[0], new, directory=tmp_path) as engine:
        engine.apply(rows(["w", "new"], count=1))
        assert answers(engine, "new") == []


@pytest.mark.parametrize("back", BACK)
def test_a_clock_that_goes_back_does_not_put_off_commits(tmp_path: Path, back: float) -> None:
    machine = Machine()
    with machine.open(BY_TEN[0], directory=tmp_path, durability="interval", interval=1) as engine:
        machine.now -= back
        engine.apply(rows(["w"], count=1))
        assert engine.durable


def test_a_window_closed_by_the_end_of_input_is_answered_once(tmp_path: Path) -> None:
    """Rows that come after it, in the same window, are late; the next window is neither skipped nor answered early."""
    machine = Machine()
    for _ in range(2):
        with machine.open(BY_TEN[0], directory=tmp_path) as engine:
            engine.apply(rows(["w"], count=3))
            engine.advance()
            engine.finish()
            assert answers(engine, "w") == [3]
        machine.wait(1.0)
    machine.wait(10.0)
    with machine.open(BY_TEN[0], directory=tmp_path) as engine:
        assert engine.apply(rows(["w"], count=5)).late.size == 0
        engine.finish()
        assert answers(engine, "w") == [3, 5]


def test_the_end_of_late_rows_skips_no_window() -> None:
    with Machine().open(question("w", "SELECT COUNT(*) FROM s", window=10), time="at", max_ahead="any") as engine:
        for times in ([5.0], [5.0], [5.0], [15.0]):
            engine.apply(rows(["w"], count=1, times=times))
            engine.finish()
        assert answers(engine, "w") == [1, 1]
        assert [start for start, _ in slots(engine, "w")] == ["1970-01-01T00:00:00Z", "1970-01-01T00:00:10Z"]


def test_a_jump_after_the_end_of_input_draws_nothing(tmp_path: Path) -> None:
    """Slots of different lengths end far apart: the time that the clock stands still at was between them."""
    machine = Machine()
    daily = question("d", "SELECT COUNT(*) FROM s", window="1 day")
    with machine.open(TICKING, daily, directory=tmp_path) as engine:
        engine.apply(rows(["t", "d"], count=3))
        engine.finish()
    machine.now += 30 * DAY
    with machine.open(TICKING, daily, directory=tmp_path) as engine:
        engine.advance()
        assert engine.jumped
        assert answers(engine, "t") == [3]
