"""Distinct users and densities at every tick, from secret-shared exact bits and a tree of noise."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from panstream.algorithms.continual.least_squares_tree import LeastSquaresTree
from panstream.algorithms.continual.noise_sum_tails import NoiseParts
from panstream.algorithms.density.optbern import OptBern
from panstream.algorithms.distinct.likelihood import Likelihood
from panstream.algorithms.secret_shared.counted_bits import NoisyBitCounts
from panstream.algorithms.secret_shared.presence import SharedDensity, SharedDistinct, best_layout, level_moments
from panstream.core.estimate import Estimate
from panstream.errors import InvalidParameter
from panstream.primitives import validation as checks
from panstream.primitives.hashing import StringHash
from panstream.primitives.noise import DiscreteLaplace
from panstream.privacy.bitmap_loss import LevelMoments
from panstream.privacy.claim import Claim
from panstream.privacy.secret_shared_loss import moved_by_changes, shared_claim, shared_law

_MEMORY = (1 << 16, 1 << 17, 1 << 18)  # bytes of a bitmap that is sized for a number of users
_CLOSE = 1.05  # the smallest is taken whose error is at most this many times that of the largest


@dataclass(frozen=True, slots=True)
class TreeNoise:
    """Both machines' noise in every answer of a tree over the changes of numbers of set bits.

    Args:
        epsilon: Loss of one user.
        ticks: Number of answers.
        radices: Children per node from the leaves up; empty to choose them for ``ticks``.
        changes: Most changes of one user's bit.
    """

    epsilon: float
    ticks: int
    radices: tuple[int, ...] = ()
    changes: int = 1

    def __post_init__(self) -> None:
        plain = LeastSquaresTree(epsilon=1.0, horizon=self.ticks, radices=tuple(self.radices))
        object.__setattr__(self, "radices", plain.radices)

    @property
    def law(self) -> DiscreteLaplace:
        """Return the distribution of each machine's draws."""
        return shared_law(self.epsilon, moved_by_changes(len(self.radices), self.changes))

    def mean_variance(self) -> float:
        """Return the variance of an answer's noise, on average over the ticks."""
        mean, _ = LeastSquaresTree(epsilon=1.0, horizon=self.ticks, radices=self.radices).noise()
        return 2.0 * mean * self.law.variance


