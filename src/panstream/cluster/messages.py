"""What a step sends to every shard: as many bytes whatever the rows hold and whoever owns their cells.

Of every query, every shard is sent either places, padded with -1 to a size that the number of rows in the step
decides, or one bit for each of its cells. Which of the two, for which states, and with which columns is decided by
public numbers alone.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.cluster.division import Division
from panstream.divisible import Divisible, Touches
from panstream.packed import packed, unpacked
from panstream.randomness import Source
from panstream.scratch import Scratch, wipe

Slot = tuple[int, int]  # window, group

_LEAST = 256  # rows: fewer look the same
_FINE = 4096  # up to here sizes are powers of two, from here on multiples of this


def _padded(rows: int) -> int:
    """Return how many rows are sent for a step of so many: the same for all up to 256.

    >>> [_padded(rows) for rows in (0, 1, 256, 257, 4096, 4097, 131072)]
    [256, 256, 256, 512, 4096, 8192, 131072]
    """
    if rows <= _FINE:
        return max(_LEAST, 1 << (max(rows, 1) - 1).bit_length())
    return -(-rows // _FINE) * _FINE


@dataclass(frozen=True, slots=True, eq=False)
class CellMessage:
    """What one shard does for one query: to its ``slots``, all that are open, either marks or rows.

    ``marks`` has a row of bits for each slot. ``rows`` has the places, -1 for no row; where there are several slots,
    which; and the what the algorithm's rows carry. What is in it is never shown: ``repr`` leaves it out.
    """

    query: str
    slots: NDArray[np.int64]
    marks: NDArray[np.uint8] | None = field(default=None, repr=False)
    rows: Touches = field(default=(), repr=False)

    def apply(self, algorithm: Divisible[Any], state_of: Callable[[Slot], Any], random: Callable[[], Source]) -> None:
        """Do to a shard's states what the message says; the caller wipes it."""
        slots = [(int(window), int(group)) for window, group in self.slots]
        if self.marks is not None:
            for slot, bits in zip(slots, self.marks, strict=True):
                if bits.any():
                    marks = unpacked(bits, 8 * bits.size)  # 0 beyond the last cell
                    try:
                        with random() as source:
                            algorithm.touch_marked(state_of(slot), marks, source)
                    finally:
                        wipe(marks)
            return
        several = len(slots) > 1
        present = np.flatnonzero(self.rows[0] >= 0)
        if several:
            which = self.rows[1][present]
            present = present[np.argsort(which, kind="stable")]
            ends = np.cumsum(np.bincount(which, minlength=len(slots)))
        else:
            ends = np.array([present.size])
        for slot, start, stop in zip(slots, [0, *ends[:-1]], ends, strict=True):
            if start < stop:
                chosen = present[start:stop]
                touches = tuple(_wide(column[chosen]) for column in (self.rows[0], *self.rows[1 + several :]))
                with random() as source:
                    algorithm.touch(state_of(slot), touches, source)
                for column in touches:
                    wipe(column)
        wipe(present)

    def wipe(self) -> None:
        """Overwrite it, also where it came as memory that may not be written."""
        for array in self.rows if self.marks is None else (self.marks,):
            if array.nbytes and array.flags.c_contiguous:
                ctypes.memset(array.ctypes.data, 0, array.nbytes)
            elif array.nbytes:
                array.fill(0)


def wipe_messages(messages: Iterable[CellMessage]) -> None:
    """Overwrite what has travelled."""
    for message in messages:
        message.wipe()


@dataclass(slots=True, eq=False)
class _Waiting:
    """What waits of one query: rows of every shard, or touched cells, and how many rows it came from."""

    division: Division
    groups: int
    listed: int = 0  # rows of batches whose places are listed, selected or not
    marked: bool = False  # whether a batch was so large that its cells are marked instead
    direct: bool = False  # whether the batch under way is
    rows: list[tuple[Slot, list[Touches]]] = field(default_factory=list)
    marks: dict[Slot, NDArray[np.uint8]] = field(default_factory=dict)


