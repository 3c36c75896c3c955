"""Presence from secret-shared exact bits: distinct users in a bitmap, users of a known population, edges of a graph."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from statistics import NormalDist
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from panstream.algorithms.continual.noise_sum_tails import NoiseParts, half_width, noise_variance
from panstream.algorithms.density.graph_density import GraphDensity
from panstream.algorithms.density.optbern import OptBern
from panstream.algorithms.density.presence import Presence, PresenceBatch
from panstream.algorithms.density.universe import Members
from panstream.algorithms.distinct.bitmap import Bitmap
from panstream.algorithms.distinct.likelihood import Likelihood
from panstream.algorithms.randomized_bits import CoinPair
from panstream.algorithms.secret_shared.ring import Bits
from panstream.algorithms.secret_shared.share_rules import Dealt, OverwrittenBits
from panstream.algorithms.secret_shared.statistic import SharedStatistic
from panstream.core.estimate import Estimate
from panstream.errors import InvalidParameter
from panstream.primitives import validation as checks
from panstream.primitives.hashing import StringHash
from panstream.primitives.inputs import ItemBatch
from panstream.primitives.kernels.algorithms.packed_bits import pack
from panstream.primitives.kernels.algorithms.secret_shares import mark_last
from panstream.primitives.memory.scratch import Scratch, wipe
from panstream.primitives.noise import DiscreteLaplace, NoiseSource
from panstream.primitives.packed_bits import draw_packed_bits
from panstream.privacy.bitmap_loss import Decoder, LevelMoments
from panstream.privacy.claim import Claim, Unit
from panstream.privacy.secret_shared_loss import noisy_claim, shared_claim, shared_law

_EXACT = Decoder.redrawn(1.0)
_DEFAULT_MEMORY = 1 << 16  # bytes of a bitmap
_HEADROOM = 8.0  # a layout must also serve this many times the expected number of users,
_HEADROOM_ERROR = 1.5  # where its relative error may be this many times as large


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedDistinct(SharedStatistic):
    """The number of distinct users that appeared, for ids of any kind, from a bitmap whose cells are exact.

    Privacy:
        Unit: user; any of one user's rows may be added or removed. Any number of copies of one machine at a time, and
        all releases, lose ``epsilon``; copies of both machines in one epoch reveal the exact cells.

    Error:
        That of linear counting on each level, with the noise of two draws: .0041 at epsilon 1 and 100,000 users in 48
        KB, where one machine's default has .032.

    Args:
        epsilon: Total loss; ``math.inf`` switches all noise off, for tests.
        buckets: Columns of the bitmap; cells are bits, in memory and when stored.
        levels: Rows of the bitmap, each for half as many ids as the one before.
        releases: How many estimates will be published.
        key: Public number that picks the hash function.
        hash: Of strings, "fold" or, at half the speed, "siphash", which withstands chosen ids
            if ``key`` is secret; integers have a hash function of their own.
        noisy: Whether cells are drawn as on one machine, so that both machines in one epoch,
            once, are covered too; the error is that of one machine then, with twice the noise
            of its answers.
    """

    kind: ClassVar[str] = "overwritten"

    epsilon: float
    buckets: int = 16384
    levels: int = 24
    releases: int = 1
    key: int = 0
    hash: StringHash = "fold"
    noisy: bool = False
    table: Bitmap = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        checks.require_positive(epsilon=self.epsilon)
        epsilon = self.epsilon if self.noisy else math.inf
        plain = Bitmap(
            epsilon=epsilon,
            buckets=self.buckets,
            levels=self.levels,
            releases=self.releases,
            key=self.key,
            hash=self.hash,
        )
        object.__setattr__(self, "table", plain)

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
    ) -> SharedDistinct:
        """Return the bitmap within ``memory`` bytes with the smallest error at ``expected`` and at eight times as many.

        Without both it has the default layout.
        """
        rest: dict[str, Any] = {"epsilon": epsilon, "releases": releases, "key": key, "hash": hash}
        if expected is None and memory is None:
            return cls(**rest)
        noise = 2 * shared_law(epsilon, releases).variance
        levels, _ = best_layout(8 * (memory or _DEFAULT_MEMORY), float(expected or 1e6), noise)
        return cls(buckets=8 * (memory or _DEFAULT_MEMORY) // levels, levels=levels, **rest)

    @property
    def law(self) -> DiscreteLaplace:
        """Return the noise that each machine adds to an answer."""
        return self.table.law.noise if self.noisy else shared_law(self.epsilon, self.releases)

    def claim(self) -> Claim:
        """Return the claim; with ``noisy`` it also covers one copy of both machines in one epoch."""
        if self.noisy:
            return noisy_claim(self.table.claim())
        return shared_claim(self.epsilon, "user", self.releases, "the hash function and its key")

    @property
    def rule(self) -> OverwrittenBits:
        """Return the rule of bits that are counted level by level."""
        return OverwrittenBits(cells=self.table.cells, rows=self.levels, noise=self.law, releases=self.releases)

    def noise_variance(self, number: int) -> float:
        """Return the variance of both machines' noise in the ``number``-th answer."""
        return 2 * self.law.variance

    def moments(self, number: int = 1) -> LevelMoments:
        """Return the moments of the empty cells on every level, with both machines' noise."""
        return level_moments(self.buckets, self.levels, self.noise_variance(number), self.table.law.decoder)

    def relative_error(self, users: float, number: int = 1) -> float:
        """Return the standard error of the count at ``users`` in the ``number``-th answer, divided by ``users``."""
        return self.moments(number).relative_error(users)

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
        """Return which cells are touched and what they become, packed: 1, or a draw if cells are noisy."""
        touched = pack_cells(change[0])
        if self.noisy:
            return draw_cells(touched, touched, self.table.cells, self.table.law, rng, fresh=fresh)
        return touched, touched

    def estimate(self, opened: Sequence[int], number: int) -> Estimate:
        """Return the most likely number of users."""
        ones = np.array(opened, np.float64)
        decoder = self.table.law.decoder
        empty = decoder.zero * (self.buckets - ones) + decoder.one * ones
        return Likelihood(self.moments(number), empty).estimate(self.claim(), tuple(opened))

    def expected_estimate(self, users: float, number: int = 1) -> Estimate:
        """Return the ``number``-th answer in which every level is as full as expected after ``users`` users."""
        moments = self.moments(number)
        return Likelihood(moments, moments.at(users)[0]).estimate(self.claim(), ())


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedDensity(SharedStatistic):
    """The fraction, or number, of a known population that is present, from one exact bit per user.

    Privacy:
        As `SharedDistinct`; where rows may delete, the last row of a user counts.

    Error:
        That of two draws of noise, whatever the population is: 1.92 users at epsilon 1.

    Args:
        universe: Number of users (ids 0..U-1), or the public list of their ids.
        epsilon: Total loss; ``math.inf`` switches all noise off, for tests.
        releases: How many estimates will be published.
        deletions: Whether rows may remove users (presence toggles; excludes announced
            intrusions).
        key: Public number that picks the sample.
        count: Whether the answer is the number of users that came instead of their fraction.
        noisy: Whether cells are drawn as on one machine, so that both machines in one epoch,
            once, are covered too; the error is that of one machine then, with twice the noise
            of its answers.
    """

    kind: ClassVar[str] = "overwritten"
    _unit: ClassVar[Unit] = "user"
    _public_fact: ClassVar[str] = "the universe"

    universe: Members
    epsilon: float
    releases: int = 1
    deletions: bool = False
    key: int = 0
    count: bool = False
    noisy: bool = False
    plain: Presence = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self._build_plain(OptBern, universe=self.universe)

    def _build_plain(self, kind: type[Presence], **options: Any) -> None:
        """Set ``plain``, the algorithm of one machine that maps rows to cells; without noise unless ``noisy``."""
        checks.require_positive(epsilon=self.epsilon)
        epsilon = self.epsilon if self.noisy else math.inf
        plain = kind(epsilon=epsilon, releases=self.releases, deletions=self.deletions, key=self.key, **options)
        object.__setattr__(self, "universe", plain.universe)
        object.__setattr__(self, "plain", plain)

    @property
    def law(self) -> DiscreteLaplace:
        """Return the noise that each machine adds to an answer."""
        return self.plain.law.noise if self.noisy else shared_law(self.epsilon, self.releases)

    def claim(self) -> Claim:
        """Return the claim; with ``noisy`` it also covers one copy of both machines in one epoch."""
        if self.noisy:
            return noisy_claim(self.plain.claim())
        return shared_claim(self.epsilon, self._unit, self.releases, self._public_fact)

    @property
    def rule(self) -> OverwrittenBits:
        """Return the rule of one bit per user, all counted together."""
        return OverwrittenBits(cells=self.plain.cells, noise=self.law, releases=self.releases)

    def noise_parts(self, number: int) -> tuple[NoiseParts, float]:
        """Return both machines' draws in the ``number``-th answer, and the variance of other errors."""
        coins = self.plain.law  # p0 = 0 and p1 = 1 where cells are exact
        return ((2.0, self.law),), self.plain.cells * coins.p1 * coins.p0 if self.noisy else 0.0

    def standard_error(self, users: float, number: int = 1) -> float:
        """Return the standard error in users, which does not depend on how many are present."""
        parts, other = self.noise_parts(number)
        return math.sqrt(noise_variance(parts) + other) / self._gap

    @property
    def _gap(self) -> float:
        return self.plain.law.p1 - self.plain.law.p0 if self.noisy else 1.0

    def batch(self, ids: Any = None, weight: Any = None, *, insert: Any = None, delete: Any = None) -> PresenceBatch:
        """Check ids, weights of +1 and -1, inserts and deletes, as on one machine."""
        return self.plain.batch(ids, weight, insert=insert, delete=delete)

    def empty_buffer(self) -> Dealt:
        """Return two bytes per user, all 0: whether a row touched the user, and whether she is present then."""
        cells = self.plain.cells
        return np.zeros(cells, np.uint8), np.zeros(cells, np.uint8)

    def accumulate(self, change: Dealt, batch: PresenceBatch, scratch: Scratch) -> None:
        """Set the presence of every row's user; the last row of a user counts."""
        for cells, *weights in self.plain.cell_updates(batch, scratch):
            mark_last(change[0], change[1], cells, weights[0] if weights else np.ones(cells.size, np.int8))

    def to_dense_update(self, change: Dealt, rng: NoiseSource, *, fresh: bool = False) -> Dealt:
        """Return which users are touched and what they become, packed: their presence, or a draw if cells are noisy."""
        touched = pack_cells(change[0])
        present = pack_cells(change[1])
        if self.noisy:
            drawn = draw_cells(touched, present, self.plain.cells, self.plain.law, rng, fresh=fresh)
            wipe(present)
            return drawn
        return touched, present

    def estimate(self, opened: Sequence[int], number: int) -> Estimate:
        """Return the fraction of users that are present, or their number."""
        baseline = self.plain.law.p0 * self.plain.cells if self.noisy else 0.0
        return self._read((opened[0] - baseline) / self._gap, tuple(opened), number)

    def expected_estimate(self, users: float, number: int = 1) -> Estimate:
        """Return the ``number``-th answer if ``users`` are present and all draws were 0."""
        return self._read(min(users, float(self.plain.cells)), (), number)

    def _read(self, users: float, released: tuple[int, ...], number: int) -> Estimate:
        size = 1.0 if self.count else float(self.plain.cells)

        def rule(level: float) -> tuple[float, float]:
            if self.noisy:
                half = NormalDist().inv_cdf((1 + level) / 2) * self.standard_error(users)
            else:
                parts, other = self.noise_parts(number)
                half = half_width(level, parts, other)
            return (users - half) / size, (users + half) / size

        return Estimate.clipped(
            users / size,
            (0.0, self.plain.cells / size),
            standard_error=self.standard_error(users, number) / size,
            claim=self.claim(),
            name=self._name,
            released=released,
            interval_rule=rule,
        )

    @property
    def _name(self) -> str:
        return "distinct users" if self.count else "density"


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedGraphDensity(SharedDensity):
    """The fraction of a graph's possible edges that are present, from one exact bit per edge.

    Privacy:
        Unit: edge; else as `SharedDensity`. Whether a vertex takes part at all is not protected.

    Args:
        deletions: Whether rows may remove edges.
        count: Whether the answer is the number of edges instead of their fraction.
        vertices: Number of vertices, which are numbered from 0.
    """

    _unit: ClassVar[Unit] = "edge"
    _public_fact: ClassVar[str] = "the vertices"

    vertices: int
    universe: Members = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.vertices > 1 << 14:
            raise InvalidParameter(f"vertices must be at most {1 << 14}: every pair has a cell, got {self.vertices}")
        self._build_plain(GraphDensity, vertices=self.vertices)

    def batch(self, edges: Any = None, weight: Any = None, *, insert: Any = None, delete: Any = None) -> PresenceBatch:
        """Check edges, as on one machine.

        Args:
            edges: The edges; each is an arrival.
            weight: +1 for arrivals and -1 for deletions, one for all edges or one each.
            insert: Edges that arrive.
            delete: Edges that are deleted.
        """
        assert isinstance(self.plain, GraphDensity)
        return self.plain.batch(edges, weight, insert=insert, delete=delete)

    @property
    def _name(self) -> str:
        return "edges" if self.count else "graph density"