def beats_paying(epsilon: float, ticks: int, changes: int = 1) -> bool:
    """Return whether answers with a tree's noise have less error than answers that are paid for one by one.

    >>> [beats_paying(1.0, ticks) for ticks in (2, 3, 10)]
    [False, True, True]
    """
    if math.isinf(epsilon):
        return False
    return TreeNoise(epsilon, ticks, (), changes).mean_variance() < 2.0 * shared_law(epsilon, ticks).variance


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedContinualDensity(SharedDensity):
    """The fraction, or number, of a known population that is present, at every tick, from one exact bit per user.

    Privacy:
        Unit: user; any of one user's rows may be added or removed. Any number of copies of one machine at a time, and
        all answers, lose exactly ``epsilon`` = 2·changes·h·kappa for a tree of h levels: with and without the rows, her
        bit changes ``changes`` times at most. All of her rows against none of them lose half of it.

    Error:
        That of `LeastSquaresTree` at half of ``epsilon``, with the noise of two machines: 95% error about 60 users over
        1,000 ticks at epsilon 1, whatever the population is, where paying for every answer has 3,920.

    Args:
        releases: Number of ticks; every answer is one.
        deletions: Whether rows may remove users; then ``changes`` must be declared.
        changes: How often one user may come or leave, from one answer to the next. This is an assumption about the rows
            where they may remove users; else a user comes once.
        radices: Children per node of the tree over time, from the leaves up; chosen for ``releases``.
    """

    kind: ClassVar[str] = "counted"
    theorem: ClassVar[str] = "Theorem 2"

    changes: int = 1
    radices: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        checks.require_at_least(1, changes=self.changes, releases=self.releases)
        if self.noisy:
            raise InvalidParameter("noisy cells change with every arrival: only exact ones can be counted by a tree")
        if self.changes > 1 and not self.deletions:
            raise InvalidParameter("changes needs deletions: without them, a user comes only once")
        SharedDensity._build_plain(self, OptBern, universe=self.universe)
        object.__setattr__(self, "radices", TreeNoise(1.0, self.releases, tuple(self.radices)).radices)

    @property
    def law(self) -> DiscreteLaplace:
        """Return the distribution of each machine's draws."""
        return TreeNoise(self.epsilon, self.releases, self.radices, self.changes).law

    def claim(self) -> Claim:
        """Return the claim, and what a user as a whole loses."""
        claim = shared_claim(self.epsilon, "user", self.releases, "the universe")
        if math.isinf(self.epsilon):
            return claim
        note = f"all rows of one user against none of them lose {self.epsilon / 2:.6g}"
        if self.deletions:
            note += f"; declared: a user comes or leaves at most {self.changes} times, from one answer to the next"
        return replace(claim, note=note)

    @property
    def rule(self) -> NoisyBitCounts:  # type: ignore[override]
        """Return the rule of one bit per user, all counted together, and a tree of noise."""
        return NoisyBitCounts(cells=self.plain.cells, radices=self.radices, noise=self.law, releases=self.releases)

    def noise_parts(self, number: int) -> tuple[NoiseParts, float]:
        """Return both machines' draws in the answer after ``number`` ticks, and the variance of rounding."""
        rule = self.rule
        return ((2.0 * rule.variance(number), self.law),), rule.rounding


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedContinualDistinct(SharedDistinct):
    """The number of distinct users that appeared, at every tick, for ids of any kind, from a bitmap of exact cells.

    Privacy:
        Unit: user; any of one user's rows may be added or removed. Any number of copies of one machine at a time, and
        all answers, lose exactly ``epsilon`` = 2·h·kappa for a tree of h levels: her cell is set at one tick with the
        rows, and at another or never without them, since other users may share it.

    Error:
        That of linear counting on each level, with the noise of `SharedContinualDensity`: 95% error about 64 users over
        1,000 ticks at epsilon 1 for 20,000 users in 256 KB, where paying for every answer has 3,920.

    Args:
        releases: Number of ticks; every answer is one.
        radices: Children per node of the tree over time, from the leaves up; chosen for ``releases``.
    """

    kind: ClassVar[str] = "counted"
    theorem: ClassVar[str] = "Theorem 2"

    radices: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        checks.require_at_least(1, releases=self.releases)
        if self.noisy:
            raise InvalidParameter("noisy cells change with every arrival: only exact ones can be counted by a tree")
        SharedDistinct.__post_init__(self)
        object.__setattr__(self, "radices", TreeNoise(1.0, self.releases, tuple(self.radices)).radices)

    @classmethod
    def sized(
        cls,
        epsilon: float,
        *,
        expected: float | None,
        memory: int | None = None,
        releases: int = 1,
        key: int = 0,
        hash: StringHash = "fold",
    ) -> SharedContinualDistinct:
        """Return the bitmap with the smallest error at ``expected`` users and at eight times as many.

        Without ``memory`` it takes 64 to 256 KB: as little as has almost the error of the largest. Without both it has
        the default layout.
        """
        rest: dict[str, Any] = {"epsilon": epsilon, "releases": releases, "key": key, "hash": hash}
        if expected is None and memory is None:
            return cls(**rest)
        noise = TreeNoise(epsilon, releases).mean_variance()
        users = float(expected or 1e6)
        sizes = _MEMORY if memory is None else (memory,)
        layouts = {size: best_layout(8 * size, users, noise) for size in sizes}
        _, smallest = layouts[sizes[-1]]
        size = next(size for size in sizes if layouts[size][1] <= _CLOSE * smallest)
        levels, _ = layouts[size]
        return cls(buckets=8 * size // levels, levels=levels, **rest)

    @property
    def law(self) -> DiscreteLaplace:
        """Return the distribution of each machine's draws."""
        return TreeNoise(self.epsilon, self.releases, self.radices).law

    @property
    def rule(self) -> NoisyBitCounts:  # type: ignore[override]
        """Return the rule of bits that are counted level by level, and a tree of noise for each."""
        return NoisyBitCounts(
            cells=self.table.cells, rows=self.levels, radices=self.radices, noise=self.law, releases=self.releases
        )

    def noise_variance(self, number: int) -> float:
        """Return the variance of both machines' noise after ``number`` ticks, and of rounding."""
        rule = self.rule
        return 2.0 * rule.variance(number) * self.law.variance + rule.rounding

    def estimate(self, opened: Sequence[int], number: int) -> Estimate:
        """Return the most likely number of users after ``number`` ticks."""
        empty = self.buckets - np.array(opened, np.float64)
        return Likelihood(self.moments(number), empty, self._coarse).estimate(self.claim(), tuple(opened))

    @property
    def _coarse(self) -> LevelMoments:
        return level_moments(self.buckets, self.levels, TreeNoise(self.epsilon, self.releases).mean_variance())
