"""A known population: a size (ids 0..U-1) or a public list of ids, and the sample whose users have a cell."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.errors import InvalidBatch, InvalidParameter
from panstream.primitives import validation as checks
from panstream.primitives.hashing import check_key, derive, permute
from panstream.primitives.hashing.items import hash_items
from panstream.primitives.inputs import integers, items
from panstream.primitives.memory.scratch import Scratch

Members = int | tuple[Any, ...]


def as_members(universe: Any) -> Any:
    """Return a list of ids as a tuple, so that the algorithm that stores it is hashable; anything else unchanged."""
    return tuple(universe) if isinstance(universe, list) else universe


class Universe:
    """The users that may appear. ``sampled`` of them, chosen by a public keyed permutation, have a cell.

    Only the 64-bit keyed hashes of listed ids are stored, so an id that is not on the list is refused except with
    probability (number of users)/2**64, that of a hash collision.
    """

    __slots__ = ("_key", "_kind", "_lookup", "_numbers", "_slots", "permuted", "sampled", "size")

    def __init__(self, members: Any, sample: int | None, key: int) -> None:
        check_key(key)
        self._key = key
        self._lookup = derive(key, "universe")
        self._kind: str | None = None
        if isinstance(members, bool) or not isinstance(members, int | tuple):
            raise InvalidParameter("universe must be a number of users or a list of ids")
        if isinstance(members, int):
            checks.require_integer_in_range(1, 1 << 62, universe=members)
            self.size = members
        else:
            self._build_table(members)
        if sample is not None:
            checks.require_integer_in_range(1, self.size, sample=sample)
        self.sampled = self.size if sample is None else sample
        self.permuted = self.sampled < self.size

    def _build_table(self, members: tuple[Any, ...]) -> None:
        from panstream.primitives.kernels.hashing.hash_table import build

        if not members:
            raise InvalidParameter("universe must not be empty")
        refused: str | None = None
        try:
            listed = items(members, name="universe")
        except InvalidBatch as error:
            refused = str(error)
        if refused is not None:
            raise InvalidParameter(refused)
        hashes = np.empty(len(listed), np.uint64)
        hash_items(listed, self._lookup, hashes)
        capacity = 1 << (2 * hashes.size).bit_length()
        self.size = len(listed)
        self._kind = listed.kind
        self._slots = np.zeros(capacity, np.uint64)
        self._numbers = np.full(capacity, -1, np.int64)
        twice = build(hashes, self._slots, self._numbers)
        if twice >= 0:
            raise InvalidParameter(f"universe must not name an id twice, see position {twice}")

    def indices_of(self, ids: Any) -> tuple[NDArray[np.int64], tuple[NDArray[Any], ...]]:
        """Return each id's index in [0, U) and the copies that must be wiped.

        Raises:
            InvalidBatch: An id is not in the universe; the error names its row, never the id.
        """
        if self._kind is None:
            numbers, copied = integers(ids, name="ids", lower=0, upper=self.size - 1)
            return numbers, (numbers,) if copied else ()
        return self._look_up(ids)

    def _look_up(self, ids: Any) -> tuple[NDArray[np.int64], tuple[NDArray[Any], ...]]:
        from panstream.primitives.kernels.hashing.hash_table import look_up

        batch = items(ids, name="ids")
        try:
            if len(batch) and batch.kind != self._kind:
                raise InvalidBatch(f"ids must be {self._kind}s like the universe, got {batch.kind}s")
            positions = np.empty(len(batch), np.int64)
            with Scratch() as scratch:
                hashes = scratch.array(len(batch), np.uint64)
                hash_items(batch, self._lookup, hashes)
                unknown_row = look_up(hashes, self._slots, self._numbers, positions)
        finally:
            batch.wipe()
        if unknown_row >= 0:
            positions.fill(0)
            raise InvalidBatch("id is not in the universe", row=unknown_row)
        return positions, (positions,)

    def permute(self, numbers: NDArray[np.int64], out: NDArray[np.int64]) -> NDArray[np.int64]:
        """Write the permuted indices to ``out`` and return it; users with an index below ``sampled`` have a cell."""
        permute(numbers, self.size, self._key, out)
        return out
