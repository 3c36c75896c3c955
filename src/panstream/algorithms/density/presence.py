"""One noisy bit per sampled user: the state and steps shared by OptBern and the other density estimators.

A user's bit is drawn from ``absent`` at the start and after a delete, and redrawn from ``present`` at every arrival, so
the state depends on a user's rows only through the coin that was tossed last. The sample is the first m users of a
public keyed permutation of the universe; the state is m bits and a count of releases.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from panstream.algorithms.density.universe import Members, Universe, as_members
from panstream.algorithms.randomized_bits import (
    MAX_PHASES,
    BitState,
    CoinPair,
    RandomizedBits,
    bit_claim,
    score_interval,
)
from panstream.core.algorithm import consume_release
from panstream.core.estimate import Estimate, normal_laplace_quantile
from panstream.core.shardable import Touches
from panstream.errors import InvalidBatch, InvalidParameter, NotSupported
from panstream.primitives import validation as checks
from panstream.primitives.inputs import integers
from panstream.primitives.kernels.algorithms.packed_bits import count_set_bits, redraw, scatter, select_coin
from panstream.primitives.memory.scratch import Scratch
from panstream.primitives.noise import NoiseSource
from panstream.primitives.packed_bits import unpack_bits
from panstream.privacy.bitmap_loss import Decoder
from panstream.privacy.budget_split import density_split
from panstream.privacy.claim import Claim

_CHUNK = 1 << 17  # rows permuted at a time: their cells take 1 MiB of working memory


@dataclass(frozen=True, slots=True, eq=False)
class PresenceBatch:
    """Cells of one batch, and weights +1 or -1 where some rows are deletes."""

    cells: NDArray[np.int64]
    weights: NDArray[np.int64] | None
    owned: tuple[NDArray[Any], ...]

    def __len__(self) -> int:
        return int(self.cells.size)

    def wipe(self) -> None:
        """Overwrite the copies made of the input."""
        for array in self.owned:
            array.fill(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Presence(RandomizedBits):
    """Base of the algorithms with one bit per sampled user. Subclasses give the coins (``law``).

    Args:
        universe: Number of users (ids 0..U-1), or the public list of their ids.
        epsilon: Total loss; ``math.inf`` switches all noise off, for tests.
        sample: How many users have a bit; all of them by default, which has no sampling error.
        releases: How many estimates will be published.
        deletions: Whether rows may remove users (presence toggles; excludes announced intrusions).
        announced: How many announced intrusions to pay for in advance; each is covered only if no row was applied
            between the copy and the refresh.
        key: Public number that picks the sample.
    """

    proof: ClassVar[str] = "joint-loss.md"

    universe: Members
    epsilon: float
    sample: int | None = None
    releases: int = 1
    deletions: bool = False
    announced: int = 0
    key: int = 0
    population: Universe = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "universe", as_members(self.universe))
        object.__setattr__(self, "population", Universe(self.universe, self.sample, self.key))
        checks.require_positive(epsilon=self.epsilon)
        checks.require_at_least(1, releases=self.releases)
        checks.require_integer_in_range(0, MAX_PHASES, announced=self.announced)
        if self.announced and self.deletions:
            raise InvalidParameter("announced intrusions cannot be combined with deletions=True")

    @property
    @abstractmethod
    def law(self) -> CoinPair:
        """Return the two coins of a bit and the release noise."""

    def _optimal_law(self) -> CoinPair:
        """Return the symmetric pair of coins and the release noise at the split of epsilon with the smallest error."""
        return CoinPair.symmetric(*density_split(self.epsilon, self.cells, self.releases, self.announced))

    def claim(self) -> Claim:
        """Return the exact joint loss of one copy at any time and all releases, in either order."""
        state = self.law.epsilon_state
        return bit_claim(self.epsilon, state, self.announced, self.releases, "the universe, the sample and its key")

    @property
    def cells(self) -> int:
        """Return m, the number of stored bits."""
        return self.population.sampled

    @property
    def update_columns(self) -> tuple[type[np.generic], ...]:
        """Return the weight, -1 for a delete, where there are deletes."""
        return (np.int8,) if self.deletions else ()

    @property
    def is_idempotent(self) -> bool:
        """Return True where nothing is ever deleted."""
        return not self.deletions

    def refresh(self, state: BitState, rng: NoiseSource) -> None:
        """Freeze the array that was copied and draw a new one; at most ``announced`` times, as the claim covers."""
        if self.deletions:
            raise NotSupported("refresh cannot be combined with deletions=True: presence could not be decoded")
        RandomizedBits.refresh(self, state, rng)

    def cell_updates(self, batch: PresenceBatch, scratch: Scratch) -> Iterator[Touches]:
        """Yield the cells of the rows, and their weights where some rows are deletes."""
        population = self.population
        moved = scratch.array(min(_CHUNK, len(batch)) if population.permuted else 0, np.int64)
        for start in range(0, len(batch), _CHUNK):
            cells = batch.cells[start : start + _CHUNK]
            if population.permuted:
                cells = population.permute(cells, moved[: cells.size])
            yield (cells,) if batch.weights is None else (cells, batch.weights[start : start + _CHUNK])

    def apply_updates(self, state: BitState, touches: Touches, rng: NoiseSource) -> None:
        """Redraw the bit of every row, in order; a delete draws it as for an absent user."""
        cells = touches[0]
        law = self.law
        coins = rng.bernoulli(law.present, cells.size)
        if len(touches) > 1:
            select_coin(coins, rng.bernoulli(law.absent, cells.size), touches[1])
        if self.population.permuted:
            redraw(state.bits, self.cells, cells, coins)
        else:
            scatter(state.bits, cells, coins)

    def batch(self, ids: Any = None, weight: Any = None, *, insert: Any = None, delete: Any = None) -> PresenceBatch:
        """Check ids, or ``insert=`` and ``delete=`` (inserts first), or ids with a ``weight`` per row.

        A row of any positive weight is an appearance: presence does not depend on how often a user appeared. A weight
        of -1 is a delete. Deleting a user who never appeared is allowed: the bit is re-drawn as for an absent user.
        """
        if ids is not None and (insert is not None or delete is not None):
            raise InvalidBatch("give either ids or insert= and delete=")
        if ids is None:
            return self._from_inserts_and_deletes(insert, delete)
        cells, owned = self.population.indices_of(ids)
        if weight is None:
            return PresenceBatch(cells, None, owned)
        weights, copied = integers(
            np.full(cells.size, weight, np.int64) if isinstance(weight, int) else weight,
            name="weight",
            lower=-1 if self.deletions else 1,
        )
        if weights.size != cells.size:
            raise InvalidBatch(f"weight must have one value per id, got {weights.size} for {cells.size}")
        zeros = np.flatnonzero(weights == 0)
        if zeros.size:
            raise InvalidBatch("weight must be positive, or -1 for a delete", row=int(zeros[0]))
        owned = (*owned, weights) if copied else owned
        if not self.deletions:
            return PresenceBatch(cells, None, owned)
        signs = np.sign(weights)
        return PresenceBatch(cells, signs, (*owned, signs))

    def _from_inserts_and_deletes(self, insert: Any, delete: Any) -> PresenceBatch:
        if insert is None and delete is None:
            raise InvalidBatch("ids are missing")
        if delete is None:
            return Presence.batch(self, insert)
        if not self.deletions:
            raise InvalidBatch("deletes need an algorithm built with deletions=True")
        first, first_owned = self.population.indices_of([] if insert is None else insert)
        second, second_owned = self.population.indices_of(delete)
        cells = np.concatenate([first, second])
        weights = np.repeat(np.array([1, -1], np.int64), [first.size, second.size])
        return PresenceBatch(cells, weights, (*first_owned, *second_owned, cells, weights))

    def release(self, state: BitState, rng: NoiseSource) -> Estimate:
        """Publish the number of ones of each frozen pattern (one pattern if nothing was announced), with noise."""
        state.released = consume_release(state.released, self.releases)
        law = self.law
        phases = len(state.frozen)
        ones = np.zeros((1 << phases, 1), np.int64)
        count_set_bits(state.bits, state.frozen, self.cells, ones)  # without an unpacked copy of the state
        rng.add_discrete_laplace(ones.reshape(-1), law.noise)
        sizes = np.bincount(_pattern_of(state.frozen, self.cells), minlength=1 << phases) if phases else [self.cells]
        return self._decode(tuple(int(count) for count in ones[:, 0]), np.asarray(sizes), phases)

    def _decode(self, released: tuple[int, ...], sizes: NDArray[np.int64], phases: int) -> Estimate:
        # A user is absent only if every phase drew her bit as absent, so the number of absent users is a weighted sum
        # over the patterns of frozen bits; the weights invert the coins phase by phase (joint-loss.md, Theorem 3).
        law = self.law
        gap = law.p1 - law.p0
        weights = Decoder.redrawn(law.p1, law.p0).pattern_weights(phases)
        absent = float(weights @ (law.p1 * sizes - np.array(released))) / (gap * self.cells)
        density = 1.0 - absent
        kappa = law.noise.kappa * gap * self.cells / math.sqrt(float(weights @ weights))

        def rule(level: float) -> tuple[float, float]:
            return self._interval(density, phases, kappa, level)

        noise = law.noise.variance * float(weights @ weights) / (gap * self.cells) ** 2
        inside = min(max(density, 0.0), 1.0)
        return Estimate.clipped(
            density,
            (0.0, 1.0),
            standard_error=math.sqrt(self._variance(inside, phases) + noise),
            claim=self.claim(),
            name="density",
            released=released,
            interval_rule=rule,
        )

    def expected_estimate(self, users: float) -> Estimate:
        """Return the release that has the expected number of ones after ``users`` users, without announced copies."""
        law = self.law
        density = min(users / self.population.size, 1.0)
        return self._decode((round(self.cells * (law.p0 + (law.p1 - law.p0) * density)),), np.array([self.cells]), 0)

    def _variance(self, density: float, phases: int = 0) -> float:
        """Return the variance of the estimate at ``density``, without the release noise."""
        law = self.law
        gap = law.p1 - law.p0
        v0 = law.p0 * (1 - law.p0) / gap**2
        v1 = law.p1 * (1 - law.p1) / gap**2
        absent = (1 + v0) ** (phases + 1) - 1
        present = v1 * (1 + v0) ** phases
        bits = (density * present + (1 - density) * absent) / self.cells
        total = self.population.size
        # Finite-population factor: m of U users are drawn without replacement.
        unsampled_fraction = (total - self.cells) / (total - 1) if total > 1 else 0.0
        return bits + density * (1 - density) / self.cells * unsampled_fraction

    def _interval(self, density: float, phases: int, kappa: float, level: float) -> tuple[float, float]:
        """Return the densities that the release does not reject at ``level`` (score interval)."""
        # The estimate is a multiple of 1/(m(p1-p0)); half of that corrects for the normal approximation of an integer.
        step = 0.5 / (self.cells * (self.law.p1 - self.law.p0)) if math.isfinite(kappa) else 0.0

        def reach(truth: float, above: bool) -> float:
            """Return how far the estimate may lie above or below ``truth``.

            Each side rejects (1 - level)/2. Within two standard deviations of 0 or 1 the side towards the end gives
            part of that to the other side, so that the coverage is ``level`` up to the ends and no interval shrinks to
            a point.
            """
            sigma = math.sqrt(self._variance(truth, phases))
            spread = 2 * math.hypot(sigma, math.sqrt(2) / kappa)
            ahead, behind = (1 - truth, truth) if above else (truth, 1 - truth)  # distance to the end on either side
            share = 1.0 if spread == 0.0 else 1 + min(1.0, ahead / spread) - min(1.0, behind / spread)
            return normal_laplace_quantile(max(share, 1e-9) * (1 - level) / 2, sigma, kappa) + step

        return score_interval(density, lambda truth: reach(truth, True), lambda truth: reach(truth, False))

    def error_bound(self, *, beta: float) -> float:
        """Return the additive error of the density that is exceeded with probability at most ``beta``.

        The number of ones is taken as normal here; ``panstream.algorithms.planning.density`` has the exact tails.
        """
        checks.require_probability(beta=beta)
        law = self.law
        gap = law.p1 - law.p0
        weights = Decoder.redrawn(law.p1, law.p0).pattern_weights(self.announced)
        kappa = law.noise.kappa * gap * self.cells / math.sqrt(float(weights @ weights))
        sigma = math.sqrt(max(self._variance(d / 64, self.announced) for d in range(65)))
        return normal_laplace_quantile(beta / 2, sigma, kappa) + 0.5 / (self.cells * gap)


def _pattern_of(frozen: NDArray[np.uint8], cells: int) -> NDArray[np.intp]:
    """Return for every cell the public number whose bit j is the cell's frozen bit of phase j."""
    pattern = np.zeros(cells, np.intp)
    for phase, row in enumerate(frozen):
        pattern |= unpack_bits(row, cells).astype(np.intp) << phase
    return pattern
