"""A clock that jumps ahead spends no answers."""

import logging
from pathlib import Path
from typing import Any

import pytest

from engine.streams import config, question, rows
from panstream.engine._clocks import _since_boot, _WatchedClock
from panstream.engine.engine import Engine
from panstream.engine.run import feed
from panstream.errors import ClockJumped

DAY = 86400.0
TICKING = question("t", "SELECT COUNT(*) FROM s", every="1 hour", horizon=1000)
HOURLY = question("w", "SELECT COUNT(*) FROM s", window="1 hour")


class Machine:
    """A clock that can be set, and one that cannot."""

    def __init__(self) -> None:
        self.now, self.passed = 1_000_000_000.0, 50.0

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


def answers(engine: Engine, name: str) -> list[float]:
    return [release.record["value"] for release in engine.log.history(name)]


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
        assert [record.levelname for record in caplog.records] == ["WARNING"], "told once"
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


def test_time_that_passes_is_no_jump() -> None:
    """Nor is a machine that slept: its own clock counts that."""
    machine = Machine()
    with machine.open(TICKING) as engine:
        machine.wait(30 * DAY)
        engine.advance()
        assert not engine.jumped
        assert len(answers(engine, "t")) == 720


def test_back_and_forth_again_is_no_jump() -> None:
    machine = Machine()
    with machine.open(TICKING) as engine:
        machine.now -= 2 * DAY
        engine.advance()
        machine.now += 2 * DAY
        machine.wait(3600)
        engine.advance()
        assert not engine.jumped
        assert len(answers(engine, "t")) == 1


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
        feed(engine, [str(tmp_path / "more.csv")])


def test_event_time_needs_no_watch() -> None:
    machine = Machine()
    with machine.open(TICKING, time="at") as engine:
        machine.now += 30 * DAY
        engine.advance()
        assert not engine.jumped


def test_the_clock_that_nobody_sets_goes_on() -> None:
    before = _since_boot()
    assert _since_boot() >= before
    believed = _WatchedClock(lambda: 7.0, None, most_jump=1.0)
    assert (believed(), believed.jumped) == (7.0, False)
