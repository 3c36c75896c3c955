"""Consistent answers: integers that never fall and never rise by more than the maximum of a slot.

Post-processing of published answers, so there is no further privacy loss. The result is *biased upwards*: a noisy
answer that is too high is never taken back, one that is too low is corrected by the next. On a stream with few events
it drifts above the truth (an empty stream of slots of up to 3, with noise of standard deviation 8.5, shows about 28
after 512 slots). Use it where answers must form a possible history, not where they must be unbiased.

Reference: Budaeva et al. 2013, §3.1.1.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from panstream.core.estimate import Estimate
from panstream.primitives import validation as checks
from panstream.primitives.kernels.algorithms.partial_sums import clamp_monotone


def _consistent(values: NDArray[np.float64], max_increase: int, last: int = 0) -> NDArray[np.int64]:
    """Return integers that start from ``last`` and rise by 0 to ``max_increase`` per slot towards ``values``.

    >>> _consistent(np.array([0.4, 2.6, 1.0, 9.0]), max_increase=2).tolist()
    [0, 2, 2, 4]
    """
    checks.require_at_least(1, max_increase=max_increase)
    out = np.empty(values.size, np.int64)
    clamp_monotone(np.rint(np.asarray(values, np.float64)), max_increase, last, out)
    return out


class ConsistentCount:
    """Makes the answers of a monitor consistent, one at a time.

    The consistent value is biased, so it has no standard error of its own; the estimate has that of the noisy answer.
    The interval is the noisy answer's, extended to contain the consistent value.

    Args:
        max_increase: Maximum increase of the count in one slot.

    Examples:
        >>> from panstream.papers.counters.binary import BinaryMechanism
        >>> monitor, counts = BinaryMechanism(epsilon=1.0, horizon=100).start(), ConsistentCount(max_increase=1)
        >>> answers = [counts.follow(monitor.tick()).value for _ in range(10)]
        >>> all(after - before in (0, 1) for before, after in zip([0.0, *answers], answers))
        True
    """

    __slots__ = ("last", "max_increase")

    def __init__(self, *, max_increase: int) -> None:
        checks.require_at_least(1, max_increase=max_increase)
        self.max_increase = max_increase
        self.last = 0

    def follow(self, estimate: Estimate) -> Estimate:
        """Return ``estimate`` with a consistent value; ``unbiased`` is the noisy one."""
        noisy = estimate.unclipped
        self.last = int(_consistent(np.array([noisy]), self.max_increase, self.last)[0])
        value = float(self.last)

        def rule(level: float) -> tuple[float, float]:
            low, high = estimate.interval(level)
            return min(low, value), max(high, value)

        return replace(estimate, value=value, unbiased=noisy, interval_rule=rule, name=f"consistent {estimate.name}")
