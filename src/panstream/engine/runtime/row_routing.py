"""Assign the rows of a micro-batch to steps and windows, by their times alone, and sort them by window and group.

Times are public, so what is computed from them alone is not overwritten. Which rows a query selects, and their groups,
are not public: those are sorted in scratch memory.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from panstream.engine.runtime.clocks import UNKNOWN
from panstream.engine.runtime.state_backend import Slot
from panstream.primitives.inputs.argument import read_only
from panstream.primitives.memory.scratch import Scratch
from panstream.primitives.time_grid import CalendarGrid

Mask = NDArray[np.bool_]
NO_WINDOW = -(2**62)  # the window of rows without a time; below every real one
_FEW_RUNS = 1 << 14
_NO_GROUPS = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class WindowRule:
    """What the steps and windows of rows depend on, besides their times.

    Attributes:
        every: Length of a step.
        window: Length of a window; None without windows.
        lateness: How far the watermark is behind the stream's time.
        ticks_per_window: Number of steps of a window.
        step: The open step; `UNKNOWN` before the first one.
        calendar: The steps, and the windows if there are any, where they are units of the calendar.
    """

    every: float
    window: float | None
    lateness: float
    ticks_per_window: int
    step: int
    calendar: CalendarGrid | None = None

    def in_steps(
        self, times: NDArray[np.float64], marks: NDArray[np.float64]
    ) -> tuple[WindowRule, NDArray[np.float64], NDArray[np.float64]]:
        """Return the same rule and times, counted in steps of the calendar."""
        if self.calendar is None:
            return self, times, marks
        window = None if self.window is None else 1.0
        rule = replace(self, every=1.0, window=window, lateness=0.0, calendar=None)
        return rule, self.calendar.indices(times), self.calendar.indices(marks - self.lateness)


@dataclass(frozen=True, slots=True, eq=False)
class Segment:
    """Consecutive rows during which the same steps are open.

    Attributes:
        start: The first row.
        stop: The row after the last one.
        step: The watermark's step: windows that end before it accept no more rows.
        reached: The step of the stream's time.
        windows: The windows of rows that are not late, selected or not.
        starts: First row of every run of rows in one window, and ``stop``.
        indices: Per run the index of its window in ``windows``, -1 if the run is late or has no times.
    """

    start: int
    stop: int
    step: int | None
    reached: int | None
    windows: tuple[int, ...]
    starts: NDArray[np.int64]
    indices: NDArray[np.int64]

    @classmethod
    def whole(cls, rows: int) -> Segment:
        """Return all rows as one segment, for a query without a schedule."""
        return cls(0, rows, None, None, (0,), np.array([0, rows], np.int64), np.zeros(1, np.int64))

    def slots(
        self, keep: Mask, groups: NDArray[np.int64] | None, size: int, scratch: Scratch
    ) -> tuple[NDArray[np.int64], list[tuple[Slot, int, int]]]:
        """Sort the selected rows by window and group.

        Args:
            keep: Which rows of the batch are selected.
            groups: The group of every row, -1 if it has none; None if there are no groups.
            size: Number of groups.
            scratch: The result is valid as long as this.

        Returns:
            The numbers of the selected rows, and for every window and group with rows the part of them that is its own.
        """
        from panstream.primitives.kernels.sources.row_selection import count_slots, sort_rows

        numbers = _NO_GROUPS if groups is None else groups
        size = 1 if groups is None else size
        counts = scratch.array(size * len(self.windows) + 1, np.int64)
        ends = scratch.array(counts.size, np.int64)
        counts[:] = 0
        ends[0] = 0
        arguments = read_only(self.starts), read_only(self.indices), read_only(keep), read_only(numbers), size
        count_slots(*arguments, counts)
        np.cumsum(counts[:-1], out=ends[1:])
        total = int(ends[-1])
        rows = scratch.array(total + 1, np.int64)
        sort_rows(*arguments, ends, rows)
        occupied = np.flatnonzero(counts[:-1])
        stops = ends[occupied].tolist()
        slots = [divmod(slot, size) for slot in occupied.tolist()]
        parts = [
            ((self.windows[window], group), start, stop)
            for (window, group), start, stop in zip(slots, [0, *stops], stops, strict=False)
        ]
        return rows[:total], parts


@dataclass(frozen=True, slots=True, eq=False)
class RowRoute:
    """The segments of a micro-batch in the order of its rows, and which rows are in a window that is over.

    Rows are in runs of one window: ``windows`` begin at ``starts``, which also has the number of rows.
    """

    segments: tuple[Segment, ...]
    late: Mask
    starts: NDArray[np.int64]
    windows: NDArray[np.int64]

    @classmethod
    def of(cls, rule: WindowRule, times: NDArray[np.float64], marks: NDArray[np.float64]) -> RowRoute:
        """Route rows.

        Args:
            rule: The query's schedule.
            times: The times of the rows, NaN where unknown.
            marks: The stream's time at every row.
        """
        runs = _runs(*rule.in_steps(times, marks))
        starts = np.append(runs[:, 0], times.size)
        windows = runs[:, 1]
        steps = runs[:, 2]
        reached = runs[:, 3]
        if rule.window is None:
            is_open = np.ones(windows.size, bool)
            late = np.zeros(times.size, bool)
        else:
            is_open = windows >= steps // rule.ticks_per_window
            late = np.repeat(~is_open & (windows != NO_WINDOW), np.diff(starts))
        moved = np.flatnonzero(np.diff(steps) | np.diff(reached)) + 1
        bounds = zip([0, *moved.tolist()], [*moved.tolist(), steps.size], strict=True)
        segments = []
        for first, last in bounds if times.size else ():
            if steps[first] > UNKNOWN:
                own = windows[first:last]
                opened = np.unique(own[is_open[first:last]])
                indices = np.where(is_open[first:last], np.searchsorted(opened, own), -1)
                between = starts[first : last + 1]
                step = int(steps[first])
                now = int(reached[first])
                segment = Segment(
                    int(between[0]), int(between[-1]), step, now, tuple(opened.tolist()), between, indices
                )
                segments.append(segment)
        return cls(tuple(segments), late, starts, windows)

    def row_windows(self) -> NDArray[np.int64]:
        """Return the window of every row, `NO_WINDOW` for rows without a time."""
        return np.repeat(self.windows, np.diff(self.starts))


def _runs(rule: WindowRule, times: NDArray[np.float64], marks: NDArray[np.float64]) -> NDArray[np.int64]:
    from panstream.primitives.kernels.sources.row_windows import find_runs

    waits = rule.lateness > 0 and rule.ticks_per_window > 1
    window = 0.0 if rule.window is None else float(rule.window)
    capacity = _FEW_RUNS
    while True:
        runs = np.empty((capacity, 4), np.int64)
        count = find_runs(
            read_only(times),
            read_only(marks),
            float(rule.every),
            window,
            float(rule.lateness),
            waits,
            rule.step,
            NO_WINDOW,
            runs,
        )
        if count <= capacity:
            return runs[:count]
        capacity = count
