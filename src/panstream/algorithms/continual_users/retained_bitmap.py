"""RetainedBitmap: distinct users of consecutive windows, and how many of them came back after 1, 2, ... windows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from panstream.algorithms.continual.ticker import Ticker
from panstream.algorithms.continual_users.retention_counts import RetentionCounts
from panstream.algorithms.continual_users.slots import tick_each
from panstream.algorithms.distinct.bitmap import Bitmap
from panstream.algorithms.distinct.likelihood import Likelihood
from panstream.algorithms.distinct.pair_fit import PairModel
from panstream.algorithms.randomized_bits import BitState
from panstream.core.estimate import Estimate, Estimates
from panstream.errors import InvalidParameter, NotSupported
from panstream.primitives import validation as checks
from panstream.primitives.codec import FieldLayout, noised, public, published
from panstream.primitives.hashing import StringHash
from panstream.primitives.inputs import ItemBatch, items
from panstream.primitives.memory.scratch import Scratch
from panstream.primitives.noise import DiscreteLaplace, NoiseSource
from panstream.primitives.packed_bits import draw_packed_bits
from panstream.privacy.bitmap_loss import Decoder, LevelMoments
from panstream.privacy.budget_split import laplace_variance
from panstream.privacy.claim import Claim, Intrusions
from panstream.privacy.joint_loss import present_probability
from panstream.privacy.numeric_search import minimise
from panstream.privacy.person_loss import WindowLoss
from panstream.privacy.retained_loss import RetainedRates, retained_rates, retained_window_loss
from panstream.privacy.rounding import state_and_output

MAX_LAGS = 12
_CELLS_PER_USER = 4  # of the first level: with as many, errors of overlaps are within a tenth of the least
_LEVELS = 8  # so many keep the error level up to about fifty times the expected users
_MIN_BUCKETS = 64
_MAX_BUCKETS = 1 << 24
_SHARE = 0.2  # of the users come back, where epsilon is divided


@dataclass(slots=True)
class RetainedState:
    """What the machine holds between two steps, and all an intruder can copy."""

    bits: NDArray[np.uint8] = noised()  # of the open window, packed
    retained: NDArray[np.uint8] = noised()  # of the windows before it, newest first, one packed row each
    ones: NDArray[np.int64] = published()  # per closed window and level, newest first
    both: NDArray[np.int64] = published()  # per closed window, lag and level: cells that are 1 in both
    ticks: int = public()

    @property
    def cells(self) -> BitState:
        """Return a view of the open window's bits in the form that the algorithm which redraws them takes."""
        return BitState(bits=self.bits, frozen=np.empty((0, self.bits.size), np.uint8), released=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class RetainedBitmap(Ticker[RetainedState]):
    """The distinct users of every window, and how many of a window's users came again in later ones.

    The cells are those of `Bitmap`, drawn afresh in every window. A ``tick`` closes the window: its noisy number of
    ones is released, and for each of the ``lags`` windows before it the noisy number of cells that are 1 in both. Its
    cells then stay in the state, unchanged, until ``lags`` later windows were compared with them. `at` returns what is
    computed from the released numbers.

    Privacy:
        Unit: user-window, a user's rows within one window. One copy of the state at any time and all answers, in either
        order, lose at most ``epsilon``. A user who came in several windows loses the sum: to answers alone less than
        half of that, to one copy ``epsilon`` for the open window and ``epsilon_state`` for each retained one
        (`window_loss`). Two unannounced copies of an open window have no finite loss.
        Proof: docs/proofs/retention.md, Theorem 1.

    Error:
        Of an overlap of two windows of n users c·sqrt(n): with 4 lags c = 3.9, 1.26 and .71 at epsilon 1.5, 2.66 and
        4, for 10,000 users a window. The error of a share over several cohorts is `RetentionCounts.rate`'s.

    Args:
        epsilon: Loss of one user's rows in one window.
        expected: About how many users come in a window.
        lags: With how many earlier windows each is compared.
        cohorts: Over how many windows the shares of returning users are computed.
        horizon: How many windows there will be; None without an end.
        buckets: Cells of a level; four per expected user by default, stored with the state.
        levels: Rows of the bitmap, each for half as many users as the one before.
        key: Public number that picks the hash function.
        hash: Of strings, "fold" or, at half the speed, "siphash", which withstands chosen ids if ``key`` is secret.
        epsilon_state: Share of epsilon that is spent on the cells; the best by default, stored with the state.

    Examples:
        >>> monitor = RetainedBitmap(epsilon=4.0, expected=10_000, lags=1).start()
        >>> for week in range(2):
        ...     monitor.update(range(6_000 * week, 6_000 * week + 10_000))
        ...     count = monitor.tick()
        >>> returned = monitor.algorithm.at(monitor.state, "back 1")
        >>> abs(returned.value / 4_000 - 1) < 0.3
        True

    Reference: docs/proofs/retention.md.
    """

    state_type: ClassVar[type[Any]] = RetainedState
    proof: ClassVar[str] = "retention.md"
    theorem: ClassVar[str] = "Theorem 1"

    expected: float
    lags: int = 4
    cohorts: int = 13
    buckets: int | None = None
    levels: int = _LEVELS
    key: int = 0
    hash: StringHash = "fold"
    epsilon_state: float | None = None
    table: Bitmap = field(init=False, repr=False, compare=False)
    rates: RetainedRates = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self._check_numbers()
        checks.require_integer_in_range(1, MAX_LAGS, lags=self.lags)
        checks.require_integer_in_range(1, 1000, cohorts=self.cohorts)
        if not 0 < self.expected < math.inf:
            raise InvalidParameter(f"expected must be a positive number of users, got expected={self.expected}")
        if self.buckets is None:
            wanted = math.ceil(math.log2(_CELLS_PER_USER * self.expected) - 0.5)
            buckets = min(max(1 << max(wanted, 0), _MIN_BUCKETS), _MAX_BUCKETS)
            object.__setattr__(self, "buckets", buckets)
        assert self.buckets is not None
        if self.epsilon_state is None:
            split = _best_split(self.epsilon, self.buckets, self.levels, self.lags, self.expected)
            object.__setattr__(self, "epsilon_state", split)
        assert self.epsilon_state is not None
        if not (0 < self.epsilon_state < self.epsilon or math.isinf(self.epsilon)):
            raise InvalidParameter(f"epsilon_state must be below epsilon, got epsilon_state={self.epsilon_state}")
        table = Bitmap(
            epsilon=self.epsilon,
            epsilon_state=None if math.isinf(self.epsilon) else self.epsilon_state,
            buckets=self.buckets,
            levels=self.levels,
            expected=self.expected,
            key=self.key,
            hash=self.hash,
        )
        object.__setattr__(self, "table", table)
        object.__setattr__(self, "rates", retained_rates(self.epsilon, self.epsilon_state, self.lags))

    @property
    def retained_windows(self) -> int:
        """Return how many windows that are over stay in the state."""
        return self.lags

    def claim(self) -> Claim:
        """Return the most that one user's rows in one window lose to one copy at any time and all answers."""
        finite = math.isfinite(self.epsilon)
        assert self.epsilon_state is not None
        return Claim(
            epsilon=self.epsilon,
            unit="user-window",
            parts=state_and_output(self.epsilon, self.epsilon_state) if finite else {},
            intrusions=Intrusions(unannounced=1, announced=0),
            inputs="adaptive",
            releases=-1 if self.horizon is None else self.horizon,
            horizon=self.horizon,
            public=("the hash function and its key", "how many windows there were"),
            note=f"a copy also shows the noisy cells of the last {self.lags} windows, each at {self.epsilon_state:.3g}"
            if finite
            else "no noise: for tests only",
        )

    def window_loss(self) -> WindowLoss:
        """Return the loss with a copy while the window is open, while it is retained, and without one."""
        assert self.epsilon_state is not None
        return retained_window_loss(self.epsilon, self.epsilon_state, self.rates.exponent(self.lags))

    def layout(self) -> Mapping[str, FieldLayout]:
        """Return one bit per cell and window, and the released numbers of the last windows."""
        return {
            "bits": FieldLayout("packed", (self.table.cells,)),
            "retained": FieldLayout("packed", (self.lags, self.table.cells)),
            "ones": FieldLayout("i8", (self.cohorts + self.lags, self.levels)),
            "both": FieldLayout("i8", (self.cohorts, self.lags, self.levels)),
            "ticks": FieldLayout("int", at_least=0, below=self.last_slot + 1),
        }

    def initial_state(self, rng: NoiseSource) -> RetainedState:
        """Return untouched cells for the open window and for those before the first, in which nobody came."""
        bits = draw_packed_bits(self.table.law.absent, self.table.cells, rng)
        retained = np.empty((self.lags, bits.size), np.uint8)
        for row in retained:
            draw_packed_bits(self.table.law.absent, self.table.cells, rng, row)
        return RetainedState(
            bits=bits,
            retained=retained,
            ones=np.zeros((self.cohorts + self.lags, self.levels), np.int64),
            both=np.zeros((self.cohorts, self.lags, self.levels), np.int64),
            ticks=0,
        )

    def batch(self, ids: Any) -> ItemBatch:
        """Check ids: integers, strings or bytes in a list, NumPy, Arrow, pandas or polars column.

        Args:
            ids: The ids, one per row.
        """
        return items(ids)

    def update(self, state: RetainedState, batch: ItemBatch, rng: NoiseSource) -> None:
        """Redraw the cells of the batch; raise BudgetExhausted after the last window."""
        self.require_slots(state.ticks, 1)
        self.table.update(state.cells, batch, rng)

    def tick(self, state: RetainedState, rng: NoiseSource) -> Estimate:
        """Close the window, release its numbers, and return how many users it had."""
        from panstream.primitives.kernels.algorithms.packed_bits import count_set_bits

        self.require_slots(state.ticks, 1)
        buckets = self.table.buckets
        with Scratch() as scratch:  # exact numbers of noisy cells, which must be wiped
            counts = scratch.array((1 + self.lags) * self.levels, np.int64)
            counts.fill(0)
            numbers = counts.reshape(1 + self.lags, self.levels)
            count_set_bits(state.bits, state.retained[:0], buckets, numbers[:1])
            patterns = scratch.array(2 * self.levels, np.int64).reshape(2, self.levels)
            for lag in range(self.lags):
                patterns.fill(0)
                count_set_bits(state.bits, state.retained[lag : lag + 1], buckets, patterns)
                numbers[1 + lag] = patterns[1]
            rng.add_discrete_laplace(counts[: self.levels], self._law(self.rates.of_count))
            rng.add_discrete_laplace(counts[self.levels :], self._law(self.rates.of_pair))
            for table, newest in ((state.ones, numbers[0]), (state.both, numbers[1:])):
                table[1:] = table[:-1].copy()
                table[0] = newest
        for row in range(self.lags - 1, 0, -1):  # in place: a temporary copy would outlive the oldest window
            state.retained[row] = state.retained[row - 1]
        state.retained[0] = state.bits
        draw_packed_bits(self.table.law.absent, self.table.cells, rng, state.bits)
        state.ticks += 1
        return self._count(state)

    def tick_many(self, state: RetainedState, values: Sequence[Any], rng: NoiseSource) -> Estimates:
        """Take the ids of one window after another, close each, and return how many users they had.

        Args:
            state: The state, which is changed.
            values: The ids of each window.
            rng: Source of the noise.
        """
        return tick_each(self, state, values, rng)

    def release(self, state: RetainedState, rng: NoiseSource) -> Estimate:
        """Return the number of users of the last window again, which is public."""
        self.require_tick(state.ticks)
        return self._count(state)

    def refresh(self, state: RetainedState, rng: NoiseSource) -> None:
        """Raise NotSupported: a second copy of an open window has no finite loss."""
        raise NotSupported("RetainedBitmap covers one intrusion: a second copy would show every change of a bit")

    def at(self, state: RetainedState, what: str) -> Estimate:
        """Return what is computed from the released numbers after a tick, without further loss.

        Args:
            state: The state after a tick.
            what: "new", "back k" or "rate k", as `RetentionCounts.answer` says, over the last ``cohorts`` windows.
        """
        self.require_tick(state.ticks)
        return RetentionCounts(self.model, state.ones, state.both, state.ticks).answer(what, self.claim())

    @property
    def label(self) -> str:
        """Return what the estimate is called."""
        return "distinct users"

    @property
    def model(self) -> PairModel:
        """Return the law of the released numbers of two windows."""
        return _pair_model(self.table.law.decoder, self.table.buckets, self.levels, self.rates)

    def moments(self) -> LevelMoments:
        """Return the moments of the decoded cells of one window."""
        law = self.table.law
        noise = self._law(self.rates.of_count).variance
        return _window_moments(law.decoder, self.table.buckets, self.levels, noise)

    def overlap_error(self, users: float, share: float = _SHARE) -> float:
        """Return the standard error of how many of ``users`` users came again, if a ``share`` of them did."""
        weights = np.array([1.0, 1.0, -1.0])
        covariance = self.model.covariance(np.array([users, users, (2.0 - share) * users]))
        return math.sqrt(max(float(weights @ covariance @ weights), 0.25))

    def expected_estimate(self, ticks: int, users: float) -> Estimate:
        """Return the number of a window in which every level is as full as expected.

        Args:
            ticks: Number of windows, on which it does not depend.
            users: How many users the window has.
        """
        moments = self.moments()
        return Likelihood(moments, moments.at(users)[0]).estimate(self.claim(), ())

    def error_bound(self, *, beta: float, users: float | None = None) -> float:
        """Return the error of a window's count that is exceeded with probability at most ``beta``.

        Args:
            users: Number of users in the window.
            beta: Probability of a larger error.
        """
        from panstream.algorithms.distinct.likelihood import count_error_bound

        return count_error_bound(self.moments().relative_error, self.expected if users is None else users, beta)

    def _law(self, rate: float) -> DiscreteLaplace:
        return DiscreteLaplace.at_most(rate)

    def _count(self, state: RetainedState) -> Estimate:
        decoder = self.table.law.decoder
        empty = self.table.buckets * decoder.zero + state.ones[0] * (decoder.one - decoder.zero)
        released = (*state.ones[0].tolist(), *state.both[0].ravel().tolist())
        return Likelihood(self.moments(), empty).estimate(self.claim(), released)


@lru_cache(maxsize=64)
def _window_moments(decoder: Decoder, buckets: int, levels: int, noise: float) -> LevelMoments:
    return LevelMoments.of(decoder, buckets=buckets, levels=levels, noise=noise)


@lru_cache(maxsize=64)
def _pair_model(decoder: Decoder, buckets: int, levels: int, rates: RetainedRates) -> PairModel:
    of_count = laplace_variance(rates.of_count)
    return PairModel(buckets, levels, decoder, decoder, (of_count, of_count, laplace_variance(rates.of_pair)))


@lru_cache(maxsize=256)
def _best_split(epsilon: float, buckets: int, levels: int, lags: int, users: float) -> float:
    """Return the epsilon_state with which overlaps at ``users`` users a window have the smallest error."""
    checks.require_positive(epsilon=epsilon)
    if math.isinf(epsilon):
        return math.inf
    sizes = np.array([users, users, (2.0 - _SHARE) * users])
    weights = np.array([1.0, 1.0, -1.0])

    def error(state: float) -> float:
        decoder = Decoder.redrawn(present_probability(state))
        model = _pair_model(decoder, buckets, levels, retained_rates(epsilon, state, lags))
        return float(weights @ model.covariance(sizes) @ weights)

    return minimise(error, 0.2 * epsilon, 0.995 * epsilon, 1e-4)
