"""The heavy-hitter count: how many users have at least a public threshold of net weight."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from panstream.algorithms.turnstile._linear_estimate import LinearEstimator, sampling_factor
from panstream.algorithms.turnstile._residues import MAX_MODULUS, prime_at_least
from panstream.algorithms.turnstile.modular_counter import ModularCounter
from panstream.core.estimate import Estimate
from panstream.errors import InvalidParameter
from panstream.primitives import validation as checks

_EXACT_UP_TO = 16  # threshold up to which every weight has a block of its own by default
_BRACKET_STEPS = 4  # by default above it: the noise grows with the root of the steps
_MAX_READINGS = 1024  # blocks read per counter at a release
_EXACT_PRIMES = 1 << 18  # up to which the variance is computed by a Fourier transform over the whole field


@dataclass(frozen=True, slots=True, kw_only=True)
class HeavyHitterCount(ModularCounter):
    """The number of users whose net weight is at least a public threshold.

    A block counter of width L = threshold/steps, rounded up, is read at the blocks of every weight below the threshold.
    With ``steps`` = threshold, the default up to 16, blocks are single weights and the number is the count itself. With
    fewer steps weights between two blocks count in proportion, so a release brackets the count instead: its interval
    reaches from a count that begins to rise at the threshold to one that is full there, and there is no point estimate
    (``value`` is NaN).

    Privacy:
        At most ``epsilon`` = epsilon_state + releases·sensitivity·kappa for one copy of the state at any time and all
        releases, and exactly that wherever the field has as many neighbouring squares as are read. The sensitivity is
        the number of readings, and one more for a bracket. Twice that if one user is replaced by another. Two
        unannounced copies: no bound. With ``for_total_share`` the total weight is public, as the paper assumes, and the
        adjacency is replace.
        Proof: docs/proofs/turnstile.md, Theorem 2.

    Error:
        sd ≈ sqrt(steps·m)/tanh(epsilon_state/2): useful only where the count is far above sqrt(steps·m)/epsilon. No
        pan-private algorithm can do without sqrt(m)/epsilon (docs/explanation/lower-bounds.md). A bracket is wider by
        the number of users within L of the threshold. In buckets it is buckets that are counted: see
        ``collision_bias``.

    Args:
        levels: Must be 1.
        threshold: The net weight that makes a user heavy.
        steps: Up to 64; ``threshold`` by default up to 16, and 4 above. More steps make the
            bracket narrower and the noise larger.
        largest: Bound on every user's net weight; beyond it the counter may wrap around, and a
            heavy user is no longer counted. A smaller bound gives a smaller prime and less
            noise. Privacy does not depend on it.
        min_net_weight: The lowest net weight that a user may end with, 0 or below. By default
            only weights from 0 on are accepted, so that no user can fall below 0; give 0 if
            deletions never exceed what was added. Every L below 0 costs one more reading. A
            user who ends below ``min_net_weight`` - L counts as heavy, and this cannot be
            detected.
        total_weight: Public bound on the sum of all weights, for ``collision_bias``.

    Examples:
        >>> counter = HeavyHitterCount(universe=10_000, epsilon=2.0, threshold=5, min_net_weight=0, largest=500).start()
        >>> counter.update(range(4_000), weight=400)
        >>> counter.update(range(1_000), weight=-399)
        >>> abs(counter.release().value - 3_000) < 2000
        True
        >>> bracket = HeavyHitterCount(universe=10_000, epsilon=2.0, threshold=100, largest=500).start()
        >>> bracket.update(range(4_000), weight=400)
        >>> low, high = bracket.release().interval()
        >>> 1_000 < low < high < 7_000
        True

    Reference: the problem of Mir et al. 2011, §3.3; docs/proofs/turnstile.md.
    """

    theorem: ClassVar[str] = "Theorem 2"

    threshold: int
    steps: int | None = None
    largest: int = 1 << 40
    min_net_weight: int | None = None
    total_weight: int | None = None

    @classmethod
    def for_total_share(cls, *, k: int, total_weight: int, **rest: Any) -> Self:
        """Count users with at least a 1/k share of the public ``total_weight`` (HH(k) of the paper).

        The total being public, neighbouring streams have the same one: the adjacency is replace.

        Args:
            k: The share is 1/k.
            rest: Further parameters of the algorithm.
            total_weight: Sum of all net weights, which is public.
        """
        if not 1 <= k <= total_weight:
            raise InvalidParameter(f"k must be in 1..total_weight={total_weight}, got k={k}")
        options = {"adjacency": "replace", "largest": total_weight, **rest}
        return cls(threshold=-(-total_weight // k), total_weight=total_weight, **options)

    def _check(self) -> None:
        checks.require_integer_in_range(1, MAX_MODULUS // 8, threshold=self.threshold)
        if self.steps is None:
            chosen = self.threshold if self.threshold <= _EXACT_UP_TO else _BRACKET_STEPS
            object.__setattr__(self, "steps", chosen)
        if not 1 <= self._steps <= min(64, self.threshold):
            raise InvalidParameter(f"steps must be in 1..{min(64, self.threshold)}, got steps={self.steps}")
        checks.require_integer_in_range(1, MAX_MODULUS // 8, largest=self.largest)
        if self.min_net_weight is not None and self.min_net_weight > 0:
            raise InvalidParameter(f"min_net_weight must be 0 or below, got min_net_weight={self.min_net_weight}")
        if self.readings > _MAX_READINGS:
            raise InvalidParameter(
                f"min_net_weight={self.min_net_weight} would take {self.readings} readings of every counter, and "
                f"at most {_MAX_READINGS} are allowed: give fewer steps, or use ProfileSketch"
            )
        if self.total_weight is not None:
            checks.require_at_least(1, total_weight=self.total_weight)
        if self.levels != 1:
            raise InvalidParameter(f"levels must be 1: hashing to levels would drop heavy users, got {self.levels}")

    @property
    def _steps(self) -> int:
        assert self.steps is not None  # since _check
        return self.steps

    @property
    def min_weight(self) -> int:
        """Return 0 unless ``min_net_weight`` is given."""
        return 0 if self.min_net_weight is None else -self.max_weight

    @property
    def width(self) -> int:
        """Return L, a ``steps``-th of the threshold."""
        return -(-self.threshold // self._steps)

    @property
    def light(self) -> int:
        """Return the net weight up to which a user does not count."""
        return self.threshold - self.width

    @property
    def readings(self) -> int:
        """Return how many blocks are read: those of ``light``, ``light`` - L and so on down to ``min_net_weight``."""
        return -(-(self.threshold - (self.min_net_weight or 0)) // self.width)

    @property
    def bracketed(self) -> bool:
        """Return whether a release brackets the count: blocks are wider than one weight, and one more is read."""
        return self.width > 1

    @property
    def prime(self) -> int:
        """Return the smallest p for which no net weight up to ``largest`` wraps around into a block that is read."""
        above = -(-max(self.largest - self.threshold, 0) // self.width)
        return prime_at_least(above + self.readings + 1)

    @property
    def sensitivity(self) -> int:
        """Return the number of blocks that are read: one counter changes each count by at most 1."""
        return self.readings + self.bracketed

    def _public(self) -> tuple[str, ...]:
        return ("the threshold",) if self.total_weight is None else ("the threshold", "the total weight")

    @property
    def _unit(self) -> float:
        return 1.0 if self.law.start is not None else 1.0 / self.width

    @property
    def _outputs(self) -> int:
        return 2 if self.bracketed else 1

    def _count(self, counters: NDArray[np.int64], counts: NDArray[np.int64]) -> None:
        self._read(counters, self.light, self.readings, counts[:1])
        if self.bracketed:
            self._read(counters, self.threshold, 1, counts[1:])

    def _decode(self, released: tuple[int, ...]) -> Estimate:
        upper = self._unbiased(released[0], self.readings)
        linear = self._linear()
        name = f"heavy {'buckets' if self.placement.open else 'users'} (at least {self.threshold})"
        if not self.bracketed:
            return linear.estimate(upper, claim=self.claim(), name=name, released=released)
        lower = self._unbiased(released[0] + released[1], self.readings + 1)
        below = self._linear(both=True)
        return Estimate(
            value=math.nan,
            standard_error=math.nan,
            claim=self.claim(),
            name=name,
            support=linear.support,
            released=released,
            interval_rule=lambda level: (below.interval(lower, level)[0], linear.interval(upper, level)[1]),
        )

    def expected_estimate(self, heavy: float) -> Estimate:
        """Return the release with the expected counts if ``heavy`` users are far above the threshold, none near it."""
        law = self.law
        cells = self.cells
        users = cells if self.placement.open else self.placement.population
        below = self.readings * law.elsewhere + law.gap * (1 - min(heavy / users, 1.0))
        read = [cells * below, cells * law.elsewhere][: self._outputs]
        return self._decode(tuple(round(count / self._unit) for count in read))

    def _unbiased(self, read: int, readings: int) -> float:
        """Return an unbiased number of users outside of ``readings`` blocks, in which ``read`` counters were plus."""
        law = self.law
        cells = self.cells
        scale = 1.0 if self.placement.open else self.placement.population / cells
        return scale * (cells - (self._unit * read - cells * readings * law.elsewhere) / law.gap)

    def _linear(self, both: bool = False) -> LinearEstimator:
        """Return the distribution of the count that is full at the threshold, or begins to rise there (``both``)."""
        law = self.law
        cells = self.cells
        users = cells if self.placement.open else self.placement.population
        scale = self._unit * users / cells / law.gap
        missing = users**2 * sampling_factor(cells, users)
        noise = 0.0
        if law.start is not None:
            noise = cells * _reading_variance(self.prime, law.at_zero, self.readings + both) * scale**2
            noise += law.noise.variance * scale**2 if both else 0.0

        def variance(heavy: float) -> float:
            share = heavy / users
            return noise + missing * share * (1 - share)

        return LinearEstimator(
            support=(0.0, self._max_heavy), variance=variance, kappa=law.noise.kappa / scale, step=scale
        )

    @property
    def _max_heavy(self) -> float:
        """Return how many users can be heavy: all, or as many as a public total weight suffices for."""
        users = self.cells if self.placement.open else self.placement.population
        if self.total_weight is None or (self.min_net_weight or 0) < 0:
            return float(users)
        return float(min(users, self.total_weight // self.threshold))

    def collision_bias(self, total_weight: int | None = None) -> float:
        """Return a bound on the expected error, up or down, from users who share a bucket, for net weights ≥ 0.

        F1²/(2·buckets·light·min(L, light)) with F1 the total weight                           [turnstile.md, Lemma 4]

        Args:
            total_weight: Sum of all net weights.
        """
        total = self.total_weight if total_weight is None else total_weight
        if not self.placement.open:
            return 0.0
        if total is None:
            return math.inf
        spread = self.light * min(self.width, self.light) if self.light else self.width**2
        return total**2 / (2.0 * self.cells * spread)

    def error_bound(self, *, beta: float) -> float:
        """Return the error that is exceeded with probability at most ``beta``, without collisions in buckets.

        For a bracket it is the distance of either end from the count that it bounds.
        """
        return self._linear(both=self.bracketed).error(beta)


@lru_cache(maxsize=256)
def _reading_variance(prime: int, plus: float, readings: int) -> float:
    """Return the largest variance of the number of squares among neighbouring blocks, over all net weights.

    Exact for small primes. For others all blocks but one are squares independently of each other up to character sums
    below ``readings``²·sqrt(p)/p (Weil), which are added.
    """
    if prime > _EXACT_PRIMES:
        return readings / 4 + readings**2 * 2 / math.sqrt(prime)
    square = np.zeros(prime)
    square[np.arange(1, (prime + 1) // 2) ** 2 % prime] = 1.0
    prefix_sums = np.concatenate([[0.0], np.cumsum(np.concatenate([square, square]))])
    reading = prefix_sums[prime + 1 :] - prefix_sums[prime + 1 - readings : 2 * prime + 1 - readings]
    start = np.where(square > 0, 2 * plus / (prime - 1), 2 * (1 - plus) / (prime + 1))
    spectrum = np.conj(np.fft.rfft(start))
    mean = np.fft.irfft(spectrum * np.fft.rfft(reading), prime)
    second = np.fft.irfft(spectrum * np.fft.rfft(reading**2), prime)
    # A net weight between two multiples of the width mixes two neighbouring shifts; the variance is concave in the
    # mixing weight, so its maximum is where the derivative vanishes or at an end.
    rise = np.roll(mean, -1) - mean
    more = np.roll(second, -1) - second
    mix = np.divide(more / 2 - rise * mean, rise**2, out=np.zeros(prime), where=np.abs(rise) > 1e-12)
    mix = np.clip(mix, 0.0, 1.0)
    return float(np.max(second + mix * more - (mean + mix * rise) ** 2))
