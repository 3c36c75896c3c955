"""The map from ids to counters: a sample of a known universe, or hashed buckets for ids of any kind.

*Known universe*: ids are 0..U-1 and the first m of a public keyed permutation have a counter each. *Open universe*: an
id hashes to one of ``buckets`` cells, or of ``levels`` rows of them, row l with probability 2**-(l+1) (the last one
2**-(levels-1)). A user always has the same single cell. Key, sample and hash functions are public.

Before a k-wise family is applied, a fixed public bijection mixes integer ids. A polynomial of low degree would map runs
of ids to progressions, which fill buckets evenly or collide in a few, depending on the key; independence of a few
values at a time does not determine how many buckets are occupied (docs/proofs/turnstile.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.errors import InvalidParameter
from panstream.primitives import validation as checks
from panstream.primitives.hashing import (
    MAX_LEVELS,
    KWise,
    cells_of,
    check_key,
    derive,
    hash_integers,
    hash_strings,
    permute,
)
from panstream.primitives.inputs import Dictionary, Integers, ItemBatch, Part, integers, items
from panstream.primitives.memory.scratch import Scratch

CHUNK = 1 << 14  # rows hashed at a time: hashes, cells and factors of a chunk stay in the cache
_WISE_LEVELS = 29  # a value of 61 bits gives a bucket of 32 bits and this many levels from other bits
_MAX_CELLS = 1 << 32
_MIXER = derive(0, "placement")

Piece = tuple[slice, NDArray[np.int64], NDArray[np.uint64] | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """The public map from ids to cells."""

    universe: int | None
    sample: int | None
    buckets: int | None
    levels: int
    independence: int | None
    key: int

    def check(self) -> None:
        """Raise InvalidParameter if parameters are out of range or contradict each other."""
        if (self.universe is None) == (self.buckets is None):
            raise InvalidParameter("give either universe= (its size) or buckets= (for ids of any kind)")
        if self.universe is not None:
            checks.require_int(1, 1 << 62, universe=self.universe)
            if self.sample is not None:
                checks.require_int(1, self.universe, sample=self.sample)
            if self.levels != 1 or self.independence is not None:
                raise InvalidParameter("levels= and independence= belong to buckets=, not to a known universe")
        if self.buckets is not None:
            if self.sample is not None:
                raise InvalidParameter("sample= belongs to universe=, not to buckets")
            checks.require_int(1, (1 << 31) - 1, buckets=self.buckets)
            checks.require_int(1, MAX_LEVELS if self.independence is None else _WISE_LEVELS, levels=self.levels)
            if self.independence is not None:
                checks.require_int(2, 1024, independence=self.independence)
        if self.cells >= _MAX_CELLS:
            raise InvalidParameter(f"there must be fewer than 2**32 counters, got {self.cells}; use sample=")
        check_key(self.key)

    def check_inverted(self) -> None:
        """Raise InvalidParameter if the hash family is too weak to infer users from the number of occupied buckets."""
        if self.independence is not None and self.independence < 4:
            raise InvalidParameter(
                f"independence must be at least 4 where the number of occupied buckets is inverted, got "
                f"independence={self.independence}: it fixes only how many pairs meet, not how many buckets are "
                "occupied"
            )

    @property
    def open(self) -> bool:
        """Return whether ids of any kind are hashed to buckets."""
        return self.buckets is not None

    @property
    def cells(self) -> int:
        """Return the number of counters."""
        if self.buckets is not None:
            return self.buckets * self.levels
        assert self.universe is not None
        return self.universe if self.sample is None else self.sample

    @property
    def population(self) -> int:
        """Return U of a known universe."""
        assert self.universe is not None
        return self.universe

    def read(self, ids: Any) -> tuple[ItemBatch | NDArray[np.int64], tuple[NDArray[Any], ...]]:
        """Return checked ids and the copies that must be wiped, or raise InvalidBatch by row."""
        if self.open:
            batch = items(ids)
            return batch, batch.owned
        numbers, copied = integers(ids, name="ids", lower=0, upper=self.population - 1)
        return numbers, (numbers,) if copied else ()

    def pieces(self, ids: ItemBatch | NDArray[np.int64], scratch: Scratch, *, multipliers: int = 0) -> Iterator[Piece]:
        """Yield rows, their cells and, in an open universe, their multipliers in 1..``multipliers`` - 1, in pieces.

        A cell of a known universe may lie beyond the sample. The arrays of a piece are overwritten by the next one.
        """
        if isinstance(ids, ItemBatch):
            yield from self._hashed(ids, scratch, multipliers)
            return
        moved = scratch.array(min(CHUNK, ids.size) if self.cells < self.population else 0, np.int64)
        for start in range(0, ids.size, CHUNK):
            piece = ids[start : start + CHUNK]
            if moved.size:
                permute(piece, self.population, self.key, moved[: piece.size])
                piece = moved[: piece.size]
            yield slice(start, start + piece.size), piece, None

    def _hashed(self, ids: ItemBatch, scratch: Scratch, multipliers: int) -> Iterator[Piece]:
        from panstream.primitives.kernels.algorithms.modular_counters import multipliers_of

        assert self.buckets is not None
        capacity = min(CHUNK, len(ids))
        hashes = scratch.array(capacity, np.uint64)
        cells = scratch.array(capacity, np.int64)
        factors = scratch.array(capacity if multipliers else 0, np.uint64)
        spare = scratch.array(capacity if self.independence else 0, np.uint64)
        for row, part in ids.spans():
            entry_hashes = self._dictionary(part, scratch)
            for start in range(0, len(part), CHUNK):
                size = min(CHUNK, len(part) - start)
                words = hashes[:size]
                chunk_cells = cells[:size]
                if entry_hashes is not None and isinstance(part, Dictionary):
                    np.take(entry_hashes, part.codes[start : start + size], out=words, mode="clip")
                else:
                    self._hash(part, start, size, words)
                if multipliers:
                    hash_integers(words, derive(self.key, "multiplier"), factors[:size])
                    multipliers_of(factors[:size], np.uint64(multipliers))
                self._spread(words, spare[:size])
                cells_of(words, self.buckets, self.levels, chunk_cells)
                yield slice(row + start, row + start + size), chunk_cells, factors[:size] if multipliers else None

    def _dictionary(self, part: Part, scratch: Scratch) -> NDArray[np.uint64] | None:
        if not isinstance(part, Dictionary):
            return None
        entry_hashes: NDArray[np.uint64] = scratch.array(len(part.values), np.uint64)
        self._hash(part.values, 0, entry_hashes.size, entry_hashes)
        return entry_hashes

    def _hash(self, part: Part, start: int, size: int, out: NDArray[np.uint64]) -> None:
        """Write the 64-bit hash of every id; integers get a fixed bijection if a polynomial is applied to it later."""
        if isinstance(part, Integers):
            values = part.values[start : start + size]
            hash_integers(values, self.key if self.independence is None else _MIXER, out)
        elif not isinstance(part, Dictionary):
            hash_strings(part.offsets[start : start + size + 1], part.data, self.key, out, hash="siphash")

    def _spread(self, words: NDArray[np.uint64], values: NDArray[np.uint64]) -> None:
        """Replace hashes by values of the k-wise family, if there is one: bucket bits above, level bits below."""
        if self.independence is None:
            return
        from panstream.primitives.kernels.algorithms.modular_counters import points_of

        points_of(words, words)
        family = KWise.from_key(self.independence, self.key, "cells")
        family.values(words, values)
        np.right_shift(values, np.uint64(29), out=words)
        np.left_shift(words, np.uint64(32), out=words)
        np.bitwise_and(values, np.uint64((1 << 29) - 1), out=values)
        np.bitwise_or(words, values, out=words)
