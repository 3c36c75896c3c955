"""Senders number their rows window by window, and never use a number twice for a window."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from panstream.engine.planner.query_plan import plan_all
from panstream.engine.runtime.row_routing import RowRoute
from panstream.engine.runtime.running_query import RunningQuery
from panstream.primitives.sender_counts import CODES, SentCounts, parse_caps, window_number
from tests.engine.runtime.streams import config, question
from tests.window_vectors import DAY, WINDOWS

CAPS = {("row", DAY): 3, ("row", 7 * DAY): 5, ("view", DAY): 2}


@pytest.mark.parametrize(("milliseconds", "length", "number"), WINDOWS)
def test_windows_are_those_of_the_engine(milliseconds: int, length: int, number: int) -> None:
    seconds = milliseconds / 1000
    assert window_number(seconds, length) == number
    (plan,) = plan_all(config(question("q", "SELECT COUNT(*) FROM s", window=length)))
    query = RunningQuery(plan)
    assert query.schedule is not None
    assert query.window_rule is not None
    times = np.array([seconds])
    assert RowRoute.of(query.window_rule, times, times).row_windows().tolist() == [number]
    assert query.schedule.at(seconds) == number


@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from(["row", "view", "restart", "another configuration"]),
            st.integers(-40 * DAY, 40 * DAY),
        ),
        max_size=60,
    )
)
def test_no_number_is_used_twice_and_none_is_above_the_cap(steps: list[tuple[str, int]]) -> None:
    counts = SentCounts(CAPS)
    now = 20_000 * DAY
    used: Counter[str] = Counter()
    for step, seconds in steps:
        now = max(0, now + seconds)
        if step == "restart":
            counts = SentCounts(CAPS, counts.text())
        elif step == "another configuration":
            SentCounts({("view", DAY): 1}, counts.text()).number(("view",), now)  # and what it stored is lost
            counts = SentCounts(CAPS, SentCounts({("load", 60): 1}, counts.text()).text())
        else:
            used.update(counts.number(("row", step), now).split())
    assert all(times == 1 for times in used.values())
    for entry in used:
        kind, length, _, number = entry.split(":")
        assert 1 <= int(number) <= CAPS[kind, int(length)]


def test_what_is_stored_is_windows_and_counts() -> None:
    counts = SentCounts(CAPS)
    for _ in range(4):
        counts.number(("row", "view"), 20_000.0 * DAY)
    assert counts.text() == "86400 20000 r3v2;604800 2857 r4"


def test_a_sender_that_forgot_waits_for_the_next_window() -> None:
    counts = SentCounts(CAPS)
    counts.begin(20_000.5 * DAY)
    assert counts.number(("row", "view"), 20_000.9 * DAY) == ""
    assert counts.number(("row", "view"), 20_001.0 * DAY) == "row:86400:20001:1 view:86400:20001:1"
    assert counts.number(("row",), 20_006.0 * DAY) == "row:86400:20006:1 row:604800:2858:1"


def test_a_text_of_something_else_is_refused() -> None:
    for text in ("off", "86400 20000", "86400 x r1", "86400 20000 r1;;x"):
        with pytest.raises(ValueError, match="not the text"):
            SentCounts(CAPS, text)


def test_codes_are_single_letters_of_one_kind_each() -> None:
    assert len(set(CODES.values())) == len(CODES)
    assert all(len(code) == 1 and code.isalpha() for code in CODES.values())


def test_caps_are_read_from_a_command_line() -> None:
    assert parse_caps("1 day=8,7 days = 12") == {"1 day": 8, "7 days": 12}
    assert parse_caps("1 day") == {"1 day": 0}
