"""How states are dealt out: single cells by a public keyed hash, or whole tables in turn.

Cells are taken in blocks of as many as there are shards. Within block b, cell c belongs to shard (c + h(b)) mod
shards, h being a public hash, so each shard owns exactly one cell of every block, whatever pattern the busy cells
have. A shard keeps its cell of block b at place b, in a state of the algorithm's own type whose arrays are shorter.

Table t belongs to shard t mod shards, so that short names, which move the first tables only, are work for all.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.core.shardable import Shardable, ShardableTables, Touches
from panstream.primitives import codec
from panstream.primitives import validation as checks
from panstream.primitives.codec import FieldLayout
from panstream.primitives.hashing.keys import key_words
from panstream.primitives.memory.scratch import Scratch, wipe
from panstream.primitives.noise import NoiseSource
from panstream.primitives.packed_bits import pack_bits, unpack_bits

_MOST_SHARDS = 4096
_WORD = key_words(0, "shards")[0]  # the public number that the hash starts from
_SMALL = 1 << 31  # places below this travel as int32


@dataclass(frozen=True, slots=True, kw_only=True)
class _CellOwnership:
    """How ``cells`` cells are dealt out to ``shards`` shards. Both are public.

    >>> whole = np.arange(10)
    >>> ownership = _CellOwnership(cells=10, shards=3)
    >>> parts = [ownership.part(whole, shard) for shard in range(3)]
    >>> ownership.union(parts).tolist() == whole.tolist()
    True
    """

    cells: int
    shards: int

    def __post_init__(self) -> None:
        checks.require_int(1, _MOST_SHARDS, shards=self.shards)

    def owned(self, shard: int) -> NDArray[np.int64]:
        """Return the cells of a shard, in the order of their places."""
        return _owned(self.cells, self.shards, shard)

    def count(self, shard: int) -> int:
        """Return how many cells a shard owns."""
        return int(self.owned(shard).size)

    def part(self, cells: NDArray[Any], shard: int) -> NDArray[Any]:
        """Return a copy of the last axis at the cells of a shard."""
        part: NDArray[Any] = cells[..., self.owned(shard)]
        return part

    def union(self, parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
        """Return the whole array that all shards' parts make up."""
        union = np.empty((*parts[0].shape[:-1], self.cells), parts[0].dtype)
        for shard, part in enumerate(parts):
            union[..., self.owned(shard)] = part
        return union

    def split(self, touches: Touches, scratch: Scratch) -> list[Touches]:
        """Return every shard's touches, in order, with places instead of cells; those beyond the cells are left out.

        The arrays are fresh; whoever takes them in wipes them.
        """
        from panstream.primitives.kernels.distributed.shard_routing import count_owners, sort_rows

        cells, *carried = touches
        carried = [np.broadcast_to(column, cells.size) for column in carried]
        owners = scratch.array(cells.size, np.int32)
        counts = np.zeros(self.shards, np.int64)
        count_owners(cells, self.cells, self.shards, _WORD, owners, counts)
        ends = np.cumsum(counts)
        local_cells = np.empty(int(ends[-1]), self.place)
        rows = scratch.array(local_cells.size, np.int64)
        sort_rows(cells, owners, self.shards, ends - counts, local_cells, rows)
        parts = []
        for start, stop in zip(ends - counts, ends, strict=True):
            chosen = rows[start:stop]
            parts.append((local_cells[start:stop], *(column[chosen] for column in carried)))
        return parts

    @property
    def place(self) -> type[np.int32] | type[np.int64]:
        """Return the type of a place."""
        return np.int32 if self.cells // self.shards < _SMALL else np.int64


