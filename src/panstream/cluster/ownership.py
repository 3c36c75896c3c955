"""Who owns which cell: a public keyed hash deals every block of cells out to the shards, one cell to each.

Cells are taken in blocks of as many as there are shards. Within block b, cell c belongs to shard (c + h(b)) mod shards, h being
a public hash, so each shard owns exactly one cell of every block, whatever pattern the busy cells have. A shard keeps its
cell of block b at place b.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.errors import InvalidParameter
from panstream.hashing.keys import key_words
from panstream.scratch import Scratch

__all__ = ["MOST_SHARDS", "Ownership"]

MOST_SHARDS = 4096
_SMALL = 1 << 31  # places below this travel as int32


@dataclass(frozen=True, slots=True, kw_only=True)
class Ownership:
    """How ``cells`` cells are dealt out to ``shards`` shards. Both and the key are public.

    >>> whole = np.arange(10)
    >>> ownership = Ownership(cells=10, shards=3)
    >>> parts = [ownership.part(whole, shard) for shard in range(3)]
    >>> ownership.union(parts).tolist() == whole.tolist()
    True
    """

    cells: int
    shards: int
    key: int = 0

    def __post_init__(self) -> None:
        if isinstance(self.shards, bool) or not isinstance(self.shards, int) or not 1 <= self.shards <= MOST_SHARDS:
            raise InvalidParameter(f"shards must be an integer in 1..{MOST_SHARDS}, got shards={self.shards!r}")

    def owned(self, shard: int) -> NDArray[np.int64]:
        """Return the cells of a shard, in the order of their places."""
        return _owned(self.cells, self.shards, self.key, shard)

    def count(self, shard: int) -> int:
        """Return how many cells a shard owns."""
        return int(self.owned(shard).size)

    def part(self, whole: NDArray[Any], shard: int) -> NDArray[Any]:
        """Return a copy of the last axis at the cells of a shard."""
        found: NDArray[Any] = whole[..., self.owned(shard)]
        return found

    def union(self, parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
        """Return the whole array that all shards' parts make up."""
        whole = np.empty((*parts[0].shape[:-1], self.cells), parts[0].dtype)
        for shard, part in enumerate(parts):
            whole[..., self.owned(shard)] = part
        return whole

    def split(
        self, cells: NDArray[Any], columns: Sequence[NDArray[Any]], scratch: Scratch
    ) -> list[tuple[NDArray[Any], ...]]:
        """Return for every shard the places of its rows and their columns, in order; rows beyond the cells are left out.

        The arrays are fresh; whoever takes them in wipes them.
        """
        from panstream._kernels.shards import count_owners, sort_rows

        owners = scratch.array(cells.size, np.int32)
        counts = np.zeros(self.shards, np.int64)
        count_owners(cells, self.cells, self.shards, self.word, owners, counts)
        ends = np.cumsum(counts)
        places = np.empty(int(ends[-1]), self.place)
        rows = scratch.array(places.size, np.int64)
        sort_rows(cells, owners, self.shards, ends - counts, places, rows)
        found = []
        for start, stop in zip(ends - counts, ends, strict=True):
            chosen = rows[start:stop]
            found.append((places[start:stop], *(column[chosen] for column in columns)))
        return found

    @property
    def place(self) -> type[np.int32] | type[np.int64]:
        """Return the type of a place."""
        return np.int32 if self.cells // self.shards < _SMALL else np.int64

    @property
    def word(self) -> np.uint64:
        """Return the public number that the hash starts from."""
        return key_words(self.key, "shards")[0]


@lru_cache(maxsize=128)
def _owned(cells: int, shards: int, key: int, shard: int) -> NDArray[np.int64]:
    from panstream._kernels.shards import rotation

    blocks = np.arange(-(-cells // shards), dtype=np.uint64)
    with np.errstate(over="ignore"):
        turned = rotation.py_func(blocks, key_words(key, "shards")[0]).astype(np.int64)  # type: ignore[arg-type]
    found: NDArray[np.int64] = blocks.astype(np.int64) * shards + (shard - turned) % shards
    found = found[found < cells]
    found.flags.writeable = False
    return found
