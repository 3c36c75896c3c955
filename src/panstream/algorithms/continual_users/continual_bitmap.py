"""ContinualBitmap: how many distinct users have appeared, for ids of any kind, at every tick."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from panstream.algorithms.continual_users.ones_counter import PublicView, SetBitCounter
from panstream.algorithms.continual_users.release_strategies import TUNED_TICKS, StrategyInputs
from panstream.algorithms.distinct.bitmap import Bitmap
from panstream.algorithms.distinct.likelihood import Likelihood, count_error_bound
from panstream.core.estimate import Estimate
from panstream.primitives.hashing import StringHash
from panstream.privacy.bitmap_loss import Floats, LevelMoments, level_rates, reference_users
from panstream.privacy.budget_split import laplace_variance

_HALF_FULL = 0.5  # the levels that carry most information on a count have about half of their cells occupied
_ROUNDS = 2  # iterations: the best weight of the start depends on the count that is being estimated


@dataclass(frozen=True, slots=True, kw_only=True)
class ContinualBitmap(SetBitCounter):
    """The number of distinct users that have appeared so far, for ids of any kind, at every tick.

    The cells are those of `Bitmap`; each level's number of ones is published as in `ContinualDensity`, and the most
    likely number of users is computed from them.

    Privacy:
        As for `ContinualDensity`: a user has one cell, on one level. Other users of the cell redraw it as she does.
        With ``contributions=K`` their rows may lie between hers, so 2K changes are paid for. Deletions are refused: the
        cell may belong to another present user as well.
        Proof: docs/proofs/continual-users.md, Theorem B.

    Error:
        Standard error sqrt(1/I(n) - n), I the Fisher information of the published numbers.

    Args:
        key: Public number that picks the hash function.
        buckets: Columns of the bitmap.
        rows_of_cells: Levels of the bitmap.
        hash: Hash of strings: "fold" or, at half the speed, "siphash", which withstands chosen
            ids if `key` is secret.

    Examples:
        >>> monitor = ContinualBitmap(epsilon=1.0, horizon=100).start()
        >>> for hour in range(3):
        ...     monitor.update([f"user {i}" for i in range(20_000 * hour, 20_000 * hour + 30_000)])
        ...     estimate = monitor.tick()
        >>> abs(estimate.value / 70_000 - 1) < 0.5
        True

    """

    theorem: ClassVar[str] = "Theorem B"

    buckets: int = 4096
    rows_of_cells: int = 24
    hash: StringHash = "fold"
    table: Bitmap = field(init=False, repr=False, compare=False)
    coarse: LevelMoments = field(init=False, repr=False, compare=False)  # at half of the horizon: starts every search

    def __post_init__(self) -> None:
        SetBitCounter.__post_init__(self)
        object.__setattr__(self, "table", self._bitmap(self.strategy.epsilon_state))
        noise, _ = self.noise_at(max(1, (self.horizon or TUNED_TICKS) // 2))
        object.__setattr__(self, "coarse", self._moments(self._shares(np.full(self.width, _HALF_FULL)), noise))

    def check(self) -> None:
        """Raise InvalidParameter if a parameter breaks its rule."""
        self._bitmap(None)

    def _bitmap(self, epsilon_state: float | None) -> Bitmap:
        share = None if epsilon_state is None or math.isinf(epsilon_state) else epsilon_state
        return Bitmap(
            epsilon=self.epsilon,
            buckets=self.buckets,
            levels=self.rows_of_cells,
            expected=self.expected,
            epsilon_state=share,
            key=self.key,
            hash=self.hash,
        )

    @property
    def strategy_inputs(self) -> StrategyInputs:
        """Return what is published and what is protected."""
        rows = None if self.contributions is None else 2 * self.contributions
        one_level = self.rows_of_cells == 1 and self.expected is not None
        density = float(self._touched(self.expected)[0]) if one_level and self.expected else _HALF_FULL
        return self._inputs_for(self.buckets, density, rows=rows)

    @property
    def width(self) -> int:
        """Return how many numbers of ones are published: one for every level of the table."""
        return self.rows_of_cells

    @property
    def public_facts(self) -> tuple[str, ...]:
        """Return what is public besides the answers."""
        return ("the hash function and its key", "how many ticks there were")

    @property
    def label(self) -> str:
        """Return what the estimate is called."""
        return "distinct users"

    @property
    def planned(self) -> float:
        """Return ``expected``, or a number in the middle of the table's range."""
        return self.expected or reference_users(self.buckets, self.rows_of_cells)

    def decode(self, seen: PublicView) -> Estimate:
        """Return the most likely number of users; the start is subtracted with the weight of smallest variance."""
        law = self.table.law
        base = seen.start - self.buckets * law.p0 if self.strategy.start else np.zeros(self.width)
        top = seen.sums + (-self.buckets * law.p0 if self.pays_per_release else base)
        touched = np.full(self.width, _HALF_FULL)
        for _ in range(_ROUNDS if self.strategy.start else 1):
            share, moments = self._law(touched, seen.noise)
            empty: Floats = self.buckets - (top - share * base) / (law.p1 - law.p0)
            estimate = Likelihood(moments, empty, self.coarse).estimate(self.claim(), seen.released)
            touched = self._touched(estimate.value)
        return estimate

    def _law(self, touched: Floats, noise: float) -> tuple[Any, LevelMoments]:
        """Return the weight of the start, and the moments of the decoded empty cells with it."""
        if self.strategy.start:
            shares = self._shares(touched)
            return shares, self._moments(shares, noise)
        law = self.table.law  # if the start is not published, only the noise differs from tick to tick
        return self.strategy.best_share(self.buckets, _HALF_FULL), replace(
            self.coarse, noise=noise / (law.p1 - law.p0) ** 2
        )

    def _touched(self, users: float) -> Floats:
        """Return the expected share of each level's cells that ``users`` users occupy."""
        touched: Floats = -np.expm1(-users * level_rates(self.buckets, self.rows_of_cells))
        return touched

    def _shares(self, touched: Floats) -> Floats:
        return np.array([self.strategy.best_share(self.buckets, float(part)) for part in touched])

    def _moments(self, share: Floats, noise: float) -> LevelMoments:
        """Return the moments of the decoded empty cells.

        A bit has the variance p0·p1·(1-share)² in an untouched cell and p0·p1·(1 + share²) in a redrawn one.
        """
        law = self.table.law
        gap = (law.p1 - law.p0) ** 2
        start_weight = share if self.pays_per_release else 1.0 - share
        first = laplace_variance(self.strategy.start) if self.strategy.start else 0.0
        return LevelMoments(
            cells=self.buckets,
            rates=level_rates(self.buckets, self.rows_of_cells),
            second_empty=1.0 + law.p0 * law.p1 / gap * (1.0 - share) ** 2,
            second_occupied=law.p0 * law.p1 / gap * (1.0 + share**2),
            noise=(start_weight**2 * first + noise) / gap,
        )

    def expected_estimate(self, ticks: int, users: float) -> Estimate:
        """Return the answer after ``ticks`` ticks if ``users`` have appeared and every draw were 0."""
        law = self.table.law
        ones = self.buckets * ((law.p1 - law.p0) * self._touched(users) + (law.p0 if self.pays_per_release else 0.0))
        start = np.full(self.width, round(self.buckets * law.p0), np.int64)
        noise, draw = self.noise_at(ticks)
        return self.decode(PublicView(ones, noise, draw, start))

    def relative_error(self, users: float, ticks: int | None = None) -> float:
        """Return the standard error of the count at ``users`` after ``ticks`` ticks, divided by ``users``.

        ``ticks`` is the horizon by default; without both the noise grows without end and the error is infinite.
        """
        if self.error_without_noise(ticks) == math.inf:
            return math.inf
        noise, _ = self.noise_at(ticks or self.last_slot)
        return self._moments(self._shares(self._touched(users)), noise).relative_error(users)

    def error_bound(self, *, beta: float, ticks: int | None = None, users: float | None = None) -> float:
        """Return the error after ``ticks`` ticks that is exceeded with probability at most ``beta``.

        It holds for any number of users up to ``users``, which is ``expected`` unless given.
        """
        return count_error_bound(
            lambda count: self.relative_error(count, ticks), self.expected if users is None else users, beta
        )
