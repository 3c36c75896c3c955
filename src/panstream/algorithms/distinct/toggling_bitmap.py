"""TogglingBitmap: how many users are present when they come and go, for ids of any kind."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

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

    As `Bitmap`, but an insert and a delete both toggle the user's cell, which so holds the parity of the users present
    in it. **An insert of a user who is already present removes her**: use it where presence is 0 or 1 (sessions that
    open and close, members who join and leave), and `Bitmap` for a log of events.

    Privacy:
        Unit: user; any of one user's inserts and deletes may be added or removed. Only the start is noisy and updates
        are deterministic, so the joint view of one copy of the state and of n releases loses exactly
        epsilon_state + n·kappa. Two unannounced copies have no finite loss. Replacing one user by another costs
        2·epsilon.
        Proof: docs/proofs/bitmap.md, Theorem 4.

    Error:
        About twice the relative error of `Bitmap` with the same parameters.

    Examples:
        >>> monitor = TogglingBitmap(epsilon=2.0).start()
        >>> monitor.update(insert=range(50_000))
        >>> monitor.update(delete=range(20_000))
        >>> abs(monitor.release().value / 30_000 - 1) < 0.4
        True

    Reference: Hehir, Ting, Cormode (2023) for the layout, over GF(2) as in docs/proofs/bitmap.md, Theorem 4.
    """

    theorem: ClassVar[str] = "Theorem 4"

    @property
    def law(self) -> CoinPair:
        """Return the start coin and the release noise at the best split."""
        return CoinPair.symmetric(*self._split(), turns=2)

    def _split(self) -> tuple[float, float]:
        if self.epsilon_state is not None:
            return self.epsilon_state, toggling_kappa(self.epsilon, self.epsilon_state, self.releases, self.announced)
        return bitmap_split(self.epsilon, self.buckets, self.levels, self._tuned_for, self.releases, self.announced, 2)

    def batch(self, ids: Any = None, *, insert: Any = None, delete: Any = None) -> ItemBatch:
        """Check ids to toggle, or ``insert=`` and ``delete=``, of one kind; all of them toggle.

        Args:
            ids: The ids, one per row.
            insert: Ids that arrive, one per row.
            delete: Ids that are deleted, one per row.
        """
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
