"""What is printed of an estimate of an overlap: value and interval, the interval only, or that it says nothing.

The rules depend on the estimate only, and are the same in all places where overlaps are shown.
"""

from __future__ import annotations

import math

from panstream.core.estimate import Estimate

_USEFUL = 0.5  # largest half-width of an interval, as a share of the value, beside which the value is printed
_EMPTY = 0.9  # share of all possible values from which on an interval says nothing


def has_useful_value(estimate: Estimate) -> bool:
    """Return whether the value is printed: the half-width of its 95% interval is at most half of it."""
    low, high = estimate.interval()
    return high - low <= 2 * _USEFUL * estimate.value


def says_nothing(estimate: Estimate) -> bool:
    """Return whether the 95% interval spans nearly all that is possible."""
    low, high = estimate.interval()
    lowest, highest = estimate.support
    return math.isfinite(highest) and high - low >= _EMPTY * (highest - lowest)
