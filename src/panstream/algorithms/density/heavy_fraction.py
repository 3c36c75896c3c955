"""Fraction of heavy hitters: the share of a known population that appeared at least k times."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from panstream.algorithms.density.cropped_mean import CroppedMean, CroppedState
from panstream.algorithms.density.presence import PresenceBatch
from panstream.algorithms.density.universe import Members
from panstream.core.algorithm import consume_release
from panstream.core.estimate import Estimate, normal_laplace_quantile, symmetric_interval
from panstream.core.shardable import Shardable, Touches
from panstream.errors import InvalidParameter
from panstream.primitives import validation as checks
from panstream.primitives.codec import FieldLayout, noised, public
from panstream.primitives.memory.scratch import Scratch
from panstream.primitives.noise import NoiseSource
from panstream.privacy.claim import Claim
from panstream.privacy.composition import compose_sequential
from panstream.privacy.rounding import equal_share, round_down

_EXACT_UP_TO = 16  # threshold; above it l = k - 1 would multiply a density's error by more than 22, so brackets begin


@dataclass(slots=True)
class _HeavyState:
    """The cropped means' counters and bits; for a bracket ``high`` has two rows: crop k, and crop h beyond it."""

    high_counters: NDArray[np.int32] = noised()
    high_bits: NDArray[np.uint8] = noised()
    low_counters: NDArray[np.int32] = noised()
    low_bits: NDArray[np.uint8] = noised()
    released: int = public()


