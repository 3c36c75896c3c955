"""What a step means for the cells of every shard: as many bytes whatever the rows hold and whoever owns their cells.

Of every query, every shard is sent either places, padded with -1 to a size that the number of rows in the step
decides, or one bit for each of its cells. Which of the two, for which states, and with which columns is decided by
public numbers alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.core.shardable import Touches
from panstream.distributed.sharded._partitioning import CellPartitioning
from panstream.primitives.memory.scratch import Scratch, wipe, wipe_at
from panstream.primitives.noise import NoiseSource
from panstream.primitives.packed_bits import pack_bits, unpack_bits

Slot = tuple[int, int]  # window, group

_LEAST = 256  # rows: fewer look the same
_FINE = 4096  # up to here sizes are powers of two, from here on multiples of this


def padded_size(rows: int) -> int:
    """Return how many rows are sent for a step of so many: the same for all up to 256.

    >>> [padded_size(rows) for rows in (0, 1, 256, 257, 4096, 4097, 131072)]
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

    def apply(
        self, division: Any, shard: int, state_of: Callable[[Slot], Any], random: Callable[[], NoiseSource]
    ) -> None:
        """Do to a shard's states what the message says; the caller wipes it."""
        algorithm = division.algorithm
        if self.marks is not None:
            for slot, bits in zip(named_slots(self.slots), self.marks, strict=True):
                if bits.any():
                    marks = unpack_bits(bits, 8 * bits.size)  # 0 beyond the last cell
                    try:
                        with random() as rng:
                            algorithm.apply_marked(state_of(slot), marks, rng)
                    finally:
                        wipe(marks)
            return
        has_several_slots = len(self.slots) > 1
        present = np.flatnonzero(self.rows[0] >= 0)
        for slot, chosen in group_by_slot(self.slots, present, self.rows[1] if has_several_slots else None):
            touches = tuple(_wide(column[chosen]) for column in (self.rows[0], *self.rows[1 + has_several_slots :]))
            with random() as rng:
                algorithm.apply_updates(state_of(slot), touches, rng)
            for column in touches:
                wipe(column)

    def wipe(self) -> None:
        """Overwrite it, also where it came as memory that may not be written."""
        wipe_arrays(self.rows if self.marks is None else (self.marks,))


def named_slots(slots: NDArray[np.int64]) -> list[Slot]:
    """Return the slots of a message."""
    return [(int(window), int(group)) for window, group in slots]


def group_by_slot(
    slots: NDArray[np.int64], present: NDArray[np.int64], which: NDArray[Any] | None
) -> Iterator[tuple[Slot, NDArray[np.int64]]]:
    """Yield every slot that has rows, and which these are, in order; ``present`` are those of all slots.

    ``which`` gives the number of a row's slot where there are several. What is yielded is overwritten afterwards.
    """
    ends = np.array([present.size])
    if which is not None:
        numbers = which[present]
        present = present[np.argsort(numbers, kind="stable")]
        ends = np.cumsum(np.bincount(numbers, minlength=len(slots)))
    for slot, start, stop in zip(named_slots(slots), [0, *ends[:-1]], ends, strict=True):
        if start < stop:
            yield slot, present[start:stop]
    wipe(present)


def wipe_arrays(arrays: Iterable[NDArray[Any]]) -> None:
    """Overwrite arrays that have travelled, also where they came as memory that may not be written."""
    for array in arrays:
        if array.flags.c_contiguous:
            wipe_at(array.ctypes.data, array.nbytes)
        else:
            array.fill(0)


