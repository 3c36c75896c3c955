"""Find the window of every row, and the steps of a schedule that are open at it.

Compiled because the same in NumPy takes a dozen passes over the times. A step is the floor of a quotient; comparing a
time with the rounded border of its step would differ by an ulp. So a range of times is taken for one step only if the
quotients of both of its ends have the same floor: rounding never exchanges the order of quotients.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.primitives.kernels.jit import njit, part

ROW, WINDOW, STEP, REACHED = range(4)  # columns of a run
_WHOLE = 2.0**63
_MARGIN = 2.0**-50  # relative distance from a border at which quotients are computed one by one
_OVERFLOW = -(2**63)


@part
def _floor(time: Any, length: Any) -> Any:
    """Return the number of the interval of ``length`` that contains a time; if it has over 63 bits, the lowest one."""
    number = np.floor(time / length)
    return np.int64(number) if -_WHOLE <= number < _WHOLE else np.int64(_OVERFLOW)


@part
def _range(time: Any, length: Any, number: Any) -> Any:
    """Return two times between which, both included, all are in the same interval as ``time``."""
    if number == _OVERFLOW:
        return time, time
    first = np.float64(number) * length
    last = (np.float64(number) + 1.0) * length
    first += _MARGIN * abs(first)
    last -= _MARGIN * abs(last)
    if not (first <= time and _floor(first, length) == number):
        first = time
    if not (last >= time and _floor(last, length) == number):
        last = time
    return first, last


@njit(cache=True, nogil=True)
def running_maximum(times: NDArray[np.float64], start: float, out: NDArray[np.float64]) -> None:
    """Write the newest time up to every row, at least ``start``; times that are not finite do not count.

    Bound: a comparison and a store per row.
    """
    newest = start
    for row in range(times.size):
        if newest < times[row] < np.inf:
            newest = times[row]
        out[row] = newest


@njit(cache=True, nogil=True)
def find_runs(
    times: NDArray[np.float64],
    marks: NDArray[np.float64],
    every: float,
    window: float,
    lateness: float,
    waits: bool,
    step: int,
    no_window: int,
    runs: NDArray[np.int64],
) -> int:
    """Find runs of rows that are in one window, while the same steps are open; return their number.

    Bound: five comparisons per row, and two divisions where a window or step begins.

    Args:
        times: The times of the rows.
        marks: The stream's time at every row, never decreasing; minus infinity before the first known time.
        every: Length of a step.
        window: Length of a window; 0 if all rows are in window 0.
        lateness: How far the watermark is behind the stream's time.
        waits: Whether the step of the stream's time differs from that of the watermark.
        step: The step that is open before the first row; later ones are never below.
        no_window: The window of rows without a time.
        runs: Receives the first row, the window, and the steps of the watermark and of the stream's time; if there are
            more runs, those that do not fit are only counted.
    """
    count = 0
    over = np.int64(step)
    reached = np.int64(step)
    over_last = reached_last = -np.inf  # up to these times, the steps stay as they are
    number = np.int64(0)  # the window of the times from first to last
    first = np.inf
    last = -np.inf
    here = np.int64(0)
    for row in range(times.size):
        is_new = row == 0
        mark = marks[row] - lateness
        if mark > over_last:
            new_step = _floor(mark, every)
            _, over_last = _range(mark, every, new_step)
            is_new |= new_step > over
            over = max(over, new_step)
        if waits:
            if marks[row] > reached_last:
                new_step = _floor(marks[row], every)
                _, reached_last = _range(marks[row], every, new_step)
                is_new |= new_step > reached
                reached = max(reached, new_step)
        else:
            reached = over
        if window > 0:
            time = times[row]
            if not first <= time <= last:
                if np.isfinite(time):
                    number = _floor(time, window)
                    first, last = _range(time, window, number)
                    is_new |= number != here
                    here = number
                else:
                    is_new |= here != no_window
                    here = np.int64(no_window)
            else:
                is_new |= number != here
                here = number
        if is_new:
            if count < runs.shape[0]:
                runs[count, ROW] = row
                runs[count, WINDOW] = here
                runs[count, STEP] = over
                runs[count, REACHED] = reached
            count += 1
    return count
