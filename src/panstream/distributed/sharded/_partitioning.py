"""How states are partitioned: single cells by a public keyed hash, or whole tables round-robin.

Cells are taken in blocks of as many as there are shards. Within block b, cell c belongs to shard (c + h(b)) mod
shards, h being a public hash, so each shard owns exactly one cell of every block, whatever pattern the busy cells
have. A shard holds its cell of block b at index b, in a state of the algorithm's own type whose arrays are shorter.

Table t belongs to shard t mod shards, so that short items, which update the first tables only, load all shards.
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

from panstream.core.shardable import Shardable, ShardableTables, Touches, has_tables
from panstream.primitives import codec
from panstream.primitives import validation as checks
from panstream.primitives.codec import FieldLayout
from panstream.primitives.hashing.keys import key_words
from panstream.primitives.memory.scratch import Scratch, wipe
from panstream.primitives.noise import NoiseSource
from panstream.primitives.packed_bits import pack_bits, unpack_bits

_MAX_SHARDS = 4096
_HASH_KEY = key_words(0, "shards")[0]  # public


@lru_cache(maxsize=128)
def _owned(cells: int, shards: int, shard: int) -> NDArray[np.int64]:
    from panstream.primitives.kernels.distributed.shard_routing import rotation

    blocks = np.arange(-(-cells // shards), dtype=np.uint64)
    with np.errstate(over="ignore"):
        turned = rotation.py_func(blocks, _HASH_KEY).astype(np.int64)  # type: ignore[arg-type]
    owned: NDArray[np.int64] = blocks.astype(np.int64) * shards + (shard - turned) % shards
    owned = owned[owned < cells]
    owned.flags.writeable = False  # the cache hands it out again
    return owned


@dataclass(frozen=True, slots=True)
class Partitioning(ABC):
    """How the state of an algorithm is partitioned; each part is a state of the algorithm's own type."""

    algorithm: Any
    shards: int

    def __post_init__(self) -> None:
        checks.require_int(1, _MAX_SHARDS, shards=self.shards)

    @abstractmethod
    def layout(self, shard: int) -> dict[str, FieldLayout]:
        """Return kind and shape of each field of a shard's part."""

    @abstractmethod
    def initial_shard(self, shard: int, rng: NoiseSource) -> Any:
        """Return a shard's part of a state without rows; it is noisy from the start."""

    @abstractmethod
    def refresh(self, part: Any, shard: int, rng: NoiseSource) -> None:
        """Refresh a shard's part after an announced intrusion."""

    @abstractmethod
    def assemble(self, parts: Sequence[Any], released: int) -> Any:
        """Return the complete state from all shards' parts; it counts ``released`` releases."""

    @abstractmethod
    def extract_shard(self, state: Any, shard: int) -> Any:
        """Return a copy of one shard's part of a complete state."""

    def encode(self, part: Any, shard: int) -> bytes:
        """Serialize a shard's part, with a checksum and without pickle."""
        algorithm = self.algorithm
        return codec.encode(type(algorithm).__name__, algorithm.parameters(), part, self.layout(shard))

    def decode(self, data: bytes, shard: int) -> Any:
        """Return the part that `encode` serialized."""
        return codec.decode(data, self.algorithm.state_type, self.layout(shard))


def partitioning_for(algorithm: Any, shards: int) -> Partitioning:
    """Return the partitioning of an algorithm's state, by tables where it has them, else by cells."""
    return (TablePartitioning if has_tables(algorithm) else CellPartitioning)(algorithm, shards)


