"""Who came back, from secret-shared exact bits of consecutive windows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from panstream.algorithms.continual_users.retained_bitmap import MAX_LAGS
from panstream.algorithms.continual_users.retention_counts import RetentionCounts
from panstream.algorithms.distinct.bitmap import Bitmap
from panstream.algorithms.distinct.likelihood import Likelihood
from panstream.algorithms.distinct.pair_fit import PairModel
from panstream.algorithms.secret_shared.presence import pack_cells
from panstream.algorithms.secret_shared.retained_bits import RetainedBits
from panstream.algorithms.secret_shared.share_rules import Dealt
from panstream.algorithms.secret_shared.statistic import SharedStatistic
from panstream.core.estimate import Estimate
from panstream.errors import InvalidParameter
from panstream.primitives import validation as checks
from panstream.primitives.hashing import StringHash
from panstream.primitives.inputs import ItemBatch
from panstream.primitives.memory.scratch import Scratch
from panstream.primitives.noise import DiscreteLaplace, NoiseSource
from panstream.privacy.bitmap_loss import Decoder, LevelMoments
from panstream.privacy.claim import Claim
from panstream.privacy.retained_loss import RetainedRates
from panstream.privacy.secret_shared_loss import shared_claim, shared_retained_rates

_CELLS_PER_USER = 16
_MIN_CELLS = 1 << 12
_MAX_CELLS = 1 << 21  # of a window: an answer sends 4(1 + lags) bytes for each
_MAX_LEVELS = 8
_HEADROOM = 8.0  # a layout must also serve this many times the expected number of users,
_HEADROOM_ERROR = 1.5  # where its relative error may be this many times as large
_SHARE = 0.2  # of the users come back, where the layout is chosen
_OVERLAP = np.array([1.0, 1.0, -1.0])  # of |A|, |B|, |A or B|


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedRetention(SharedStatistic):
    """The distinct users of every window, and how many of a window's users came again in later ones.

    The cells are those of `SharedDistinct`: exact bits, as shares. An answer closes the window. For every level it
    releases the noisy number of ones |x| and, for each of the ``lags`` windows before, the noisy number of cells in
    which the two windows differ. Cells that are 1 in both follow: (|x| + |y| - differing)/2. The window's bits are
    stored as shares until ``lags`` later windows have been compared with them.

    Privacy:
        Unit: user-window, a user's rows within one window. Any number of copies of one machine at a time, and all
        answers, lose ``epsilon``. A user who came in several windows loses the sum. Copies of both machines in one
        epoch reveal the exact cells of the open window and of the last ``lags`` ones.

    Error:
        For two windows of 10,000 users, 3,000 of whom came in both, at epsilon 1 with 4 lags: standard error 23, a 95%
        interval of ±1.5%; on one machine it is ±64%.

    Args:
        epsilon: Loss of one user's rows in one window; ``math.inf`` switches all noise off, for tests.
        expected: About how many users come in a window.
        horizon: How many windows there will be.
        lags: With how many earlier windows each is compared.
        cohorts: Over how many windows the shares of returning users are computed.
        buckets: Cells of a level; with ``levels`` the layout for ``expected`` by default.
        levels: Rows of the bitmap, each for half as many users as the one before.
        key: Public number that picks the hash function.
        hash: Of strings, "fold" or, at half the speed, "siphash", which withstands chosen ids if ``key`` is secret.
    """

    kind: ClassVar[str] = "retained"
    theorem: ClassVar[str] = "Theorem 3"

    epsilon: float
    expected: float
    horizon: int
    lags: int = 4
    cohorts: int = 13
    buckets: int | None = None
    levels: int | None = None
    key: int = 0
    hash: StringHash = "fold"
    rates: RetainedRates = field(init=False, repr=False, compare=False)
    table: Bitmap = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        checks.require_positive(epsilon=self.epsilon, expected=self.expected)
        checks.require_integer_in_range(1, MAX_LAGS, lags=self.lags)
        checks.require_integer_in_range(1, 1000, cohorts=self.cohorts)
        checks.require_at_least(1, horizon=self.horizon)
        if (self.buckets is None) != (self.levels is None):
            raise InvalidParameter("give both buckets and levels, or neither")
        object.__setattr__(self, "rates", shared_retained_rates(self.epsilon, self.lags))
        if self.levels is None:
            cells = min(max(math.ceil(_CELLS_PER_USER * self.expected), _MIN_CELLS), _MAX_CELLS)
            levels = min(range(1, _MAX_LEVELS + 1), key=lambda levels: self._worst(cells // levels, levels))
            object.__setattr__(self, "levels", levels)
            object.__setattr__(self, "buckets", cells // levels)
        assert self.buckets is not None
        assert self.levels is not None
        table = Bitmap(
            epsilon=math.inf, buckets=self.buckets, levels=self.levels, releases=1, key=self.key, hash=self.hash
        )
        object.__setattr__(self, "table", table)

    def _worst(self, buckets: int, levels: int) -> float:
        """Return the larger relative error of an overlap at the expected size and far above it."""
        model = self._model(buckets, levels)
        small, large = (_overlap_error(model, users, _SHARE) / users for users in (self.expected, self._many))
        return max(small, large / _HEADROOM_ERROR)

    @property
    def _many(self) -> float:
        return _HEADROOM * self.expected

    def _model(self, buckets: int, levels: int) -> PairModel:
        of_count, of_pair = (2 * self._law(rate).variance for rate in (self.rates.of_count, self.rates.of_pair))
        return PairModel(buckets, levels, _EXACT, _EXACT, (of_count, of_count, of_pair), differing=True)

    def _law(self, rate: float) -> DiscreteLaplace:
        return DiscreteLaplace.at_most(rate)

    def claim(self) -> Claim:
        """Return the claim for one user's rows in one window."""
        return shared_claim(self.epsilon, "user-window", self.horizon, "the hash function and its key")

    @property
    def rule(self) -> RetainedBits:
        """Return the rule of an open window and those before it."""
        return RetainedBits(
            cells=self.table.cells,
            rows=self.table.levels,
            noise=self._law(self.rates.of_count),
            pair_noise=self._law(self.rates.of_pair),
            releases=self.horizon,
            lags=self.lags,
            remembered=self.cohorts + self.lags - 1,
        )

    @property
    def model(self) -> PairModel:
        """Return the law of the released numbers of two windows."""
        return self._model(self.table.buckets, self.table.levels)

    def moments(self) -> LevelMoments:
        """Return the moments of the empty cells of one window, with both machines' noise."""
        noise = 2 * self._law(self.rates.of_count).variance
        return LevelMoments.of(_EXACT, buckets=self.table.buckets, levels=self.table.levels, noise=noise)

    def overlap_error(self, users: float, share: float = _SHARE) -> float:
        """Return the standard error of how many of ``users`` users came again, if a ``share`` of them did."""
        return _overlap_error(self.model, users, share)

    def batch(self, ids: Any) -> ItemBatch:
        """Check ids of any kind."""
        return self.table.batch(ids)

    def empty_buffer(self) -> Dealt:
        """Return a byte per cell, all 0."""
        return (np.zeros(self.table.cells, np.uint8),)

    def accumulate(self, change: Dealt, batch: ItemBatch, scratch: Scratch) -> None:
        """Mark the cells of a batch."""
        self.table.mark_cells(batch, change[0], scratch)

    def to_dense_update(self, change: Dealt, rng: NoiseSource, *, fresh: bool = False) -> Dealt:
        """Return which cells of the open window are touched and what they become, packed: 1."""
        touched = pack_cells(change[0])
        return touched, touched

    def estimate(self, opened: Sequence[int], number: int) -> Estimate:
        """Return how many users the last window had."""
        ones = np.array(opened[: self.table.levels], np.float64)
        released = tuple(opened[: self.rule.numbers])
        return Likelihood(self.moments(), self.table.buckets - ones).estimate(self.claim(), released)

    def at(self, state: tuple[Sequence[int], int], what: str) -> Estimate:
        """Return what else is computed from the numbers of an answer, without further loss.

        Args:
            state: The numbers that were opened, and of which answer.
            what: "new", "back k" or "rate k", as `RetentionCounts.answer` says.
        """
        return self.counts(*state).answer(what, self.claim())

    def counts(self, opened: Sequence[int], number: int) -> RetentionCounts:
        """Return the numbers of the last windows after ``number`` of them, newest first."""
        windows = self.cohorts + self.lags
        numbers = np.array(opened, np.float64).reshape(windows, 1 + self.lags, self.table.levels)
        ones = numbers[:, 0]
        both = np.empty((self.cohorts, self.lags, self.table.levels))
        for lag in range(1, self.lags + 1):
            earlier = ones[lag : lag + self.cohorts]
            both[:, lag - 1] = (ones[: self.cohorts] + earlier - numbers[: self.cohorts, lag]) / 2
        return RetentionCounts(self.model, ones, both, number)

    def expected_estimate(self, users: float) -> Estimate:
        """Return the answer about a window in which every level is as full as expected after ``users`` users."""
        moments = self.moments()
        return Likelihood(moments, moments.at(users)[0]).estimate(self.claim(), ())


_EXACT = Decoder.redrawn(1.0)


def _overlap_error(model: PairModel, users: float, share: float) -> float:
    covariance = model.covariance(np.array([users, users, (2.0 - share) * users]))
    return math.sqrt(max(float(_OVERLAP @ covariance @ _OVERLAP), 0.25))
