"""A table of noisy bits from which users are counted: the state and steps that all bitmaps share."""

from __future__ import annotations

import math
import sys
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from panstream.algorithms.distinct.likelihood import Likelihood
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
from panstream.primitives.memory.scratch import Scratch
from panstream.primitives.noise import NoiseSource
from panstream.primitives.packed_bits import pack_bits
from panstream.privacy.bitmap_loss import LevelMoments, reference_users
from panstream.privacy.claim import Claim

_CHUNK = 1 << 17  # rows whose cells are marked at a time, in a cache
_ROWS = 1 << 19  # rows whose cells are drawn at a time: of a large table they wait for memory in any case
_MOST_MARKS = 1 << 21
_CELLS_A_ROW = 16  # of a large table: with more, so few cells of a word are touched that a coin for each row is cheaper
_MAX_CELLS = (1 << 31) - 1


@lru_cache(maxsize=256)
def _moments(law: CoinPair, buckets: int, levels: int, phases: int) -> LevelMoments:
    return LevelMoments.of(
        law.decoder, buckets=buckets, levels=levels, noise=law.noise.variance, phases=phases, turns=law.turns
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class BitmapCounter(RandomizedBits):
    """Base of the bitmaps. Subclasses give ``law``, ``claim`` and ``batch``."""

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
        """Raise InvalidParameter unless the shared parameters keep their rules."""
        check_hash(self.hash)
        owned = _check_table(self.buckets, self.levels, self.key, self.shards, self.owned)
        object.__setattr__(self, "owned", owned)
        if self.expected is not None and not 0 < self.expected < math.inf:
            raise InvalidParameter(f"expected must be a positive number of users, got expected={self.expected}")
        checks.require_at_least(1, releases=self.releases)

    @property
    @abstractmethod
    def law(self) -> CoinPair:
        """Return coins and noise; subclasses say which."""

    @property
    def table(self) -> _CellTable:
        """Return the cells and which of them are looked at."""
        assert isinstance(self.owned, tuple)  # since check()
        return _table_of(self.buckets, self.levels, self.key, self.hash, self.shards, self.owned)

    def moments(self, phases: int = 0) -> LevelMoments:
        """Return the law of what is decoded after ``phases`` announced intrusions."""
        return _moments(self.law, self.table.own_buckets, self.levels, phases)

    def relative_error(self, users: float) -> float:
        """Return the standard error of the count at ``users``, divided by ``users``."""
        return self.moments(self.phases()).relative_error(users)

    @property
    def cells(self) -> int:
        """Return how many cells the table has."""
        return self.table.cells

    @property
    def is_idempotent(self) -> bool:
        """Return True unless an arrival toggles."""
        return self.law.turns == 1

    def initial_state(self, rng: NoiseSource) -> BitState:
        """Return cells drawn as if nobody had come."""
        state = RandomizedBits.initial_cells(self, self.cells, rng)
        self.table.clear_others(state.bits)
        return state

    def initial_cells(self, count: int, rng: NoiseSource) -> BitState:
        """Return cells to which nobody came, of a table that is not dealt out to ``shards`` already."""
        if not self.table.is_whole:
            raise NotSupported("a bitmap that owns some buckets only cannot be divided further")
        return RandomizedBits.initial_cells(self, count, rng)

    def cell_updates(self, batch: ItemBatch, scratch: Scratch) -> Iterator[Touches]:
        """Yield the cell of every row."""
        for cells in self.table.rows(batch, scratch):
            yield (cells,)

    def apply_updates(self, state: BitState, touches: Touches, rng: NoiseSource) -> None:
        """Draw the cell of every row as for a user who came."""
        from panstream.primitives.kernels.algorithms.packed_bits import scatter

        scatter(state.bits, touches[0], rng.bernoulli(self.law.present, touches[0].size))

    def mark_cells(self, batch: ItemBatch, marks: NDArray[np.uint8], scratch: Scratch) -> None:
        """Set ``marks`` to 1 at the cells of the batch; the values of a dictionary are hashed once."""
        self.table.mark(batch, scratch, marks)

    def update(self, state: BitState, batch: ItemBatch, rng: NoiseSource) -> None:
        """Touch the cell of every row.

        Where only touched cells matter, a large batch needs one coin for each cell, not one for each row: cells are
        marked, of a table too large for the cache by single bits, and then drawn.
        """
        table = self.table
        rows = len(batch)
        if table.cells <= min(rows, _MOST_MARKS) and self.is_idempotent:
            self.apply_marked(state, table.mark(batch, rng.scratch), rng)
        elif _MOST_MARKS < table.cells <= _CELLS_A_ROW * rows and table.is_words and self.is_idempotent:
            rng.redraw(self.law.present, state.bits.view(np.uint64), table.mark_packed(batch, rng.scratch))
        else:
            Shardable.update(self, state, batch, rng)
        table.clear_others(state.bits)

    def refresh_shard(self, state: BitState, count: int, rng: NoiseSource) -> None:
        """Freeze what was seen and start afresh."""
        RandomizedBits.refresh_shard(self, state, count, rng)
        self.table.clear_others(state.bits)

    def release(self, state: BitState, rng: NoiseSource) -> Estimate:
        """Publish the noisy number of ones on every level, for each frozen pattern (one, if nothing was announced)."""
        from panstream.primitives.kernels.algorithms.packed_bits import count_set_bits

        state.released = consume_release(state.released, self.releases)
        ones, sizes = np.zeros((2, 1 << len(state.frozen), self.levels), np.int64)
        count_set_bits(state.bits, state.frozen, self.buckets, ones)  # no temporary copy of the state is left behind
        count_set_bits(self.table.own_bits(), state.frozen, self.buckets, sizes)
        rng.add_discrete_laplace(ones.reshape(-1), self.law.noise)
        return self._decode(ones, sizes)

    def _decode(self, ones: NDArray[np.int64], sizes: NDArray[np.int64]) -> Estimate:
        decoder = self.law.decoder
        phases = len(ones).bit_length() - 1
        empty = decoder.pattern_weights(phases) @ (sizes * decoder.zero + ones * (decoder.one - decoder.zero))
        return self._read(Likelihood(self.moments(phases), empty), tuple(int(count) for count in ones.ravel()))

    def expected_estimate(self, users: float) -> Estimate:
        """Return what a release gives where every level is as full as expected when ``users`` came."""
        moments = self.moments()
        return self._read(Likelihood(moments, moments.at(users)[0]), ())

    def _read(self, likelihood: Likelihood, released: tuple[int, ...]) -> Estimate:
        fit = likelihood.fit()
        return Estimate.clipped(
            fit.unbiased,
            (0.0, math.inf),
            standard_error=fit.standard_error,
            claim=self.claim(),
            name="distinct users",
            released=released,
            interval_rule=lambda level: likelihood.interval(fit, level),
        )

    def error_bound(self, *, beta: float, users: float | None = None) -> float:
        """Return the error of the count that is exceeded with probability at most ``beta``.

        It holds for any number of users up to ``users``, which is ``expected`` unless given.
        """
        checks.require_probability(beta=beta)
        expected_users = self.expected if users is None else users
        if expected_users is None or not expected_users > 0:
            raise InvalidParameter(
                f"the error depends on the count: give expected= or a positive users=, got {expected_users}"
            )
        reach = NormalDist().inv_cdf(1 - beta / 2) * self.relative_error(expected_users)
        return expected_users * math.expm1(reach) if reach < 700 else math.inf

    def require_compatible(self, mine: BitState, other: Any, theirs: BitState) -> None:
        """Raise MergeError unless the two bitmaps put users into the same cells and are different states."""
        if mine is theirs or mine.bits is theirs.bits:
            raise MergeError("a bitmap cannot be merged with itself")
        if not isinstance(other, BitmapCounter) or not hasattr(other, "sites"):
            raise MergeError(f"{type(self).__name__} and {type(other).__name__} cannot be merged")
        for name in ("buckets", "levels", "key", "hash", "shards", "releases"):
            if getattr(self, name) != getattr(other, name):
                raise MergeError(f"bitmaps must be built with the same {name} to be merged")


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteBitmap(BitmapCounter):
    """Base of the bitmaps that share ``epsilon`` between cells and releases. Subclasses give ``_split`` too."""

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
    """The cells of a bitmap, and which of them are looked at: a public hash puts each id into one of them.

    Level j takes 2**-(j+1) of the users, the last one twice that; the bucket is uniform. Buckets may be dealt out to
    shards: bucket b belongs to shard b mod ``shards``, and a bitmap looks only at the buckets of the shards it owns.
    """

    buckets: int
    levels: int
    key: int
    hash: StringHash
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

    @property
    def is_words(self) -> bool:
        """Return whether cells make up whole words, whose lowest byte comes first."""
        return self.cells % 64 == 0 and sys.byteorder == "little"

    def own_bits(self) -> NDArray[np.uint8]:
        """Return for every cell, packed, whether it is looked at."""
        return _own_bits(self)

    def clear_others(self, bits: NDArray[np.uint8]) -> None:
        """Set the cells that other shards look at to 0."""
        if not self.is_whole:
            np.bitwise_and(bits, self.own_bits(), out=bits)

    def cells_of(self, values: Integers | Strings, scratch: Scratch, chunk_size: int) -> Iterator[NDArray[np.int32]]:
        """Yield the cell of every value, ``chunk_size`` at a time, in an array that the next ones overwrite."""
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
        """Yield the cell of every row, chunk by chunk; the values of a dictionary are hashed once."""
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
        """Return for every cell whether some row falls into it, or had fallen by the ``marks`` that are given."""
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
        """Return for every cell, packed, whether some row falls into it."""
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


@lru_cache(maxsize=64)
def _table_of(buckets: int, levels: int, key: int, hash: StringHash, shards: int, owned: tuple[int, ...]) -> _CellTable:
    """Return the table, built once for each choice of parameters."""
    return _CellTable(buckets, levels, key, hash, shards, owned)


@lru_cache(maxsize=8)
def _own_bits(table: _CellTable) -> NDArray[np.uint8]:
    owned_buckets = np.isin(np.arange(table.buckets) % table.shards, table.owned).astype(np.uint8)
    bits = pack_bits(np.tile(owned_buckets, table.levels))
    bits.flags.writeable = False
    return bits
