"""Where users fall: a public hash puts each id into one cell of a table of levels and buckets.

Level j takes 2**-(j+1) of the users, the last one twice that; the bucket is uniform. Buckets may be dealt out to
shards: bucket b belongs to shard b mod ``shards``, and a bitmap looks only at the buckets of the shards it owns.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream import checks
from panstream.batch import Dictionary, Integers, Items, Strings
from panstream.errors import InvalidParameter
from panstream.hashing import MAX_LEVELS, cells_of_integers, cells_of_strings, check_key
from panstream.packed import packed
from panstream.scratch import Scratch

__all__ = ["CellTable", "check_table", "table_of"]

_CHUNK = 1 << 17
_MAX_CELLS = (1 << 31) - 1


def check_table(buckets: Any, levels: Any, key: Any, shards: Any, owned: Any) -> tuple[int, ...]:
    """Return the owned shards in order, or raise InvalidParameter."""
    checks.integer(1, _MAX_CELLS, buckets=buckets)
    checks.integer(1, MAX_LEVELS, levels=levels)
    if buckets * levels > _MAX_CELLS:
        raise InvalidParameter(f"buckets * levels must be below 2**31, got {buckets * levels}")
    check_key(key)
    checks.integer(1, buckets, shards=shards)
    chosen = tuple(range(shards)) if owned is None else (owned,) if isinstance(owned, int) else tuple(owned)
    if not chosen or list(chosen) != sorted({int(shard) for shard in chosen if 0 <= shard < shards}):
        raise InvalidParameter(f"owned must name different shards in 0..{shards - 1}, in order, got owned={owned!r}")
    return chosen


@dataclass(frozen=True, slots=True)
class CellTable:
    """The cells of a bitmap, and which of them are looked at."""

    buckets: int
    levels: int
    key: int
    shards: int
    owned: tuple[int, ...]

    @property
    def cells(self) -> int:
        """Return how many cells there are."""
        return self.buckets * self.levels

    @property
    def own_buckets(self) -> int:
        """Return how many buckets of each level are looked at."""
        return sum((self.buckets - shard - 1) // self.shards + 1 for shard in self.owned)

    @property
    def is_whole(self) -> bool:
        """Return whether every cell is looked at."""
        return len(self.owned) == self.shards

    def own_bits(self) -> NDArray[np.uint8]:
        """Return for every cell, packed, whether it is looked at."""
        return _own_bits(self)

    def clear_others(self, bits: NDArray[np.uint8]) -> None:
        """Set the cells that other shards look at to 0."""
        if not self.is_whole:
            np.bitwise_and(bits, self.own_bits(), out=bits)

    def cells_of(self, values: Integers | Strings, scratch: Scratch) -> Iterator[NDArray[np.int32]]:
        """Yield the cell of every value, chunk by chunk, in an array that the next chunk overwrites."""
        out = scratch.array(min(_CHUNK, len(values)), np.int32)
        for start in range(0, len(values), _CHUNK):
            stop = min(start + _CHUNK, len(values))
            chunk = out[: stop - start]
            if isinstance(values, Integers):
                cells_of_integers(values.values[start:stop], self.key, self.buckets, self.levels, chunk)
            else:
                offsets = values.offsets[start : stop + 1]
                cells_of_strings(offsets, values.data, self.key, self.buckets, self.levels, chunk)
            yield chunk

    def rows(self, items: Items, scratch: Scratch) -> Iterator[NDArray[np.int32]]:
        """Yield the cell of every row, chunk by chunk; the values of a dictionary are hashed once."""
        for part in items.parts:
            if not isinstance(part, Dictionary):
                yield from self.cells_of(part, scratch)
                continue
            cells = scratch.array(len(part.values), np.int32)
            done = 0
            for chunk in self.cells_of(part.values, scratch):
                cells[done : done + chunk.size] = chunk
                done += chunk.size
            out = scratch.array(min(_CHUNK, len(part)), np.int32)
            for start in range(0, len(part), _CHUNK):
                codes = part.codes[start : start + _CHUNK]
                yield cells.take(codes, out=out[: codes.size], mode="clip")  # codes are in range; "raise" would copy

    def mark(self, items: Items, scratch: Scratch, marks: NDArray[np.uint8] | None = None) -> NDArray[np.uint8]:
        """Return for every cell whether some row falls into it, or had fallen by the ``marks`` that are given."""
        from panstream._kernels.marks import mark, mark_seen

        if marks is None:
            marks = scratch.array(self.cells)
            marks.fill(0)
        for part in items.parts:
            if not isinstance(part, Dictionary):
                for chunk in self.cells_of(part, scratch):
                    mark(marks, chunk)
                continue
            seen = scratch.array(len(part.values))
            seen.fill(0)
            mark(seen, part.codes)
            done = 0
            for chunk in self.cells_of(part.values, scratch):
                mark_seen(marks, chunk, seen[done : done + chunk.size])
                done += chunk.size
        return marks


@lru_cache(maxsize=64)
def table_of(buckets: int, levels: int, key: int, shards: int, owned: tuple[int, ...]) -> CellTable:
    """Return the table, built once for each choice of parameters."""
    return CellTable(buckets, levels, key, shards, owned)


@lru_cache(maxsize=8)
def _own_bits(table: CellTable) -> NDArray[np.uint8]:
    own = np.isin(np.arange(table.buckets) % table.shards, table.owned).astype(np.uint8)
    bits = packed(np.tile(own, table.levels))
    bits.flags.writeable = False
    return bits
