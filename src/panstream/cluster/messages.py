"""What a step sends to every shard: as many bytes whatever the rows hold, whichever were selected, whoever owns their cells.

Of every query, every shard is sent either places, padded with -1 to a size that the number of rows in the step decides, or one bit for
each of its cells. Which of the two, for which states, and with which columns is decided by public numbers alone.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.cluster import division
from panstream.cluster.division import Columns, Division
from panstream.cluster.ownership import Ownership
from panstream.randomness import Source
from panstream.scratch import wipe

__all__ = ["Message", "Outgoing", "padded", "take", "wipe_messages"]

Slot = tuple[int, int]  # window, group

_LEAST = 256  # rows: fewer look the same
_FINE = 4096  # up to here sizes are powers of two, from here on multiples of this


def padded(rows: int) -> int:
    """Return how many rows are sent for a step of so many: the same for all up to 256.

    >>> [padded(rows) for rows in (0, 1, 256, 257, 4096, 4097, 131072)]
    [256, 256, 256, 512, 4096, 8192, 131072]
    """
    if rows <= _FINE:
        return max(_LEAST, 1 << (max(rows, 1) - 1).bit_length())
    return -(-rows // _FINE) * _FINE


@dataclass(frozen=True, slots=True, eq=False)
class Message:
    """What one shard does for one query: to its ``slots``, all that are open, either marks or rows.

    ``marks`` has a row of bits for each slot. ``rows`` has the places, -1 for no row; where there are several slots, which; and the
    columns of the algorithm. What is in it is never shown: ``repr`` leaves it out.
    """

    query: str
    slots: NDArray[np.int64]
    marks: NDArray[np.uint8] | None = field(default=None, repr=False)
    rows: Columns = field(default=(), repr=False)

    def wipe(self) -> None:
        """Overwrite it, also where it came as memory that may not be written."""
        for array in self.rows if self.marks is None else (self.marks,):
            if array.nbytes and array.flags.c_contiguous:
                ctypes.memset(array.ctypes.data, 0, array.nbytes)
            elif array.nbytes:
                array.fill(0)


def wipe_messages(messages: Iterable[Message]) -> None:
    """Overwrite what has travelled."""
    for message in messages:
        message.wipe()


@dataclass(slots=True, eq=False)
class _Waiting:
    """What waits of one query: rows of every shard, or touched cells, and how many rows it came from."""

    algorithm: Any
    division: Division
    groups: int
    listed: int = 0  # rows of batches whose places are listed, selected or not
    marked: bool = False  # whether a batch was so large that its cells are marked instead
    direct: bool = False  # whether the batch under way is
    rows: list[tuple[Slot, list[Columns]]] = field(default_factory=list)
    marks: dict[Slot, NDArray[np.uint8]] = field(default_factory=dict)


class Outgoing:
    """Collects what the rows of a step mean for every shard. ``queries`` gives algorithm and number of groups.

    Cells are marked at once where a batch has so many rows that there are at most ``marked`` cells for each.
    """

    def __init__(self, queries: Mapping[str, tuple[Any, int]], shards: int, *, marked: int = 32) -> None:
        self._shards, self._marked = shards, marked
        self._waiting: dict[str, _Waiting] = {}
        for query, (algorithm, groups) in queries.items():
            found = division.division_of(algorithm)
            if found is not None:
                self._waiting[query] = _Waiting(algorithm, found, groups)

    def expect(self, rows: int) -> None:
        """Hear how many rows the next batch has, selected or not: that alone decides what its messages look like."""
        for each in self._waiting.values():
            each.direct = each.division.markable and each.division.cells * each.groups <= self._marked * rows
            each.marked |= each.direct
            each.listed += 0 if each.direct else rows

    def add(self, query: str, slot: Slot, batch: Any) -> None:
        """Take the selected rows of a batch for one state; the caller wipes them."""
        waiting = self._waiting[query]
        if waiting.direct:
            if slot not in waiting.marks:
                waiting.marks[slot] = np.zeros(waiting.division.cells, np.uint8)
            division.mark(waiting.algorithm, batch, waiting.marks[slot])
        elif len(batch):
            waiting.rows += [
                (slot, parts) for parts in division.split(waiting.algorithm, batch, self._ownership(waiting))
            ]

    def messages(self, slots: Mapping[str, Sequence[Slot]]) -> list[list[Message]]:
        """Return the messages of every shard, for all states that are open, and forget what was collected."""
        found: list[list[Message]] = [[] for _ in range(self._shards)]
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

    def _made(self, query: str, waiting: _Waiting, slots: Sequence[Slot]) -> list[Message]:
        size, kinds = padded(waiting.listed), waiting.division.columns
        ownership, which = self._ownership(waiting), _index(len(slots))
        row = (
            _place(ownership).itemsize
            + (which.itemsize if len(slots) > 1 else 0)
            + sum(np.dtype(kind).itemsize for kind in kinds)
        )
        bits = len(slots) * -(-waiting.division.cells // (8 * self._shards))
        named = np.array(slots, np.int64).reshape(-1, 2)
        if waiting.division.markable and (waiting.marked or bits <= size * row):
            return [Message(query, named, marks=self._bits(waiting, slots, shard)) for shard in range(self._shards)]
        return [Message(query, named, rows=self._rows(waiting, slots, shard, size)) for shard in range(self._shards)]

    def _bits(self, waiting: _Waiting, slots: Sequence[Slot], shard: int) -> NDArray[np.uint8]:
        ownership = self._ownership(waiting)
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
            bits[numbers[slot]] = np.packbits(own)
            wipe(own)
        return bits

    def _rows(self, waiting: _Waiting, slots: Sequence[Slot], shard: int, size: int) -> Columns:
        places = np.full(size, -1, _place(self._ownership(waiting)))
        which = np.zeros(size if len(slots) > 1 else 0, _index(len(slots)))
        columns = tuple(np.zeros(size, kind) for kind in waiting.division.columns)
        numbers, at = {slot: number for number, slot in enumerate(slots)}, 0
        for slot, parts in waiting.rows:
            own = slice(at, at + parts[shard][0].size)
            places[own] = parts[shard][0]
            if which.size:
                which[own] = numbers[slot]
            for column, given in zip(columns, parts[shard][1:], strict=True):
                column[own] = given
            at = own.stop
        return (places, which, *columns) if which.size else (places, *columns)

    def _ownership(self, waiting: _Waiting) -> Ownership:
        return Ownership(cells=waiting.division.cells, shards=self._shards)


def take(message: Message, algorithm: Any, state_of: Callable[[Slot], Any], random: Callable[[], Source]) -> None:
    """Do to a shard's states what a message says; the caller wipes it."""
    slots = [(int(window), int(group)) for window, group in message.slots]
    if message.marks is not None:
        for slot, bits in zip(slots, message.marks, strict=True):
            if bits.any():
                with random() as source:
                    division.take_marks(algorithm, state_of(slot), bits, source)
        return
    several = len(slots) > 1
    present = np.flatnonzero(message.rows[0] >= 0)
    if several:
        which = message.rows[1][present]
        present = present[np.argsort(which, kind="stable")]
        ends = np.cumsum(np.bincount(which, minlength=len(slots)))
    else:
        ends = np.array([present.size])
    for slot, start, stop in zip(slots, [0, *ends[:-1]], ends, strict=True):
        if start < stop:
            chosen = present[start:stop]
            columns = tuple(column[chosen] for column in (message.rows[0], *message.rows[1 + several :]))
            with random() as source:
                division.take(algorithm, state_of(slot), columns, source)
            for column in columns:
                wipe(column)
    wipe(present)


def _place(ownership: Ownership) -> np.dtype[Any]:
    return np.dtype(ownership.place)


def _index(slots: int) -> np.dtype[Any]:
    return np.dtype(np.uint16 if slots <= 1 << 16 else np.uint32)
