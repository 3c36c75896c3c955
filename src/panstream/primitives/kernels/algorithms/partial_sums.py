"""Loops of the continual counters over arrays of slots: partial sums, segments, windows, decayed sums.

Noise is drawn by the caller. While a loop runs, open accumulators are stored minus the running total, so that a slot
costs as much as the sums that open or close in it, not as all that are open. Compiled because every slot depends on the
one before. Which sums open and close depends on the time only, never on the values.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.primitives.kernels import machine_words
from panstream.primitives.kernels.jit import njit, part

IDLE = -1


@part
def trailing_zeros(number: int) -> Any:
    """Return how often a positive number can be halved."""
    return np.int64(machine_words.trailing_zeros(np.uint64(number)))


@njit(cache=True, nogil=True)
def binary_starts(time: int, slots: int, horizon: int, levels: int, first_level: int) -> int:
    """Count the sums of at least ``first_level`` that open after the slots time+1 .. time+slots."""
    count = 0
    for slot in range(time + 1, time + slots + 1):
        for level in range(first_level, min(trailing_zeros(slot), levels)):
            if slot + (1 << level) > horizon:
                break
            count += 1
    return count


# ``prefix`` has the released sums of the set bits of t, so that an answer is one lookup and not a sum over levels.
@njit(cache=True, nogil=True)
def binary_slots(
    accumulators: NDArray[np.int64],
    closed: NDArray[np.int64],
    open_draws: NDArray[np.int64],
    closed_draws: NDArray[np.int64],
    time: int,
    horizon: int,
    totals: NDArray[np.int64],
    starts: NDArray[np.int64],
    releases: NDArray[np.int64],
    noiseless_leaves: bool,
    answers: NDArray[np.float64],
    draws: NDArray[np.float64],
) -> None:
    """Close one slot per total: slot t closes the sum of level trailing_zeros(t) and opens all levels below it."""
    levels = accumulators.size
    prefix = np.zeros(levels + 1, np.int64)  # prefix[i]: released sums of the set bits of t from i upwards
    prefix_draws = np.zeros(levels + 1, np.int64)
    higher = levels
    for level in range(levels - 1, -1, -1):
        if (time >> level) & 1:
            prefix[level] = prefix[higher] + closed[level]
            prefix_draws[level] = prefix_draws[higher] + closed_draws[level]
            higher = level
    running = np.int64(0)
    used = 0
    for row in range(totals.size):
        slot = time + 1 + row
        running += totals[row]
        level = trailing_zeros(slot)
        closed[level] = accumulators[level] + running + releases[row]
        closed_draws[level] = open_draws[level] + 1
        accumulators[level] = 0
        open_draws[level] = IDLE
        rest = slot & (slot - 1)
        above = trailing_zeros(rest) if rest else levels
        prefix[level] = prefix[above] + closed[level]
        prefix_draws[level] = prefix_draws[above] + closed_draws[level]
        answers[row] = prefix[level]
        draws[row] = prefix_draws[level]
        for below in range(level):
            if slot + (1 << below) > horizon:
                break
            if below == 0 and noiseless_leaves:
                accumulators[0] = -running
                open_draws[0] = 0
            else:
                accumulators[below] = starts[used] - running
                open_draws[below] = 1
                used += 1
    for level in range(levels):
        if open_draws[level] != IDLE:
            accumulators[level] += running


@njit(cache=True, nogil=True)
def segment_starts(time: int, slots: int, levels: int) -> int:
    """Count the segments that begin at the times time .. time+slots-1: of lengths 1, 2, 4, ..., 2**(levels-1)."""
    count = 0
    for tick in range(time, time + slots):
        count += levels if tick == 0 else min(trailing_zeros(tick) + 1, levels)
    return count


@njit(cache=True, nogil=True)
def segment_slots(
    segment_noise: NDArray[np.int64],
    segment_draws: NDArray[np.int64],
    time: int,
    starts: NDArray[np.int64],
    sums: NDArray[np.int64],
    draws: NDArray[np.int64],
) -> None:
    """Start, sum and erase segment noise: ``segment_noise[i]`` is that of the open segment of 2**i ticks."""
    levels = segment_noise.size
    used = 0
    total = np.int64(0)
    count = np.int64(0)
    for level in range(levels):
        if segment_draws[level] != IDLE:
            total += segment_noise[level]
            count += segment_draws[level]
    for row in range(sums.size):
        tick = time + row
        begin = levels if tick == 0 else min(trailing_zeros(tick) + 1, levels)
        for level in range(begin):
            segment_noise[level] = starts[used]
            segment_draws[level] = 1
            total += starts[used]
            count += 1
            used += 1
        sums[row] = total
        draws[row] = count
        for level in range(min(trailing_zeros(tick + 1) + 1, levels)):
            total -= segment_noise[level]
            count -= segment_draws[level]
            segment_noise[level] = 0
            segment_draws[level] = IDLE


@njit(cache=True, nogil=True)
def window_node(level: int, offset: int, window: int) -> int:
    """Return the index, within its block, of the node of ``level`` that covers ``offset``."""
    level_start = 0
    for below in range(level):
        level_start += (window + (1 << below) - 1) >> below
    return level_start + (offset >> level)


@njit(cache=True, nogil=True)
def window_draws(time: int, slots: int, window: int, levels: int, noiseless_slots: bool) -> int:
    """Count the draws for the slots time+1 .. time+slots: one for each node that closes, one for each that opens."""
    count = 0
    for slot in range(time, time + slots):
        offset = slot % window
        for level in range(levels):
            if (offset + 1) & ((1 << level) - 1) == 0 or offset + 1 == window:
                count += 1
        following = (slot + 1) % window
        for level in range(levels):
            if following & ((1 << level) - 1) == 0:
                count += not (noiseless_slots and (level == 0 or following + 1 == window))
    return count


@njit(cache=True, nogil=True)
def _cover(
    closed: NDArray[np.int64], draws: NDArray[np.int64], first: int, start: int, stop: int, window: int, levels: int
) -> tuple[np.int64, np.int64]:
    """Sum the nodes that cover the offsets start .. stop-1 of the block stored from ``first`` on, and their draws."""
    total = np.int64(0)
    count = np.int64(0)
    while start < stop:
        level = levels - 1
        while start & ((1 << level) - 1) != 0 or min(start + (1 << level), window) > stop:
            level -= 1
        node = first + window_node(level, start, window)
        total += closed[node]
        count += draws[node]
        start = min(start + (1 << level), window)
    return total, count


# Two blocks of nodes alternate: the suffix of the previous one and the prefix of the current one form the window.
@njit(cache=True, nogil=True)
def window_slots(
    accumulators: NDArray[np.int64],
    closed: NDArray[np.int64],
    open_draws: NDArray[np.int64],
    closed_draws: NDArray[np.int64],
    time: int,
    window: int,
    totals: NDArray[np.int64],
    noise: NDArray[np.int64],
    noiseless_slots: bool,
    answers: NDArray[np.float64],
    draws: NDArray[np.float64],
) -> None:
    """Close one slot per total and answer with a suffix of the last block and a prefix of the current one."""
    levels = accumulators.size
    nodes = closed.size // 2
    running = np.int64(0)
    used = 0
    for row in range(totals.size):
        slot = time + row
        offset = slot % window
        block = slot // window
        current = (block & 1) * nodes
        previous = (1 - (block & 1)) * nodes
        running += totals[row]
        for level in range(levels):
            if (offset + 1) & ((1 << level) - 1) == 0 or offset + 1 == window:
                node = current + window_node(level, offset, window)
                closed[node] = accumulators[level] + running + noise[used]
                closed_draws[node] = open_draws[level] + 1
                used += 1
        following = (offset + 1) % window
        for level in range(levels):
            if following & ((1 << level) - 1) == 0:
                accumulators[level] = -running
                open_draws[level] = 0
                if not (noiseless_slots and (level == 0 or following + 1 == window)):
                    accumulators[level] += noise[used]
                    open_draws[level] = 1
                    used += 1
        total, count = _cover(closed, closed_draws, current, 0, offset + 1, window, levels)
        if block > 0:
            previous_total, more = _cover(closed, closed_draws, previous, offset + 1, window, window, levels)
            total += previous_total
            count += more
        answers[row] = total
        draws[row] = count
    for level in range(levels):
        accumulators[level] += running


@njit(cache=True, nogil=True)
def max_window_nodes(window: int, levels: int) -> int:
    """Return the largest number of nodes that an answer sums."""
    max_nodes = 0
    ones = np.ones(2 * window + levels, np.int64)
    for offset in range(window):
        prefix, _ = _cover(ones, ones, 0, 0, offset + 1, window, levels)
        suffix, _ = _cover(ones, ones, 0, offset + 1, window, window, levels)
        max_nodes = max(max_nodes, int(prefix + suffix))
    return max_nodes


@njit(cache=True, nogil=True)
def decayed_slots(
    carried: NDArray[np.float64],
    decays: NDArray[np.float64],
    weights: NDArray[np.float64],
    values: NDArray[np.float64],
    answers: NDArray[np.float64],
) -> None:
    """Write the newest value plus a weighted sum of exponentially decayed earlier ones."""
    for row in range(values.size):
        newest = values[row]
        total = newest
        for term in range(carried.size):
            total += weights[term] * carried[term]
            carried[term] = decays[term] * (carried[term] + newest)
        answers[row] = total


# A step that is cut off is not lost: the next one starts from the clamped output.
@njit(cache=True, nogil=True)
def clamp_monotone(values: NDArray[np.float64], max_step: int, last: int, out: NDArray[np.int64]) -> None:
    """Write ``values`` made monotone: each output exceeds the one before by 0 to ``max_step``."""
    for row in range(values.size):
        step = values[row] - last
        if step > 0:
            last += max_step if step > max_step else int(step)
        out[row] = last
