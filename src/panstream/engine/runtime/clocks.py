"""Clocks: the stream's own, the ticks at which a query answers, and the system's, watched.

When the system's clock jumps ahead, time stands still and nothing is drawn until an operator has looked.

A clock that is a month ahead for a second would close a month of slots, and spend their answers for ever. So the clock
is compared with one that nobody sets: since the start of the machine it counts seconds, also while that sleeps.
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

if TYPE_CHECKING:
    from panstream.engine.runtime.running_query import DrawnAnswer, RunningQuery

_LOG = logging.getLogger("panstream")
JUMPED = (
    "the system's clock jumped ahead, so nothing is drawn: set it right, or, if it is right, start again with "
    "--accept-time"
)

UNKNOWN = -(2**61)  # the step of rows that came before the first time was known


@dataclass(slots=True)
class StreamClock:
    """The stream's time: the newest event time, or the time of arrival.

    It depends on the times of all rows, whatever a query selects: times are public, what rows hold is not.
    """

    newest: float | None = None

    def watermarks(self, times: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the clock as it stands at every row, in order; rows without a time leave it where it is."""
        start = -math.inf if self.newest is None else self.newest
        finite_times = np.where(np.isfinite(times), times, -math.inf)
        return np.maximum(np.maximum.accumulate(finite_times), start) if times.size else finite_times

    def reach(self, times: NDArray[np.float64]) -> None:
        """Move on to the newest of the times."""
        finite_times = times[np.isfinite(times)]
        if finite_times.size:
            self.advance_to(float(finite_times.max()))

    def advance_to(self, time: float) -> float:
        """Move on to ``time``, unless it is in the past; return the stream's time."""
        self.newest = time if self.newest is None else max(self.newest, time)
        return self.newest


@dataclass(slots=True)
class Schedule:
    """Steps of ``length`` seconds: step k is [k·length, (k+1)·length). ``step`` is the open one, None before any
    row.
    """

    length: float
    step: int | None = None

    def steps(self, marks: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return the step that is open at every row: never one that was closed before."""
        min_step = self.step if self.step is not None else UNKNOWN
        mark_steps = np.where(np.isfinite(marks), np.floor(marks / self.length), float(min_step))
        return np.maximum(mark_steps.astype(np.int64), min_step)

    def advance_to(self, step: int) -> None:
        """Move on to ``step``."""
        self.step = step if self.step is None else max(self.step, step)

    def at(self, now: float) -> int:
        """Return the step at time ``now``."""
        return math.floor(now / self.length)


def _since_boot() -> float:
    """Return seconds that nobody sets, sleep included where the system counts it."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


class _JumpGuardedClock:
    """Tells the time, but stands still while the system's clock is more than ``most_jump`` seconds ahead of what has
    passed.

    An earlier process left off at ``last``: if it is later than ``until`` at the start, it stands still there.
    Without ``elapsed`` the clock is believed. It may go back: the stream's own time (`StreamClock`) does not.
    """

    def __init__(
        self,
        clock: Callable[[], float],
        elapsed: Callable[[], float] | None,
        *,
        most_jump: float,
        last: float | None = None,
        until: float = math.inf,
    ) -> None:
        self._clock = clock
        self._elapsed = elapsed
        self._most = most_jump
        passed = 0.0 if elapsed is None else elapsed()
        self._told = clock() if last is None else last
        # How far the clock may be ahead of the one that nobody sets.
        self._allowed = (self._told + most_jump if last is None else until) - passed
        # Up to ``last`` nothing is left to draw: a clock that was back at the start may be put right.
        self._furthest = -math.inf if last is None else last - passed
        self.jumped = False
        self()

    def __call__(self) -> float:
        """Return the time, or when the clock was last believed."""
        now = self._clock()
        if self._elapsed is None:
            return now
        offset = now - self._elapsed()
        had_jumped = self.jumped
        self.jumped = offset > self._allowed
        if self.jumped:
            if not had_jumped:
                _LOG.warning(JUMPED)
            return self._told
        self._furthest = max(self._furthest, offset)
        self._allowed = self._furthest + self._most
        self._told = now
        return now


def follow_clock(
    query: RunningQuery,
    now: float,
    drawer: Callable[[RunningQuery], Callable[[DrawnAnswer], None]],
    *,
    start: bool,
) -> None:
    """Start the schedule of a query if it has none yet, or draw what is due by it.

    Args:
        query: The query.
        now: The stream's time.
        drawer: Returns what takes the query's drawn answers.
        start: Whether to start schedules that stand still; otherwise only the others are followed.
    """
    if query.schedule is None or (query.schedule.step is None) != start:
        return
    step = query.schedule.at(now)
    if query.schedule.step is None or step >= query.schedule.step:  # else ``finish`` has closed the slot
        query.advance_to(step, drawer(query))
        query.open_window(step)


def guard_clock(
    clock: Callable[[], float],
    elapsed: Callable[[], float] | None,
    stream: StreamConfig,
    queries: Iterable[RunningQuery],
    *,
    last: float | None,
) -> _JumpGuardedClock:
    """Return the clock of a stream, watched where answers are drawn by the time of arrival.

    ``last`` is the stream's time when an earlier process committed it; without it the present time is believed.
    """
    if elapsed is None and clock is time.time:
        elapsed = _since_boot
    if stream.time is not None:
        elapsed = None
    schedules = [query.schedule for query in queries if query.schedule is not None]
    ends = [(schedule.step + 1) * schedule.length for schedule in schedules if schedule.step is not None]
    if last is None or not ends:
        return _JumpGuardedClock(clock, elapsed, most_jump=stream.max_clock_jump)
    return _JumpGuardedClock(
        clock, elapsed, most_jump=stream.max_clock_jump, last=last, until=min(ends) + stream.max_clock_gap
    )
