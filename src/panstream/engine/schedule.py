"""When a query answers: at ticks of a public clock that only moves forward."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["UNKNOWN", "Schedule", "StreamClock"]

UNKNOWN = -(2**61)  # the step of rows that came before the first time was known


@dataclass(slots=True)
class StreamClock:
    """The stream's time: the newest event time, or the time of arrival.

    It depends on the times of all rows, whatever a query selects: times are public, what rows hold is not.
    """

    newest: float | None = None

    def marks(self, times: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the clock as it stands at every row, in order; rows without a time leave it where it is."""
        start = -math.inf if self.newest is None else self.newest
        known = np.where(np.isfinite(times), times, -math.inf)
        return np.maximum(np.maximum.accumulate(known), start) if times.size else known

    def reach(self, times: NDArray[np.float64]) -> None:
        """Move on to the newest of the times."""
        known = times[np.isfinite(times)]
        if known.size:
            newest = float(known.max())
            self.newest = newest if self.newest is None else max(self.newest, newest)


@dataclass(slots=True)
class Schedule:
    """Steps of ``length`` seconds: step k is [k·length, (k+1)·length). ``step`` is the open one, None before any row."""

    length: float
    step: int | None = None

    def steps(self, marks: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return the step that is open at every row: never one that was closed before."""
        least = self.step if self.step is not None else UNKNOWN
        known = np.where(np.isfinite(marks), np.floor(marks / self.length), float(least))
        return np.maximum(known.astype(np.int64), least)

    def reach(self, step: int) -> None:
        """Move on to ``step``."""
        self.step = step if self.step is None else max(self.step, step)

    def at(self, now: float) -> int:
        """Return the step at time ``now``."""
        return math.floor(now / self.length)