def pack_cells(cells: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return bytes of 0 and 1 as packed bits."""
    bits = np.empty((cells.size + 7) // 8, np.uint8)
    pack(cells, bits)
    return bits


@lru_cache(maxsize=256)
def level_moments(buckets: int, levels: int, noise: float, decoder: Decoder = _EXACT) -> LevelMoments:
    """Return the moments of the empty cells of a bitmap, with noise of that variance on every level."""
    return LevelMoments.of(decoder, buckets=buckets, levels=levels, noise=noise)


def best_layout(cells: int, users: float, noise: float) -> tuple[int, float]:
    """Return into how many levels to divide exact cells, and the relative error at ``users``, or a bound of it."""

    def worst(levels: int) -> float:
        law = level_moments(cells // levels, levels, noise)
        return max(law.relative_error(users), law.relative_error(_HEADROOM * users) / _HEADROOM_ERROR)

    errors = {levels: worst(levels) for levels in range(1, 25)}
    levels = min(errors, key=lambda levels: errors[levels])
    return levels, errors[levels]


def draw_cells(
    touched: Bits, there: Bits, cells: int, law: CoinPair, rng: NoiseSource, *, fresh: bool
) -> tuple[Bits, Bits]:
    """Return which cells are touched and what they become, packed.

    A cell becomes a toss of ``law.present`` where ``there`` is 1, of ``law.absent`` elsewhere. In the step that starts
    a state (``fresh``) all cells are touched. So cells are noisy under their shares too (``cells = "noisy"``): an
    attacker who copies both machines in one epoch, once, learns what one copy of a single machine shows
    (docs/proofs/two-machines.md).
    """
    # values ^ (there & (present ^ values)) selects without a branch and without temporary copies of exact bits.
    present = draw_packed_bits(law.present, cells, rng)
    values = draw_packed_bits(law.absent, cells, rng)
    present ^= values
    present &= there
    values ^= present
    wipe(present)
    if fresh:
        touched.fill(255)
    return touched, values
