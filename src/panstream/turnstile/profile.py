"""The profile sketch: one state that answers every question about the distribution of net weights."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from panstream import checks
from panstream.errors import InvalidParameter
from panstream.estimate import Estimate
from panstream.privacy.turnstile import profile_split
from panstream.turnstile.counter import ModularCounter
from panstream.turnstile.linear import Linear, sampling_factor
from panstream.turnstile.residues import prime_at_least
from panstream.turnstile.statistic import DISTINCT, Statistic

__all__ = ["ProfileSketch"]

_MAX_LARGEST = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileSketch(ModularCounter):
    """Distinct users, cropped moments of any order, heavy hitters, t-incidence or any other sum over users of f(net
    weight).

    Counters live in the field of g elements, g the smallest fitting prime, and start like those of
    :class:`LegendreCounter`. A release publishes the noisy histogram of the counters once; ``read`` then answers any
    number of questions from it by solving N ⋆ s = f with a fast Fourier transform and adding up s(c).

    Privacy
        Exactly ``epsilon`` = epsilon_state + 2·releases·kappa for one copy of the state at any time and all releases
        (one user moves between two cells of the histogram); questions asked of a release are free. Twice that where one
        user takes another's place. Two unannounced copies: no bound.

    Error
        Unbiased for every f. Variance per user about sum (f - mean f)²/tanh²(epsilon_state/2), whatever the user holds,
        and Var DLap(kappa)·sum s² once. For one question alone a dedicated counter is better for cropped sums; for
        distinct users it is as good but for the histogram's noise.

    Parameters
        epsilon: total loss; ``math.inf`` answers exactly, for tests. largest: bound on every user's |net weight|, up to
        2**20. A user beyond it is taken modulo ``modulus`` for another one
            within; privacy does not depend on it.
        signed: whether net weights may be below 0 (twice the prime).
        universe, sample: ids 0..U-1; or buckets: ids of any kind, users who share a bucket being added up
            (``collision_bias``).
        independence, mixed, max_weight, releases, adjacency, key: as everywhere.

    Example
        >>> from panstream.turnstile.statistic import Statistic
        >>> sketch = ProfileSketch(universe=20_000, epsilon=2.0, largest=20)
        >>> monitor = sketch.start()
        >>> monitor.update(range(8_000), weight=5)
        >>> monitor.update(range(2_000), weight=-5)
        >>> abs(sketch.read(monitor.release(), Statistic.incidence(5)).value - 6_000) < 2_000
        True

    Reference: docs/proofs/turnstile.md, Theorem 3; t-incidence as in Dwork, Naor, Pitassi, Rothblum, Yekhanin 2010.
    """

    largest: int
    signed: bool = True

    def _check(self) -> None:
        checks.within(1, _MAX_LARGEST, largest=self.largest)
        if self.levels != 1:
            raise InvalidParameter(f"levels must be 1, got levels={self.levels}")

    @property
    def prime(self) -> int:
        """Return g, the number of net weights that can be told apart."""
        return prime_at_least(2 * self.largest + 1 if self.signed else self.largest + 1)

    @property
    def sensitivity(self) -> int:
        """Return 2: one user leaves a cell of the histogram and enters another."""
        return 2

    def _split(self) -> tuple[float, float]:
        """Return the split that is optimal for every function alike."""
        return profile_split(self.per_user, self.cells, self.prime, releases=self.releases)

    @property
    def weights(self) -> NDArray[np.int64]:
        """Return the net weight that each element of the field stands for."""
        values = np.arange(self.prime, dtype=np.int64)
        return np.where(values > self.prime // 2, values - self.prime, values) if self.signed else values

    @property
    def _outputs(self) -> int:
        return self.prime

    def _count(self, counters: NDArray[np.int64], counts: NDArray[np.int64]) -> None:
        from panstream._kernels.modular import histogram

        histogram(counters, counts)

    def _decode(self, released: tuple[int, ...]) -> Estimate:
        return self._answer(released, DISTINCT)

    def read(self, release: Estimate, statistic: Statistic) -> Estimate:
        """Answer a question from a release of this sketch; costs nothing further.

        Answers from one release share its noise: their errors are not independent.
        """
        if len(release.released) != self.prime:
            raise InvalidParameter(
                f"release must come from this sketch and hold {self.prime} counts, got {len(release.released)}"
            )
        return self._answer(release.released, statistic, release)

    def _answer(self, released: tuple[int, ...], statistic: Statistic, release: Estimate | None = None) -> Estimate:
        decoder, _ = self.decoder(statistic)
        cells = self.cells
        scale = 1.0 if self.placement.open else self.placement.population / cells
        unbiased = float(decoder @ np.array(released, np.float64)) * scale
        claim = self.claim() if release is None else release.claim
        return self._linear(statistic).estimate(unbiased, claim=claim, name=statistic.name, released=released)

    def decoder(self, statistic: Statistic) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return s with sum_u N(u)·s(a + u) = f(a), and the variance of s(c) for each net weight a."""
        wanted, start = statistic.at(self.weights), self.law.start
        if start is None:
            return wanted, np.zeros_like(wanted)
        noise = np.full(self.prime, 2 * (1 - start.at_zero) / (self.prime + 1))
        roots = np.arange(1, (self.prime + 1) // 2, dtype=np.int64)
        noise[roots**2 % self.prime] = 2 * start.at_zero / (self.prime - 1)
        spectrum = np.conj(np.fft.rfft(noise))
        decoder = np.fft.irfft(np.fft.rfft(wanted) / spectrum, self.prime)
        second = np.fft.irfft(np.fft.rfft(decoder**2) * spectrum, self.prime)
        return decoder, np.maximum(second - wanted**2, 0.0)

    def _linear(self, statistic: Statistic) -> Linear:
        decoder, spread = self.decoder(statistic)
        wanted, cells = statistic.at(self.weights), self.cells
        users = cells if self.placement.open else self.placement.population
        noise = cells * float(spread.max()) + self.law.noise.variance * float(decoder @ decoder)
        low, high = float(wanted.min()), float(wanted.max())
        missing = users**2 * sampling_factor(cells, users)

        def variance(total: float) -> float:
            mean = total / users
            return noise * (users / cells) ** 2 + missing * max((high - mean) * (mean - low), 0.0)

        return Linear(support=(users * low, users * high), variance=variance, kappa=math.inf, step=0.0)

    def collision_bias(self, users: int, bound: float) -> float:
        """Return a bound on the expected error from users who share a bucket, for |f| at most ``bound`` and f(0) = 0.

        1.5·bound·users·(users-1)/buckets                                                      [turnstile.md, Lemma 6]
        """
        return 1.5 * bound * users * (users - 1) / self.cells if self.placement.open else 0.0

    def error(self, *, beta: float) -> float:
        """Return the error of the distinct count that is exceeded with probability at most ``beta``."""
        return self.error_of(DISTINCT, beta=beta)

    def error_of(self, statistic: Statistic, *, beta: float) -> float:
        """Return the error of a statistic that is exceeded with probability at most ``beta``, collisions apart."""
        return self._linear(statistic).error(beta)
