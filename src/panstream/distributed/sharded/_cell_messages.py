"""Updates of cells for every shard, in messages whose size does not depend on the rows or on who owns their cells.

For every query, every shard is sent either indices of its cells, padded with -1 to a size that follows from the number
of rows in the step, or one bit for each of its cells. Which of the two, for which states, and with which columns
follows from public numbers only, so an observer of the network learns nothing else.
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

_MIN_PADDED = 256  # rows: smaller steps have the same size
_PADDING_STEP = 4096  # up to here sizes are powers of two, from here on multiples of this


def padded_size(rows: int) -> int:
    """Return the number of rows that are sent for a step of ``rows`` rows: the same for all up to 256.

    >>> [padded_size(rows) for rows in (0, 1, 256, 257, 4096, 4097, 131072)]
    [256, 256, 256, 512, 4096, 8192, 131072]
    """
    if rows <= _PADDING_STEP:
        return max(_MIN_PADDED, 1 << (max(rows, 1) - 1).bit_length())
    return -(-rows // _PADDING_STEP) * _PADDING_STEP


@dataclass(frozen=True, slots=True, eq=False)
class CellMessage:
    """The update of one shard for one query, as marks or as rows; ``repr`` leaves both out.

    Attributes:
        query: The query's name.
        slots: Windows and groups of all states that are open.
        marks: A row of bits for each slot, one bit per cell; or None.
        rows: Cell indices, -1 for padding; where there are several slots, the number of each row's slot; and the
            algorithm's update columns.
    """

    query: str
    slots: NDArray[np.int64]
    marks: NDArray[np.uint8] | None = field(default=None, repr=False)
    rows: Touches = field(default=(), repr=False)

    def apply(
        self, partitioning: Any, shard: int, state_of: Callable[[Slot], Any], random: Callable[[], NoiseSource]
    ) -> None:
        """Apply the update to a shard's states; the caller wipes the message."""
        algorithm = partitioning.algorithm
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
        """Wipe all arrays, also those that were received as read-only memory."""
        wipe_arrays(self.rows if self.marks is None else (self.marks,))


def named_slots(slots: NDArray[np.int64]) -> list[Slot]:
    """Return the slots of a message as tuples of Python integers."""
    return [(int(window), int(group)) for window, group in slots]


def group_by_slot(
    slots: NDArray[np.int64], present: NDArray[np.int64], which: NDArray[Any] | None
) -> Iterator[tuple[Slot, NDArray[np.int64]]]:
    """Yield every slot that has rows, with the indices of its rows in order; they are wiped after the last one.

    Args:
        slots: The slots of the message.
        present: Indices of the rows that are not padding.
        which: The number of each row's slot; None if there is one slot.
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
    """Wipe arrays, also those that Dask deserialised as read-only views, which `wipe` would refuse."""
    for array in arrays:
        if array.flags.c_contiguous:
            wipe_at(array.ctypes.data, array.nbytes)
        else:
            array.fill(0)


@dataclass(slots=True, eq=False)
class CellQueue:
    """The updates of one query that wait to be sent: rows for every shard, or marks of touched cells."""

    partitioning: CellPartitioning
    groups: int
    cells_per_row: int  # a batch is marked if there are at most this many cells for each of its rows
    listed: int = 0  # rows of batches that are not marked, selected or not
    marked: bool = False  # whether some batch was marked
    direct: bool = False  # whether the current batch is
    rows: list[tuple[Slot, list[Touches]]] = field(default_factory=list)
    marks: dict[Slot, NDArray[np.uint8]] = field(default_factory=dict)

    def expect(self, rows: int, windows: int = 1) -> None:
        """Choose by public numbers whether the next batches are marked: about how many rows and windows they have."""
        algorithm = self.partitioning.algorithm
        cells = algorithm.cells * self.groups * windows
        self.direct = algorithm.is_idempotent and cells <= self.cells_per_row * rows
        self.marked |= self.direct

    def count(self, rows: int) -> None:
        """Count the rows of a batch, selected or not: the size of the message depends on them."""
        self.listed += 0 if self.direct else rows

    def add(self, slot: Slot, batch: Any) -> None:
        """Add the selected rows of a batch for one state; the caller wipes them."""
        algorithm = self.partitioning.algorithm
        with Scratch() as scratch:
            if self.direct:
                if slot not in self.marks:
                    self.marks[slot] = np.zeros(algorithm.cells, np.uint8)
                algorithm.mark_cells(batch, self.marks[slot], scratch)
            else:
                for touches in algorithm.cell_updates(batch, scratch):
                    self.rows.append((slot, self.partitioning.split(touches, scratch)))

    def messages(self, query: str, slots: Sequence[Slot]) -> Iterator[CellMessage]:
        """Yield the message of every shard, for all states that are open.

        Rows become marks where that is fewer bytes: marking is idempotent, so counts of a cell are not needed.
        """
        algorithm = self.partitioning.algorithm
        size = padded_size(self.listed)
        kinds = (self.partitioning.index_type, *algorithm.update_columns)
        row = sum(np.dtype(kind).itemsize for kind in kinds) + slot_number_size(len(slots))
        # Bytes of all marks of one shard: a bit for each of its cells, in every slot.
        bits = len(slots) * -(-algorithm.cells // (8 * self.partitioning.shards))
        named = np.array(slots, np.int64).reshape(-1, 2)
        marked = algorithm.is_idempotent and (self.marked or bits <= size * row)
        for shard in range(self.partitioning.shards):
            if marked:
                yield CellMessage(query, named, marks=self._bits(slots, shard))
            else:
                shard_rows = ((slot, parts[shard]) for slot, parts in self.rows)
                yield CellMessage(query, named, rows=to_padded_columns(kinds, slots, shard_rows, size, blank=-1))

    def wipe(self) -> None:
        """Wipe and empty the queue."""
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
        bits = np.zeros((len(slots), -(-self.partitioning.count(shard) // 8)), np.uint8)
        listed: dict[Slot, list[NDArray[Any]]] = {slot: [] for slot in self.marks}
        for slot, parts in self.rows:
            listed.setdefault(slot, []).append(parts[shard][0])
        numbers = {slot: number for number, slot in enumerate(slots)}
        for slot, index_arrays in listed.items():
            marks = self.marks.get(slot)
            shard_marks = (
                np.zeros(self.partitioning.count(shard), np.uint8)
                if marks is None
                else self.partitioning.part(marks, shard)
            )
            for indices in index_arrays:
                shard_marks[indices] = 1
            bits[numbers[slot]] = pack_bits(shard_marks)
            wipe(shard_marks)
        return bits


def to_padded_columns(
    kinds: Sequence[Any], slots: Sequence[Slot], rows: Iterable[tuple[Slot, Touches]], size: int, *, blank: int
) -> Touches:
    """Return columns of ``size`` rows, the first one padded with ``blank``, the others with 0.

    Where there are several slots, the second column is the number of each row's slot.
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
    """Return a column as 64-bit integers, which the kernels take; a narrower one is wiped."""
    if column.dtype == np.uint64:
        return column
    wide = column.astype(np.int64)
    wipe(column)
    return wide


def slot_number(slots: int) -> np.dtype[Any]:
    """Return the type of slot numbers below ``slots``."""
    return np.dtype(np.uint16 if slots <= 1 << 16 else np.uint32)


def slot_number_size(slots: int) -> int:
    """Return the bytes of a row's slot number: none where there is one slot."""
    return slot_number(slots).itemsize if slots > 1 else 0
