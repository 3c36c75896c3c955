"""Presence as shares of exact bits: distinct users in a bitmap, users of a known population, edges of a graph."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from statistics import NormalDist
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from panstream.algorithms.continual.laplace_sum_tails import half_width
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
from panstream.privacy.claim import Claim
from panstream.privacy.secret_shared_loss import noisy_claim, shared_claim, shared_law

_EXACT = Decoder.redrawn(1.0)
_MEMORY = 1 << 16  # bytes of a bitmap, unless more is allowed
# a layout is judged at the expected number, and at so many times that
_REACH = 8.0
_WORSE = 1.5


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedDistinct(SharedStatistic):
    """The number of different users that came, for ids of any kind, from a bitmap whose cells are exact.

    Privacy:
        Unit: user; any of one user's rows may be added or removed. Any number of looks at one machine at a time, and
        all releases, lose ``epsilon``; both machines in one epoch show the exact cells.

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
            if you keep ``key`` to yourself; integers have a hash function of their own.
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
        """Return the bitmap within ``memory`` bytes that is best at the expected number and still good at eight times
        as many; the default layout where no number is expected.
        """
        rest: dict[str, Any] = {"epsilon": epsilon, "releases": releases, "key": key, "hash": hash}
        if expected is None and memory is None:
            return cls(**rest)
        cells = 8 * (memory or _MEMORY)
        users = float(expected or 1e6)
        noise = 2 * shared_law(epsilon, releases).variance

        def worst(levels: int) -> float:
            law = _moments(cells // levels, levels, noise)
            return max(law.relative_error(users), law.relative_error(_REACH * users) / _WORSE)

        levels = min(range(1, 25), key=worst)
        return cls(buckets=cells // levels, levels=levels, **rest)

    @property
    def law(self) -> DiscreteLaplace:
        """Return the law of each machine's draws."""
        return self.table.law.noise if self.noisy else shared_law(self.epsilon, self.releases)

    def claim(self) -> Claim:
        """Return what is promised."""
        if self.noisy:
            return noisy_claim(self.table.claim())
        return shared_claim(self.epsilon, "user", self.releases, "the hash function and its key")

    @property
    def rule(self) -> OverwrittenBits:
        """Return bits, counted level by level."""
        return OverwrittenBits(cells=self.table.cells, rows=self.levels, noise=self.law, releases=self.releases)

    @property
    def moments(self) -> LevelMoments:
        """Return the law of the empty cells on every level, with both machines' noise."""
        return _moments(self.buckets, self.levels, 2 * self.law.variance, self.table.law.decoder)

    def relative_error(self, users: float) -> float:
        """Return the standard error of the count at ``users``, divided by ``users``."""
        return self.moments.relative_error(users)

    def batch(self, ids: Any) -> ItemBatch:
        """Check ids of any kind."""
        return self.table.batch(ids)

    def empty_buffer(self) -> Dealt:
        """Return marks of all cells."""
        return (np.zeros(self.table.cells, np.uint8),)

    def accumulate(self, change: Dealt, batch: ItemBatch, scratch: Scratch) -> None:
        """Mark the cells of a batch."""
        self.table.mark_cells(batch, change[0], scratch)

    def to_dense_update(self, change: Dealt, rng: NoiseSource, *, fresh: bool = False) -> Dealt:
        """Return which cells are touched; all of them become 1, or are drawn."""
        touched = _packed(change[0])
        if self.noisy:
            return draw_cells(touched, touched, self.table.cells, self.table.law, rng, fresh=fresh)
        return touched, touched

    def estimate(self, opened: Sequence[int], number: int) -> Estimate:
        """Return the likeliest number of users."""
        ones = np.array(opened, np.float64)
        decoder = self.table.law.decoder
        return self._read(decoder.zero * (self.buckets - ones) + decoder.one * ones, tuple(opened))

    def expected_estimate(self, users: float) -> Estimate:
        """Return what an answer gives where every level is as full as expected when ``users`` came."""
        return self._read(self.moments.at(users)[0], ())

    def _read(self, empty: NDArray[np.float64], released: tuple[int, ...]) -> Estimate:
        likelihood = Likelihood(self.moments, empty)
        fit = likelihood.fit()
        return Estimate.clipped(
            fit.unbiased,
            (0.0, math.inf),
            standard_error=fit.standard_error,
            claim=self.claim(),
            name="distinct users",
            released=released,
            interval_rule=lambda level: likelihood.interval(fit, level),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedDensity(SharedStatistic):
    """The fraction, or number, of a known population that is present, from one exact bit a user.

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

    universe: Members
    epsilon: float
    releases: int = 1
    deletions: bool = False
    key: int = 0
    count: bool = False
    noisy: bool = False
    plain: Presence = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self._keep(OptBern, universe=self.universe)

    def _keep(self, kind: type[Presence], **options: Any) -> None:
        """Build the algorithm of one machine, whose cells are exact unless they are noisy here too."""
        checks.require_positive(epsilon=self.epsilon)
        epsilon = self.epsilon if self.noisy else math.inf
        plain = kind(epsilon=epsilon, releases=self.releases, deletions=self.deletions, key=self.key, **options)
        object.__setattr__(self, "universe", plain.universe)
        object.__setattr__(self, "plain", plain)

    @property
    def law(self) -> DiscreteLaplace:
        """Return the law of each machine's draws."""
        return self.plain.law.noise if self.noisy else shared_law(self.epsilon, self.releases)

    def claim(self) -> Claim:
        """Return what is promised."""
        if self.noisy:
            return noisy_claim(self.plain.claim())
        return shared_claim(self.epsilon, "user", self.releases, "the universe")

    @property
    def rule(self) -> OverwrittenBits:
        """Return one bit a user, counted together."""
        return OverwrittenBits(cells=self.plain.cells, noise=self.law, releases=self.releases)

    def standard_error(self, users: float) -> float:
        """Return the standard error in users, however many came."""
        coins = self.plain.law  # p0 = 0 and p1 = 1 where cells are exact
        tossed = self.plain.cells * coins.p1 * coins.p0 if self.noisy else 0.0
        return math.sqrt(tossed + 2 * self.law.variance) / self._gap

    @property
    def _gap(self) -> float:
        return self.plain.law.p1 - self.plain.law.p0 if self.noisy else 1.0

    def batch(self, ids: Any = None, weight: Any = None, *, insert: Any = None, delete: Any = None) -> PresenceBatch:
        """Check ids, weights of +1 and -1, inserts and deletes, as on one machine."""
        return self.plain.batch(ids, weight, insert=insert, delete=delete)

    def empty_buffer(self) -> Dealt:
        """Return which users are touched, and what becomes of them."""
        cells = self.plain.cells
        return np.zeros(cells, np.uint8), np.zeros(cells, np.uint8)

    def accumulate(self, change: Dealt, batch: PresenceBatch, scratch: Scratch) -> None:
        """Let every row overwrite its user, in order."""
        for cells, *weights in self.plain.cell_updates(batch, scratch):
            mark_last(change[0], change[1], cells, weights[0] if weights else np.ones(cells.size, np.int8))

    def to_dense_update(self, change: Dealt, rng: NoiseSource, *, fresh: bool = False) -> Dealt:
        """Return both, packed, or what is drawn."""
        touched = _packed(change[0])
        there = _packed(change[1])
        if self.noisy:
            drawn = draw_cells(touched, there, self.plain.cells, self.plain.law, rng, fresh=fresh)
            wipe(there)
            return drawn
        return touched, there

    def estimate(self, opened: Sequence[int], number: int) -> Estimate:
        """Return the number of users present over that of all, or itself."""
        baseline = self.plain.law.p0 * self.plain.cells if self.noisy else 0.0
        return self._read((opened[0] - baseline) / self._gap, tuple(opened))

    def expected_estimate(self, users: float) -> Estimate:
        """Return what an answer gives when ``users`` are present and no noise moved it."""
        return self._read(min(users, float(self.plain.cells)), ())

    def _read(self, users: float, released: tuple[int, ...]) -> Estimate:
        size = 1.0 if self.count else float(self.plain.cells)

        def rule(level: float) -> tuple[float, float]:
            if self.noisy:
                half = NormalDist().inv_cdf((1 + level) / 2) * self.standard_error(users)
            else:
                half = half_width(level, ((2.0, self.law),))
            return (users - half) / size, (users + half) / size

        return Estimate.clipped(
            users / size,
            (0.0, self.plain.cells / size),
            standard_error=self.standard_error(users) / size,
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
    """The fraction of a graph's possible edges that are present, from one exact bit an edge.

    Privacy:
        Unit: edge; else as `SharedDensity`. Whether a vertex takes part at all is not protected.

    Args:
        epsilon: Total loss; ``math.inf`` switches all noise off, for tests.
        releases: How many estimates will be published.
        deletions: Whether rows may remove users (presence toggles; excludes announced
            intrusions).
        key: Public number that picks the sample.
        count: Whether the answer is the number of users that came instead of their fraction.
        vertices: Number of vertices, which are numbered from 0.
    """

    vertices: int
    universe: Members = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.vertices > 1 << 14:
            raise InvalidParameter(f"vertices must be at most {1 << 14}: every pair has a cell, got {self.vertices}")
        self._keep(GraphDensity, vertices=self.vertices)

    def claim(self) -> Claim:
        """Return what is promised for one edge."""
        if self.noisy:
            return noisy_claim(self.plain.claim())
        return shared_claim(self.epsilon, "edge", self.releases, "the vertices")

    def batch(self, edges: Any = None, weight: Any = None, *, insert: Any = None, delete: Any = None) -> PresenceBatch:
        """Check edges, as on one machine."""
        assert isinstance(self.plain, GraphDensity)
        return self.plain.batch(edges, weight, insert=insert, delete=delete)

    @property
    def _name(self) -> str:
        return "edges" if self.count else "graph density"


def _packed(cells: NDArray[np.uint8]) -> NDArray[np.uint8]:
    bits = np.empty((cells.size + 7) // 8, np.uint8)
    pack(cells, bits)
    return bits


@lru_cache(maxsize=256)
def _moments(buckets: int, levels: int, noise: float, decoder: Decoder = _EXACT) -> LevelMoments:
    return LevelMoments.of(decoder, buckets=buckets, levels=levels, noise=noise)


def draw_cells(
    touched: Bits, there: Bits, cells: int, law: CoinPair, rng: NoiseSource, *, fresh: bool
) -> tuple[Bits, Bits]:
    """Return which cells are touched and what they become, packed: a toss of ``law.present`` where somebody is
    ``there``, of ``law.absent`` elsewhere. In the step that starts a state (``fresh``) all cells are touched.

    So cells are noisy under their shares too (``cells = "noisy"``): whoever sees both machines in one epoch, once, sees
    what one look at one machine shows. docs/proofs/two-machines.md.
    """
    present = draw_packed_bits(law.present, cells, rng)
    values = draw_packed_bits(law.absent, cells, rng)
    present ^= values
    present &= there
    values ^= present
    wipe(present)
    if fresh:
        touched.fill(255)
    return touched, values