class Outgoing:
    """Collects what the rows of a step mean for every shard. ``queries`` gives algorithm and number of groups.

    Cells are marked at once where a batch has so many rows that there are at most ``marked`` cells for each.
    """

    def __init__(self, queries: Mapping[str, tuple[Any, int]], shards: int, *, marked: int = 32) -> None:
        self._shards, self._marked = shards, marked
        self._waiting: dict[str, _Waiting] = {}
        for query, (algorithm, groups) in queries.items():
            if isinstance(algorithm, Divisible):
                self._waiting[query] = _Waiting(Division(algorithm, shards), groups)

    def expect(self, rows: int) -> None:
        """Hear how many rows the next batch has, selected or not: that alone decides what its messages look like."""
        for each in self._waiting.values():
            algorithm = each.division.algorithm
            each.direct = algorithm.only_touched and algorithm.cells * each.groups <= self._marked * rows
            each.marked |= each.direct
            each.listed += 0 if each.direct else rows

    def add(self, query: str, slot: Slot, batch: Any) -> None:
        """Take the selected rows of a batch for one state; the caller wipes them."""
        waiting = self._waiting[query]
        algorithm, ownership = waiting.division.algorithm, waiting.division.ownership
        with Scratch() as scratch:
            if waiting.direct:
                if slot not in waiting.marks:
                    waiting.marks[slot] = np.zeros(algorithm.cells, np.uint8)
                algorithm.mark(batch, waiting.marks[slot], scratch)
            else:
                for touches in algorithm.touches(batch, scratch):
                    waiting.rows.append((slot, ownership.split(touches, scratch)))

    def messages(self, slots: Mapping[str, Sequence[Slot]]) -> list[list[CellMessage]]:
        """Return the messages of every shard, for all states that are open, and forget what was collected."""
        found: list[list[CellMessage]] = [[] for _ in range(self._shards)]
        for query, waiting in self._waiting.items():
            if slots.get(query):
                for own, message in zip(found, self._made(query, waiting, slots[query]), strict=True):
                    own.append(message)
        self.wipe()
        return found

    def wipe(self) -> None:
        """Overwrite and forget what was collected."""
        for waiting in self._waiting.values():
            for _, parts in waiting.rows:
                for columns in parts:
                    for column in columns:
                        wipe(column)
            for marks in waiting.marks.values():
                wipe(marks)
            waiting.rows, waiting.marks, waiting.listed, waiting.marked = [], {}, 0, False

    def _made(self, query: str, waiting: _Waiting, slots: Sequence[Slot]) -> list[CellMessage]:
        algorithm, size = waiting.division.algorithm, _padded(waiting.listed)
        which = [_index(len(slots))] if len(slots) > 1 else []
        row = sum(np.dtype(kind).itemsize for kind in (waiting.division.ownership.place, *which, *algorithm.carried))
        bits = len(slots) * -(-algorithm.cells // (8 * self._shards))
        named = np.array(slots, np.int64).reshape(-1, 2)
        if algorithm.only_touched and (waiting.marked or bits <= size * row):
            return [CellMessage(query, named, marks=self._bits(waiting, slots, shard)) for shard in range(self._shards)]
        return [
            CellMessage(query, named, rows=self._rows(waiting, slots, shard, size)) for shard in range(self._shards)
        ]

    def _bits(self, waiting: _Waiting, slots: Sequence[Slot], shard: int) -> NDArray[np.uint8]:
        ownership = waiting.division.ownership
        bits = np.zeros((len(slots), -(-ownership.count(shard) // 8)), np.uint8)
        listed: dict[Slot, list[NDArray[Any]]] = {slot: [] for slot in waiting.marks}
        for slot, parts in waiting.rows:
            listed.setdefault(slot, []).append(parts[shard][0])
        numbers = {slot: number for number, slot in enumerate(slots)}
        for slot, places in listed.items():
            marks = waiting.marks.get(slot)
            own = np.zeros(ownership.count(shard), np.uint8) if marks is None else ownership.part(marks, shard)
            for each in places:
                own[each] = 1
            bits[numbers[slot]] = packed(own)
            wipe(own)
        return bits

    def _rows(self, waiting: _Waiting, slots: Sequence[Slot], shard: int, size: int) -> Touches:
        places = np.full(size, -1, waiting.division.ownership.place)
        which = np.zeros(size if len(slots) > 1 else 0, _index(len(slots)))
        columns = tuple(np.zeros(size, kind) for kind in waiting.division.algorithm.carried)
        numbers, at = {slot: number for number, slot in enumerate(slots)}, 0
        for slot, parts in waiting.rows:
            own = slice(at, at + parts[shard][0].size)
            places[own] = parts[shard][0]
            if which.size:
                which[own] = numbers[slot]
            for column, given in zip(columns, parts[shard][1:], strict=False):
                column[own] = given
            at = own.stop
        return (places, which, *columns) if which.size else (places, *columns)


def _wide(column: NDArray[Any]) -> NDArray[Any]:
    """Return integers as wide as the kernels take them; those that travelled are overwritten."""
    if column.dtype == np.uint64:
        return column
    wide = column.astype(np.int64)
    wipe(column)
    return wide


def _index(slots: int) -> np.dtype[Any]:
    return np.dtype(np.uint16 if slots <= 1 << 16 else np.uint32)
