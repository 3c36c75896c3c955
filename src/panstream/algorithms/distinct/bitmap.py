"""Bitmap: how many distinct users appeared, for ids of any kind, from a mergeable table of noisy bits."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from panstream.algorithms.distinct.bitmap_base import SiteBitmap
from panstream.algorithms.distinct.merged_bitmap import MergedBitmap
from panstream.algorithms.randomized_bits import BitState, CoinPair
from panstream.errors import MergeError
from panstream.primitives.inputs import ItemBatch, items
from panstream.primitives.memory.scratch import Scratch, wipe
from panstream.primitives.noise import NoiseSource
from panstream.privacy.bitmap_loss import bitmap_split
from panstream.privacy.joint_loss import kappa_for


@dataclass(frozen=True, slots=True, kw_only=True)
class Bitmap(SiteBitmap):
    """The number of distinct users that appeared, for ids of any kind from an open universe.

    An id is hashed to one cell of ``levels`` rows of ``buckets`` bits, to level j with probability 2**-(j+1). A cell
    starts as a coin of probability 1/(1+R), R = e**epsilon_state, and every arrival redraws it with probability
    R/(1+R). The noisy numbers of ones per level are released, and the most likely number of users is computed from
    them.

    Privacy:
        Unit: user; any of one user's occurrences may be added or removed. The joint view of one copy of the state at
        any time and of all releases, in either order, loses exactly ``epsilon``. Noise enters with every cell and with
        every release (discrete Laplace on each level's number of ones; one user changes one of them by one). Two
        unannounced copies have no finite loss. Replacing one user by another costs 2·epsilon. The hash key is public:
        an attacker who chooses ids can choose cells and so falsify the count, but never gains privacy loss.
        Proof: docs/proofs/bitmap.md, Theorem 1.

    Error:
        Standard error sqrt(1/I(n) - n), I the Fisher information of the levels' counts. Relative to n it levels off at
        c/sqrt(buckets), c = 3.4, 1.76, 1.005, .72 for epsilon_state .5, 1, 2, 4, from n of a few times ``buckets``
        up to buckets·2**levels/8; below, the absolute error stays as it is at n = buckets.

    Merging:
        ``a.merge(b)`` consumes both. *Routed shards* (``shards=n, owned=i``, users sent where ``route`` says; others
        are ignored) own different cells and merge without loss under the same claim. *Sites* that may have seen the
        same users merge by a noisy OR into a `MergedBitmap`, whose claim adds up and whose cells are noisier.
        Noisy merges of private sketches are the subject of a patent application, US20240256530.

    Examples:
        >>> monitor = Bitmap(epsilon=1.0).start()
        >>> monitor.update([f"user {i}" for i in range(50_000)])
        >>> monitor.update([f"user {i}" for i in range(20_000)])
        >>> abs(monitor.release().value / 50_000 - 1) < 0.2
        True

    Reference: Hehir, Ting, Cormode, "Sketch-Flip-Merge" (2023), made pan-private; docs/proofs/bitmap.md.
    """

    theorem: ClassVar[str] = "Theorem 1"

    @property
    def law(self) -> CoinPair:
        """Return the symmetric pair of coins and the release noise at the best split."""
        return CoinPair.symmetric(*self._split())

    def _split(self) -> tuple[float, float]:
        if self.epsilon_state is not None:
            return self.epsilon_state, kappa_for(self.epsilon, self.epsilon_state, self.releases, self.announced)
        return bitmap_split(self.epsilon, self.buckets, self.levels, self._tuned_for, self.releases, self.announced)

    @property
    def sites(self) -> tuple[float, ...]:
        """Return the epsilon_state of every site merged into this bitmap: its own."""
        return (self.law.epsilon_state,)

    def batch(self, ids: Any) -> ItemBatch:
        """Check ids: integers, strings or bytes in a list, NumPy, Arrow, pandas or polars column.

        Args:
            ids: The ids, one per row.
        """
        return items(ids)

    def route(self, ids: Any) -> NDArray[np.int64]:
        """Return for every row the shard, in 0..shards-1, that its user belongs to.

        Args:
            ids: The ids, one per row.
        """
        batch = items(ids)
        shards = np.empty(len(batch), np.int64)
        done = 0
        try:
            with Scratch() as scratch:
                for cells in self.table.rows(batch, scratch):
                    shards[done : done + cells.size] = cells % self.buckets % self.shards
                    done += cells.size
        finally:
            batch.wipe()
        return shards

    def merge(
        self, mine: BitState, other: Any, theirs: BitState, rng: NoiseSource
    ) -> tuple[Bitmap | MergedBitmap, BitState]:
        """Return the union of routed shards, or the noisy OR of sites with the same cells; inputs are wiped.

        Args:
            mine: State of this algorithm.
            other: The other site's algorithm.
            theirs: Its state.
            rng: Source of the noise.
        """
        self.require_compatible(mine, other, theirs)
        if isinstance(other, Bitmap) and not set(self.table.owned) & set(other.table.owned):
            return self._union(mine, other, theirs)
        return MergedBitmap.of(self, mine, other, theirs, rng)

    def _union(self, mine: BitState, other: Bitmap, theirs: BitState) -> tuple[Bitmap, BitState]:
        owned = tuple(sorted(self.table.owned + other.table.owned))
        merged = replace(self, shards=1, owned=None) if len(owned) == self.shards else replace(self, owned=owned)
        if replace(other, owned=self.owned) != self or len(mine.frozen) != len(theirs.frozen):
            raise MergeError(
                "shards must be built with the same parameters and have seen the same announced intrusions"
            )
        state = BitState(
            bits=mine.bits | theirs.bits,
            frozen=mine.frozen | theirs.frozen,
            released=max(mine.released, theirs.released),  # a user is in one shard and pays for its releases only
        )
        wipe(mine.bits)
        wipe(theirs.bits)
        return merged, state
