"""Cropped mean: how often users appear on average, counting at most t appearances of each."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from panstream.algorithms.density.optbern import OptBern
from panstream.algorithms.density.presence import PresenceBatch
from panstream.algorithms.density.universe import Members
from panstream.algorithms.randomized_bits import CoinPair
from panstream.core.algorithm import consume_release
from panstream.core.estimate import Estimate, normal_laplace_quantile, symmetric_interval
from panstream.core.shardable import Shardable, Touches
from panstream.errors import NotSupported
from panstream.primitives import validation as checks
from panstream.primitives.codec import FieldLayout, noised, public
from panstream.primitives.kernels.algorithms.packed_bits import count_and_redraw, count_set_bits
from panstream.primitives.memory.scratch import Scratch
from panstream.primitives.noise import NoiseSource
from panstream.primitives.packed_bits import draw_packed_bits
from panstream.privacy.claim import Claim


@dataclass(slots=True)
class CroppedState:
    """Per user, a counter modulo t with a uniform start, and a noisy bit drawn by whether the counter wrapped."""

    counters: NDArray[np.int32] = noised()
    bits: NDArray[np.uint8] = noised()
    released: int = public()


@dataclass(frozen=True, slots=True, kw_only=True)
class CroppedMean(Shardable[Any]):
    """The mean over a known population of min(appearances, crop), for streams of arrivals.

    Every sampled user has a counter that starts uniformly in 0..crop-1 and a bit drawn as for an absent user. An
    arrival increments the counter; when it wraps, the bit is redrawn as for a present user. After a arrivals it has
    wrapped with probability min(a, crop)/crop, whatever its value is now.

    Privacy:
        Unit: user; any of one user's arrivals may be added or removed. Given what a counter shows, the number of
        arrivals decides whether it wrapped, so the bit is drawn from one of two coins as in `OptBern`, and the
        joint loss of one unannounced copy of the state and all releases, in either order, is exactly ``epsilon``.
        Proof: docs/proofs/joint-loss.md, Theorem 1.

    Error:
        MSE = crop²·[pi(1-pi)/m + Var DLap(kappa)/m²]/(p1-p0)² with pi the mean chance of a 1, at most 1/4 for pi(1-pi);
        sampling adds at most crop²/(4m)·(U-m)/(U-1).

    Args:
        universe: Number of users (ids 0..U-1), or the public list of their ids.
        epsilon: Total loss; ``math.inf`` switches all noise off, for tests.
        crop: The most appearances of one user that count.
        sample: How many users have a bit; all of them by default, which has no sampling error.
        releases: How many estimates will be published.
        key: Public number that picks the sample.

    Examples:
        >>> monitor = CroppedMean(universe=100_000, epsilon=1.0, crop=4).start()
        >>> monitor.update([*range(50_000), *range(50_000)])
        >>> abs(monitor.release().value - 1.0) < 0.3
        True

    Reference: Dwork, Naor, Pitassi, Rothblum, Yekhanin 2010, §4, made exact.
    """

    theorem: ClassVar[str] = "Theorem 1"

    state_type: ClassVar[type[Any]] = CroppedState
    proof: ClassVar[str] = "joint-loss.md"

    universe: Members
    epsilon: float
    crop: int
    sample: int | None = None
    releases: int = 1
    key: int = 0
    presence: OptBern = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        checks.require_integer_in_range(1, (1 << 31) - 1, crop=self.crop)
        presence = OptBern(
            universe=self.universe, epsilon=self.epsilon, sample=self.sample, releases=self.releases, key=self.key
        )
        object.__setattr__(self, "universe", presence.universe)
        object.__setattr__(self, "presence", presence)

    @property
    def law(self) -> CoinPair:
        """Return OptBern's coins and noise."""
        return self.presence.law

    def claim(self) -> Claim:
        """Return OptBern's claim: the counters are uniform whatever the rows were and add nothing to the loss."""
        return self.presence.claim()

    def layout(self) -> Mapping[str, FieldLayout]:
        """Return one counter and one bit per sampled user."""
        cells = (self.presence.cells,)
        return {
            "counters": FieldLayout("i4", cells, at_least=0, below=self.crop),
            "bits": FieldLayout("packed", cells),
            "released": FieldLayout("int", at_least=0, below=self.releases + 1),
        }

    @property
    def cells(self) -> int:
        """Return m, the number of sampled users."""
        return self.presence.cells

    def initial_cells(self, count: int, rng: NoiseSource) -> Any:
        """Return uniform counters and bits of absent users."""
        bits = draw_packed_bits(self.law.absent, count, rng)
        counters = rng.uniform_below(self.crop, count).astype(np.int32)
        return CroppedState(counters=counters, bits=bits, released=0)

    def batch(self, ids: Any) -> PresenceBatch:
        """Check ids; every row is one arrival.

        Args:
            ids: The ids, one per row.
        """
        return self.presence.batch(ids)

    def cell_updates(self, batch: PresenceBatch, scratch: Scratch) -> Iterator[Touches]:
        """Yield the cells of the rows."""
        return self.presence.cell_updates(batch, scratch)

    def apply_updates(self, state: Any, touches: Touches, rng: NoiseSource) -> None:
        """Increment the counter of every row and redraw the bits of those that wrap."""
        # One coin per row, used or not: the number of draws must not depend on which counters wrap.
        coins = rng.bernoulli(self.law.present, touches[0].size)
        count_and_redraw(state.counters, state.bits, touches[0], coins, self.crop)

    def release(self, state: Any, rng: NoiseSource) -> Estimate:
        """Publish the noisy number of ones, turned into a mean."""
        state.released = consume_release(state.released, self.releases)
        return self._count(state, rng)

    def _count(self, state: Any, rng: NoiseSource) -> Estimate:
        law = self.law
        cells = self.cells
        gap = law.p1 - law.p0
        ones = np.zeros((1, 1), np.int64)
        no_frozen = np.empty((0, state.bits.size), np.uint8)
        count_set_bits(state.bits, no_frozen, cells, ones)  # without an unpacked copy of the state
        rng.add_discrete_laplace(ones.reshape(-1), law.noise)
        released = int(ones[0, 0])
        mean = self.crop * (released / cells - law.p0) / gap
        variance = self._variance(min(max(mean, 0.0), self.crop))
        sigma = math.sqrt(variance)
        kappa = law.noise.kappa * gap * cells / self.crop
        return Estimate.clipped(
            float(mean),
            (0.0, float(self.crop)),
            standard_error=math.hypot(sigma, self.release_error),
            claim=self.claim(),
            name=f"mean of min(appearances, {self.crop})",
            released=(released,),
            interval_rule=symmetric_interval(
                mean, lambda level: normal_laplace_quantile((1 - level) / 2, sigma, kappa)
            ),
        )

    @property
    def release_error(self) -> float:
        """Return the standard deviation of the mean due to the release noise."""
        law = self.law
        return math.sqrt(law.noise.variance) * self.crop / ((law.p1 - law.p0) * self.cells)

    def _variance(self, mean: float) -> float:
        """Return an upper bound of the variance at ``mean``, without the release noise."""
        # Users' chances of a 1 differ, but p(1-p) is concave: with equal chances of the same mean the sum varies most.
        law = self.law
        gap = law.p1 - law.p0
        chance = law.p0 + gap * mean / self.crop
        return self.crop**2 * chance * (1 - chance) / gap**2 / self.cells + self._sampling_variance(mean)

    def _sampling_variance(self, mean: float) -> float:
        """Return an upper bound of the variance that sampling adds: values in 0..crop vary most at both ends."""
        population = self.presence.population
        unsampled_fraction = (population.size - population.sampled) / max(population.size - 1, 1)
        return mean * (self.crop - mean) / population.sampled * unsampled_fraction

    def refresh(self, state: Any, rng: NoiseSource) -> None:
        """Raise NotSupported: after a second start only one user in ``crop`` would carry information on both phases."""
        raise NotSupported(
            f"CroppedMean cannot be refreshed: arrivals before an announced intrusion and after it can be added up for "
            f"one user in {self.crop} only, which makes the variance {self._refresh_factor():,.0f} times as large. "
            "Start a new one, declare it before the start with RefreshableCroppedMean, or use ProfileSketch(crop=, "
            "announced=) where appearances are bounded"
        )

    def _refresh_factor(self) -> float:
        """Return 4t(1+v)²(p1-p0)², v = p0·p1/(p1-p0)².                                     [turnstile.md, Theorem 5]"""
        law = self.presence.law
        gap = (law.p1 - law.p0) ** 2
        return float(4 * self.crop * (1 + law.p0 * law.p1 / gap) ** 2 * gap)

    def error_bound(self, *, beta: float) -> float:
        """Return the error of the mean that is exceeded with probability at most ``beta``."""
        checks.require_probability(beta=beta)
        law = self.presence.law
        cells = self.presence.cells
        gap = law.p1 - law.p0
        sigma = math.sqrt(max(self._variance(self.crop * i / 64) for i in range(65)))
        reach = normal_laplace_quantile(beta / 2, sigma, law.noise.kappa * gap * cells / self.crop)
        return reach + 0.5 * self.crop / (gap * cells)
