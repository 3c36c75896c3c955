"""The profile sketch: one state that answers any statistic of the distribution of net weights."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from panstream.algorithms.turnstile._linear_estimate import LinearEstimator, sampling_factor
from panstream.algorithms.turnstile._residues import prime_at_least
from panstream.algorithms.turnstile.modular_counter import ModularCounter, _CounterState
from panstream.algorithms.turnstile.statistic import DISTINCT, Statistic
from panstream.core.algorithm import consume_release
from panstream.core.estimate import Estimate
from panstream.errors import InvalidParameter, NotSupported
from panstream.primitives import validation as checks
from panstream.primitives.codec import FieldLayout
from panstream.primitives.noise import NoiseSource
from panstream.privacy.turnstile_loss import profile_split

_MAX_LARGEST = 1 << 20  # a release publishes one number per net weight
_MAX_ANNOUNCED = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileSketch(ModularCounter):
    """Any sum over users of f(net weight): distinct users, cropped moments, heavy hitters, t-incidence.

    Counters are elements of the field with g elements, g the smallest fitting prime, and start like those of
    `LegendreCounter`. A release publishes the noisy histogram of the counters once; ``read`` then answers any number of
    statistics from it by solving N ⋆ s = f with a fast Fourier transform and adding up s(c).

    Privacy:
        Exactly ``epsilon`` = epsilon_state + 2·releases·kappa for one copy of the state at any time and all releases
        (one user moves between two cells of the histogram); questions asked of a release are free. Each announced copy
        costs epsilon_state more, and adds a second start value to every counter. Twice that if one user is
        replaced by another. Two unannounced copies: no bound.
        Proof: docs/proofs/turnstile.md, Theorem 3.

    Error:
        Unbiased for every f. Variance per user about sum (f - mean f)²/tanh²(epsilon_state/2), whatever the user holds,
        and Var DLap(kappa)·sum s² once. For one question alone a dedicated counter is better for cropped sums; for
        distinct users it is as good but for the histogram's noise. Every refresh multiplies both parts by about
        g/tanh²(epsilon_state/2): announced intrusions are for net weights of a few units.

    Args:
        buckets: Number of hash buckets, for ids of any kind instead of a universe. Users who
            share a bucket are added up (``collision_bias``).
        levels: Must be 1.
        largest: Bound on every user's |net weight|, up to 2**20. A larger one is read modulo
            ``modulus``, as another weight within the bound; privacy does not depend on it.
        signed: Whether net weights may be below 0 (twice the prime).
        crop: Release the sum of min(|net|, crop) over users.
        threshold: Release the number of users with at least this net weight; distinct users
            without crop and threshold.
        announced: How many announced intrusions to pay for in advance, up to 7.
        order: With ``crop``, the power of the capped net weights that are added up, 1 or 2.
        exactly: Release the number of users with exactly this net weight.

    Examples:
        >>> from panstream.algorithms.turnstile.statistic import Statistic
        >>> sketch = ProfileSketch(universe=20_000, epsilon=2.0, largest=20)
        >>> monitor = sketch.start()
        >>> monitor.update(range(8_000), weight=5)
        >>> monitor.update(range(2_000), weight=-5)
        >>> abs(sketch.read(monitor.release(), Statistic.incidence(5)).value - 6_000) < 2_000
        True

    Reference: docs/proofs/turnstile.md, Theorem 3; t-incidence as in Dwork, Naor, Pitassi, Rothblum, Yekhanin 2010.
    """

    theorem: ClassVar[str] = "Theorem 3"

    largest: int
    signed: bool = True
    crop: int | None = None
    threshold: int | None = None
    announced: int = 0
    order: int = 1
    exactly: int | None = None

    def parameters(self) -> dict[str, Any]:
        """Return the public parameters, without ``order`` and ``exactly`` where states of before have none."""
        usual = (("order", 1), ("exactly", None))
        return dict(item for item in ModularCounter.parameters(self).items() if item not in usual)

    def _check(self) -> None:
        checks.require_integer_in_range(1, _MAX_LARGEST, largest=self.largest)
        checks.require_integer_in_range(0, _MAX_ANNOUNCED, announced=self.announced)
        asked = {"crop": self.crop, "threshold": self.threshold, "exactly": self.exactly}
        if sum(value is not None for value in asked.values()) > 1:
            raise InvalidParameter(
                "give one of crop, threshold and exactly: one release answers all questions, with read()"
            )
        if self.order != 1 and (self.order != 2 or self.crop is None):
            raise InvalidParameter(f"order must be 1, or with crop 2, got order={self.order}")
        for name, value in asked.items():
            if value is not None:
                checks.require_integer_in_range(1, self.largest, **{name: value})
        if self.levels != 1:
            raise InvalidParameter(f"levels must be 1, got levels={self.levels}")

    @property
    def prime(self) -> int:
        """Return g, the number of net weights that can be distinguished."""
        return prime_at_least(2 * self.largest + 1 if self.signed else self.largest + 1)

    @property
    def sensitivity(self) -> int:
        """Return 2: one user leaves a cell of the histogram and enters another."""
        return 2

    def _split(self) -> tuple[float, float]:
        """Return (epsilon_state, kappa) at the split that is optimal for every statistic."""
        return profile_split(self.per_user, self.cells, self.prime, releases=self.releases, announced=self.announced)

    @property
    def _covered_copies(self) -> int:
        return self.announced + 1

    @property
    def statistics(self) -> Statistic:
        """Return the statistic that a release itself answers."""
        if self.crop is not None:
            return Statistic.cropped_moment(self.order, self.crop)
        if self.exactly is not None:
            return Statistic.incidence(self.exactly)
        return DISTINCT if self.threshold is None else Statistic.heavy_hitters(self.threshold)

    def layout(self) -> Mapping[str, FieldLayout]:
        """Return the layout of the counters and of one integer: refreshes·(``releases`` + 1) + releases."""
        counters = super(ProfileSketch, self).layout()["counters"]
        return {
            "counters": counters,
            "released": FieldLayout("int", at_least=0, below=(self.releases + 1) * (self.announced + 1)),
        }

    @property
    def weights(self) -> NDArray[np.int64]:
        """Return the net weight that each element of the field represents."""
        values = np.arange(self.prime, dtype=np.int64)
        return np.where(values > self.prime // 2, values - self.prime, values) if self.signed else values

    @property
    def _outputs(self) -> int:
        return self.prime

    def _count(self, counters: NDArray[np.int64], counts: NDArray[np.int64]) -> None:
        from panstream.primitives.kernels.algorithms.modular_counters import histogram

        histogram(counters, counts)

    def release(self, state: _CounterState, rng: NoiseSource) -> Estimate:
        """Publish the histogram with noise, and with ``announced`` the number of refreshes; answer ``statistics``."""
        refreshed, released = divmod(state.released, self.releases + 1)
        state.released += consume_release(released, self.releases) - released
        counts: NDArray[np.int64] = rng.scratch.array(self.prime, np.int64)
        self._count(state.counters, counts)
        rng.add_discrete_laplace(counts, self.law.noise)
        return self._decode((*counts.tolist(), *([refreshed] if self.announced else [])))

    def refresh(self, state: _CounterState, rng: NoiseSource) -> None:
        """Add another start value to every counter; at most as often as the claim covers."""
        if state.released // (self.releases + 1) >= self.announced:
            raise NotSupported(
                f"this algorithm was built with announced={self.announced}; each announced intrusion costs "
                f"epsilon_state={self.law.epsilon_state:.4g} and must be declared before the start"
            )
        self.refresh_shard(state, self.cells, rng)
        state.released += self.releases + 1

    def refresh_shard(self, state: _CounterState, count: int, rng: NoiseSource) -> None:
        """Add another start value to ``count`` counters; ``refresh`` counts them for the whole state."""
        starts: NDArray[np.int64] = rng.scratch.array(count, np.int64)
        starts.fill(0)
        self._draw_start(starts, rng)
        state.counters += starts
        np.remainder(state.counters, self.modulus, out=state.counters)

    def _decode(self, released: tuple[int, ...]) -> Estimate:
        return self._answer(released, self.statistics)

    def read(self, release: Estimate, statistic: Statistic) -> Estimate:
        """Answer a statistic from a release of this sketch, without further loss.

        Answers from one release share its noise: their errors are not independent.

        Args:
            release: A release.
            statistic: The statistic to estimate.
        """
        expected = self.prime + (self.announced > 0)
        if len(release.released) != expected:
            raise InvalidParameter(
                f"release must come from this sketch and hold {expected} numbers, got {len(release.released)}"
            )
        return self._answer(release.released, statistic, release)

    def _answer(self, released: tuple[int, ...], statistic: Statistic, release: Estimate | None = None) -> Estimate:
        refreshed = released[self.prime] if self.announced else 0
        decoder, _ = self.decoder(statistic, refreshed)
        cells = self.cells
        scale = 1.0 if self.placement.open else self.placement.population / cells
        unbiased = float(decoder @ np.array(released[: self.prime], np.float64)) * scale
        claim = self.claim() if release is None else release.claim
        law = self._linear(statistic, refreshed)
        return law.estimate(unbiased, claim=claim, name=statistic.name, released=released)

    def expected_estimate(self, users: float) -> Estimate:
        """Return the release after all refreshes if ``users`` are at the crop or threshold and all draws were 0."""
        law = self._linear(self.statistics, self.announced)
        return law.estimate(
            users * (self.crop or 1) ** self.order, claim=self.claim(), name=self.statistics.name, released=()
        )

    def decoder(self, statistic: Statistic, refreshed: int = 0) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return s with sum_u N(u)·s(a + u) = f(a), and the variance of s(c) for each net weight a.

        N is the distribution of all start values of a counter together (turnstile.md, Theorem 3).

        Args:
            statistic: The statistic f.
            refreshed: After how many refreshes.
        """
        wanted = statistic.at(self.weights)
        start = self.law.start
        if start is None:
            return wanted, np.zeros_like(wanted)
        noise = np.full(self.prime, 2 * (1 - start.at_zero) / (self.prime + 1))
        roots = np.arange(1, (self.prime + 1) // 2, dtype=np.int64)
        noise[roots**2 % self.prime] = 2 * start.at_zero / (self.prime - 1)
        spectrum = np.conj(np.fft.rfft(noise)) ** (refreshed + 1)
        decoder = np.fft.irfft(np.fft.rfft(wanted) / spectrum, self.prime)
        second = np.fft.irfft(np.fft.rfft(decoder**2) * spectrum, self.prime)
        return decoder, np.maximum(second - wanted**2, 0.0)

    def _linear(self, statistic: Statistic, refreshed: int = 0) -> LinearEstimator:
        decoder, spread = self.decoder(statistic, refreshed)
        wanted = statistic.at(self.weights)
        cells = self.cells
        users = cells if self.placement.open else self.placement.population
        noise = cells * float(spread.max()) + self.law.noise.variance * float(decoder @ decoder)
        low = float(wanted.min())
        high = float(wanted.max())
        missing = users**2 * sampling_factor(cells, users)

        def variance(total: float) -> float:
            mean = total / users
            return noise * (users / cells) ** 2 + missing * max((high - mean) * (mean - low), 0.0)

        return LinearEstimator(support=(users * low, users * high), variance=variance, kappa=math.inf, step=0.0)

    def collision_bias(self, users: int, bound: float) -> float:
        """Return a bound on the expected error from users who share a bucket, if |f| <= ``bound`` and f(0) = 0.

        1.5·bound·users·(users-1)/buckets                                                      [turnstile.md, Lemma 6]

        Args:
            users: How many users have appeared.
            bound: Largest absolute value of the statistic.
        """
        return 1.5 * bound * users * (users - 1) / self.cells if self.placement.open else 0.0

    def error_bound(self, *, beta: float) -> float:
        """Return the error of a release's answer, after all refreshes, exceeded with probability at most ``beta``."""
        return self.error_of(self.statistics, beta=beta)

    def error_of(self, statistic: Statistic, *, beta: float) -> float:
        """Return the error of a statistic that is exceeded with probability at most ``beta``, without collisions.

        Args:
            statistic: The statistic.
            beta: Probability of a larger error.
        """
        return self._linear(statistic, self.announced).error(beta)
