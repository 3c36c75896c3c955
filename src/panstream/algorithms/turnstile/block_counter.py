"""The block counter: an unbiased estimate of the cropped first moment, sum of min(|a|, crop)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from panstream.algorithms.turnstile._linear_estimate import LinearEstimator, sampling_factor
from panstream.algorithms.turnstile._residues import MAX_MODULUS, prime_at_least
from panstream.algorithms.turnstile.modular_counter import ModularCounter
from panstream.core.estimate import Estimate
from panstream.errors import InvalidParameter
from panstream.primitives import validation as checks
from panstream.privacy.bitmap_loss import level_rates

FILL_LIMIT = 1 / 8  # levels fuller than this are not read: collisions would hide more than 6.8% of the sum


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockCounter(ModularCounter):
    """The sum over users of min(|net weight|, crop), for integer updates of any sign.

    A counter modulo q = p·crop starts in a random block of ``crop`` values, at a uniform offset in it. A net weight a
    leaves the block with probability min(|a|, crop)/crop, and any other block is equally likely to be a square or not.

    Privacy:
        As for `LegendreCounter`: exactly ``epsilon`` = epsilon_state + releases·kappa for one copy of the state
        at any time and all releases; twice that if one user is replaced by another. Two unannounced copies: no bound.
        Proof: docs/proofs/turnstile.md, Theorem 2.

    Error:
        Unbiased. Variance crop²·[m·pi(1-pi) + Var DLap(kappa)]/(P-w)² with pi = w + (P-w)(1 - T/(m·crop)), at most
        about crop²·m/tanh²(epsilon_state/2); a smaller ``largest`` gives a smaller prime and up to a tenth less error.
        Sampling adds at most U²·x(crop-x)/m·(U-m)/(U-1), x the mean.

    Args:
        buckets: Number of hash buckets, for ids of any kind instead of a universe. Users who
            share a bucket are added up first: with weights of one sign the sum is too small by
            at most the factor x/(-ln(1-x)), x = (sum read)/(buckets·crop), which the interval
            allows for. Weights of both signs may cancel within a bucket.
        levels: With several levels, the first one with x below 1/8 is read.
        independence: Use a k-wise independent hash family, k at least 4, instead of the keyed
            mixer.
        crop: Net weights count up to this much.
        largest: Bound on every user's |net weight|. Beyond it the counter may wrap around: a
            user then counts for the distance to the next multiple of ``modulus``, cropped,
            which is never below 0 nor above ``crop``. Privacy does not depend on it.

    Examples:
        >>> counter = BlockCounter(universe=20_000, epsilon=2.0, crop=4, largest=24).start()
        >>> counter.update(range(15_000), weight=20)
        >>> counter.update(range(5_000), weight=-18)
        >>> abs(counter.release().value - (10_000 * 4 + 5_000 * 2)) < 5000
        True

    Reference: the problem of Mir et al. 2011, §3.2; docs/proofs/turnstile.md.
    """

    theorem: ClassVar[str] = "Theorem 2"

    crop: int
    largest: int = 1 << 40

    def _check(self) -> None:
        checks.require_at_least(1, crop=self.crop)
        if not 1 <= self.largest <= MAX_MODULUS // 4 or self.crop > MAX_MODULUS // 4:
            raise InvalidParameter(f"largest and crop must be in 1..2**60, got largest={self.largest}")
        self.placement.check_inverted()

    @property
    def prime(self) -> int:
        """Return the smallest p with p·crop ≥ largest + crop (turnstile.md, Theorem 1)."""
        return prime_at_least(-(-self.largest // self.crop) + 1)

    @property
    def width(self) -> int:
        """Return the crop, which is the width of a block."""
        return self.crop

    @property
    def _unit(self) -> int:
        """Return the weight of one released unit: that of a whole block, or exactly 1 without noise."""
        return 1 if self.law.start is None else self.crop

    def _count(self, counters: NDArray[np.int64], counts: NDArray[np.int64]) -> None:
        self._read(counters, 0, 1, counts)

    def _sums(self, released: tuple[int, ...]) -> NDArray[np.float64]:
        """Return an unbiased estimate of every level's cropped sum."""
        law = self.law
        row = self.cells // self.levels
        excess = np.array(released, np.float64) - row * law.elsewhere
        return np.asarray(self.crop * row - self._unit * excess / law.gap)

    def _decode(self, released: tuple[int, ...]) -> Estimate:
        sums = self._sums(released)
        name = f"sum of min(|net|, {self.crop})"
        if not self.placement.open:
            unbiased = float(sums[0]) * self.placement.population / self.cells
            return self._linear().estimate(unbiased, claim=self.claim(), name=name, released=released)
        full = self.cells // self.levels * self.crop
        readable = np.flatnonzero(sums <= FILL_LIMIT * full)
        first = int(readable[0]) if readable.size else self.levels - 1
        weights = self._weights(first)
        unbiased = float(weights @ (sums / self._shares))
        linear = self._level_law(first)
        estimate = linear.estimate(unbiased, claim=self.claim(), name=name, released=released)

        def rule(level: float) -> tuple[float, float]:
            low, high = linear.interval(unbiased, level)
            return low, high * self.collision_factor(high * float(self._shares[first]))

        return Estimate.clipped(
            unbiased,
            (0.0, math.inf),
            standard_error=estimate.standard_error,
            claim=estimate.claim,
            name=name,
            released=released,
            interval_rule=rule,
        )

    def expected_estimate(self, total: float) -> Estimate:
        """Return the release with the expected counts at a sum of ``total`` from users at the crop."""
        law = self.law
        row = self.cells // self.levels
        shares = self._shares if self.placement.open else np.array([self.cells / self.placement.population])
        load = total * shares / (row * self.crop)
        fill = -np.expm1(-load) if self.placement.open else np.minimum(load, 1.0)
        plus = row * (law.elsewhere + law.gap * (1 - fill)) * self.crop / self._unit
        return self._decode(tuple(round(float(count)) for count in plus))

    def collision_factor(self, read: float) -> float:
        """Return the factor by which the sum of one level may exceed ``read`` because users share buckets.

        -ln(1-x)/x with x = read/(buckets·crop), for weights of one sign                       [turnstile.md, Lemma 3]
        """
        fill = read / (self.cells // self.levels * self.crop)
        if fill >= 1:
            return math.inf
        return -math.log1p(-fill) / fill if fill > 1e-9 else 1.0

    @property
    def _shares(self) -> NDArray[np.float64]:
        return level_rates(1, self.levels)

    def _weights(self, first: int) -> NDArray[np.float64]:
        """Return the weights of the levels from ``first`` on: inverse to the variance of the sums over their shares."""
        weights = np.where(np.arange(self.levels) >= first, self._shares**2, 0.0)
        return np.asarray(weights / weights.sum())

    def _linear(self) -> LinearEstimator:
        law = self.law
        sampled = self.cells
        users = self.placement.population
        scale = self._unit * users / sampled / law.gap
        missing = users**2 * sampling_factor(sampled, users)

        def variance(total: float) -> float:
            mean = total / users
            chance = law.elsewhere + law.gap * (1 - mean / self.crop)
            bits = 0.0 if law.start is None else sampled * chance * (1 - chance) * scale**2
            return bits + missing * mean * (self.crop - mean)

        return LinearEstimator(
            support=(0.0, float(users * self.crop)), variance=variance, kappa=law.noise.kappa / scale, step=scale
        )

    def _level_law(self, first: int | None) -> LinearEstimator:
        """Return the distribution of the sum read from level ``first`` on; None picks the level as `_decode` would."""
        law = self.law
        row = self.cells // self.levels
        shares = self._shares

        def variance(total: float) -> float:
            fill = total * shares / (row * self.crop)
            enough = np.flatnonzero(fill <= FILL_LIMIT)
            start = first if first is not None else int(enough[0]) if enough.size else self.levels - 1
            weights = self._weights(start)
            chance = law.elsewhere + law.gap * (1 - np.minimum(fill, 1.0))
            bits = np.zeros(self.levels) if law.start is None else row * chance * (1 - chance)
            noise = (self._unit / law.gap) ** 2 * (bits + law.noise.variance)
            sampling = self.crop * total * (float(weights @ (weights / shares)) - 1.0)
            return float((weights / shares) ** 2 @ noise) + sampling

        top = row * self.crop / float(shares[-1])
        return LinearEstimator(support=(0.0, top), variance=variance, kappa=math.inf, step=self._unit / law.gap)

    def error_bound(self, *, beta: float) -> float:
        """Return the error that is exceeded with probability at most ``beta``, collisions in buckets apart."""
        return (self._level_law(None) if self.placement.open else self._linear()).error(beta)
