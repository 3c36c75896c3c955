"""TogglingBitmap: how many users are present when they come and go, whatever their ids."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from panstream.algorithms.distinct.bitmap_base import SiteBitmap
from panstream.algorithms.randomized_bits import BitState, CoinPair
from panstream.core.shardable import Touches
from panstream.errors import InvalidBatch
from panstream.primitives.inputs import ItemBatch, items
from panstream.primitives.noise import NoiseSource
from panstream.privacy.bitmap_loss import bitmap_split, toggling_kappa


@dataclass(frozen=True, slots=True, kw_only=True)
class TogglingBitmap(SiteBitmap):
    """The number of users who are present now, when each of them comes and goes in turn.

    As `Bitmap`, but an insert and a delete both toggle the user's cell, so that what remains is the parity of
    the users present in it. **An insert of someone already present takes her away**: use it where presence is 0 or 1
    (sessions that open and close, members who join and leave), and `Bitmap` for a log of events.

    Privacy:
        Unit: user; any of one user's inserts and deletes may be added or removed. Only the start is noisy and updates
        are certain, so the joint view of one copy of the state and of n releases loses exactly epsilon_state + n·kappa.
        Two unannounced copies have no finite loss. Replacing one user by another costs 2·epsilon.

    Error:
        About twice the relative error of `Bitmap` with the same parameters.

    Args:
        buckets: Columns of the bitmap; cells are bits, in memory and when stored.
        levels: Rows of the bitmap, each for half as many ids as the one before.
        expected: About how many will come, for ``error_bound``; the best split of epsilon depends on
            it only if intrusions are announced.
        releases: How many estimates will be published.
        key: Public number that picks the hash function.
        hash: Of strings, "fold" or, at half the speed, "siphash", which withstands chosen ids
            if you keep ``key`` to yourself; integers have a hash function of their own.
        shards: Number of shards that divide the cells among them; see *Merging*.
        owned: Numbers of the shards that this bitmap holds; see *Merging*.
        epsilon: Total loss; ``math.inf`` switches all noise off, for tests.
        epsilon_state: Share of epsilon that is spent on the cells; the best by default.
        announced: How many announced intrusions to pay for in advance; each is covered only if
            no row was applied between the copy and the refresh.

    Examples:
        >>> monitor = TogglingBitmap(epsilon=2.0).start()
        >>> monitor.update(insert=range(50_000))
        >>> monitor.update(delete=range(20_000))
        >>> abs(monitor.release().value / 30_000 - 1) < 0.4
        True

    Reference: Hehir, Ting, Cormode (2023) for the layout, over GF(2) as in docs/proofs/bitmap.md, Theorem 4.
    """

    @property
    def law(self) -> CoinPair:
        """Return the start coin and the release noise at the best split."""
        return CoinPair.symmetric(*self._split(), turns=2)

    def _split(self) -> tuple[float, float]:
        if self.epsilon_state is not None:
            return self.epsilon_state, toggling_kappa(self.epsilon, self.epsilon_state, self.releases, self.announced)
        return bitmap_split(self.epsilon, self.buckets, self.levels, self._tuned_for, self.releases, self.announced, 2)

    def batch(self, ids: Any = None, *, insert: Any = None, delete: Any = None) -> ItemBatch:
        """Check ids to toggle, or ``insert=`` and ``delete=``, of one kind; all of them toggle."""
        if ids is not None and (insert is not None or delete is not None):
            raise InvalidBatch("give either ids or insert= and delete=")
        if ids is None and insert is None and delete is None:
            raise InvalidBatch("ids are missing")
        if ids is not None:
            return items(ids)
        first = items([] if insert is None else insert, name="insert")
        try:
            second = items([] if delete is None else delete, name="delete")
        except BaseException:
            first.wipe()
            raise
        return ItemBatch(first.parts + second.parts, first.owned + second.owned)

    def apply_updates(self, state: BitState, touches: Touches, rng: NoiseSource) -> None:
        """Toggle the cell of every row."""
        from panstream.primitives.kernels.algorithms.packed_bits import toggle

        toggle(state.bits, touches[0])