@dataclass(frozen=True, slots=True)
class CellPartitioning(Partitioning):
    """Partitioning by cells, which are the last axis of every array."""

    algorithm: Shardable[Any]

    def owned(self, shard: int) -> NDArray[np.int64]:
        """Return the cells of a shard, in the order of their indices there."""
        return _owned(self.algorithm.cells, self.shards, shard)

    def count(self, shard: int) -> int:
        """Return the number of cells of a shard."""
        return int(self.owned(shard).size)

    def part(self, cells: NDArray[Any], shard: int) -> NDArray[Any]:
        """Return a copy of the last axis at the cells of a shard."""
        part: NDArray[Any] = cells[..., self.owned(shard)]
        return part

    def union(self, parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
        """Return the complete array from all shards' parts, the inverse of `part`."""
        union = np.empty((*parts[0].shape[:-1], self.algorithm.cells), parts[0].dtype)
        for shard, part in enumerate(parts):
            union[..., self.owned(shard)] = part
        return union

    def split(self, touches: Touches, scratch: Scratch) -> list[Touches]:
        """Return every shard's updates, in order, with its own indices instead of cells.

        Cells beyond the last one are left out. The arrays are new, and the caller wipes them.
        """
        from panstream.primitives.kernels.distributed.shard_routing import count_owners, sort_rows

        cells, *carried = touches
        carried = [np.broadcast_to(column, cells.size) for column in carried]
        owners = scratch.array(cells.size, np.int32)
        counts = np.zeros(self.shards, np.int64)
        count_owners(cells, self.algorithm.cells, self.shards, _HASH_KEY, owners, counts)
        ends = np.cumsum(counts)
        local_cells = np.empty(int(ends[-1]), self.index_type)
        rows = scratch.array(local_cells.size, np.int64)
        sort_rows(cells, owners, self.shards, ends - counts, local_cells, rows)
        parts = []
        for start, stop in zip(ends - counts, ends, strict=True):
            chosen = rows[start:stop]
            parts.append((local_cells[start:stop], *(column[chosen] for column in carried)))
        return parts

    @property
    def index_type(self) -> type[np.int32] | type[np.int64]:
        """The narrowest type that holds a shard's indices: they are most of what a message carries."""
        return np.int32 if self.algorithm.cells // self.shards < 1 << 31 else np.int64

    def layout(self, shard: int) -> dict[str, FieldLayout]:
        """Return the algorithm's layout with a shard's number of cells on the last axis."""
        count = self.count(shard)
        return {
            name: field if field.kind == "int" else replace(field, shape=(*field.shape[:-1], count))
            for name, field in self.algorithm.layout().items()
        }

    def initial_shard(self, shard: int, rng: NoiseSource) -> Any:
        """Return cells without rows."""
        return self.algorithm.initial_cells(self.count(shard), rng)

    def refresh(self, part: Any, shard: int, rng: NoiseSource) -> None:
        """Freeze the cells that may have been copied, and start new ones."""
        self.algorithm.refresh_shard(part, self.count(shard), rng)

    def assemble(self, parts: Sequence[Any], released: int) -> Any:
        """Return the complete state."""

        def union(name: str, bits: bool) -> NDArray[Any]:
            arrays = [getattr(part, name) for part in parts]
            if not bits:
                return self.union(arrays)
            cells = [unpack_bits(array, self.count(shard)) for shard, array in enumerate(arrays)]
            return _pack_and_wipe(self.union(cells), *cells)

        return self._build_state(union, released)

    def extract_shard(self, state: Any, shard: int) -> Any:
        """Return copies of a shard's cells."""

        def part(name: str, bits: bool) -> NDArray[Any]:
            if not bits:
                return self.part(getattr(state, name), shard)
            cells = unpack_bits(getattr(state, name), self.algorithm.cells)
            return _pack_and_wipe(self.part(cells, shard), cells)

        return self._build_state(part, 0)

    def _build_state(self, array: Callable[[str, bool], NDArray[Any]], released: int) -> Any:
        layout = self.algorithm.layout()
        arrays = {name: array(name, field.kind == "packed") for name, field in layout.items() if field.kind != "int"}
        return self.algorithm.state_type(**arrays, released=released)


@dataclass(frozen=True, slots=True)
class TablePartitioning(Partitioning):
    """Partitioning by tables, which are slices of the first axis of every array."""

    algorithm: ShardableTables[Any]

    def owned(self, shard: int) -> NDArray[np.int64]:
        """Return the tables of a shard."""
        return np.arange(shard, self.algorithm.tables, self.shards)

    def indices(self, shard: int) -> Mapping[str, NDArray[np.int64]]:
        """Return for every array which entries of its first axis a shard owns."""
        return self.algorithm.table_offsets(self.owned(shard))

    def layout(self, shard: int) -> dict[str, FieldLayout]:
        """Return the algorithm's layout with a shard's tables on the first axis."""
        indices = self.indices(shard)
        return {
            name: replace(field, shape=(indices[name].size, *field.shape[1:])) if name in indices else field
            for name, field in self.algorithm.layout().items()
        }

    def shapes(self, shard: int) -> dict[str, tuple[int, ...]]:
        """Return the shapes of a shard's arrays."""
        layout = self.layout(shard)
        return {name: tuple(size or 0 for size in layout[name].shape) for name in self.indices(shard)}

    def cells(self, shard: int) -> int:
        """Return the number of cells in a shard's tables."""
        return sum(math.prod(shape) for shape in self.shapes(shard).values())

    def initial_shard(self, shard: int, rng: NoiseSource) -> Any:
        """Return tables that hold one draw of noise."""
        part = self.algorithm.zero_tables(self.owned(shard))
        self.algorithm.refresh(part, rng)
        return part

    def refresh(self, part: Any, shard: int, rng: NoiseSource) -> None:
        """Add one draw of noise."""
        self.algorithm.refresh(part, rng)

    def with_release_noise(self, part: Any, rng: NoiseSource) -> Any:
        """Return a copy of a part with the noise of a release added."""
        values = {field.name: getattr(part, field.name) for field in fields(part)}
        copied = {name: value.copy() if isinstance(value, np.ndarray) else value for name, value in values.items()}
        noisy = self.algorithm.state_type(**copied)
        self.algorithm.refresh(noisy, rng)
        return noisy

    def assemble(self, parts: Sequence[Any], released: int) -> Any:
        """Return the complete state; where parts differ in their number of refreshes, it has the largest."""
        state = self.algorithm.zero_tables(np.arange(self.algorithm.tables))
        for shard, part in enumerate(parts):
            indices = self.indices(shard)
            for name in self.algorithm.layout():
                if name in indices:
                    getattr(state, name)[indices[name]] = getattr(part, name)
                else:
                    setattr(state, name, max(getattr(state, name), getattr(part, name)))
        state.released = released
        return state

    def extract_shard(self, state: Any, shard: int) -> Any:
        """Return copies of a shard's tables."""
        indices = self.indices(shard)
        values = {field.name: getattr(state, field.name) for field in fields(state)}
        cut = {name: value[indices[name]] if name in indices else value for name, value in values.items()}
        return self.algorithm.state_type(**{**cut, "released": 0})


def wipe_state(state: Any) -> None:
    """Wipe the arrays of a state that is no longer needed."""
    for declared in fields(state):
        value = getattr(state, declared.name)
        if isinstance(value, np.ndarray):
            wipe(value)


def _pack_and_wipe(cells: NDArray[np.uint8], *others: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Pack cells into bits, and wipe the unpacked copies."""
    try:
        return pack_bits(cells)
    finally:
        for copied in (cells, *others):
            wipe(copied)
