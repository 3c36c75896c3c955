"""How states are dealt out: a public keyed hash gives every shard one cell of each block of cells.

Cells are taken in blocks of as many as there are shards. Within block b, cell c belongs to shard (c + h(b)) mod
shards, h being a public hash, so each shard owns exactly one cell of every block, whatever pattern the busy cells
have. A shard keeps its cell of block b at place b, in a state of the algorithm's own type whose arrays are shorter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream import codec
from panstream.codec import FieldLayout
from panstream.divisible import Divisible, Touches
from panstream.errors import InvalidParameter
from panstream.hashing.keys import key_words
from panstream.packed import packed, unpacked
from panstream.scratch import Scratch, wipe

_MOST_SHARDS = 4096
_WORD = key_words(0, "shards")[0]  # the public number that the hash starts from
_SMALL = 1 << 31  # places below this travel as int32


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ownership:
    """How ``cells`` cells are dealt out to ``shards`` shards. Both are public.

    >>> whole = np.arange(10)
    >>> ownership = _Ownership(cells=10, shards=3)
    >>> parts = [ownership.part(whole, shard) for shard in range(3)]
    >>> ownership.union(parts).tolist() == whole.tolist()
    True
    """

    cells: int
    shards: int

    def __post_init__(self) -> None:
        if isinstance(self.shards, bool) or not isinstance(self.shards, int) or not 1 <= self.shards <= _MOST_SHARDS:
            raise InvalidParameter(f"shards must be an integer in 1..{_MOST_SHARDS}, got shards={self.shards!r}")

    def owned(self, shard: int) -> NDArray[np.int64]:
        """Return the cells of a shard, in the order of their places."""
        return _owned(self.cells, self.shards, shard)

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

    def split(self, touches: Touches, scratch: Scratch) -> list[Touches]:
        """Return every shard's touches, in order, with places instead of cells; those beyond the cells are left out.

        The arrays are fresh; whoever takes them in wipes them.
        """
        from panstream._kernels.shards import count_owners, sort_rows

        cells, *carried = touches
        carried = [np.broadcast_to(column, cells.size) for column in carried]
        owners = scratch.array(cells.size, np.int32)
        counts = np.zeros(self.shards, np.int64)
        count_owners(cells, self.cells, self.shards, _WORD, owners, counts)
        ends = np.cumsum(counts)
        places = np.empty(int(ends[-1]), self.place)
        rows = scratch.array(places.size, np.int64)
        sort_rows(cells, owners, self.shards, ends - counts, places, rows)
        found = []
        for start, stop in zip(ends - counts, ends, strict=True):
            chosen = rows[start:stop]
            found.append((places[start:stop], *(column[chosen] for column in carried)))
        return found

    @property
    def place(self) -> type[np.int32] | type[np.int64]:
        """Return the type of a place."""
        return np.int32 if self.cells // self.shards < _SMALL else np.int64


@lru_cache(maxsize=128)
def _owned(cells: int, shards: int, shard: int) -> NDArray[np.int64]:
    from panstream._kernels.shards import rotation

    blocks = np.arange(-(-cells // shards), dtype=np.uint64)
    with np.errstate(over="ignore"):
        turned = rotation.py_func(blocks, _WORD).astype(np.int64)  # type: ignore[arg-type]
    found: NDArray[np.int64] = blocks.astype(np.int64) * shards + (shard - turned) % shards
    found = found[found < cells]
    found.flags.writeable = False
    return found


@dataclass(frozen=True, slots=True)
class Division:
    """A state that is dealt out to shards; each part is a state of some of the cells."""

    algorithm: Divisible[Any]
    shards: int

    @property
    def ownership(self) -> _Ownership:
        """Return who owns which cell."""
        return _Ownership(cells=self.algorithm.cells, shards=self.shards)

    def count(self, shard: int) -> int:
        """Return how many cells a shard owns."""
        return self.ownership.count(shard)

    def join(self, parts: Sequence[Any], released: int) -> Any:
        """Return the whole state that the shards' parts make up."""
        ownership = self.ownership

        def union(name: str, bits: bool) -> NDArray[Any]:
            arrays = [getattr(part, name) for part in parts]
            if not bits:
                return ownership.union(arrays)
            cells = [unpacked(array, ownership.count(shard)) for shard, array in enumerate(arrays)]
            return _packed_and_wiped(ownership.union(cells), *cells)

        return self._made(union, released)

    def cut(self, state: Any, shard: int) -> Any:
        """Return one shard's part of a whole state."""
        ownership = self.ownership

        def part(name: str, bits: bool) -> NDArray[Any]:
            if not bits:
                return ownership.part(getattr(state, name), shard)
            cells = unpacked(getattr(state, name), ownership.cells)
            return _packed_and_wiped(ownership.part(cells, shard), cells)

        return self._made(part, 0)

    def _made(self, array: Callable[[str, bool], NDArray[Any]], released: int) -> Any:
        layout = self.algorithm.layout()
        arrays = {name: array(name, field.kind == "packed") for name, field in layout.items() if field.kind != "int"}
        return self.algorithm.state_type(**arrays, released=released)

    def encode(self, part: Any, shard: int) -> bytes:
        """Return a shard's part as bytes, checked and without pickle."""
        algorithm = self.algorithm
        return codec.encode(type(algorithm).__name__, algorithm.parameters(), part, self._layout(shard))

    def decode(self, data: bytes, shard: int) -> Any:
        """Return the part that :meth:`encode` wrote."""
        return codec.decode(data, self.algorithm.state_type, self._layout(shard))

    def _layout(self, shard: int) -> dict[str, FieldLayout]:
        count = self.count(shard)
        return {
            name: field if field.kind == "int" else replace(field, shape=(*field.shape[:-1], count))
            for name, field in self.algorithm.layout().items()
        }


def wipe_state(state: Any) -> None:
    """Overwrite a state that is given up."""
    for declared in fields(state):
        value = getattr(state, declared.name)
        if isinstance(value, np.ndarray):
            wipe(value)


def _packed_and_wiped(cells: NDArray[np.uint8], *others: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return cells packed; the bytes that they and others were copied to are overwritten."""
    try:
        return packed(cells)
    finally:
        for copied in (cells, *others):
            wipe(copied)