@dataclass(slots=True, eq=False)
class CellQueue:
    """What waits of one query: rows of every shard, or touched cells, and how many rows it came from.

    Cells are marked at once where a batch has so many rows that there are at most ``most_marked`` cells for each.
    """

    division: CellPartitioning
    groups: int
    most_marked: int
    listed: int = 0  # rows of batches whose places are listed, selected or not
    marked: bool = False  # whether a batch was so large that its cells are marked instead
    direct: bool = False  # whether the batch under way is
    rows: list[tuple[Slot, list[Touches]]] = field(default_factory=list)
    marks: dict[Slot, NDArray[np.uint8]] = field(default_factory=dict)

    def expect(self, rows: int) -> None:
        """Hear how many rows the next batch has, selected or not."""
        algorithm = self.division.algorithm
        self.direct = algorithm.is_idempotent and algorithm.cells * self.groups <= self.most_marked * rows
        self.marked |= self.direct
        self.listed += 0 if self.direct else rows

    def add(self, slot: Slot, batch: Any) -> None:
        """Take the selected rows of a batch for one state; the caller wipes them."""
        algorithm = self.division.algorithm
        ownership = self.division.ownership
        with Scratch() as scratch:
            if self.direct:
                if slot not in self.marks:
                    self.marks[slot] = np.zeros(algorithm.cells, np.uint8)
                algorithm.mark_cells(batch, self.marks[slot], scratch)
            else:
                for touches in algorithm.cell_updates(batch, scratch):
                    self.rows.append((slot, ownership.split(touches, scratch)))

    def messages(self, query: str, slots: Sequence[Slot]) -> Iterator[CellMessage]:
        """Yield the message of every shard, for all states that are open."""
        algorithm = self.division.algorithm
        size = padded_size(self.listed)
        which = [slot_number(len(slots))] if len(slots) > 1 else []
        row = sum(
            np.dtype(kind).itemsize for kind in (self.division.ownership.place, *which, *algorithm.update_columns)
        )
        bits = len(slots) * -(-algorithm.cells // (8 * self.division.shards))
        named = np.array(slots, np.int64).reshape(-1, 2)
        marked = algorithm.is_idempotent and (self.marked or bits <= size * row)
        for shard in range(self.division.shards):
            if marked:
                yield CellMessage(query, named, marks=self._bits(slots, shard))
            else:
                kinds = (self.division.ownership.place, *algorithm.update_columns)
                shard_rows = ((slot, parts[shard]) for slot, parts in self.rows)
                yield CellMessage(query, named, rows=to_padded_columns(kinds, slots, shard_rows, size, blank=-1))

    def wipe(self) -> None:
        """Overwrite and forget what was collected."""
        for _, parts in self.rows:
            for columns in parts:
                for column in columns:
                    wipe(column)
        for marks in self.marks.values():
            wipe(marks)
        self.rows = []
        self.marks = {}
        self.listed = 0
        self.marked = False

    def _bits(self, slots: Sequence[Slot], shard: int) -> NDArray[np.uint8]:
        ownership = self.division.ownership
        bits = np.zeros((len(slots), -(-ownership.count(shard) // 8)), np.uint8)
        listed: dict[Slot, list[NDArray[Any]]] = {slot: [] for slot in self.marks}
        for slot, parts in self.rows:
            listed.setdefault(slot, []).append(parts[shard][0])
        numbers = {slot: number for number, slot in enumerate(slots)}
        for slot, index_arrays in listed.items():
            marks = self.marks.get(slot)
            shard_marks = np.zeros(ownership.count(shard), np.uint8) if marks is None else ownership.part(marks, shard)
            for indices in index_arrays:
                shard_marks[indices] = 1
            bits[numbers[slot]] = pack_bits(shard_marks)
            wipe(shard_marks)
        return bits


def to_padded_columns(
    kinds: Sequence[Any], slots: Sequence[Slot], rows: Iterable[tuple[Slot, Touches]], size: int, *, blank: int
) -> Touches:
    """Return columns of so many rows, with ``blank`` in the first one where there is no row.

    Where there are several slots, the second one is which.
    """
    columns = [np.full(size, 0 if column else blank, kind) for column, kind in enumerate(kinds)]
    which = np.zeros(size if len(slots) > 1 else 0, slot_number(len(slots)))
    numbers = {slot: number for number, slot in enumerate(slots)}
    start = 0
    for slot, row_columns in rows:
        slot_rows = slice(start, start + row_columns[0].size)
        for column, some in zip(columns, row_columns, strict=False):
            column[slot_rows] = some
        if which.size:
            which[slot_rows] = numbers[slot]
        start = slot_rows.stop
    return (columns[0], *([which] if which.size else []), *columns[1:])


def _wide(column: NDArray[Any]) -> NDArray[Any]:
    """Return integers as wide as the kernels take them; those that travelled are overwritten."""
    if column.dtype == np.uint64:
        return column
    wide = column.astype(np.int64)
    wipe(column)
    return wide


def slot_number(slots: int) -> np.dtype[Any]:
    """Return the type of the number of one of so many slots."""
    return np.dtype(np.uint16 if slots <= 1 << 16 else np.uint32)
