"""Loops of the online least-squares tree. They handle noise only: data enters as the exact running total.

Under an open node, ``siblings[level]`` holds the noise of all its children, past and future. The answer's noise is the
least-squares estimate, from these, of the noise of all slots so far: a filter with two states (complete children,
children to come) that climbs from the leaf to the top. Corrections are rounded to whole 2**-10 units; they depend only
on differences of noise, never on data, so rounding does not affect the privacy proof. Compiled because every slot
depends on the one before.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from panstream.primitives.kernels.jit import njit

FRACTION = 10


# A dry run of `advance` on a copy of the digits: the schedule is public.
@njit(cache=True, nogil=True)
def draws_needed(digits: NDArray[np.int64], radices: NDArray[np.int64], slots: int) -> int:
    """Return how many draws the nodes need that open during the next ``slots`` slots."""
    now = digits.copy()
    top = radices.size - 1
    count = 0
    for _ in range(slots):
        now[0] += 1
        level = 0
        opened = 0
        while level < top and now[level] == radices[level]:
            opened += radices[level]
            now[level] = 0
            level += 1
            now[level] += 1
        count += opened + (1 if level == top else 0)
    return count


# All children are drawn when their parent opens, since the filter uses the sum of those to come.
@njit(cache=True, nogil=True)
def open_below(
    level: int,
    siblings: NDArray[np.int64],
    to_come: NDArray[np.int64],
    radices: NDArray[np.int64],
    noise: NDArray[np.int64],
    used: int,
) -> int:
    """Draw the children of the nodes that open on the levels up to ``level``; return the draws used so far."""
    top = radices.size - 1
    if level == top:
        siblings[top, 0] = noise[used] << FRACTION
        used += 1
    for below in range(min(level, top) - 1, -1, -1):
        total = 0
        for child in range(radices[below]):
            siblings[below, child] = noise[used] << FRACTION
            used += 1
            total += siblings[below, child]
        to_come[below] = total - (siblings[below, 0] if below > 0 else 0)
    return used


# One step of the filter per level; variances depend on ``digits`` alone, so callers can plan without drawing.
@njit(cache=True, nogil=True)
def answer(
    siblings: NDArray[np.int64],
    complete: NDArray[np.int64],
    to_come: NDArray[np.int64],
    digits: NDArray[np.int64],
    radices: NDArray[np.int64],
    draws: NDArray[np.float64],
) -> tuple[int, float]:
    """Return the noise of all slots so far in 2**-10 units, and its variance in draws."""
    top = radices.size - 1
    done = complete[0]
    rest = to_come[0]
    done_done = digits[0] * draws[0]
    done_rest = 0.0
    rest_rest = float(radices[0] - digits[0]) if top > 0 else 0.0
    for level in range(1, top + 1):
        node = siblings[level, digits[level] if level < top else 0]
        off = node - done - rest
        a = done_done + done_rest
        b = done_rest + rest_rest
        total = a + b + 1.0
        done += np.int64(np.rint(a / total * off))
        rest += np.int64(np.rint(b / total * off))
        done_done -= a * a / total
        done_rest -= a * b / total
        rest_rest -= b * b / total
        done += complete[level]
        done_done += digits[level] * draws[level]
        if level < top:
            rest += to_come[level]
            rest_rest += radices[level] - 1 - digits[level]
    return done, done_done


# Closed children are folded into their parent as soon as it is complete, so memory stays logarithmic in the slots.
@njit(cache=True, nogil=True)
def advance(
    siblings: NDArray[np.int64],
    complete: NDArray[np.int64],
    to_come: NDArray[np.int64],
    digits: NDArray[np.int64],
    radices: NDArray[np.int64],
    draws: NDArray[np.float64],
    noise: NDArray[np.int64],
    outputs: NDArray[np.int64],
    variances: NDArray[np.float64],
) -> None:
    """Close one slot per entry of ``outputs`` and add its noise there."""
    top = radices.size - 1
    used = 0
    half = 1 << (FRACTION - 1)
    for slot in range(outputs.size):
        leaf = siblings[0, digits[0] if top > 0 else 0]
        complete[0] += leaf
        to_come[0] -= leaf if top > 0 else 0
        digits[0] += 1
        level = 0
        while level < top and digits[level] == radices[level]:
            below = complete[level]
            spread = radices[level] * draws[level]
            level += 1
            node = siblings[level, digits[level] if level < top else 0]
            complete[level] += below + np.int64(np.rint(spread / (spread + 1.0) * (node - below)))
            complete[level - 1] = 0
            digits[level - 1] = 0
            digits[level] += 1
            if level < top and digits[level] < radices[level]:
                to_come[level] -= siblings[level, digits[level]]
        used = open_below(level, siblings, to_come, radices, noise, used)
        now, variance = answer(siblings, complete, to_come, digits, radices, draws)
        outputs[slot] += (now + half) >> FRACTION
        variances[slot] = variance


# Runs the filter on zeros: its variance depends on the public digits only.
@njit(cache=True, nogil=True)
def sampled_noise(
    radices: NDArray[np.int64], draws: NDArray[np.float64], slots: NDArray[np.int64]
) -> tuple[float, float]:
    """Return the mean and the largest variance, in draws, of the answers after the given numbers of slots."""
    top = radices.size - 1
    siblings = np.zeros((radices.size, radices.max()), np.int64)
    zeros = np.zeros(radices.size, np.int64)
    digits = np.zeros(radices.size, np.int64)
    total = 0.0
    worst = 0.0
    for index in range(slots.size):
        remaining = slots[index]
        for level in range(top):
            digits[level] = remaining % radices[level]
            remaining //= radices[level]
        digits[top] = remaining
        variance = answer(siblings, zeros, zeros, digits, radices, draws)[1]
        total += variance
        worst = max(worst, variance)
    return total / slots.size, worst
