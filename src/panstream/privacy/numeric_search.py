"""Minima by golden section, and thresholds by bisection, of floats and integers."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable

_MOST_STEPS = 60


def minimise(function: Callable[[float], float], lower: float, upper: float, tolerance: float = 1e-12) -> float:
    """Return the argument in (lower, upper) that minimises a unimodal ``function``, by golden section."""
    ratio = (math.sqrt(5.0) - 1.0) / 2.0
    a = lower
    b = upper
    c = b - ratio * (b - a)
    d = a + ratio * (b - a)
    fc = function(c)
    fd = function(d)
    while b - a > tolerance * (abs(a) + abs(b)):
        if fc < fd:
            b = d
            d = c
            fd = fc
            c = b - ratio * (b - a)
            fc = function(c)
        else:
            a = c
            c = d
            fc = fd
            d = a + ratio * (b - a)
            fd = function(d)
    return (a + b) / 2.0


def bisect(holds: Callable[[float], bool], low: float, high: float, rounds: int = 200) -> tuple[float, float]:
    """Return the ends of the interval in which ``holds``, true at ``low`` and false at ``high``, changes.

    >>> bisect(lambda x: x * x < 2, 1.0, 2.0)[1]
    1.4142135623730951
    """
    for _ in range(rounds):
        middle = (low + high) / 2.0
        ends = (middle, high) if holds(middle) else (low, middle)
        if ends == (low, high):  # no float lies between them
            break
        low, high = ends
    return low, high


def root(function: Callable[[float], float], low: float, high: float, tolerance: float = 1e-10) -> float:
    """Return where an increasing ``function``, at most 0 at ``low`` and above 0 at ``high``, is 0; from below.

    Regula falsi with the Illinois rule: a few evaluations for a smooth function.

    >>> abs(root(lambda x: x * x - 2, 1.0, 2.0) - 2**0.5) < 1e-9
    True
    """
    below = function(low)
    above = function(high)
    moved = 0  # which end moved last
    for _ in range(_MOST_STEPS):
        if high - low <= tolerance * abs(high):
            break
        middle = (low * above - high * below) / (above - below)
        if not low < middle < high:
            middle = (low + high) / 2.0
        value = function(middle)
        if value <= 0.0:
            low = middle
            below = value
            above /= 2.0 if moved < 0 else 1.0
            moved = -1
        else:
            high = middle
            above = value
            below /= 2.0 if moved > 0 else 1.0
            moved = 1
    return low


def smallest_integer(suffices: Callable[[int], bool], low: int, high: int) -> int:
    """Return the smallest integer above ``low`` that suffices, where all from it up to ``high`` do."""
    return low + 1 + bisect_left(range(low + 1, high), True, key=suffices)


def smallest_positive(suffices: Callable[[float], bool], low: float, high: float, tolerance: float) -> float:
    """Return the smallest positive number that suffices, up to a factor of 1 + ``tolerance``, where ``high`` does."""
    while high > low * (1.0 + tolerance):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if suffices(middle) else (middle, high)
    return high
