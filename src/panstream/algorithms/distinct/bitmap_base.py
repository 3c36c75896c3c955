"""A table of noisy bits from which distinct users are counted: the state and steps that all bitmaps share."""

from __future__ import annotations

import math
import sys
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from panstream.algorithms.distinct.likelihood import Likelihood, count_error_bound
from panstream.algorithms.randomized_bits import MAX_PHASES, BitState, CoinPair, RandomizedBits, bit_claim
from panstream.core.algorithm import consume_release
from panstream.core.estimate import Estimate
from panstream.core.shardable import Shardable, Touches
from panstream.errors import InvalidParameter, MergeError, NotSupported
from panstream.primitives import validation as checks
from panstream.primitives.hashing import (
    MAX_LEVELS,
    StringHash,
    cells_of_integers,
    cells_of_strings,
    check_hash,
    check_key,
    mark_integers_packed,
    mark_strings,
    mark_strings_packed,
)
from panstream.primitives.inputs import Dictionary, Integers, ItemBatch, Strings
from panstream.primitives.inputs.argument import read_only
from panstream.primitives.memory.scratch import Scratch
from panstream.primitives.noise import NoiseSource
from panstream.primitives.packed_bits import pack_bits
from panstream.privacy.bitmap_loss import LevelMoments, reference_users
from panstream.privacy.claim import Claim

_CHUNK = 1 << 17  # rows hashed at a time where cells are marked: their cells stay in the cache
_ROWS = 1 << 19  # rows hashed at a time where cells are drawn: a large table misses the cache in any case
_MAX_BYTE_MARKS = 1 << 21  # cells marked with a byte each, which then fit into the cache; more are marked with bits
_MAX_CELLS_PER_ROW = (
    16  # of a table with bit marks; with more a word has so few touched cells that row coins are cheaper
)
_MAX_CELLS = (1 << 31) - 1