@dataclass(frozen=True, slots=True, kw_only=True)
class HeavyFraction(Shardable[_HeavyState]):
    """The fraction of a known population that appeared at least ``threshold`` times.

    The difference of two cropped means, at k and at a lower crop l, divided by k - l, is the mean of a share that rises
    from 0 at l appearances to 1 at k. With l = k - 1, the default up to k = 16, that is the fraction itself. With a
    smaller l it is an upper bound of the fraction, and a third cropped mean, at a crop h beyond k, gives a lower bound:
    the mean of a share that rises from k to h. A release then brackets the fraction: its interval reaches from the
    lower bound to the upper one, and there is no point estimate (``value`` is NaN).

    Privacy:
        Unit: user. An equal part of ``epsilon`` for each cropped mean; joint loss of one unannounced copy and all
        releases at most ``epsilon`` by composition.
        Proof: docs/proofs/joint-loss.md, Theorem 1.

    Error:
        That of the two cropped means over their distance: sqrt(k² + l²)/(k - l) times that of a density. A bracket is
        wider by the users between l and h.

    Args:
        universe: Number of users (ids 0..U-1), or the public list of their ids.
        epsilon: Total loss; ``math.inf`` switches all noise off, for tests.
        threshold: Appearances that make a user heavy (k), at least 2.
        slack: Sets l to the integer part of k/(1 + slack). None, the default, makes l = k - 1
            up to k = 16, and half of k above. A bracket's h is k²/l, rounded up.
        sample: How many users have a bit; all of them by default, which has no sampling error.
        releases: How many estimates will be published.
        key: Public number that picks the sample.

    Examples:
        >>> monitor = HeavyFraction(universe=50_000, epsilon=4.0, threshold=4).start()
        >>> monitor.update([*range(25_000)] * 4)
        >>> abs(monitor.release().value - 0.5) < 0.2
        True
        >>> bracket = HeavyFraction(universe=50_000, epsilon=4.0, threshold=20).start()
        >>> bracket.update([*range(25_000)] * 40)
        >>> low, high = bracket.release().interval()
        >>> 0.3 < low < high < 0.7
        True

    Reference: Dwork, Naor, Pitassi, Rothblum, Yekhanin 2010, §4.
    """

    theorem: ClassVar[str] = "Theorem 1"

    state_type: ClassVar[type[Any]] = _HeavyState
    proof: ClassVar[str] = "joint-loss.md"

    universe: Members
    epsilon: float
    threshold: int
    slack: float | None = None
    sample: int | None = None
    releases: int = 1
    key: int = 0
    high: CroppedMean = field(init=False, repr=False, compare=False)
    low: CroppedMean = field(init=False, repr=False, compare=False)
    beyond: CroppedMean | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        checks.require_positive(epsilon=self.epsilon)
        checks.require_at_least(2, threshold=self.threshold)
        lower = self._lower()
        exact = lower == self.threshold - 1
        high = CroppedMean(
            universe=self.universe,
            epsilon=round_down(equal_share(self.epsilon, 2 if exact else 3)),
            crop=self.threshold,
            sample=self.sample,
            releases=self.releases,
            key=self.key,
        )
        object.__setattr__(self, "universe", high.universe)
        object.__setattr__(self, "high", high)
        object.__setattr__(self, "low", replace(high, crop=lower))
        # The same ratio above the threshold as below it: both bounds have the same noise.
        beyond = None if exact else replace(high, crop=-(-(self.threshold**2) // lower))
        object.__setattr__(self, "beyond", beyond)

    def _lower(self) -> int:
        """Return l, the crop of the lower mean."""
        if self.slack is None:
            return self.threshold - 1 if self.threshold <= _EXACT_UP_TO else self.threshold // 2
        if not 0 < self.slack < math.inf:
            raise InvalidParameter(f"slack must be positive, got slack={self.slack}")
        lower = math.floor(self.threshold / (1 + self.slack))
        if not 1 <= lower < self.threshold:
            raise InvalidParameter(
                f"slack must leave a whole number below threshold={self.threshold}, got slack={self.slack}"
            )
        return lower

    @property
    def _means(self) -> tuple[CroppedMean, ...]:
        """Return the cropped means, in the order of `_parts`."""
        return (self.low, self.high) if self.beyond is None else (self.low, self.high, self.beyond)

    def claim(self) -> Claim:
        """Return the sequential composition of the cropped means' claims; one release publishes all of them."""
        return replace(compose_sequential([mean.claim() for mean in self._means]), releases=self.releases)

    def layout(self) -> Mapping[str, FieldLayout]:
        """Return a counter and a bit per sampled user for every cropped mean."""
        highest = self._means[-1].layout()
        low = self.low.layout()
        rows = () if self.beyond is None else (2,)
        return {
            "high_counters": replace(highest["counters"], shape=(*rows, self.cells)),
            "high_bits": replace(highest["bits"], shape=(*rows, self.cells)),
            "low_counters": low["counters"],
            "low_bits": low["bits"],
            "released": low["released"],
        }

    @property
    def cells(self) -> int:
        """Return m, the number of sampled users."""
        return self.high.cells

    def initial_cells(self, count: int, rng: NoiseSource) -> _HeavyState:
        """Return uniform counters and bits of absent users for every cropped mean."""
        low, *others = (mean.initial_cells(count, rng) for mean in self._means)
        counters = [part.counters for part in others]
        bits = [part.bits for part in others]
        return _HeavyState(
            high_counters=counters[0] if self.beyond is None else _stack_and_wipe(counters),
            high_bits=bits[0] if self.beyond is None else _stack_and_wipe(bits),
            low_counters=low.counters,
            low_bits=low.bits,
            released=0,
        )

    def batch(self, ids: Any) -> PresenceBatch:
        """Check ids; every row is one arrival.

        Args:
            ids: The ids, one per row.
        """
        return self.high.batch(ids)

    def cell_updates(self, batch: PresenceBatch, scratch: Scratch) -> Iterator[Touches]:
        """Yield the cells of the rows."""
        return self.high.cell_updates(batch, scratch)

    def apply_updates(self, state: _HeavyState, touches: Touches, rng: NoiseSource) -> None:
        """Apply every row to each cropped mean."""
        for mean, part in zip(self._means, _parts(state), strict=True):
            mean.apply_updates(part, touches, rng)

    def release(self, state: _HeavyState, rng: NoiseSource) -> Estimate:
        """Publish every mean's noisy number of ones, decoded to the fraction or to a bracket of it."""
        state.released = consume_release(state.released, self.releases)
        low, high, *beyond = (mean.release(part, rng) for mean, part in zip(self._means, _parts(state), strict=True))
        full = _Rise(self.low, low, self.high, high)
        name = f"fraction with at least {self.threshold} appearances"
        released = high.released + low.released
        if self.beyond is None:
            return Estimate.clipped(
                full.value,
                (0.0, 1.0),
                standard_error=full.standard_error,
                claim=self.claim(),
                name=name,
                released=released,
                interval_rule=symmetric_interval(full.value, full.reach),
            )
        # The share that is full at k counts users below k too, the one that begins at k misses some above: the
        # fraction lies between their means, which are the ends of the bracket.
        begun = _Rise(self.high, high, self.beyond, beyond[0])
        return Estimate(
            value=math.nan,
            standard_error=math.nan,
            claim=self.claim(),
            name=name,
            support=(0.0, 1.0),
            released=released + beyond[0].released,
            interval_rule=lambda level: (begun.value - begun.reach(level), full.value + full.reach(level)),
        )

    def refresh(self, state: _HeavyState, rng: NoiseSource) -> None:
        """Raise NotSupported, as CroppedMean does."""
        self.high.refresh(_parts(state)[1], rng)

    def error_bound(self, *, beta: float) -> float:
        """Return the error that is exceeded with probability at most ``beta``.

        For a bracket it is the distance of either end from the mean share that it bounds. Each of the two means of a
        difference gets half of ``beta`` (union bound).
        """
        width = self.high.crop - self.low.crop
        exact = (self.high.error_bound(beta=beta / 2) + self.low.error_bound(beta=beta / 2)) / width
        if self.beyond is None:
            return exact
        further = (self.beyond.error_bound(beta=beta / 2) + self.high.error_bound(beta=beta / 2)) / (
            self.beyond.crop - self.high.crop
        )
        return max(exact, further)


@dataclass(frozen=True, slots=True)
class _Rise:
    """The mean of a share that rises from 0 at one crop to 1 at the next: a difference of two cropped means."""

    lower: CroppedMean
    low: Estimate
    upper: CroppedMean
    high: Estimate

    @property
    def _width(self) -> int:
        return self.upper.crop - self.lower.crop

    @property
    def value(self) -> float:
        return (self.high.unbiased - self.low.unbiased) / self._width

    @property
    def standard_error(self) -> float:
        return math.hypot(self.high.standard_error, self.low.standard_error) / self._width

    def reach(self, level: float) -> float:
        """Return the deviation that is exceeded on either side with probability at most (1 - level)/2.

        Both releases' Laplace noises are replaced by a single one of the same variance, whose tails are heavier.
        """
        noise = math.hypot(*(mean.release_error for mean in (self.lower, self.upper))) / self._width
        normal = math.sqrt(max(self.standard_error**2 - noise**2, 0.0))
        kappa = math.sqrt(2.0) / noise if noise else math.inf
        return normal_laplace_quantile((1 - level) / 2, normal, kappa)


def _stack_and_wipe(arrays: list[NDArray[Any]]) -> NDArray[Any]:
    # The inputs hold the same random bits as the state; a copy left in freed memory would be a second intrusion.
    rows = np.stack(arrays)
    for array in arrays:
        array.fill(0)
    return rows


def _parts(state: _HeavyState) -> list[CroppedState]:
    """Return the means' states as views of ``state``; releases are counted in ``state`` only."""
    counters = np.atleast_2d(state.high_counters)
    bits = np.atleast_2d(state.high_bits)
    high = [CroppedState(counters=row, bits=row_bits, released=0) for row, row_bits in zip(counters, bits, strict=True)]
    return [CroppedState(counters=state.low_counters, bits=state.low_bits, released=0), *high]
