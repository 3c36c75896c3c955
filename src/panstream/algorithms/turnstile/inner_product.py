"""Inner product of two streams, which is the size of their join, from two noised CountSketches with one hash."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from panstream.algorithms.turnstile.modular_counter import CounterBatch
from panstream.algorithms.turnstile.signed_sketch import CounterNoise, SignedSketch, Spread
from panstream.core.estimate import Estimate, symmetric_interval
from panstream.errors import InvalidBatch

Stream = Literal["left", "right"]
_LEVEL = 0.95  # of confidence in the spread that the standard error uses


@dataclass(frozen=True, slots=True, eq=False)
class _TwoStreamBatch(CounterBatch):
    """Rows of one of the two streams."""

    right: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class InnerProduct(SignedSketch):
    """The sum over all ids of (net weight on the left)·(net weight on the right): rows of a join on the id.

    Privacy:
        As `SecondMoment`. An event is a row of either stream; a user's ``contributions`` are her rows of both streams
        together.
        Proof: docs/proofs/turnstile.md, Theorem 4.

    Error:
        With w counters, s2 the variance of a released counter's noise, F and G the second moments and P the product:
        variance at most (F·G + P²)/w + s2·(F + G) + w·s2², over the choice of the key too. Where the released counters
        show that few ids hold most of F and G, the interval charges less for collisions: 2·(F·G - F(T)·G(T))/w with T
        the largest ids. A standard error above half of ``expected`` squared is refused. P itself may be much smaller
        than that: then the answer is mostly noise.

    Args:
        expected: About how large the larger of the two L2 norms will be.

    Examples:
        >>> monitor = InnerProduct(epsilon=1.0, expected=300).start()
        >>> monitor.update([f"item {i % 1000}" for i in range(10_000)], stream="left")
        >>> monitor.update([f"item {i % 500}" for i in range(10_000)], stream="right")
        >>> abs(monitor.release().value / 100_000 - 1) < 0.2
        True

    Reference: Charikar, Chen, Farach-Colton 2002 (CountSketch); Alon, Gibbons, Matias, Szegedy 1999 (join sizes).
    """

    theorem: ClassVar[str] = "Theorem 4"

    streams: ClassVar[int] = 2

    def _best_buckets(self, noise: CounterNoise) -> float:
        return math.inf if noise.variance == 0.0 else self.expected**2 * math.sqrt(2.0) / noise.variance

    def _planned_variance(self) -> float:
        square = self.expected**2
        return self._variance(2.0 * square**2, 2.0 * square, self.planned)

    def _variance(self, charged: float, both: float, noise: CounterNoise) -> float:
        """Return the variance if collisions add ``charged``/w, with FG + P² at most, and F + G is ``both``."""
        return charged / self.width + noise.variance * both + self.width * noise.variance**2

    def batch(self, ids: Any, weight: Any = 1, *, stream: Stream) -> _TwoStreamBatch:
        """Check ids and weights of one stream, "left" or "right".

        Args:
            ids: The ids, one per row.
            weight: The weight of all rows, or one each.
            stream: "left" or "right".
        """
        if stream not in ("left", "right"):
            raise InvalidBatch("stream must be left or right")
        rows = _TwoStreamBatch.read(self._placement, ids, weight, -self.max_weight, self.max_weight)
        return replace(rows, right=stream == "right")

    def counters_of(self, batch: CounterBatch) -> slice:
        """Return which half of the counters the stream of a batch has."""
        assert isinstance(batch, _TwoStreamBatch)
        return slice(self.width, None) if batch.right else slice(self.width)

    def decode(self, sums: NDArray[np.float64], noise: CounterNoise, released: tuple[int, ...]) -> Estimate:
        """Return the estimate from the sums of both streams' released counters."""
        value = float(sums[0] @ sums[1])

        def half_width(level: float) -> float:
            variance, excess, spread = self._error_moments(value, sums, noise, level)
            return spread.reach(excess) * math.sqrt(variance)

        return Estimate(
            value=value,
            unbiased=value,
            standard_error=math.sqrt(self._error_moments(value, sums, noise, _LEVEL)[0]),
            claim=self.claim(),
            name="inner product",
            released=released,
            interval_rule=symmetric_interval(value, half_width),
        )

    def _error_moments(
        self, value: float, sums: NDArray[np.float64], noise: CounterNoise, level: float
    ) -> tuple[float, float, Spread]:
        """Return variance and excess kurtosis of the error, and how unevenly ids are distributed."""
        left, right = (max(float(row @ row) - self.width * noise.variance, 0.0) for row in sums)
        product = min(abs(value), math.sqrt(left * right))  # Cauchy-Schwarz
        spread = self._spread(sums, noise, level)
        pair_share = math.prod(1.0 - share for share in spread.shares)  # pairs of which both are among the largest
        charged = min(left * right + product**2, 2.0 * left * right * (1.0 - pair_share))
        variance = self._variance(charged, left + right, noise)
        excess = noise.excess * spread.fourth * noise.variance**2 / variance**2 if variance else 0.0
        return variance, excess, spread
