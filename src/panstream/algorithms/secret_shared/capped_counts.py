"""Sums and counts of users' appearances, each capped, from secret-shared saturating counters."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from panstream.algorithms.continual.noise_sum_tails import half_width
from panstream.algorithms.density.optbern import OptBern
from panstream.algorithms.density.presence import PresenceBatch
from panstream.algorithms.density.universe import Members
from panstream.algorithms.secret_shared.share_rules import Dealt, SaturatingCounters
from panstream.algorithms.secret_shared.statistic import SharedStatistic
from panstream.core.estimate import Estimate, symmetric_interval
from panstream.errors import InvalidBatch
from panstream.primitives import validation as checks
from panstream.primitives.inputs import integers
from panstream.primitives.kernels.algorithms.secret_shares import add_capped
from panstream.primitives.memory.scratch import Scratch
from panstream.primitives.noise import DiscreteLaplace, NoiseSource
from panstream.privacy.claim import Claim
from panstream.privacy.secret_shared_loss import shared_claim, shared_law

_MAX_CROP = 64  # bits of a user's word


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedCroppedSum(SharedStatistic):
    """The sum over a known population of min(appearances, crop).

    Privacy:
        Unit: user; any of one user's rows may be added or removed, which moves the sum by ``crop`` at most. Any number
        of copies of one machine at a time, and all releases, lose ``epsilon``.

    Error:
        Two draws of scale crop/epsilon, whatever the population is: standard error 2·crop/epsilon.

    Args:
        universe: Number of users (ids 0..U-1), or the public list of their ids.
        epsilon: Total loss; ``math.inf`` switches all noise off, for tests.
        crop: The largest number of a user's appearances that count, at most 64.
        releases: How many estimates will be published.
        key: Public number that picks the sample.
    """

    kind: ClassVar[str] = "moved"
    min_weight: ClassVar[int] = 1  # a saturating counter cannot be decremented
    max_weight: ClassVar[int] = 1 << 31

    universe: Members
    epsilon: float
    crop: int
    releases: int = 1
    key: int = 0
    plain: OptBern = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        checks.require_positive(epsilon=self.epsilon)
        checks.require_integer_in_range(1, _MAX_CROP, crop=self.crop)
        plain = OptBern(universe=self.universe, epsilon=math.inf, releases=self.releases, key=self.key)
        object.__setattr__(self, "universe", plain.universe)
        object.__setattr__(self, "plain", plain)

    @property
    def law(self) -> DiscreteLaplace:
        """Return the noise that each machine adds to an answer."""
        return shared_law(self.epsilon, self.releases * self.crop)

    def claim(self) -> Claim:
        """Return the claim for one user."""
        return shared_claim(self.epsilon, "user", self.releases, "the universe")

    @property
    def rule(self) -> SaturatingCounters:
        """Return the rule of ``crop`` bits per user, all of them counted."""
        return SaturatingCounters(cells=self.plain.cells, tau=self.crop, noise=self.law, releases=self.releases)

    @property
    def max_value(self) -> float:
        """Return the largest possible answer."""
        return float(self.plain.cells * self.crop)

    @property
    def _name(self) -> str:
        return f"sum of min(appearances, {self.crop})"

    def batch(self, ids: Any, weight: Any = None) -> PresenceBatch:
        """Check ids and weights; a row counts as ``weight`` appearances, a positive integer, 1 by default."""
        batch = self.plain.batch(ids)
        if weight is None:
            return batch
        try:
            weights, copied = integers(weight, name="weight", lower=self.min_weight, upper=self.max_weight)
            if weights.size != len(batch):
                raise InvalidBatch(f"weight must have one value per id, got {weights.size} for {len(batch)}")
        except BaseException:
            batch.wipe()
            raise
        return PresenceBatch(batch.cells, weights, (*batch.owned, weights) if copied else batch.owned)

    def empty_buffer(self) -> Dealt:
        """Return a counter per user for the rows of one step, all 0."""
        return (np.zeros(self.plain.cells, np.uint8),)

    def accumulate(self, change: Dealt, batch: PresenceBatch, scratch: Scratch) -> None:
        """Count the rows of every user, up to the cap."""
        for cells, *weights in self.plain.cell_updates(batch, scratch):
            add_capped(change[0], cells, weights[0] if weights else np.ones(cells.size, np.int64), self.crop)

    def to_dense_update(self, change: Dealt, rng: NoiseSource, *, fresh: bool = False) -> Dealt:
        """Return the buffer unchanged: the rule deals counts."""
        return change

    def estimate(self, opened: Sequence[int], number: int) -> Estimate:
        """Return the estimate of the sum."""
        return self._read(float(opened[0]), tuple(opened))

    def expected_estimate(self, total: float) -> Estimate:
        """Return the answer at a sum of ``total`` if all draws were 0."""
        return self._read(min(total, self.max_value), ())

    def _read(self, value: float, released: tuple[int, ...]) -> Estimate:
        parts = ((2.0, self.law),)  # both machines add a draw
        return Estimate.clipped(
            value,
            (0.0, self.max_value),
            standard_error=math.sqrt(2 * self.law.variance),
            claim=self.claim(),
            name=self._name,
            released=released,
            interval_rule=symmetric_interval(value, lambda level: half_width(level, parts)),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedHeavyCount(SharedCroppedSum):
    """The number of users of a known population that appeared at least ``crop`` times.

    Privacy:
        As `SharedCroppedSum`; one user moves the number by one.

    Error:
        Two draws of scale 1/epsilon, whatever the population and the threshold are.

    Args:
        crop: The threshold: users with at least this many appearances are counted.
    """

    @property
    def law(self) -> DiscreteLaplace:
        """Return the noise that each machine adds to an answer; a user changes the count by one."""
        return shared_law(self.epsilon, self.releases)

    @property
    def rule(self) -> SaturatingCounters:
        """Return the rule of ``crop`` bits per user, the last of which is counted."""
        return SaturatingCounters(
            cells=self.plain.cells, tau=self.crop, low=self.crop - 1, noise=self.law, releases=self.releases
        )

    @property
    def max_value(self) -> float:
        """Return the largest possible answer."""
        return float(self.plain.cells)

    @property
    def _name(self) -> str:
        return f"users with at least {self.crop} appearances"
