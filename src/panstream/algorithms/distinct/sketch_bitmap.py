"""SketchBitmap: a window's distinct users as a published sketch, from which unions and overlaps can be computed."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from panstream.algorithms.distinct.bitmap_base import BitmapCounter
from panstream.algorithms.distinct.likelihood import Likelihood
from panstream.algorithms.randomized_bits import BitState, CoinPair
from panstream.core.algorithm import consume_release
from panstream.core.estimate import Estimate
from panstream.errors import BudgetExhausted, NotSupported
from panstream.primitives import validation as checks
from panstream.primitives.inputs import ItemBatch, items
from panstream.primitives.memory.scratch import wipe
from panstream.primitives.noise import DiscreteLaplace, NoiseSource
from panstream.primitives.packed_bits import draw_packed_bits
from panstream.privacy.bitmap_loss import Decoder, LevelMoments
from panstream.privacy.claim import Claim, Intrusions
from panstream.privacy.person_loss import WindowLoss
from panstream.privacy.sketch_loss import SketchCoins, sketch_coins


@lru_cache(maxsize=256)
def published_moments(decoder: Decoder, buckets: int, levels: int) -> LevelMoments:
    """Return the moments of decoded published bits; there is no release noise."""
    return LevelMoments.of(decoder, buckets=buckets, levels=levels, noise=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class SketchBitmap(BitmapCounter):
    """The distinct users of one window, published as a sketch when the window closes.

    As `Bitmap`, but ``release`` closes the window: every cell passes a fresh flip, the flipped cells are published and
    replace the stored ones, and no further row is accepted. `Sketch.of` returns what was published, as a value from
    which counts, unions, overlaps and retention are computed without further loss.

    Publishing the stored cells as they are would have no finite loss: a cell that differs from what was copied earlier
    proves a visit in between.

    Privacy:
        Unit: user; any of one user's occurrences in the window may be added or removed. The published sketch alone
        loses ``epsilon``; with one copy of the state at any time, the loss is that of the claim: 1.75, 2.75 and 4.57
        for epsilon .5, 1 and 2. Windows add up: a user who came in k windows loses k·epsilon to their sketches, and
        one copy adds the difference for the windows that are open then. Two unannounced copies of an open window have
        no finite loss.
        Proof: docs/proofs/sketches.md, Theorem 1.

    Error:
        Of the count as `Bitmap` with epsilon_state = ``epsilon`` and no release noise. Of an overlap about c·sqrt(n)
        for two windows of n users each, c = 14, 3.8, 1.1 at epsilon .5, 1, 2. The error of a union of k windows grows
        like (1+v)^(k/2), v = 3.9, .92, .18 at epsilon .5, 1, 2.

    Args:
        epsilon: Loss of the published sketch; ``math.inf`` switches all noise off, for tests.

    Examples:
        >>> week1, week2 = (SketchBitmap(epsilon=2.0, buckets=16384).start() for _ in range(2))
        >>> week1.update(range(10_000))
        >>> week2.update(range(7_000, 17_000))
        >>> abs(week1.release().value / 10_000 - 1) < 0.2
        True

    Reference: docs/proofs/sketches.md; coins after Kairouz, Oh, Viswanath (2015).
    """

    theorem: ClassVar[str] = "Theorem 1"

    proof: ClassVar[str] = "sketches.md"
    freezes: ClassVar[bool] = False

    epsilon: float
    buckets: int = 16_384
    releases: int = field(default=1, init=False)  # a window is closed once

    def __post_init__(self) -> None:
        self.check()
        checks.require_positive(epsilon=self.epsilon)
        self.coins  # noqa: B018  # refuses an epsilon out of range

    @property
    def coins(self) -> SketchCoins:
        """Return the coins of open cells and of the flips at the close."""
        return sketch_coins(self.epsilon)

    @property
    def law(self) -> CoinPair:
        """Return the coins of the open window's cells."""
        coins = self.coins
        return CoinPair(
            absent=coins.absent,
            present=coins.present,
            noise=DiscreteLaplace(None),
            epsilon_state=math.nan,
        )

    @property
    def decoder(self) -> Decoder:
        """Return what published bits count as."""
        pi0, pi1 = self.coins.published
        return Decoder.redrawn(float(pi1), float(pi0))

    def moments(self, phases: int = 0) -> LevelMoments:
        """Return the moments of the decoded published cells."""
        return published_moments(self.decoder, self.table.owned_buckets, self.levels)

    def claim(self) -> Claim:
        """Return the exact joint loss of one copy before the close and the published sketch."""
        coins = self.coins
        epsilon = coins.joint_loss
        return Claim(
            epsilon=epsilon,
            unit="user",
            parts={"output": coins.published_loss, "state": max(epsilon - coins.published_loss, 0.0)}
            if math.isfinite(epsilon)
            else {},
            intrusions=Intrusions(unannounced=1),
            inputs="adaptive",
            public=("the hash function and its key",),
            note=f"the published sketch alone loses {coins.published_loss:.4g}"
            if math.isfinite(epsilon)
            else "no noise: for tests only",
        )

    def window_loss(self) -> WindowLoss:
        """Return the loss with and without a copy of the open window."""
        coins = self.coins
        return WindowLoss(joint=coins.joint_loss, answers=coins.published_loss, unused=coins.unused_loss)

    def batch(self, ids: Any) -> ItemBatch:
        """Check ids: integers, strings or bytes in a list, NumPy, Arrow, pandas or polars column.

        Args:
            ids: The ids, one per row.
        """
        return items(ids)

    def update(self, state: BitState, batch: ItemBatch, rng: NoiseSource) -> None:
        """Redraw the cell of every row; raise BudgetExhausted once the window is closed."""
        if state.released:
            raise BudgetExhausted("this window is closed: its sketch is published, and no further row can count")
        BitmapCounter.update(self, state, batch, rng)

    def release(self, state: BitState, rng: NoiseSource) -> Estimate:
        """Close the window: flip every cell, publish the result in place of the stored cells, and count them."""
        state.released = consume_release(state.released, self.releases)
        coins = self.coins
        raised = draw_packed_bits(coins.raised, self.cells, rng)
        retained = draw_packed_bits(coins.retained, self.cells, rng)
        retained &= state.bits
        np.invert(state.bits, out=state.bits)
        state.bits &= raised
        state.bits |= retained
        wipe(raised)
        wipe(retained)
        self.table.clear_others(state.bits)
        return self.count(state.bits)

    def refresh(self, state: BitState, rng: NoiseSource) -> None:
        """Raise NotSupported: a closed window cannot be repaired, and an open one is not covered twice."""
        raise NotSupported("a window that is published as a sketch has no budget for an announced intrusion")

    def count(self, bits: NDArray[np.uint8]) -> Estimate:
        """Return the number of users from published cells.

        Args:
            bits: The published cells.
        """
        from panstream.primitives.kernels.algorithms.packed_bits import count_set_bits

        none = np.empty((0, bits.size), np.uint8)
        ones = np.zeros((1, self.levels), np.int64)
        sizes = np.zeros((1, self.levels), np.int64)
        count_set_bits(bits, none, self.buckets, ones)
        count_set_bits(self.table.owned_bits(), none, self.buckets, sizes)
        decoder = self.decoder
        empty = sizes[0] * decoder.zero + ones[0] * (decoder.one - decoder.zero)
        return Likelihood(self.moments(), empty).estimate(self.claim(), tuple(bits.tolist()))
