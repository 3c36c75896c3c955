"""A cropped mean that covers one announced intrusion."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from panstream.algorithms.density.cropped_mean import CroppedMean
from panstream.algorithms.randomized_bits import CoinPair, bit_claim
from panstream.core.algorithm import consume_release
from panstream.core.estimate import Estimate, normal_laplace_quantile, symmetric_interval
from panstream.errors import NotSupported
from panstream.primitives import validation as checks
from panstream.primitives.codec import FieldLayout, noised, public, published
from panstream.primitives.kernels.algorithms.two_phase_counts import count_pairs
from panstream.primitives.noise import DiscreteLaplace, NoiseSource
from panstream.primitives.packed_bits import draw_packed_bits, unpack_bits
from panstream.privacy.claim import Claim
from panstream.privacy.two_phase_loss import decode_reading, noise_weights, paired_split, worst_variance


@dataclass(slots=True)
class TwoPhaseState:
    """Counters and bits of this phase, and those that an announced intrusion has made public."""

    counters: NDArray[np.int32] = noised()
    bits: NDArray[np.uint8] = noised()
    seen_counters: NDArray[np.int32] = published()
    seen_bits: NDArray[np.uint8] = published()
    released: int = public()


@dataclass(frozen=True, slots=True, kw_only=True)
class RefreshableCroppedMean(CroppedMean):
    """The mean over a known population of min(appearances, crop), with one announced intrusion paid for.

    What the attacker copied stays in the state as a public constant, and counters and bits are drawn again. Later
    releases publish the number of ones by the frozen bit of their users and, separately, the ones of those users whose
    two counters add up to crop - 1: only those, one user in ``crop``, carry information on both phases together.

    Privacy:
        Unit: user; any of one user's arrivals may be added or removed. One announced copy of the state, one unannounced
        copy after it, and all releases lose ``epsilon`` together, exactly if ``crop`` is at least 2. The announced copy
        is covered only if no row was applied between it and the refresh. Without a refresh it is one unannounced copy,
        which loses less.
        Proof: docs/proofs/joint-loss.md, Theorem 4.

    Error:
        Before the intrusion that of `CroppedMean` at less than half the budget. After it the variance per user
        is about crop³·(1+v)², v = p0·p1/(p1-p0)²: 4·crop·(1+v)²·(p1-p0)² times as large. So declare it only for small
        crops, and only where a new monitor after the intrusion would not serve.

    Args:
        universe: Number of users (ids 0..U-1), or the public list of their ids.
        epsilon: Total loss; ``math.inf`` switches all noise off, for tests.
        crop: The most appearances of one user that count.
        sample: How many users have a bit; all of them by default, which has no sampling error.
        releases: How many estimates will be published.
        key: Public number that picks the sample.

    Examples:
        >>> monitor = RefreshableCroppedMean(universe=100_000, epsilon=4.0, crop=2).start()
        >>> monitor.update(range(50_000))
        >>> print(monitor.refresh(rows_since_copy=False))
        covered
        >>> monitor.update(range(25_000))
        >>> abs(monitor.release().value - 0.75) < 0.3
        True

    """

    theorem: ClassVar[str] = "Theorem 4"

    state_type: ClassVar[type[Any]] = TwoPhaseState

    law: CoinPair = field(init=False, repr=False, compare=False)
    pair_noise: DiscreteLaplace = field(init=False, repr=False, compare=False)

    freezes: ClassVar[bool] = True

    def __post_init__(self) -> None:
        CroppedMean.__post_init__(self)
        state, kappa, pairs = paired_split(self.epsilon, self.cells, self.crop, self.releases)
        object.__setattr__(self, "law", CoinPair.symmetric(state, kappa))
        object.__setattr__(self, "pair_noise", DiscreteLaplace.at_most(pairs))

    def claim(self) -> Claim:
        """Return the joint loss of an announced and an unannounced copy and all releases."""
        state = self.law.epsilon_state
        return bit_claim(self.epsilon, state, 1, self.releases, "the universe, the sample and its key")

    def layout(self) -> Mapping[str, FieldLayout]:
        """Return one counter and one bit per sampled user, and those that an announced intrusion has copied."""
        layout = CroppedMean.layout(self)
        return {
            "counters": layout["counters"],
            "bits": layout["bits"],
            "seen_counters": replace(layout["counters"], shape=(None, self.cells)),
            "seen_bits": replace(layout["bits"], shape=(None, self.cells)),
            "released": layout["released"],
        }

    def initial_cells(self, count: int, rng: NoiseSource) -> TwoPhaseState:
        """Return uniform counters and bits of absent users."""
        base_state = CroppedMean.initial_cells(self, count, rng)
        return TwoPhaseState(
            counters=base_state.counters,
            bits=base_state.bits,
            seen_counters=np.empty((0, count), np.int32),
            seen_bits=np.empty((0, base_state.bits.size), np.uint8),
            released=0,
        )

    def refresh(self, state: Any, rng: NoiseSource) -> None:
        """Freeze what was copied and draw new counters and bits, once."""
        if len(state.seen_bits):
            raise NotSupported(
                "RefreshableCroppedMean covers one announced intrusion: a second would multiply the variance by about "
                f"{self._refresh_factor():,.0f} again. Start a new one"
            )
        self.refresh_shard(state, self.cells, rng)

    def refresh_shard(self, state: Any, count: int, rng: NoiseSource) -> None:
        """Freeze what was copied of ``count`` users, and draw their counters and bits again."""
        state.seen_counters = state.counters[np.newaxis].copy()
        state.seen_bits = state.bits[np.newaxis].copy()
        state.counters[:] = rng.uniform_below(self.crop, count)
        draw_packed_bits(self.law.absent, count, rng, state.bits)

    def release(self, state: Any, rng: NoiseSource) -> Estimate:
        """Publish the noisy number of ones; after a refresh, by frozen bit and with the fitting pairs separately."""
        state.released = consume_release(state.released, self.releases)
        if not len(state.seen_bits):
            return self._count(state, rng)
        counts = np.zeros((2, 2), np.int64)
        count_pairs(state.counters, state.bits, state.seen_counters[0], state.seen_bits[0], self.crop - 1, counts)
        ones = counts[:, 0].copy()
        pairs = counts[:, 1].copy()
        rng.add_discrete_laplace(ones, self.law.noise)
        rng.add_discrete_laplace(pairs, self.pair_noise)
        counts.fill(0)
        seen = int(unpack_bits(state.seen_bits[0], self.cells).sum())
        return self._decode((self.cells - seen, seen), ones.tolist(), pairs.tolist())

    def _decode(self, sizes: tuple[int, int], ones: list[int], pairs: list[int]) -> Estimate:
        """Return the mean of all users' decoded readings, with the error that their empirical variance gives."""
        # A user shows a frozen bit, a bit, and whether the counters fit; users whose bit is 0 are decoded alike
        # whether they fit or not, so their number follows from the published ones.
        p1 = self.law.p1
        crop = self.crop
        cells = self.cells
        total = square = 0.0
        for seen in (0, 1):
            counts = (sizes[seen] - ones[seen], ones[seen] - pairs[seen], pairs[seen])
            values = [decode_reading(p1, crop, seen, bit, fits) for bit, fits in ((0, 0), (1, 0), (1, 1))]
            total += sum(count * value for count, value in zip(counts, values, strict=True))
            square += sum(max(count, 0) * value**2 for count, value in zip(counts, values, strict=True))
        mean = total / cells
        inside = min(max(mean, 0.0), float(crop))
        sampling = self._sampling_variance(inside)
        of_ones, of_pairs = (
            weight * noise.variance / cells**2
            for weight, noise in zip(noise_weights(p1, crop), (self.law.noise, self.pair_noise), strict=True)
        )
        spread = max(square / cells - mean**2, 0.0) / cells + sampling
        sigma = math.sqrt(spread + of_ones + of_pairs * self._smaller_pair)
        kappa = self._larger_pair
        return Estimate.clipped(
            float(mean),
            (0.0, float(crop)),
            standard_error=math.sqrt(spread + of_ones + of_pairs),
            claim=self.claim(),
            name=f"mean of min(appearances, {crop})",
            released=(*ones, *pairs),
            interval_rule=symmetric_interval(
                mean, lambda level: normal_laplace_quantile((1 - level) / 2, sigma, kappa)
            ),
        )

    @property
    def _smaller_pair(self) -> float:
        """Return the share of the pairs' noise that belongs to users whose frozen bit is 0; it is taken as normal."""
        return self.law.p0**2 / (self.law.p1**2 + self.law.p0**2)

    @property
    def _larger_pair(self) -> float:
        """Return the decay rate, in the mean, of the noise of pairs of users whose frozen bit is 1: the widest tail."""
        law = self.law
        return self.pair_noise.kappa * self.cells * ((law.p1 - law.p0) / self.crop) ** 2 / law.p1

    def error_bound(self, *, beta: float) -> float:
        """Return the error of the mean, after an announced intrusion, exceeded with probability at most ``beta``."""
        checks.require_probability(beta=beta)
        p1 = self.law.p1
        cells = self.cells
        ones, pairs = noise_weights(p1, self.crop)
        noise = (ones * self.law.noise.variance + pairs * self.pair_noise.variance * self._smaller_pair) / cells**2
        sampling = max(self._sampling_variance(self.crop * step / 64) for step in range(65))
        sigma = math.sqrt(worst_variance(p1, self.crop) / cells + sampling + noise)
        return normal_laplace_quantile(beta / 2, sigma, self._larger_pair)
