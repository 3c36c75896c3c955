"""The system's clock, watched: when it jumps ahead, time stands still and nothing is drawn until an operator has looked.

A clock that is a month ahead for a second would close a month of slots, and spend their answers for ever. So the clock is
compared with one that nobody sets: since the start of the machine it counts seconds, also while that sleeps.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable

from panstream.engine.config import StreamConfig
from panstream.engine.running import RunningQuery

__all__ = ["JUMPED", "WatchedClock", "since_boot", "watched"]

_LOG = logging.getLogger("panstream")
JUMPED = "the system's clock jumped ahead, so nothing is drawn: set it right, or, if it is right, start again with --accept-time"


def since_boot() -> float:
    """Return seconds that nobody sets, sleep included where the system counts it."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


class WatchedClock:
    """Tells the time, but stands still while the system's clock is more than ``most_jump`` seconds ahead of what has passed.

    An earlier process left off at ``last``: if it is later than ``until`` at the start, it stands still there.
    Without ``elapsed`` the clock is believed. Going back is harmless: slots that are over stay over.
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
        self._clock, self._elapsed, self._most = clock, elapsed, most_jump
        passed = 0.0 if elapsed is None else elapsed()
        self._told = clock() if last is None else last
        # How far the clock may be ahead of the one that nobody sets.
        self._allowed = (self._told + most_jump if last is None else until) - passed
        self._furthest = -math.inf
        self.jumped = False
        self()

    def __call__(self) -> float:
        """Return the time, or when the clock was last believed."""
        now = self._clock()
        if self._elapsed is None:
            return now
        offset = now - self._elapsed()
        before, self.jumped = self.jumped, offset > self._allowed
        if self.jumped:
            if not before:
                _LOG.warning(JUMPED)
            return self._told
        self._furthest = max(self._furthest, offset)
        self._allowed, self._told = self._furthest + self._most, now
        return now


def watched(
    clock: Callable[[], float],
    elapsed: Callable[[], float] | None,
    stream: StreamConfig,
    queries: Iterable[RunningQuery],
    *,
    accept: bool,
) -> WatchedClock:
    """Return the clock of a stream, watched where answers are drawn by the time of arrival.

    An earlier process left off where the slots end that are open; with ``accept`` the present time is believed all the same.
    """
    if elapsed is None and clock is time.time:
        elapsed = since_boot
    if stream.time is not None:
        elapsed = None
    known = [query.schedule for query in queries if query.schedule is not None]
    slots = [(each.step * each.length, each.length) for each in known if each.step is not None]
    if accept or not slots:
        return WatchedClock(clock, elapsed, most_jump=stream.max_jump)
    begin, end = max(start for start, _ in slots), min(start + length for start, length in slots)
    return WatchedClock(clock, elapsed, most_jump=stream.max_jump, last=(begin + end) / 2, until=end + stream.max_gap)
