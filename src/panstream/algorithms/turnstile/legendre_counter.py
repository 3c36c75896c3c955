"""The Legendre counter: how many users have a net weight other than zero."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from panstream.algorithms.turnstile._linear_estimate import LinearEstimator, sampling_factor
from panstream.algorithms.turnstile._residues import MERSENNE, check_prime
from panstream.algorithms.turnstile.modular_counter import ModularCounter
from panstream.core.estimate import Estimate
from panstream.errors import InvalidParameter
from panstream.privacy.bitmap_loss import level_rates
from panstream.privacy.numeric_search import bisect

Floats = NDArray[np.float64]
_GRID = 400  # numbers of users at which the likelihood is evaluated first


@dataclass(frozen=True, slots=True, kw_only=True)
class LegendreCounter(ModularCounter):
    """The number of users whose inserts and deletes, integers of any sign, do not cancel out.

    A counter in the field of p elements starts at a square with weight R = e**epsilon_state and elsewhere with weight
    1. After a shift by any number other than 0 squares and non-squares are equally likely, so the number of counters at
    squares gives the number of users with net weight 0.

    Privacy:
        Unit: user; any updates of one user may be added or removed. The joint view of one copy of the state at any time
        and of all releases, in either order, loses exactly ``epsilon`` = epsilon_state + releases·kappa. Noise enters
        once at the start of every counter and with every release (discrete Laplace on the integer number of squares).
        Two unannounced copies have no finite loss. ``claim("replace")`` is twice as much; ``adjacency="replace"`` makes
        ``epsilon`` mean that.
        Proof: docs/proofs/turnstile.md, Theorem 2.

    Error:
        Variance of the count: [D·w(1-w) + (m-D)·P(1-P) + Var DLap(kappa)]/(P-w)², about D/tanh²(epsilon_state/2) +
        (m-D)/sinh²(epsilon_state/2), plus sampling: U²·d(1-d)/m·(U-m)/(U-1). In buckets: maximum likelihood, see
        docs/howto/which-counter.md.

    Args:
        buckets: Number of hash buckets, for ids of any kind instead of a universe. Weights
            carry a public factor of each id, so that users who share a bucket do not cancel
            out.
        levels: One level is right for up to about 2·buckets users; each further one doubles
            that.
        independence: Use a k-wise independent family, k at least 4, after a fixed public
            bijection, instead of the keyed mixer.
        prime: The modulus. A net weight that is a multiple of it counts as zero, whatever
            happened; with the default this takes 2**30 updates of the largest weight. Privacy
            does not depend on it.

    Examples:
        >>> counter = LegendreCounter(universe=50_000, epsilon=2.0).start()
        >>> counter.update(range(30_000), weight=3)
        >>> counter.update(range(10_000), weight=-3)
        >>> abs(counter.release().value - 20_000) < 2500
        True

    Reference: the problem of Mir et al. 2011, §3.1; docs/proofs/turnstile.md.
    """

    theorem: ClassVar[str] = "Theorem 2"

    prime: int = MERSENNE  # given here, computed by the other counters

    def _check(self) -> None:
        check_prime(self.prime)
        self.placement.check_inverted()

    @property
    def _multiplied(self) -> bool:
        return True

    def _count(self, counters: NDArray[np.int64], counts: NDArray[np.int64]) -> None:
        from panstream.primitives.kernels.algorithms.modular_counters import count_zero, plus_counts

        if self.law.start is None:
            count_zero(counters, counts)
        else:
            plus_counts(counters, self.prime, 1, 0, 1, counts)

    def _decode(self, released: tuple[int, ...]) -> Estimate:
        if self.placement.open:
            return self._occupied(released)
        law = self.law
        sampled = self.cells
        users = self.placement.population
        zero = (released[0] - sampled * law.elsewhere) / law.gap
        unbiased = (sampled - zero) * users / sampled
        return self._linear().estimate(unbiased, claim=self.claim(), name="distinct users", released=released)

    def expected_estimate(self, users: float) -> Estimate:
        """Return the release with the expected counts if ``users`` users have a net weight other than 0."""
        law = self.law
        sampled = self.cells
        if self.placement.open:
            return self._decode(tuple(round(float(mean)) for mean in self.occupancy.mean(users)))
        zero = 1 - min(users / self.placement.population, 1.0)
        return self._decode((round(sampled * (law.elsewhere + law.gap * zero)),))

    def _linear(self) -> LinearEstimator:
        law = self.law
        sampled = self.cells
        users = self.placement.population
        scale = users / sampled / law.gap
        missing = users**2 * sampling_factor(sampled, users)

        def variance(distinct: float) -> float:
            d = distinct / users
            spread = d * law.elsewhere * (1 - law.elsewhere) + (1 - d) * law.at_zero * (1 - law.at_zero)
            return sampled * spread * scale**2 + missing * d * (1 - d)

        return LinearEstimator(
            support=(0.0, float(users)), variance=variance, kappa=law.noise.kappa / scale, step=scale
        )

    @property
    def occupancy(self) -> _Occupancy:
        """Return the distribution of an open universe's counts as a function of the number of users."""
        if self.buckets is None:
            raise InvalidParameter("occupancy belongs to buckets=, not to a known universe")
        law = self.law
        return _Occupancy(
            buckets=self.buckets,
            levels=self.levels,
            at_zero=law.at_zero,
            elsewhere=law.elsewhere,
            noise_variance=law.noise.variance,
        )

    def _occupied(self, released: tuple[int, ...]) -> Estimate:
        occupancy = self.occupancy
        users = occupancy.estimate(released)
        return Estimate.clipped(
            users,
            (0.0, math.inf),
            standard_error=occupancy.standard_error(users),
            claim=self.claim(),
            name="distinct users",
            released=released,
            interval_rule=lambda level: occupancy.interval(released, level),
        )

    def error_bound(self, *, beta: float) -> float:
        """Return the error that is exceeded with probability at most ``beta``; for buckets, at their capacity."""
        if not self.placement.open:
            return self._linear().error(beta)
        return self.error_at(self.occupancy.capacity, beta=beta)

    def error_at(self, users: float, *, beta: float) -> float:
        """Return the error at ``users`` users of an open universe that is exceeded with probability about ``beta``."""
        spread = self.occupancy.standard_error(users)
        flat = LinearEstimator(support=(0.0, 0.0), variance=lambda _: spread**2, kappa=math.inf, step=0.0)
        return flat.error(beta)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Occupancy:
    """Maximum-likelihood number of users behind the noisy counts of every level.

    Cell (l, b) is empty with probability z_l = (1 - rho_l)**n after n users, rho_l being the probability that a user
    falls into it. Its counter is plus with probability pi_l = w + (P - w)·z_l, so the released count of level l, one of
    ``levels`` rows of ``buckets`` cells, has mean B·pi_l and variance B·pi_l(1-pi_l) + Var DLap.
    """

    buckets: int
    levels: int
    at_zero: float
    elsewhere: float
    noise_variance: float

    @property
    def capacity(self) -> float:
        """Return the number of users at which each cell of the last level has been hit once on average."""
        return self.buckets * 2.0 ** (self.levels - 1)

    def mean(self, users: ArrayLike) -> Floats:
        """Return the expected count of every level, one row for each number of users."""
        hit = np.minimum(level_rates(self.buckets, self.levels), 1 - 1e-12)
        empty = np.exp(np.asarray(users, np.float64)[..., np.newaxis] * np.log1p(-hit))
        return np.asarray(self.buckets * (self.elsewhere + (self.at_zero - self.elsewhere) * empty))

    def variance(self, users: ArrayLike) -> Floats:
        """Return the variance of every level's count, cells taken as independent (an upper bound)."""
        chance = np.clip(self.mean(users) / self.buckets, 0.0, 1.0)
        return self.buckets * chance * (1 - chance) + self.noise_variance + 1.0 / 12  # 1/12: variance of rounding

    def log_likelihood(self, counts: Sequence[int], users: ArrayLike) -> Floats:
        """Return the normal log-likelihood of the counts for each number of users, up to a constant."""
        variance = self.variance(users)
        deviation = np.asarray(counts, np.float64) - self.mean(users)
        return np.asarray(-0.5 * np.sum(deviation**2 / variance + np.log(variance), axis=-1))

    def estimate(self, counts: Sequence[int]) -> float:
        """Return the n with the largest likelihood, from 0 to 32 times the capacity."""
        grid = self._grid()
        for _ in range(12):  # each round narrows the bracket by a factor of 20
            best = int(np.argmax(self.log_likelihood(counts, grid)))
            around = grid[max(best - 1, 0)], grid[min(best + 1, grid.size - 1)]
            if around[1] - around[0] < 1e-6 * max(1.0, around[0]):
                break
            grid = np.linspace(*around, 41)
        return float(grid[best])

    def standard_error(self, users: float) -> float:
        """Return the inverse square root of the Fisher information about n."""
        point = max(users, 0.5)
        step = max(0.25, 1e-4 * point)
        ends = np.array([point - step, point + step])
        slope = np.diff(self.mean(ends), axis=0)[0] / (2 * step)
        bend = np.diff(self.variance(ends), axis=0)[0] / (2 * step)
        spread = self.variance(point)
        information = float(np.sum(slope**2 / spread + 0.5 * (bend / spread) ** 2))
        return 1.0 / math.sqrt(information)

    def interval(self, counts: Sequence[int], level: float) -> tuple[float, float]:
        """Return the n whose likelihood ratio the counts do not reject at ``level`` (Wilks)."""
        best = self.estimate(counts)
        # Twice the log-likelihood ratio is about chi-squared with one degree of freedom: a squared normal quantile.
        drop = NormalDist().inv_cdf((1 + level) / 2) ** 2 / 2
        floor = float(self.log_likelihood(counts, best)) - drop
        grid = self._grid()
        rejected = grid[self.log_likelihood(counts, grid) < floor]
        below = rejected[rejected < best]
        above = rejected[rejected > best]
        low = self._cross(counts, floor, float(below[-1]), best) if below.size else 0.0
        high = self._cross(counts, floor, float(above[0]), best) if above.size else float(grid[-1])
        return low, high

    def _grid(self) -> Floats:
        return np.concatenate([[0.0], np.geomspace(0.5, 32.0 * self.capacity, _GRID)])

    def _cross(self, counts: Sequence[int], floor: float, outer: float, inner: float) -> float:
        """Return where the likelihood falls below ``floor`` between ``inner`` and ``outer``."""
        return bisect(lambda users: float(self.log_likelihood(counts, users)) >= floor, inner, outer, 50)[1]