@lru_cache(maxsize=128)
def _owned(cells: int, shards: int, shard: int) -> NDArray[np.int64]:
    from panstream.primitives.kernels.distributed.shard_routing import rotation

    blocks = np.arange(-(-cells // shards), dtype=np.uint64)
    with np.errstate(over="ignore"):
        turned = rotation.py_func(blocks, _WORD).astype(np.int64)  # type: ignore[arg-type]
    owned: NDArray[np.int64] = blocks.astype(np.int64) * shards + (shard - turned) % shards
    owned = owned[owned < cells]
    owned.flags.writeable = False
    return owned


@dataclass(frozen=True, slots=True)
class Partitioning(ABC):
    """A state that is dealt out to shards; each part is a state of the algorithm's own type."""

    algorithm: Any
    shards: int

    def __post_init__(self) -> None:
        checks.require_int(1, _MOST_SHARDS, shards=self.shards)

    @abstractmethod
    def layout(self, shard: int) -> dict[str, FieldLayout]:
        """Return what each field of a shard's part looks like."""

    @abstractmethod
    def initial_shard(self, shard: int, rng: NoiseSource) -> Any:
        """Return a shard's part of a state that no row has reached."""

    @abstractmethod
    def refresh(self, part: Any, shard: int, rng: NoiseSource) -> None:
        """Make a shard's part safe again after an announced intrusion."""

    @abstractmethod
    def assemble(self, parts: Sequence[Any], released: int) -> Any:
        """Return the whole state that the shards' parts make up."""

    @abstractmethod
    def extract_shard(self, state: Any, shard: int) -> Any:
        """Return one shard's part of a whole state."""

    def encode(self, part: Any, shard: int) -> bytes:
        """Return a shard's part as bytes, checked and without pickle."""
        algorithm = self.algorithm
        return codec.encode(type(algorithm).__name__, algorithm.parameters(), part, self.layout(shard))

    def decode(self, data: bytes, shard: int) -> Any:
        """Return the part that `encode` wrote."""
        return codec.decode(data, self.algorithm.state_type, self.layout(shard))


def partitioning_for(algorithm: Any, shards: int) -> Partitioning:
    """Return how the state of an algorithm is dealt out."""
    return (TablePartitioning if isinstance(algorithm, ShardableTables) else CellPartitioning)(algorithm, shards)


@dataclass(frozen=True, slots=True)
class CellPartitioning(Partitioning):
    """A state of which each part has some of the cells."""

    algorithm: Shardable[Any]

    @property
    def ownership(self) -> _CellOwnership:
        """Return who owns which cell."""
        return _CellOwnership(cells=self.algorithm.cells, shards=self.shards)

    def count(self, shard: int) -> int:
        """Return how many cells a shard owns."""
        return self.ownership.count(shard)

    def layout(self, shard: int) -> dict[str, FieldLayout]:
        """Return the fields with fewer cells on their last axis."""
        count = self.count(shard)
        return {
            name: field if field.kind == "int" else replace(field, shape=(*field.shape[:-1], count))
            for name, field in self.algorithm.layout().items()
        }

    def initial_shard(self, shard: int, rng: NoiseSource) -> Any:
        """Return cells that nobody has touched."""
        return self.algorithm.initial_cells(self.count(shard), rng)

    def refresh(self, part: Any, shard: int, rng: NoiseSource) -> None:
        """Freeze what was seen and start afresh."""
        self.algorithm.refresh_shard(part, self.count(shard), rng)

    def assemble(self, parts: Sequence[Any], released: int) -> Any:
        """Put every cell in its place."""
        ownership = self.ownership

        def union(name: str, bits: bool) -> NDArray[Any]:
            arrays = [getattr(part, name) for part in parts]
            if not bits:
                return ownership.union(arrays)
            cells = [unpack_bits(array, ownership.count(shard)) for shard, array in enumerate(arrays)]
            return _packed_and_wiped(ownership.union(cells), *cells)

        return self._made(union, released)

    def extract_shard(self, state: Any, shard: int) -> Any:
        """Return copies of a shard's cells."""
        ownership = self.ownership

        def part(name: str, bits: bool) -> NDArray[Any]:
            if not bits:
                return ownership.part(getattr(state, name), shard)
            cells = unpack_bits(getattr(state, name), ownership.cells)
            return _packed_and_wiped(ownership.part(cells, shard), cells)

        return self._made(part, 0)

    def _made(self, array: Callable[[str, bool], NDArray[Any]], released: int) -> Any:
        layout = self.algorithm.layout()
        arrays = {name: array(name, field.kind == "packed") for name, field in layout.items() if field.kind != "int"}
        return self.algorithm.state_type(**arrays, released=released)


@dataclass(frozen=True, slots=True)
class TablePartitioning(Partitioning):
    """A state of which each part has some of the tables."""

    algorithm: ShardableTables[Any]

    def owned(self, shard: int) -> NDArray[np.int64]:
        """Return the tables of a shard."""
        return np.arange(shard, self.algorithm.tables, self.shards)

    def places(self, shard: int) -> Mapping[str, NDArray[np.int64]]:
        """Return which entries of the first axis of every array a shard has."""
        return self.algorithm.table_offsets(self.owned(shard))

    def layout(self, shard: int) -> dict[str, FieldLayout]:
        """Return the fields with fewer tables on their first axis."""
        indices = self.places(shard)
        return {
            name: replace(field, shape=(indices[name].size, *field.shape[1:])) if name in indices else field
            for name, field in self.algorithm.layout().items()
        }

    def shapes(self, shard: int) -> dict[str, tuple[int, ...]]:
        """Return the shapes of a shard's arrays."""
        layout = self.layout(shard)
        return {name: tuple(size or 0 for size in layout[name].shape) for name in self.places(shard)}

    def cells(self, shard: int) -> int:
        """Return how many cells a shard's tables have."""
        return sum(math.prod(shape) for shape in self.shapes(shard).values())

    def initial_shard(self, shard: int, rng: NoiseSource) -> Any:
        """Return tables of one draw of noise."""
        part = self.algorithm.zero_tables(self.owned(shard))
        self.algorithm.refresh(part, rng)
        return part

    def refresh(self, part: Any, shard: int, rng: NoiseSource) -> None:
        """Add one draw of noise."""
        self.algorithm.refresh(part, rng)

    def shown(self, part: Any, rng: NoiseSource) -> Any:
        """Return a copy with the noise of a release."""
        values = {field.name: getattr(part, field.name) for field in fields(part)}
        copied = {name: value.copy() if isinstance(value, np.ndarray) else value for name, value in values.items()}
        shown = self.algorithm.state_type(**copied)
        self.algorithm.refresh(shown, rng)
        return shown

    def assemble(self, parts: Sequence[Any], released: int) -> Any:
        """Put every table in its place; of parts that were refreshed differently often, the largest number counts."""
        state = self.algorithm.zero_tables(np.arange(self.algorithm.tables))
        for shard, part in enumerate(parts):
            indices = self.places(shard)
            for name in self.algorithm.layout():
                if name in indices:
                    getattr(state, name)[indices[name]] = getattr(part, name)
                else:
                    setattr(state, name, max(getattr(state, name), getattr(part, name)))
        state.released = released
        return state

    def extract_shard(self, state: Any, shard: int) -> Any:
        """Return copies of a shard's tables."""
        indices = self.places(shard)
        values = {field.name: getattr(state, field.name) for field in fields(state)}
        cut = {name: value[indices[name]] if name in indices else value for name, value in values.items()}
        return self.algorithm.state_type(**{**cut, "released": 0})


def wipe_state(state: Any) -> None:
    """Overwrite a state that is given up."""
    for declared in fields(state):
        value = getattr(state, declared.name)
        if isinstance(value, np.ndarray):
            wipe(value)


def _packed_and_wiped(cells: NDArray[np.uint8], *others: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return cells packed; the bytes that they and others were copied to are overwritten."""
    try:
        return pack_bits(cells)
    finally:
        for copied in (cells, *others):
            wipe(copied)
