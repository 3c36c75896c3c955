"""Clocks: the stream's time, the schedule of a query's releases, and a guard on the system clock.

A system clock that is a month ahead for one second would close a month of slots and spend their paid releases for
good. So it is compared with the seconds since boot, which no administrator sets. When it jumps ahead of them, the
guarded clock stops and no release is drawn by arrival time until an operator has intervened.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from panstream.engine.config.config import StreamConfig
from panstream.primitives.inputs.argument import read_only
from panstream.primitives.time_grid import TimeGrid

if TYPE_CHECKING:
    from panstream.engine.runtime.running_query import DrawnAnswer, RunningQuery

_LOG = logging.getLogger("panstream")
JUMPED = (
    "the system's clock jumped ahead, so nothing is drawn: set it right, or, if it is right, start again with "
    "--accept-time"
)

UNKNOWN = -(2**61)  # the step of rows that came before the first known time


@dataclass(slots=True)
class StreamClock:
    """The stream's time: the newest event time, or the arrival time.

    It depends on the times of all rows, not on what a query selects: times are public, the rows' contents are not.
    """

    newest: float | None = None

    def watermarks(self, times: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the stream's time at every row, in order; rows without a time do not change it."""
        from panstream.primitives.kernels.sources.row_windows import running_maximum

        marks = np.empty(times.size, np.float64)
        running_maximum(read_only(times), -math.inf if self.newest is None else float(self.newest), marks)
        return marks

    def reach(self, watermarks: NDArray[np.float64]) -> None:
        """Advance to the last watermark of rows; no-op if none had a time yet."""
        if watermarks.size and watermarks[-1] > -math.inf:
            self.advance_to(float(watermarks[-1]))

    def advance_to(self, time: float) -> float:
        """Advance to ``time``, unless it is in the past; return the stream's time."""
        self.newest = time if self.newest is None else max(self.newest, time)
        return self.newest


@dataclass(slots=True)
class Schedule:
    """Numbered steps; ``step`` is the open one, None before a row."""

    grid: TimeGrid
    step: int | None = None

    def steps(self, marks: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return the step that is open at every row, never one that is already closed."""
        min_step = self.step if self.step is not None else UNKNOWN
        mark_steps = np.where(np.isfinite(marks), self.grid.indices(marks), float(min_step))
        return np.maximum(mark_steps.astype(np.int64), min_step)

    def advance_to(self, step: int) -> None:
        """Open ``step``, unless a later one is open already."""
        self.step = step if self.step is None else max(self.step, step)

    @property
    def open_until(self) -> float | None:
        """Return when the open step ends; None before the first row."""
        return None if self.step is None else self.grid.start(self.step + 1)

    def at(self, now: float) -> int:
        """Return the step that contains the time ``now``."""
        return self.grid.index(now)


def _since_boot() -> float:
    if hasattr(time, "CLOCK_BOOTTIME"):  # Linux; unlike the monotonic clock it also counts time asleep
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


class _JumpGuardedClock:
    """Return the system time, but stop while it is more than ``max_jump`` seconds ahead of the elapsed time.

    The clock may be set back; the stream's time (`StreamClock`) does not follow it.

    Args:
        clock: The system clock, seconds since 1970.
        elapsed: Seconds since boot; None trusts ``clock``.
        max_jump: Seconds that the clock may advance beyond the elapsed ones.
        last: The stream's time at the last commit of an earlier process.
        until: If it is later than this at the start, stop at ``last``.
    """

    def __init__(
        self,
        clock: Callable[[], float],
        elapsed: Callable[[], float] | None,
        *,
        max_jump: float,
        last: float | None = None,
        until: float = math.inf,
    ) -> None:
        self._clock = clock
        self._elapsed = elapsed
        self._max_jump = max_jump
        passed = 0.0 if elapsed is None else elapsed()
        self._trusted = clock() if last is None else last
        # Largest accepted offset of the clock from the elapsed time.
        self._max_offset = (self._trusted + max_jump if last is None else until) - passed
        # Releases up to ``last`` are drawn already, so a clock that was behind at the start may catch up to there.
        self._offset = -math.inf if last is None else last - passed
        self.jumped = False
        self()

    def __call__(self) -> float:
        """Return the time, or the last trusted one while the clock is ahead."""
        now = self._clock()
        if self._elapsed is None:
            return now
        offset = now - self._elapsed()
        had_jumped = self.jumped
        self.jumped = offset > self._max_offset
        if self.jumped:
            if not had_jumped:
                _LOG.warning(JUMPED)
            return self._trusted
        self._offset = max(self._offset, offset)
        self._max_offset = self._offset + self._max_jump
        self._trusted = now
        return now


def follow_clock(
    queries: Iterable[RunningQuery],
    now: float,
    drawer: Callable[[RunningQuery], Callable[[DrawnAnswer], None]],
    *,
    start: bool,
    closed: Callable[[], None],
) -> None:
    """Advance the schedules of queries to the arrival time, and draw the releases that are due.

    Args:
        queries: The queries.
        now: The stream's time.
        drawer: Returns the function that receives a query's drawn answers.
        start: Handle only schedules that have not started, and start them; otherwise only those that have.
        closed: Called after windows that are over were dropped, and before others are opened.
    """
    opened: list[tuple[RunningQuery, int]] = []
    for query in queries:
        if query.schedule is None or (query.schedule.step is None) != start:
            continue
        step = query.schedule.at(now)
        if query.schedule.step is None or step >= query.schedule.step:  # else ``finish`` has closed the slot
            query.advance_to(step, drawer(query))
            opened.append((query, step))
    closed()
    for query, step in opened:
        query.open_window(step)


def reopen_windows(queries: Iterable[RunningQuery]) -> None:
    """Open the windows of the last step, if a process ended after it had closed those before them."""
    for query in queries:
        if query.schedule is not None and query.schedule.step is not None and not query.ticks_by_window:
            query.open_window(query.schedule.step)


def guard_clock(
    clock: Callable[[], float],
    elapsed: Callable[[], float] | None,
    stream: StreamConfig,
    queries: Iterable[RunningQuery],
    *,
    last: float | None,
) -> _JumpGuardedClock:
    """Return the guarded clock of a stream; with event times it is not guarded, since no release is drawn by it.

    Args:
        clock: The system clock.
        elapsed: Seconds since boot; the system's own if ``clock`` is `time.time`.
        stream: The configuration.
        queries: The running queries.
        last: The stream's time at the last commit of an earlier process; None trusts the present time.
    """
    if elapsed is None and clock is time.time:
        elapsed = _since_boot
    if stream.time is not None:
        elapsed = None
    schedules = [query.schedule for query in queries if query.schedule is not None]
    ends = [schedule.grid.start(schedule.step + 1) for schedule in schedules if schedule.step is not None]
    if last is None or not ends:
        return _JumpGuardedClock(clock, elapsed, max_jump=stream.max_clock_jump)
    return _JumpGuardedClock(
        clock, elapsed, max_jump=stream.max_clock_jump, last=last, until=min(ends) + stream.max_clock_gap
    )
