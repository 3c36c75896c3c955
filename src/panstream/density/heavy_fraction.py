"""Fraction of heavy hitters: how many of a known population appeared at least k times."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from panstream import checks
from panstream.algorithm import spend_release
from panstream.codec import FieldLayout, noised, public
from panstream.density.cropped_mean import CroppedMean, CroppedState
from panstream.density.presence import PresenceBatch
from panstream.density.universe import Members
from panstream.divisible import Divisible, Touches
from panstream.errors import InvalidParameter
from panstream.estimate import Estimate
from panstream.privacy.claim import Claim
from panstream.privacy.composition import sequential
from panstream.randomness import Source
from panstream.scratch import Scratch

_EXACT_UP_TO = 16


@dataclass(slots=True)
class _HeavyState:
    """The two cropped means' counters and bits."""

    high_counters: NDArray[np.int32] = noised()
    high_bits: NDArray[np.uint8] = noised()
    low_counters: NDArray[np.int32] = noised()
    low_bits: NDArray[np.uint8] = noised()
    released: int = public()


@dataclass(frozen=True, slots=True, kw_only=True)
class HeavyFraction(Divisible[_HeavyState]):
    """The fraction of a known population that appeared at least ``threshold`` times.

    The difference of two cropped means, at k and at a lower crop, divided by the distance of the two. At k - 1, the
    default up to k = 16, that is the fraction itself. At a lower crop l a user with l + 1 to k - 1 appearances counts
    in proportion: the answer is then for a number between the fraction with at least k appearances and the one with
    more than l, as its name says.

    Privacy
        Unit: user. Half of ``epsilon`` for each cropped mean; joint loss of one unannounced copy and all releases at
        most ``epsilon`` by composition.

    Error
        That of the two cropped means over their distance: sqrt(k² + l²)/(k - l) times that of a density.

    Parameters
        threshold: k, at least 2. slack: the lower crop is the integer part of k/(1 + slack). None, the default, is k -
        1 up to k = 16, and half of k above. Others as :class:`CroppedMean`.

    Example
        >>> monitor = HeavyFraction(universe=50_000, epsilon=4.0, threshold=4).start()
        >>> monitor.update([*range(25_000)] * 4)
        >>> abs(monitor.release().value - 0.5) < 0.2
        True

    Reference: Dwork, Naor, Pitassi, Rothblum, Yekhanin 2010, §4.
    """

    state_type: ClassVar[type[Any]] = _HeavyState

    universe: Members
    epsilon: float
    threshold: int
    slack: float | None = None
    sample: int | None = None
    releases: int = 1
    key: int = 0
    high: CroppedMean = field(init=False, repr=False, compare=False)
    low: CroppedMean = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        checks.positive(epsilon=self.epsilon)
        checks.at_least(2, threshold=self.threshold)
        lower = self._lower()
        high = CroppedMean(
            universe=self.universe,
            epsilon=self.epsilon / 2,
            crop=self.threshold,
            sample=self.sample,
            releases=self.releases,
            key=self.key,
        )
        object.__setattr__(self, "universe", high.universe)
        object.__setattr__(self, "high", high)
        object.__setattr__(self, "low", replace(high, crop=lower))

    def _lower(self) -> int:
        """Return the crop of the lower mean."""
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
    def _name(self) -> str:
        if self.low.crop == self.threshold - 1:
            return f"fraction with at least {self.threshold} appearances"
        return (
            f"fraction between those with at least {self.threshold} and those with more than {self.low.crop} "
            "appearances"
        )

    def claim(self) -> Claim:
        """Return the two halves composed; they are released together."""
        return replace(sequential([self.high.claim(), self.low.claim()]), releases=self.releases)

    def layout(self) -> Mapping[str, FieldLayout]:
        """Return two counters and two bits per sampled user."""
        high, low = self.high.layout(), self.low.layout()
        return {
            "high_counters": high["counters"],
            "high_bits": high["bits"],
            "low_counters": low["counters"],
            "low_bits": low["bits"],
            "released": high["released"],
        }

    @property
    def cells(self) -> int:
        """Return how many users are sampled."""
        return self.high.cells

    def fresh(self, count: int, source: Source) -> _HeavyState:
        """Return two fresh cropped means."""
        high, low = self.high.fresh(count, source), self.low.fresh(count, source)
        return _HeavyState(
            high_counters=high.counters, high_bits=high.bits, low_counters=low.counters, low_bits=low.bits, released=0
        )

    def batch(self, ids: Any) -> PresenceBatch:
        """Check ids; every row is one arrival."""
        return self.high.batch(ids)

    def touches(self, batch: PresenceBatch, scratch: Scratch) -> Iterator[Touches]:
        """Yield the users' numbers in the sample."""
        return self.high.touches(batch, scratch)

    def touch(self, state: _HeavyState, touches: Touches, source: Source) -> None:
        """Take every arrival into both means."""
        for mean, part in zip((self.high, self.low), _parts(state), strict=True):
            mean.touch(part, touches, source)

    def release(self, state: _HeavyState, source: Source) -> Estimate:
        """Publish the two noisy numbers of ones, turned into a fraction."""
        state.released = spend_release(state.released, self.releases)
        high, low = (
            mean.release(part, source) for mean, part in zip((self.high, self.low), _parts(state), strict=True)
        )
        width = self.high.crop - self.low.crop
        return Estimate.clipped(
            (high.unbiased - low.unbiased) / width,
            (0.0, 1.0),
            standard_error=math.hypot(high.standard_error, low.standard_error) / width,
            claim=self.claim(),
            name=self._name,
            released=high.released + low.released,
        )

    def refresh(self, state: _HeavyState, source: Source) -> None:
        """Refuse, as CroppedMean does."""
        self.high.refresh(_parts(state)[0], source)

    def error(self, *, beta: float) -> float:
        """Return the error of what the answer is for, exceeded with probability at most ``beta``."""
        width = self.high.crop - self.low.crop
        return (self.high.error(beta=beta / 2) + self.low.error(beta=beta / 2)) / width


def _parts(state: _HeavyState) -> tuple[CroppedState, CroppedState]:
    """Return the two means' states, sharing memory with ``state``; the outer count of releases is the one that
    counts.
    """
    return (
        CroppedState(counters=state.high_counters, bits=state.high_bits, released=0),
        CroppedState(counters=state.low_counters, bits=state.low_bits, released=0),
    )
