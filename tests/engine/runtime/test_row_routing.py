"""The windows, steps and slots of rows, against the same computed with one NumPy mask for each window and group."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from panstream.engine.rows.row_gather import take_rows
from panstream.engine.runtime.clocks import UNKNOWN, Schedule, StreamClock
from panstream.engine.runtime.row_routing import NO_WINDOW, RowRoute, Segment, WindowRule
from panstream.primitives.memory.scratch import Scratch
from panstream.primitives.time_grid import FixedGrid

Mask = NDArray[np.bool_]
Slots = list[tuple[tuple[int, int], list[int]]]


# The oracle: every decision for all rows at once, a mask for each pair of steps, each window and each group.


def maximum_by_numpy(times: NDArray[np.float64], newest: float | None) -> NDArray[np.float64]:
    finite = np.where(np.isfinite(times), times, -math.inf)
    return np.maximum(np.maximum.accumulate(finite), -math.inf if newest is None else newest) if times.size else finite


def steps_by_numpy(rule: WindowRule, marks: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    schedule = Schedule(FixedGrid(rule.every), None if rule.step == UNKNOWN else rule.step)
    if rule.window is None or not rule.lateness:
        reached = schedule.steps(marks)
        return reached, reached
    over = schedule.steps(marks - rule.lateness)
    return over, over if rule.ticks_per_window == 1 else schedule.steps(marks)


def windows_by_numpy(rule: WindowRule, times: NDArray[np.float64]) -> NDArray[np.int64]:
    finite = np.isfinite(times)
    numbers = np.floor(np.where(finite, times, 0.0) / (rule.window or math.inf))
    return np.where(finite, numbers, float(NO_WINDOW)).astype(np.int64)


def routed_by_numpy(
    rule: WindowRule, times: NDArray[np.float64], marks: NDArray[np.float64], keep: Mask, groups: Any
) -> tuple[list[tuple[int, int, tuple[int, ...], Slots]], Mask]:
    """Return per pair of steps the opened windows and the rows of every slot, and the mask of late rows."""
    steps, reached = steps_by_numpy(rule, marks)
    late = np.zeros(times.size, bool)
    windows = None
    if rule.window is not None:
        windows = windows_by_numpy(rule, times)
        late = np.isfinite(times) & (windows < steps // rule.ticks_per_window)
    keep = keep if groups is None else keep & (groups >= 0)
    result = []
    for step, now in sorted({pair for pair in zip(steps.tolist(), reached.tolist(), strict=True) if pair[0] > UNKNOWN}):
        inside = (steps == step) & (reached == now)
        opened: tuple[int, ...] = (0,)
        chosen = keep & inside
        if windows is not None:
            alive = inside & (windows >= step // rule.ticks_per_window)
            opened = tuple(np.unique(windows[alive]).tolist())
            chosen = chosen & alive
        result.append((step, now, opened, list(slots_by_numpy(chosen, windows, groups))))
    return result, late


def slots_by_numpy(keep: Mask, windows: Any, groups: Any) -> Iterator[tuple[tuple[int, int], list[int]]]:
    for window in [0] if windows is None else np.unique(windows[keep]).tolist():
        for group in [0] if groups is None else np.unique(groups[keep]).tolist():
            part = keep if windows is None else keep & (windows == window)
            part = part if groups is None else part & (groups == group)
            if part.any():
                yield (window, group), np.flatnonzero(part).tolist()


def slots_of(segment: Segment, keep: Mask, groups: Any, size: int) -> Slots:
    with Scratch() as scratch:
        rows, parts = segment.slots(keep, groups, size, scratch)
        return [(slot, rows[start:stop].tolist()) for slot, start, stop in parts]


LENGTHS = [0.1, 1.0, 7.0, 60.0, 0.001, 3600.0, 1 / 3]


@st.composite
def batches(draw: st.DrawFn) -> tuple[WindowRule, NDArray[np.float64], float | None, Mask, Any, int]:
    every = draw(st.sampled_from(LENGTHS))
    ticks = draw(st.sampled_from([1, 1, 2, 24]))
    windowed = draw(st.booleans())
    window = every * ticks if windowed else None
    size = draw(st.integers(0, 60))
    origin = draw(st.sampled_from([0.0, 1e6, 1e9, -1e9]))
    borders = [window or every, every]
    times = []
    for _ in range(size):
        border = draw(st.sampled_from(borders))
        time = (round(origin / border) + draw(st.integers(-3, 6))) * border
        form = draw(st.integers(0, 6))
        if form == 0:
            time = math.nan if draw(st.booleans()) else draw(st.sampled_from([math.inf, -math.inf]))
        elif form < 3:
            time = math.nextafter(time, math.inf if form == 1 else -math.inf)
        elif form < 5:
            time += draw(st.floats(0, 1)) * border
        times.append(time)
    step = draw(st.sampled_from([UNKNOWN, UNKNOWN, math.floor(origin / every) + draw(st.integers(-4, 4))]))
    lateness = draw(st.sampled_from([0.0, every / 2, every, 3 * every])) if windowed else 0.0
    rule = WindowRule(every, window, lateness, ticks if windowed else 1, step)
    newest = None if step == UNKNOWN and draw(st.booleans()) else origin + draw(st.integers(-2, 2)) * every
    groups_count = draw(st.sampled_from([0, 1, 5]))
    groups = None
    if groups_count:
        groups = np.array([draw(st.integers(-1, groups_count - 1)) for _ in range(size)], np.int64)
    keep = np.array([draw(st.booleans()) or draw(st.booleans()) for _ in range(size)], bool)
    return rule, np.array(times, np.float64), newest, keep, groups, groups_count


@settings(max_examples=600, deadline=None)
@given(batches())
def test_rows_are_routed_as_by_a_mask_for_each_slot(batch: Any) -> None:
    rule, times, newest, keep, groups, size = batch
    marks = StreamClock(newest).watermarks(times)
    assert np.array_equal(marks, maximum_by_numpy(times, newest))
    route = RowRoute.of(rule, times, marks)
    expected, late = routed_by_numpy(rule, times, marks, keep, groups)
    assert np.array_equal(route.late, late)
    if rule.window is not None:
        assert np.array_equal(route.row_windows(), windows_by_numpy(rule, times))
    routed = [(part.step, part.reached, part.windows, slots_of(part, keep, groups, size)) for part in route.segments]
    assert [part[:2] for part in routed] == [part[:2] for part in expected]
    assert [part[2:] for part in routed] == [part[2:] for part in expected]


def test_many_runs_and_many_slots() -> None:
    """More runs than there is memory for at first, and as many groups as rows."""
    generator = np.random.default_rng(3)
    times = generator.uniform(0, 500, 5_000)
    groups = generator.integers(-1, 1_000, times.size)
    keep = generator.random(times.size) < 0.9
    rule = WindowRule(1.0, 10.0, 400.0, 10, UNKNOWN)
    marks = StreamClock().watermarks(times)
    route = RowRoute.of(rule, times, marks)
    expected, late = routed_by_numpy(rule, times, marks, keep, groups)
    assert np.array_equal(route.late, late) and late.any()
    assert len(expected) > 3
    for segment, (step, now, opened, slots) in zip(route.segments, expected, strict=True):
        assert (segment.step, segment.reached, segment.windows) == (step, now, opened)
        assert slots_of(segment, keep, groups, 1_000) == slots


@pytest.mark.parametrize("far", [1e300, -1e300, 2.0**70])
def test_a_time_without_a_number_of_a_window_is_late_and_moves_no_step_back(far: float) -> None:
    times = np.array([5.0, far, 25.0])
    rule = WindowRule(1.0, 10.0, 0.0, 10, UNKNOWN)
    route = RowRoute.of(rule, times, StreamClock().watermarks(times))
    assert route.late.tolist() == [False, True, False]
    steps = [segment.step for segment in route.segments]
    assert steps == sorted(steps) and steps[0] == 5
    assert all(0 <= window < 3 for segment in route.segments for window in segment.windows)


IDS = ["", "a", "bob", "x" * 16, "y" * 17, "ü" * 40, "z"]


@pytest.mark.parametrize("kind", ["string", "binary", "dictionary", "small codes", "sliced", "null", "large", "date"])
def test_some_rows_of_any_column(kind: str) -> None:
    column: Any = pa.array(IDS)
    if kind == "binary":
        column = column.cast(pa.binary())
    elif kind in ("dictionary", "small codes"):
        codes = pa.array(range(7), pa.int8() if kind == "small codes" else pa.int32())
        column = pa.DictionaryArray.from_arrays(codes, column)
    elif kind == "sliced":
        column = pa.array(["gone", *IDS])[1:]
    elif kind == "null":
        column = pa.array([None, *IDS[1:]])
    elif kind == "large":
        column = column.cast(pa.large_string())
    elif kind == "date":
        column = pa.array(range(7), pa.int32()).cast(pa.date32())
    for rows in ([0, 1, 2, 3, 4, 5, 6], [6, 3, 0], [4], []):
        taken, owned = take_rows(column, np.array(rows, np.int64))
        taken.validate(full=True)
        assert taken.type == column.type
        assert taken.to_pylist() == [column[row].as_py() for row in rows]
        assert owned or not rows