@lru_cache(maxsize=256)
def _moments(law: CoinPair, buckets: int, levels: int, phases: int) -> LevelMoments:
    return LevelMoments.of(
        law.decoder, buckets=buckets, levels=levels, noise=law.noise.variance, phases=phases, turns=law.turns
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class BitmapCounter(RandomizedBits):
    """Base of the bitmaps. Subclasses give ``law``, ``claim`` and ``batch``.

    Args:
        buckets: Columns of the bitmap; cells are bits, in memory and when stored.
        levels: Rows of the bitmap, each for half as many ids as the one before.
        expected: About how many will come, for ``error_bound``; the best split of epsilon depends on it only if
            intrusions are announced.
        releases: How many estimates will be published.
        key: Public number that picks the hash function.
        hash: Of strings, "fold" or, at half the speed, "siphash", which withstands chosen ids if ``key`` is secret;
            integers have a hash function of their own.
        shards: Number of shards that divide the cells among them; see *Merging* of `Bitmap`.
        owned: Numbers of the shards that this bitmap holds; see *Merging* of `Bitmap`.
    """

    proof: ClassVar[str] = "bitmap.md"

    buckets: int = 4096
    levels: int = 24
    expected: float | None = None
    releases: int = 1
    key: int = 0
    hash: StringHash = "fold"
    shards: int = 1
    owned: int | tuple[int, ...] | None = None

    def check(self) -> None:
        """Raise InvalidParameter if a parameter that all bitmaps share is out of range."""
        check_hash(self.hash)
        owned = _check_table(self.buckets, self.levels, self.key, self.shards, self.owned)
        object.__setattr__(self, "owned", owned)
        if self.expected is not None and not 0 < self.expected < math.inf:
            raise InvalidParameter(f"expected must be a positive number of users, got expected={self.expected}")
        checks.require_at_least(1, releases=self.releases)

    @property
    @abstractmethod
    def law(self) -> CoinPair:
        """Return the coins of a cell and the release noise."""

    @property
    def table(self) -> _CellTable:
        """Return the map from ids to cells, and which cells this bitmap owns."""
        assert isinstance(self.owned, tuple)  # since check()
        return _cell_table(self.buckets, self.levels, self.key, self.hash, self.shards, self.owned)

    def moments(self, phases: int = 0) -> LevelMoments:
        """Return the moments of the decoded empty cells after ``phases`` announced intrusions."""
        return _moments(self.law, self.table.owned_buckets, self.levels, phases)

    def relative_error(self, users: float) -> float:
        """Return the standard error of the count at ``users``, divided by ``users``."""
        return self.moments(self.phases()).relative_error(users)

    @property
    def cells(self) -> int:
        """Return the number of cells, owned or not."""
        return self.table.cells

    @property
    def is_idempotent(self) -> bool:
        """Return True unless an arrival toggles its cell."""
        return self.law.turns == 1

    def initial_state(self, rng: NoiseSource) -> BitState:
        """Return cells drawn as if no user had appeared."""
        state = RandomizedBits.initial_cells(self, self.cells, rng)
        self.table.clear_others(state.bits)
        return state

    def initial_cells(self, count: int, rng: NoiseSource) -> BitState:
        """Return untouched cells for one shard.

        Raises:
            NotSupported: The bitmap owns only some shards already.
        """
        if not self.table.owns_all:
            raise NotSupported("a bitmap that owns some buckets only cannot be divided further")
        return RandomizedBits.initial_cells(self, count, rng)

    def cell_updates(self, batch: ItemBatch, scratch: Scratch) -> Iterator[Touches]:
        """Yield the cells of the rows."""
        for cells in self.table.rows(batch, scratch):
            yield (cells,)

    def apply_updates(self, state: BitState, touches: Touches, rng: NoiseSource) -> None:
        """Redraw the cell of every row as for a present user."""
        from panstream.primitives.kernels.algorithms.packed_bits import scatter

        scatter(state.bits, touches[0], rng.bernoulli(self.law.present, touches[0].size))

    def mark_cells(self, batch: ItemBatch, marks: NDArray[np.uint8], scratch: Scratch) -> None:
        """Set ``marks`` to 1 at the cells of the batch; dictionary values are hashed once."""
        self.table.mark(batch, scratch, marks)

    def update(self, state: BitState, batch: ItemBatch, rng: NoiseSource) -> None:
        """Redraw or toggle the cell of every row.

        If redrawing is idempotent, a large batch needs one coin per cell instead of one per row: cells are marked
        first, with a byte each or, in a table larger than the cache, with a bit each, and the marked ones are redrawn.
        """
        table = self.table
        rows = len(batch)
        if table.cells <= min(rows, _MAX_BYTE_MARKS) and self.is_idempotent:
            self.apply_marked(state, table.mark(batch, rng.scratch), rng)
        elif _MAX_BYTE_MARKS < table.cells <= _MAX_CELLS_PER_ROW * rows and table.fills_words and self.is_idempotent:
            rng.redraw(self.law.present, state.bits.view(np.uint64), table.mark_packed(batch, rng.scratch))
        else:
            Shardable.update(self, state, batch, rng)
        table.clear_others(state.bits)

    def refresh_shard(self, state: BitState, count: int, rng: NoiseSource) -> None:
        """Freeze what was copied of ``count`` cells, and draw them again."""
        RandomizedBits.refresh_shard(self, state, count, rng)
        self.table.clear_others(state.bits)

    def release(self, state: BitState, rng: NoiseSource) -> Estimate:
        """Publish the noisy number of ones on every level, for each frozen pattern (one, if nothing was announced)."""
        from panstream.primitives.kernels.algorithms.packed_bits import count_set_bits

        state.released = consume_release(state.released, self.releases)
        ones, sizes = np.zeros((2, 1 << len(state.frozen), self.levels), np.int64)
        # Without an unpacked copy of the state.
        count_set_bits(read_only(state.bits), state.frozen, self.buckets, ones)
        count_set_bits(self.table.owned_bits(), state.frozen, self.buckets, sizes)
        rng.add_discrete_laplace(ones.reshape(-1), self.law.noise)
        return self._decode(ones, sizes)

    def _decode(self, ones: NDArray[np.int64], sizes: NDArray[np.int64]) -> Estimate:
        decoder = self.law.decoder
        phases = len(ones).bit_length() - 1
        # Unbiased number of cells that stayed empty in all phases, level by level (bitmap.md, Lemma 2).
        empty = decoder.pattern_weights(phases) @ (sizes * decoder.zero + ones * (decoder.one - decoder.zero))
        released = tuple(int(count) for count in ones.ravel())
        return Likelihood(self.moments(phases), empty).estimate(self.claim(), released)

    def expected_estimate(self, users: float) -> Estimate:
        """Return the release in which every level is as full as expected after ``users`` users."""
        moments = self.moments()
        return Likelihood(moments, moments.at(users)[0]).estimate(self.claim(), ())

    def error_bound(self, *, beta: float, users: float | None = None) -> float:
        """Return the error of the count that is exceeded with probability at most ``beta``.

        It holds for any number of users up to ``users``, which is ``expected`` unless given.
        """
        return count_error_bound(self.relative_error, self.expected if users is None else users, beta)

    def require_compatible(self, mine: BitState, other: Any, theirs: BitState) -> None:
        """Raise MergeError unless both bitmaps map users to the same cells and are different states."""
        if mine is theirs or mine.bits is theirs.bits:
            raise MergeError("a bitmap cannot be merged with itself")
        if not isinstance(other, BitmapCounter) or not hasattr(other, "sites"):
            raise MergeError(f"{type(self).__name__} and {type(other).__name__} cannot be merged")
        for name in ("buckets", "levels", "key", "hash", "shards", "releases"):
            if getattr(self, name) != getattr(other, name):
                raise MergeError(f"bitmaps must be built with the same {name} to be merged")


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteBitmap(BitmapCounter):
    """Base of the bitmaps that divide ``epsilon`` between cells and releases. Subclasses give ``_split`` too.

    Args:
        epsilon: Total loss; ``math.inf`` switches all noise off, for tests.
        epsilon_state: Share of epsilon that is spent on the cells; the best by default.
        announced: How many announced intrusions to pay for in advance; each is covered only if no row was applied
            between the copy and the refresh.
    """

    epsilon: float
    epsilon_state: float | None = None
    announced: int = 0

    def __post_init__(self) -> None:
        self.check()
        checks.require_positive(epsilon=self.epsilon)
        checks.require_integer_in_range(0, MAX_PHASES, announced=self.announced)
        top = self.epsilon / (self.announced + 1)
        if self.epsilon_state is not None and not 0 < self.epsilon_state < top:
            raise InvalidParameter(f"epsilon_state must be in (0, {top}), got epsilon_state={self.epsilon_state}")

    @abstractmethod
    def _split(self) -> tuple[float, float]:
        """Return (epsilon_state, kappa)."""

    @property
    def _tuned_for(self) -> float:
        return reference_users(self.buckets, self.levels) if self.expected is None else self.expected

    def claim(self) -> Claim:
        """Return the exact joint loss of one copy at any time and all releases, in either order."""
        state, _ = self._split()
        return bit_claim(self.epsilon, state, self.announced, self.releases, "the hash function and its key")


def _check_table(buckets: Any, levels: Any, key: Any, shards: Any, owned: Any) -> tuple[int, ...]:
    """Return the owned shards in order, or raise InvalidParameter."""
    checks.require_int(1, _MAX_CELLS, buckets=buckets)
    checks.require_int(1, MAX_LEVELS, levels=levels)
    if buckets * levels > _MAX_CELLS:
        raise InvalidParameter(f"buckets * levels must be below 2**31, got {buckets * levels}")
    check_key(key)
    checks.require_int(1, buckets, shards=shards)
    chosen = tuple(range(shards)) if owned is None else (owned,) if isinstance(owned, int) else tuple(owned)
    if not chosen or list(chosen) != sorted({int(shard) for shard in chosen if 0 <= shard < shards}):
        raise InvalidParameter(f"owned must name different shards in 0..{shards - 1}, in order, got owned={owned!r}")
    return chosen


@dataclass(frozen=True, slots=True)
class _CellTable:
    """The cells of a bitmap, and which of them it owns: a public hash maps each id to one cell.

    Level j takes 2**-(j+1) of the users, the last one twice that; the bucket is uniform. Buckets may be divided among
    shards: bucket b belongs to shard b mod ``shards``, and a bitmap counts only the buckets of the shards it owns.
    """

    buckets: int
    levels: int
    key: int
    hash: StringHash
    shards: int
    owned: tuple[int, ...]

    @property
    def cells(self) -> int:
        """Return the number of cells, owned or not."""
        return self.buckets * self.levels

    @property
    def owned_buckets(self) -> int:
        """Return how many buckets of each level are owned."""
        return sum((self.buckets - shard - 1) // self.shards + 1 for shard in self.owned)

    @property
    def owns_all(self) -> bool:
        """Return whether every cell is owned."""
        return len(self.owned) == self.shards

    @property
    def fills_words(self) -> bool:
        """Return whether the packed cells can be read as little-endian 64-bit words without a remainder."""
        return self.cells % 64 == 0 and sys.byteorder == "little"

    def owned_bits(self) -> NDArray[np.uint8]:
        """Return for every cell, packed, whether it is owned."""
        return _owned_bits(self)

    def clear_others(self, bits: NDArray[np.uint8]) -> None:
        """Set the cells of other shards to 0, so that the shards' states can be merged by OR."""
        if not self.owns_all:
            np.bitwise_and(bits, self.owned_bits(), out=bits)

    def cells_of(self, values: Integers | Strings, scratch: Scratch, chunk_size: int) -> Iterator[NDArray[np.int32]]:
        """Yield the cells of all values, ``chunk_size`` at a time, in one array that is overwritten every time."""
        out = scratch.array(min(chunk_size, len(values)), np.int32)
        for start in range(0, len(values), chunk_size):
            stop = min(start + chunk_size, len(values))
            chunk = out[: stop - start]
            if isinstance(values, Integers):
                cells_of_integers(values.values[start:stop], self.key, self.buckets, self.levels, chunk)
            else:
                offsets = values.offsets[start : stop + 1]
                cells_of_strings(offsets, values.data, self.key, self.buckets, self.levels, chunk, hash=self.hash)
            yield chunk

    def rows(self, items: ItemBatch, scratch: Scratch) -> Iterator[NDArray[np.int32]]:
        """Yield the cells of the rows, chunk by chunk; dictionary values are hashed once."""
        for part in items.parts:
            yield from self._rows_of(part, scratch)

    def _rows_of(self, part: Integers | Strings | Dictionary, scratch: Scratch) -> Iterator[NDArray[np.int32]]:
        if not isinstance(part, Dictionary):
            yield from self.cells_of(part, scratch, _ROWS)
            return
        cells = scratch.array(len(part.values), np.int32)
        done = 0
        for chunk in self.cells_of(part.values, scratch, _CHUNK):
            cells[done : done + chunk.size] = chunk
            done += chunk.size
        out = scratch.array(min(_ROWS, len(part)), np.int32)
        for start in range(0, len(part), _ROWS):
            codes = part.codes[start : start + _ROWS]
            yield cells.take(codes, out=out[: codes.size], mode="clip")  # codes are in range; "raise" would copy

    def mark(self, items: ItemBatch, scratch: Scratch, marks: NDArray[np.uint8] | None = None) -> NDArray[np.uint8]:
        """Return a byte per cell that is 1 if a row falls into it; given ``marks`` are added to in place."""
        from panstream.primitives.kernels.hashing.cell_marks import mark, mark_seen

        if marks is None:
            marks = scratch.array(self.cells)
            marks.fill(0)
        for part in items.parts:
            if isinstance(part, Strings) and self.hash == "fold":
                mark_strings(part.offsets, part.data, self.key, self.buckets, self.levels, marks)
                continue
            if not isinstance(part, Dictionary):
                for chunk in self.cells_of(part, scratch, _CHUNK):
                    mark(marks, chunk)
                continue
            seen = scratch.array(len(part.values))
            seen.fill(0)
            mark(seen, part.codes)
            done = 0
            for chunk in self.cells_of(part.values, scratch, _CHUNK):
                mark_seen(marks, chunk, seen[done : done + chunk.size])
                done += chunk.size
        return marks

    def mark_packed(self, items: ItemBatch, scratch: Scratch) -> NDArray[np.uint64]:
        """Return a bit per cell, packed, that is 1 if a row falls into it."""
        from panstream.primitives.kernels.hashing.packed_cell_marks import mark

        marks: NDArray[np.uint64] = scratch.array(self.cells // 64, np.uint64)
        marks.fill(0)
        for part in items.parts:
            if isinstance(part, Integers):
                mark_integers_packed(part.values, self.key, self.buckets, self.levels, marks)
            elif isinstance(part, Strings) and self.hash == "fold":
                mark_strings_packed(part.offsets, part.data, self.key, self.buckets, self.levels, marks)
            else:
                for cells in self._rows_of(part, scratch):
                    mark(cells, marks)
        return marks


_cell_table = lru_cache(maxsize=64)(_CellTable)


@lru_cache(maxsize=8)
def _owned_bits(table: _CellTable) -> NDArray[np.uint8]:
    owned_buckets = np.isin(np.arange(table.buckets) % table.shards, table.owned).astype(np.uint8)
    bits = pack_bits(np.tile(owned_buckets, table.levels))
    bits.flags.writeable = False
    return bits
