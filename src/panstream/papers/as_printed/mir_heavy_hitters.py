"""Algorithm 3 of Mir et al. 2011 as printed: heavy hitters as a difference of two cropped sums in hash buckets."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from panstream.algorithms.turnstile.modular_counter import CounterBatch
from panstream.core.algorithm import Algorithm, consume_release
from panstream.core.estimate import Estimate
from panstream.errors import InvalidParameter, NotSupported
from panstream.papers.as_printed.mir import PublishedCroppedSum
from panstream.primitives import validation as checks
from panstream.primitives.codec import FieldLayout
from panstream.primitives.hashing import cells_of_integers
from panstream.primitives.inputs import integers
from panstream.primitives.noise import NoiseSource
from panstream.privacy.claim import Claim


@dataclass(slots=True)
class _TwoSums:
    """The states of Algorithm 2 at both crops."""

    at_threshold: Any
    below: Any
    released: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedHeavyHitters(Algorithm[_TwoSums]):
    """Algorithm 3: users with at least F1/k, as [T1(F1/k) - T1(F1/ck)]/(F1/k - F1/ck) over h hash buckets.

    True loss: infinite, as for `PublishedCroppedSum`, twice. Both sums count a user between .75 and 1.5 times the right
    amount and have errors of the order of F1²·sqrt(h)/k², so the difference says nothing: with F1 = 20,000, k = 20
    and 2,000 buckets at epsilon = 1 its standard deviation is 62,000. As printed the constants of
    both sums are wrong as well.

    Args:
        epsilon: The paper's parameter, of each of the two sums.
        k: A heavy user has at least a 1/k share of the total weight.
        total_weight: F1, which the paper takes as public.
        buckets: h, the number of hash buckets.
        ratio: c, the ratio of the two crops; above 1.
        corrected: Whether the debiasing constants are corrected.
        key: Public number that chooses the hash function.

    Reference: Mir et al. 2011, §3.3, Algorithm 3.
    """

    state_type: ClassVar[type[Any]] = _TwoSums

    epsilon: float
    k: int
    total_weight: int
    buckets: int
    ratio: float = 2.0
    corrected: bool = False
    key: int = 0

    def __post_init__(self) -> None:
        checks.require_at_least(1, k=self.k, buckets=self.buckets)
        if not self.ratio > 1:
            raise InvalidParameter(f"ratio must be above 1, got ratio={self.ratio}")
        if self.lower_crop < 1 or self.lower_crop >= self.crop:
            raise InvalidParameter(
                f"total_weight must be at least ratio·k, with different crops, got total_weight={self.total_weight}"
            )

    @property
    def crop(self) -> int:
        """Return F1/k, rounded."""
        return round(self.total_weight / self.k)

    @property
    def lower_crop(self) -> int:
        """Return F1/(c·k), rounded."""
        return round(self.total_weight / (self.ratio * self.k))

    @property
    def sums(self) -> tuple[PublishedCroppedSum, PublishedCroppedSum]:
        """Return Algorithm 2 at both crops."""
        first = PublishedCroppedSum(
            universe=self.buckets, epsilon=self.epsilon, crop=self.crop, corrected=self.corrected
        )
        return first, replace(first, crop=self.lower_crop)

    def claim(self) -> Claim:
        """Return the true loss of this code, which is infinite."""
        return self.sums[0].claim()

    def layout(self) -> Mapping[str, FieldLayout]:
        """Raise NotSupported: the byte format has no real numbers."""
        raise NotSupported("the published forms keep real numbers and are not stored")

    def initial_state(self, rng: NoiseSource) -> _TwoSums:
        """Draw the counters of both sums."""
        upper, lower = (part.initial_state(rng) for part in self.sums)
        return _TwoSums(at_threshold=upper, below=lower, released=0)

    def batch(self, ids: Any, weight: Any = 1) -> CounterBatch:
        """Check integer ids and weights, and hash the ids to buckets."""
        rows, _ = integers(ids, name="ids")
        places = np.empty(rows.size, np.int32)
        cells_of_integers(rows, self.key, self.buckets, 1, places)
        return self.sums[0].batch(places.astype(np.int64), weight)

    def update(self, state: _TwoSums, batch: CounterBatch, rng: NoiseSource) -> None:
        """Apply the rows to both sums."""
        upper, lower = self.sums
        upper.update(state.at_threshold, batch, rng)
        lower.update(state.below, batch, rng)

    def release(self, state: _TwoSums, rng: NoiseSource) -> Estimate:
        """Return the scaled difference of both debiased sums."""
        state.released = consume_release(state.released, 1)
        upper, lower = self.sums
        difference = upper.release(state.at_threshold, rng).value - lower.release(state.below, rng).value
        return Estimate(
            value=difference / (self.crop - self.lower_crop),
            standard_error=self.deviation(),
            claim=self.claim(),
            name="heavy hitters as published",
        )

    def deviation(self) -> float:
        """Return the standard deviation on empty data."""
        return math.hypot(*(part.deviation() for part in self.sums)) / (self.crop - self.lower_crop)

    def refresh(self, state: _TwoSums, rng: NoiseSource) -> None:
        """Raise NotSupported: the paper gives no rule beyond "randomize anew"."""
        raise NotSupported("the published form has no refresh")

    def error_bound(self, *, beta: float) -> float:
        """Return infinity: no error bound holds for the printed form."""
        return math.inf
