"""Second moment: the sum of squared net weights, and so the L2 norm, from a noised CountSketch."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from panstream.algorithms.turnstile.modular_counter import CounterBatch
from panstream.algorithms.turnstile.signed_sketch import CounterNoise, SignedSketch, Spread
from panstream.core.estimate import Estimate

_LEVEL = 0.95  # of confidence in the spread that the standard error uses


@dataclass(frozen=True, slots=True, kw_only=True)
class SecondMoment(SignedSketch):
    """F2, the sum over all ids of the squared net weight; its root is the L2 norm. Ids are of any kind.

    It measures how evenly rows are distributed over ids: n rows of n different ids have F2 = n, n rows of one id n².

    Privacy:
        Unit: event, one row added or removed; with ``contributions=K`` a user of at most K rows. A counter starts as
        DLap(kappa) and is released with another, kappa = epsilon/(max_weight·K). One copy at any time and all releases
        lose exactly ``epsilon``, and so do any number of announced copies with a refresh after each.
        Proof: docs/proofs/turnstile.md, Theorem 4.

    Error:
        With w counters, s2 and q the variances of a released counter's noise and of its square: variance at most
        2·F2²/w + 4·s2·F2 + w·q, over the choice of the key too. At the best w the standard error is about
        6.1·max_weight·K/(epsilon·L2) of F2, and half of that of L2. Where the released counters show that few ids hold
        most of F2, which hardly ever share a counter, the interval charges less for collisions: 2·(F2² - F2(T)²)/w with
        T the largest ids. An answer that would be off by more than half is refused: that is the case as soon as one
        unit may hold a considerable share of L2.

    Examples:
        >>> monitor = SecondMoment(epsilon=1.0, expected=300).start()
        >>> monitor.update([f"item {i % 1000}" for i in range(10_000)])
        >>> abs(monitor.release().value / 100_000 - 1) < 0.2
        True

    Reference: Charikar, Chen, Farach-Colton 2002 (CountSketch); Thorup, Zhang 2004 (its second moment).
    """

    theorem: ClassVar[str] = "Theorem 4"

    def _best_buckets(self, noise: CounterNoise) -> float:
        spread = noise.of_square
        return math.inf if spread == 0.0 else self.expected**2 * math.sqrt(2.0 / spread)

    def _planned_variance(self) -> float:
        return self._variance(self.expected**2, self.planned)

    def _variance(self, truth: float, noise: CounterNoise, charged: float = 1.0) -> float:
        return 2.0 * charged * truth**2 / self.width + 4.0 * noise.variance * truth + self.width * noise.of_square

    def batch(self, ids: Any, weight: Any = 1) -> CounterBatch:
        """Check ids and their weights, integers from -max_weight to max_weight; a single one applies to all rows.

        Args:
            ids: The ids, one per row.
            weight: The weight of all rows, or one each.
        """
        return CounterBatch.read(self._placement, ids, weight, -self.max_weight, self.max_weight)

    def decode(self, sums: NDArray[np.float64], noise: CounterNoise, released: tuple[int, ...]) -> Estimate:
        """Return the estimate from the sums of released counters."""
        unbiased = float(np.sum(sums[0] ** 2)) - self.width * noise.variance
        spread = partial(self._spread, sums, noise)
        return Estimate.clipped(
            unbiased,
            (0.0, math.inf),
            standard_error=math.sqrt(self._variance(max(unbiased, 0.0), noise, _charged(spread(_LEVEL)))),
            claim=self.claim(),
            name="second moment",
            released=released,
            interval_rule=lambda level: self._interval(unbiased, noise, spread(level)),
        )

    def _interval(self, unbiased: float, noise: CounterNoise, spread: Spread) -> tuple[float, float]:
        """Return the truths F with |estimate - F| within z·sd(F): between the roots of a quadratic."""
        charged = _charged(spread)
        variance = self._variance(max(unbiased, 0.0), noise, charged)
        linear = 16 * spread.fourth * noise.variance**2  # fourth powers of 2·counter, times the squared variance
        square = spread.reach(noise.excess * linear / variance**2 if variance else 0.0) ** 2
        leading = 1.0 - 2.0 * charged * square / self.width
        middle = unbiased + 2.0 * square * noise.variance
        inside = middle**2 - leading * (unbiased**2 - square * self.width * noise.of_square)
        if leading <= 0.0:
            return 0.0, math.inf
        root = math.sqrt(max(inside, 0.0))
        return (middle - root) / leading, (middle + root) / leading


def _charged(spread: Spread) -> float:
    """Return the part of F2² whose collisions add variance: all pairs of ids that are not both among the largest."""
    (share,) = spread.shares
    return 1.0 - (1.0 - share) ** 2
