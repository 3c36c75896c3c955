"""The stream's clock and its steps."""

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from panstream.engine.runtime.clocks import Schedule, StreamClock
from panstream.primitives.time_grid import FixedGrid

TIMES = st.lists(st.one_of(st.just(math.nan), st.floats(-1e9, 1e9)), max_size=30)


@given(st.lists(TIMES, max_size=4))
def test_the_clock_is_the_newest_time(batches: list[list[float]]) -> None:
    clock = StreamClock()
    newest = -math.inf
    for batch in batches:
        marks = clock.watermarks(np.array(batch, float))
        clock.reach(marks)
        for mark, time in zip(marks, batch, strict=True):
            newest = max(newest, time) if not math.isnan(time) else newest
            assert mark == newest
    assert clock.newest == (None if newest == -math.inf else newest)


@given(st.lists(st.floats(-1e9, 1e9), min_size=1), st.floats(0.01, 1e6))
def test_steps_never_go_back(marks: list[float], length: float) -> None:
    schedule = Schedule(FixedGrid(length))
    for mark in marks:
        (step,) = schedule.steps(np.array([mark]))
        assert step >= math.floor(mark / length)
        schedule.advance_to(int(step))
        assert schedule.step == step
    assert schedule.step == max(math.floor(mark / length) for mark in marks)


def test_rows_without_a_time_stay_in_the_open_step() -> None:
    schedule = Schedule(FixedGrid(10.0), 7)
    assert schedule.steps(np.array([math.nan, -math.inf, 95.0])).tolist() == [7, 7, 9]
    assert schedule.at(99.9) == 9
