"""The heavy-hitter count: how many users hold at least a public threshold."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from panstream.errors import InvalidParameter
from panstream.estimate import Estimate
from panstream.privacy.turnstile import counter_split
from panstream.turnstile.counter import CounterLaw, ModularCounter
from panstream.turnstile.linear import Linear, sampling_factor
from panstream.turnstile.residues import MAX_MODULUS, prime_at_least

__all__ = ["HeavyHitterCount"]

_EXACT_PRIMES = 1 << 12


@dataclass(frozen=True, slots=True, kw_only=True)
class HeavyHitterCount(ModularCounter):
    """The number of users whose net weight reaches a public threshold.

    With L = threshold // steps, a user counts 0 up to (steps-1)·L, 1 from steps·L on, and in between in proportion. The
    counter is a block counter of width L, read at ``steps`` neighbouring blocks.

    Privacy
        Exactly ``epsilon`` = epsilon_state + releases·steps·kappa for one copy of the state at any time and all releases: one
        counter moves the released integer by up to ``steps``. Twice that where one user takes another's place. Two unannounced
        copies: no bound. With ``of_share`` the total weight is public, as the paper assumes, and the adjacency is replace.

    Error
        Unbiased for the count above, sd ≈ sqrt(steps·m)/tanh(epsilon_state/2): useful only where the count is far above
        sqrt(m)/epsilon, which no pan-private algorithm can avoid (docs/explanation/lower-bounds.md). In buckets the loads of
        users who share one are added up: see ``collision_bias``.

    Parameters
        epsilon: total loss; ``math.inf`` counts exactly, for tests.
        threshold: the net weight that makes a user heavy; at least ``steps``.
        steps: 2 leaves a grey zone from half the threshold on; more make it narrower, (1-1/steps)·threshold, and the noise
            sqrt(steps/2) times larger.
        largest: bound on every user's |net weight|; beyond it the counter may come round, and a user counts for
            anything from 0 to 1. A smaller bound gives a smaller prime and less noise. Privacy does not depend on it.
        total_weight: public bound on the sum of all weights, for ``collision_bias``.
        universe, sample: ids 0..U-1; or buckets: ids of any kind.
        independence, max_weight, releases, adjacency, key: as everywhere.

    Net weights below 0 count as well, by min(|a|, L)/L: the algorithm is for loads that end at 0 or above.

    Example
        >>> counter = HeavyHitterCount(universe=10_000, epsilon=2.0, threshold=100, largest=500).start()
        >>> counter.update(range(4_000), weight=400)
        >>> counter.update(range(1_000), weight=-399)
        >>> abs(counter.release().value - 3_000) < 1500
        True

    Reference: the problem of "Pan-private Algorithms Via Statistics on Sketches", section 3.3; docs/proofs/turnstile.md.
    """

    threshold: int
    steps: int = 2
    largest: int = 1 << 40
    total_weight: int | None = None

    @classmethod
    def of_share(cls, *, k: int, total_weight: int, **rest: Any) -> Self:
        """Count users with at least a 1/k share of the public ``total_weight`` (HH(k) of the paper).

        The total being public, neighbouring streams have the same one: the adjacency is replace.
        """
        if not 1 <= k <= total_weight:
            raise InvalidParameter(f"k must be in 1..total_weight={total_weight}, got k={k}")
        options = {"adjacency": "replace", "largest": total_weight, **rest}
        return cls(threshold=-(-total_weight // k), total_weight=total_weight, **options)

    def _check(self) -> None:
        if not 1 <= self.steps <= 64:
            raise InvalidParameter(f"steps must be in 1..64, got steps={self.steps}")
        if not self.steps <= self.threshold <= MAX_MODULUS // 8:
            raise InvalidParameter(f"threshold must be in {self.steps}..2**59, got threshold={self.threshold}")
        if not 1 <= self.largest <= MAX_MODULUS // 8:
            raise InvalidParameter(f"largest must be in 1..2**59, got largest={self.largest}")
        if self.total_weight is not None and self.total_weight < 1:
            raise InvalidParameter(f"total_weight must be at least 1, got total_weight={self.total_weight}")
        if self.levels != 1:
            raise InvalidParameter(f"levels must be 1: hashing to levels would thin out the heavy, got {self.levels}")

    @property
    def width(self) -> int:
        """Return L, a ``steps``-th of the threshold."""
        return self.threshold // self.steps

    @property
    def light(self) -> int:
        """Return the net weight up to which a user does not count."""
        return (self.steps - 1) * self.width

    @property
    def heavy(self) -> int:
        """Return the net weight from which a user counts fully: the threshold, or up to ``steps`` - 1 below it."""
        return self.steps * self.width

    @property
    def prime(self) -> int:
        """Return the smallest p with p·L ≥ largest + steps·L (turnstile.md, Theorem 1)."""
        return prime_at_least(max(-(-self.largest // self.width) + self.steps, 2 * self.steps + 3))

    @property
    def sensitivity(self) -> int:
        """Return ``steps``: that many blocks are read, each one plus or minus."""
        return self.steps

    @property
    def law(self) -> CounterLaw:
        """Return the optimal split for ``steps`` readings of every counter."""
        return _law(self.per_user, self.cells, self.prime, self.releases, self.steps)

    def _public(self) -> tuple[str, ...]:
        return ("the threshold",) if self.total_weight is None else ("the threshold", "the total weight")

    @property
    def _unit(self) -> float:
        return 1.0 if self.law.start is not None else 1.0 / self.width

    def _count(self, counters: NDArray[np.int64], counts: NDArray[np.int64]) -> None:
        from panstream._kernels.modular import plus_counts, sum_cropped

        if self.law.start is None:
            sum_cropped(counters, self.modulus, self.light, self.heavy, self.width, counts)
            np.subtract(self.cells * self.width, counts, out=counts)
        else:
            plus_counts(counters, self.prime, self.width, self.steps, counts)

    def _decode(self, released: tuple[int, ...]) -> Estimate:
        law, cells = self.law, self.cells
        unbiased = cells - self._unit * (released[0] - cells * self.steps * law.elsewhere) / law.gap
        linear = self._linear()
        scale = 1.0 if self.placement.open else self.placement.population / cells
        return linear.estimate(unbiased * scale, claim=self.claim(), name="heavy hitters", released=released)

    def _linear(self) -> Linear:
        law, cells = self.law, self.cells
        users = cells if self.placement.open else self.placement.population
        scale = self._unit * users / cells / law.gap
        missing = users**2 * sampling_factor(cells, users)
        noise = 0.0 if law.start is None else cells * _reading_variance(self.prime, law.at_zero, self.steps) * scale**2

        def variance(heavy: float) -> float:
            share = heavy / users
            return noise + missing * share * (1 - share)

        return Linear(support=(0.0, float(users)), variance=variance, kappa=law.noise.kappa / scale, step=scale)

    def collision_bias(self, total_weight: int | None = None) -> float:
        """Return a bound on the expected error from loads that share a bucket, up or down, for weights that end ≥ 0.

        F1²/(2·buckets·L·max(L, light)) with F1 the total weight                               [turnstile.md, Lemma 4]
        """
        total = self.total_weight if total_weight is None else total_weight
        if not self.placement.open:
            return 0.0
        if total is None:
            return math.inf
        return total**2 / (2.0 * self.cells * self.width * max(self.width, self.light))

    def error(self, *, beta: float) -> float:
        """Return the error that is exceeded with probability at most ``beta``, collisions in buckets apart."""
        return self._linear().error(beta)


@lru_cache(maxsize=256)
def _law(epsilon: float, cells: int, prime: int, releases: int, steps: int) -> CounterLaw:
    return CounterLaw.of(prime, *counter_split(epsilon, cells, prime, releases=releases, sensitivity=steps))


@lru_cache(maxsize=256)
def _reading_variance(prime: int, plus: float, steps: int) -> float:
    """Return the largest variance of the number of squares among ``steps`` neighbouring blocks, over all net weights.

    Exact for small primes. For others all blocks but one are squares independently of each other up to character sums
    below ``steps``²·sqrt(p)/p (Weil), which are added.
    """
    if prime > _EXACT_PRIMES:
        return steps / 4 + steps**2 * 2 / math.sqrt(prime)
    square = np.zeros(prime)
    square[np.arange(1, (prime + 1) // 2) ** 2 % prime] = 1.0
    reading = sum((np.roll(square, shift) for shift in range(steps)), np.zeros(prime))
    start = np.where(square > 0, 2 * plus / (prime - 1), 2 * (1 - plus) / (prime + 1))
    spectrum = np.conj(np.fft.rfft(start))
    mean = np.fft.irfft(spectrum * np.fft.rfft(reading), prime)
    second = np.fft.irfft(spectrum * np.fft.rfft(reading**2), prime)
    # A net weight between two multiples of the width mixes two neighbouring shifts; the variance is concave in the mix.
    rise, more = np.roll(mean, -1) - mean, np.roll(second, -1) - second
    mix = np.divide(more / 2 - rise * mean, rise**2, out=np.zeros(prime), where=np.abs(rise) > 1e-12)
    mix = np.clip(mix, 0.0, 1.0)
    return float(np.max(second + mix * more - (mean + mix * rise) ** 2))
