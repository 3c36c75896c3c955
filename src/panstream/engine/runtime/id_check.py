"""Which user ids a query cannot use. Rows are skipped one by one: a user's bad row must not affect other users."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.engine.arrow import arrow_mask, boolean_bytes, numeric_view
from panstream.engine.planner.query_plan import QueryPlan
from panstream.primitives.hashing import derive
from panstream.primitives.hashing.items import hash_items
from panstream.primitives.inputs import items
from panstream.primitives.memory.scratch import Scratch

Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class IdValidator:
    """Find ids that are null or not in the declared universe.

    ``universe`` is its size if ids are 0..universe-1; a listed universe is a hash table, ``slots`` and ``numbers``.
    """

    universe: int | None = None
    slots: NDArray[np.uint64] | None = None
    numbers: NDArray[np.int64] | None = None

    @classmethod
    def for_plan(cls, plan: QueryPlan) -> IdValidator:
        """Return the validator for a query's algorithm; without a universe of its own, as in a bitmap, any id fits."""
        listed = getattr(plan.algorithm, "universe", None)
        if listed is None or isinstance(listed, int):
            return cls(listed)
        from panstream.primitives.kernels.hashing.hash_table import build

        members = items(listed, name="universe")
        hashes = np.empty(len(members), np.uint64)
        hash_items(members, _KEY, hashes)
        size = 1 << (2 * hashes.size).bit_length()
        slots = np.zeros(size, np.uint64)
        numbers = np.full(size, -1, np.int64)
        build(hashes, slots, numbers)
        return cls(None, slots, numbers)

    def unusable(self, ids: Any, count: int) -> Mask:
        """Return a mask of the ids that cannot be used."""
        bad = np.zeros(count, bool)
        if not isinstance(ids, np.ndarray) and ids.null_count:
            bad = boolean_bytes(ids.is_null())
        if self.universe is not None:
            integers = ids if isinstance(ids, np.ndarray) else np.asarray(numeric_view(ids), np.int64)
            bad |= (integers < 0) | (integers >= self.universe)
        elif self.slots is not None:
            usable_ids = ids.filter(arrow_mask(~bad)) if bad.any() else ids
            bad[np.flatnonzero(~bad)[self._unknown_ids(usable_ids)]] = True
        return bad

    def _unknown_ids(self, ids: Any) -> Mask:
        from panstream.primitives.kernels.hashing.hash_table import mark_unknown

        assert self.slots is not None
        assert self.numbers is not None
        batch = items(ids)
        is_unknown = np.empty(len(batch), bool)
        try:
            with Scratch() as scratch:
                hashes = scratch.array(len(batch), np.uint64)
                hash_items(batch, _KEY, hashes)
                mark_unknown(hashes, self.slots, self.numbers, is_unknown)
        finally:
            batch.wipe()
        return is_unknown


_KEY = derive(0, "bad rows")
