"""MergedBitmap: the noisy OR of the bitmaps of several sites that may have seen the same users."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np

from panstream.algorithms.distinct.bitmap_base import BitmapCounter
from panstream.algorithms.randomized_bits import BitState, CoinPair
from panstream.errors import InvalidParameter, MergeError, NotSupported
from panstream.primitives import validation as checks
from panstream.primitives.inputs import ItemBatch, items
from panstream.primitives.memory.scratch import wipe
from panstream.primitives.noise import Coin, DiscreteLaplace, NoiseSource, symmetric_coins
from panstream.primitives.packed_bits import draw_packed_bits
from panstream.privacy.bitmap_loss import merged_claim, merged_flip, merged_loss, noisy_or
from panstream.privacy.claim import Claim, Intrusions
from panstream.privacy.person_loss import WindowLoss
from panstream.privacy.rounding import state_and_output

_SHARED = ("buckets", "levels", "releases", "key", "hash", "shards", "owned")


@dataclass(frozen=True, slots=True, kw_only=True)
class MergedBitmap(BitmapCounter):
    """The number of distinct users that appeared at any of several sites, each of which had its own noisy bitmap.

    It is the result of ``merge``. The noisy OR turns each pair of bits into one whose flip probability p* follows from
    the sites' own: 1 - e**-eps* = product of (1 - e**-eps_site). It can be updated, merged again and released.

    Privacy:
        Unit: user; any of one user's occurrences, at any of the sites, may be added or removed. A user may be at every
        site, so the sites' losses **add up**. The claim covers as many copies as there were sites: one at each
        site before the merge (sending a state to where it is merged counts as a copy), or at all sites but one and at
        the merged state. All sites and the merged state together have no finite loss. ``loss`` gives the
        figure for any other choice. Noisy merges of private sketches are the subject of a patent application,
        US20240256530.
        Proof: docs/proofs/bitmap.md, Theorem 2.

    Error:
        As for `Bitmap` with epsilon_state = eps*: two sites of epsilon_state 1 have eps* = .51.

    Args:
        buckets: As in the sites.
        levels: As in the sites.
        expected: As in the sites.
        releases: As in the sites.
        key: As in the sites.
        hash: As in the sites.
        shards: As in the sites.
        owned: As in the sites.
        sites: Epsilon_state of every site.
        kappa: Decay rate of the release noise, the smallest of the sites'.

    Examples:
        >>> from panstream.algorithms.distinct.bitmap import Bitmap
        >>> london, paris = (Bitmap(epsilon=2.0).start() for _ in range(2))
        >>> london.update(range(30_000))
        >>> paris.update(range(20_000, 50_000))
        >>> both = london.merge(paris)
        >>> abs(both.release().value / 50_000 - 1) < 0.2
        True

    Reference: Hehir, Ting, Cormode, "Sketch-Flip-Merge" (2023); claim: docs/proofs/bitmap.md, Theorem 2.
    """

    theorem: ClassVar[str] = "Theorem 2"

    sites: tuple[float, ...]
    kappa: float

    def __post_init__(self) -> None:
        self.check()
        object.__setattr__(self, "sites", tuple(self.sites))
        if len(self.sites) < 2 or not all(site > 0 for site in self.sites):
            raise InvalidParameter("sites must be two or more positive epsilon_state")
        checks.require_positive(kappa=self.kappa)

    @property
    def law(self) -> CoinPair:
        """Return the coins of the merged cells: flipped with probability p*."""
        return _merged_law(self.sites, self.kappa)

    def loss(self, *, seen: Collection[int], merged: bool = False) -> float:
        """Return the exact loss of some copies and all releases together.

        Args:
            seen: Sites, numbered as in ``sites``, whose state was copied once before the merge.
            merged: Whether the merged state was copied once.
        """
        return merged_loss(self.sites, self.kappa, self.releases, seen=seen, merged=merged)

    def window_loss(self) -> WindowLoss:
        """Return the joint loss for all: a user's bit was drawn at several sites."""
        return WindowLoss.of_claim(self.claim())

    def claim(self) -> Claim:
        """Return the exact loss of as many copies as there were sites, chosen among the sites and the merged state."""
        epsilon = merged_claim(self.sites, self.kappa, self.releases)
        private = math.isfinite(epsilon)
        return Claim(
            epsilon=epsilon,
            unit="user",
            parts=state_and_output(epsilon, *self.sites),
            intrusions=Intrusions(unannounced=len(self.sites)),
            inputs="adaptive",
            releases=self.releases,
            public=("the hash function and its key",),
            note="one look at each site, or at all but one and the merged state"
            if private
            else "no noise: for tests only",
        )

    @classmethod
    def of(
        cls, mine: Any, my_state: BitState, other: Any, their_state: BitState, rng: NoiseSource
    ) -> tuple[MergedBitmap, BitState]:
        """Return the noisy OR of two bitmaps over the same cells, and wipe both.

        Args:
            mine: One site's algorithm.
            my_state: Its state.
            other: The other site's algorithm.
            their_state: Its state.
            rng: Source of the noise.
        """
        from panstream.primitives.kernels.algorithms.packed_bits import noisy_or as combine

        if mine.table.owned != other.table.owned:
            raise MergeError("bitmaps must own the same shards to be merged by a noisy OR")
        if my_state.released or their_state.released:
            raise MergeError("a site that has released cannot be merged: its users would be paid for twice")
        if len(my_state.frozen) or len(their_state.frozen):
            raise MergeError("a site that was refreshed after an announced intrusion cannot be merged by a noisy OR")
        # The bits (1, 0), (0, 1) and (1, 1) of the two sites each have a coin of their own; (0, 0) stays 0. That makes
        # the result a bit flipped with probability p* (bitmap.md, Theorem 2). Coins and both inputs are wiped.
        chances = noisy_or(mine.law.absent.probability, other.law.absent.probability)
        first, second, both = (draw_packed_bits(Coin.at_most(chance), mine.table.cells, rng) for chance in chances)
        bits = np.empty_like(my_state.bits)
        combine(my_state.bits, their_state.bits, first, second, both, bits)
        for used in (my_state.bits, their_state.bits, first, second, both):
            wipe(used)
        merged = cls(
            sites=mine.sites + other.sites,
            kappa=min(mine.law.noise.kappa, other.law.noise.kappa),
            **{name: getattr(mine, name) for name in _SHARED},
            expected=_larger(mine.expected, other.expected),
        )
        return merged, BitState(bits=bits, frozen=np.empty((0, bits.size), np.uint8), released=0)

    def batch(self, ids: Any) -> ItemBatch:
        """Check ids: integers, strings or bytes in a list, NumPy, Arrow, pandas or polars column.

        Args:
            ids: The ids, one per row.
        """
        return items(ids)

    def refresh(self, state: BitState, rng: NoiseSource) -> None:
        """Raise NotSupported: the claim of a merged state has no budget for an announced intrusion."""
        raise NotSupported("a merged bitmap cannot be refreshed; refresh the sites before they are merged")

    def merge(self, mine: BitState, other: Any, theirs: BitState, rng: NoiseSource) -> tuple[MergedBitmap, BitState]:
        """Return the noisy OR with a further site or merged bitmap; inputs are wiped.

        Args:
            mine: State of this algorithm.
            other: The other site's algorithm.
            theirs: Its state.
            rng: Source of the noise.
        """
        self.require_compatible(mine, other, theirs)
        return MergedBitmap.of(self, mine, other, theirs, rng)


@lru_cache(maxsize=256)
def _merged_law(sites: tuple[float, ...], kappa: float) -> CoinPair:
    flip = merged_flip([symmetric_coins(site)[0].probability for site in sites])
    present = Coin.at_most(1 - flip)
    return CoinPair(
        absent=present.complement,
        present=present,
        noise=DiscreteLaplace.at_most(kappa),
        epsilon_state=-math.log(float(flip / (1 - flip))) if flip else math.inf,
    )


def _larger(first: float | None, second: float | None) -> float | None:
    return first if second is None else second if first is None else max(first, second)
