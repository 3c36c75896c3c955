"""Sums and counts of users' appearances, each capped, from secret-shared saturating counters."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from panstream.algorithms.continual.grid import Grid
from panstream.algorithms.continual.noise_sum_tails import half_width
from panstream.algorithms.density.optbern import OptBern
from panstream.algorithms.density.presence import PresenceBatch
from panstream.algorithms.density.universe import Members
from panstream.algorithms.secret_shared.share_rules import Dealt, SaturatingCounters
from panstream.algorithms.secret_shared.statistic import SharedStatistic
from panstream.core.estimate import Estimate, symmetric_interval
from panstream.errors import InvalidBatch, InvalidParameter
from panstream.primitives import validation as checks
from panstream.primitives.hashing import derive
from panstream.primitives.hashing.items import hash_items
from panstream.primitives.inputs import integers, items
from panstream.primitives.kernels.algorithms.secret_shares import add_capped
from panstream.primitives.memory.scratch import Scratch
from panstream.primitives.noise import DiscreteLaplace, NoiseSource
from panstream.privacy.claim import Claim
from panstream.privacy.secret_shared_loss import shared_claim, shared_law

_MAX_CROP = 64  # bits of a user's word
_MAX_BUCKETS = 1 << 28


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedCroppedSum(SharedStatistic):
    """The sum over the users of min(appearances, crop): of a known population, or of cells that ids are hashed to.

    Privacy:
        Unit: user; any of one user's rows may be added or removed, which moves the sum by ``crop`` at most. Any number
        of copies of one machine at a time, and all releases, lose ``epsilon``.

    Error:
        Two draws of scale crop/epsilon, whatever the population is: standard error 2·crop/epsilon. Users whose ids are
        hashed to the same cell share one cap: the sum is at most that of all users, and less only where two in a cell
        have more than ``crop`` appearances together.

    Args:
        universe: Number of users (ids 0..U-1), or the public list of their ids; None with ``buckets``.
        buckets: Number of cells to which ids of any kind are hashed, where the users are not known; each takes 1 to 8
            bytes, in memory and in every step.
        epsilon: Total loss; ``math.inf`` switches all noise off, for tests.
        crop: The largest number of a user's appearances that count, at most 64.
        releases: How many estimates will be published.
        key: Public number that picks the sample, or the hash function.
    """

    kind: ClassVar[str] = "moved"
    min_weight: ClassVar[int] = 1  # a saturating counter cannot be decremented
    max_weight: ClassVar[int] = 1 << 31

    universe: Members | None = None
    buckets: int | None = None
    epsilon: float
    crop: int
    releases: int = 1
    key: int = 0
    plain: OptBern = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        checks.require_positive(epsilon=self.epsilon)
        checks.require_integer_in_range(1, _MAX_CROP, crop=self.crop)
        if (self.universe is None) == (self.buckets is None):
            raise InvalidParameter("give either universe, the known users, or buckets, a number of cells")
        if self.buckets is not None:
            checks.require_integer_in_range(1, _MAX_BUCKETS, buckets=self.buckets)
        users: Any = self.buckets if self.universe is None else self.universe
        plain = OptBern(universe=users, epsilon=math.inf, releases=self.releases, key=self.key)
        if self.universe is not None:
            object.__setattr__(self, "universe", plain.universe)
        object.__setattr__(self, "plain", plain)

    @property
    def law(self) -> DiscreteLaplace:
        """Return the noise that each machine adds to an answer."""
        return shared_law(self.epsilon, self.releases * self.crop)

    def claim(self) -> Claim:
        """Return the claim for one user."""
        public = "the universe" if self.buckets is None else "the hash function and its key"
        return shared_claim(self.epsilon, "user", self.releases, public)

    @property
    def rule(self) -> SaturatingCounters:
        """Return the rule of ``crop`` bits per user, all of them counted."""
        return SaturatingCounters(cells=self.plain.cells, tau=self.crop, noise=self.law, releases=self.releases)

    @property
    def max_value(self) -> float:
        """Return the largest possible answer."""
        return float(self.plain.cells * self.crop) * self.scale

    @property
    def scale(self) -> float:
        """Return what one step of a counter stands for."""
        return 1.0

    @property
    def _of_what(self) -> str:
        """Return what a cap holds for."""
        return "" if self.buckets is None else f", ids in {self.buckets:,} cells"

    @property
    def _name(self) -> str:
        return f"sum of min(appearances, {self.crop}){self._of_what}"

    def cells_of(self, ids: Any) -> PresenceBatch:
        """Return the cell of every row."""
        if self.buckets is None:
            return self.plain.batch(ids)
        checked = items(ids, name="ids")
        try:
            hashes = np.empty(len(checked), np.uint64)
            hash_items(checked, derive(self.key, "capped"), hashes)
        finally:
            checked.wipe()
        np.remainder(hashes, np.uint64(self.buckets), out=hashes)
        return PresenceBatch(hashes.view(np.int64), None, (hashes,))

    def batch(self, ids: Any, weight: Any = None) -> PresenceBatch:
        """Check ids and weights; a row counts as ``weight`` appearances, a positive integer, 1 by default."""
        batch = self.cells_of(ids)
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
        """Return the answer at a sum of ``total`` steps if all draws were 0."""
        return self._read(min(total, self.max_value / self.scale), ())

    def _read(self, value: float, released: tuple[int, ...]) -> Estimate:
        parts = ((2.0, self.law),)  # both machines add a draw
        scale = self.scale
        return Estimate.clipped(
            value * scale,
            (0.0, self.max_value),
            standard_error=math.sqrt(2 * self.law.variance) * scale,
            claim=self.claim(),
            name=self._name,
            released=released,
            interval_rule=symmetric_interval(value * scale, lambda level: half_width(level, parts) * scale),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedCappedSum(SharedCroppedSum):
    """The sum of values from 0 to ``upper``, in which no user counts more than ``contributions`` times ``upper``.

    What is capped is the sum of each user's values, not the number of her rows: where they stay below ``upper``, more
    of them count.

    Privacy:
        As `SharedCroppedSum`; any of one user's rows, whatever their values are, move the sum by
        contributions·upper at most.

    Error:
        Two draws of scale contributions·upper/epsilon. Values are rounded to multiples of ``scale``, at most half of it
        each: a user has 64 steps. The interval covers the sum of the rounded values.

    Args:
        upper: Upper end of the range of a value; values are clipped to 0..upper.
        contributions: How many values of ``upper`` of one user are counted, at most 64.
    """

    crop: int = field(init=False)
    upper: float
    contributions: int

    def __post_init__(self) -> None:
        if not 0 < self.upper < math.inf:
            raise InvalidParameter(f"upper must be positive, got upper={self.upper}")
        checks.require_integer_in_range(1, _MAX_CROP, contributions=self.contributions)
        object.__setattr__(self, "crop", self.contributions * self.steps)
        SharedCroppedSum.__post_init__(self)

    @property
    def steps(self) -> int:
        """Return how many steps the largest value has: one for each whole number if they fit, else as many as fit."""
        most = _MAX_CROP // self.contributions
        return int(self.upper) if self.upper == int(self.upper) and self.upper <= most else most

    @property
    def scale(self) -> float:
        """Return the length of a step."""
        return self.upper / self.steps

    @property
    def _name(self) -> str:
        largest = self.contributions * self.upper
        return f"sum of values rounded to {self.scale:g}, at most {largest:g} of one user{self._of_what}"

    def batch(self, ids: Any, values: Any) -> PresenceBatch:  # type: ignore[override]
        """Check ids and values, and round the values to steps."""
        batch = self.cells_of(ids)
        try:
            steps = Grid.around_zero(0.0, self.upper, self.scale, 1, "clip").read(values)
            if len(steps) != len(batch):
                raise InvalidBatch(f"values must have one value per id, got {len(steps)} for {len(batch)}")
        except BaseException:
            batch.wipe()
            raise
        return PresenceBatch(batch.cells, steps.rows, (*batch.owned, *steps.owned))


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
        return f"users with at least {self.crop} appearances{self._of_what}"
