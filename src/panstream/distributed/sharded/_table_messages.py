"""Updates of tables for every shard, in messages whose size does not depend on the rows.

A row updates a cell in many tables, so sending the row is cheaper than sending its cells: every shard is sent all
rows, equal ones together, padded with rows of count 0, and computes the cells of its own tables. Where the tables
themselves are fewer bytes than the rows, as in a task of a million rows, the rows are summed first, and every shard is
sent what to add to its cells. Which of the two follows from public numbers only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.core.shardable import Touches
from panstream.distributed.sharded._cell_messages import (
    Slot,
    group_by_slot,
    named_slots,
    padded_size,
    slot_number_size,
    to_padded_columns,
    wipe_arrays,
)
from panstream.distributed.sharded._partitioning import TablePartitioning, wipe_state
from panstream.primitives.memory.scratch import Scratch, wipe
from panstream.primitives.noise import NoiseSource


@dataclass(frozen=True, slots=True, eq=False)
class TableMessage:
    """The update of one shard for one query, as sums or as rows; ``repr`` leaves both out.

    Attributes:
        query: The query's name.
        slots: Windows and groups of all states that are open.
        sums: For every array of the state what is added to it, slot by slot.
        rows: The count of each row, 0 for padding; where there are several slots, the number of each row's slot; and
            the algorithm's other update columns.
    """

    query: str
    slots: NDArray[np.int64]
    sums: Mapping[str, NDArray[np.int32]] = field(default_factory=dict, repr=False)
    rows: Touches = field(default=(), repr=False)

    def apply(
        self, partitioning: Any, shard: int, state_of: Callable[[Slot], Any], random: Callable[[], NoiseSource]
    ) -> None:
        """Apply the update to a shard's states; the caller wipes the message."""
        for number, slot in enumerate(named_slots(self.slots) if self.sums else ()):
            state = state_of(slot)
            for name, added in self.sums.items():
                cells = getattr(state, name)
                cells += added[number]
        if not self.rows:
            return
        has_several_slots = len(self.slots) > 1
        counts = self.rows[0]
        columns = self.rows[1 + has_several_slots :]
        for slot, chosen in group_by_slot(
            self.slots, np.flatnonzero(counts), self.rows[1] if has_several_slots else None
        ):
            with random() as rng:
                owned = partitioning.owned(shard)
                partitioning.algorithm.apply_update_columns(
                    state_of(slot), owned, (counts, *columns), chosen, rng.scratch
                )

    def wipe(self) -> None:
        """Wipe all arrays, also those that were received as read-only memory."""
        wipe_arrays(self.sums.values())
        wipe_arrays(self.rows)


@dataclass(slots=True, eq=False)
class TableQueue:
    """The updates of one query that wait to be sent: rows, or tables of sums."""

    partitioning: TablePartitioning
    groups: int
    listed: int = 0  # rows of batches that are not summed, selected or not
    summed: bool = False  # whether some batch was summed
    direct: bool = False  # whether the current batch is
    rows: list[tuple[Slot, Touches]] = field(default_factory=list)
    sums: dict[Slot, Any] = field(default_factory=dict)
    cells: int = field(init=False)

    def __post_init__(self) -> None:
        self.cells = sum(self.partitioning.cells(shard) for shard in range(self.partitioning.shards))

    def expect(self, rows: int, windows: int = 1) -> None:
        """Choose by public numbers whether the next batches are summed: about how many rows and windows they have."""
        self.direct = self.sums_are_less(self.groups * windows, rows)
        self.summed |= self.direct

    def count(self, rows: int) -> None:
        """Count the rows of a batch, selected or not: the size of the message depends on them."""
        self.listed += 0 if self.direct else rows

    def sums_are_less(self, slots: int, rows: int) -> bool:
        """Return whether the sums of all tables take fewer bytes than sending the rows to every shard."""
        row = slot_number_size(slots) + sum(kind.itemsize for kind in self.partitioning.algorithm.update_columns)
        # Sums take four bytes for each cell, once; rows are sent to every shard.
        return 4 * slots * self.cells <= self.partitioning.shards * row * padded_size(rows)

    def add(self, slot: Slot, batch: Any) -> None:
        """Add the selected rows of a batch for one state; the caller wipes them."""
        algorithm = self.partitioning.algorithm
        with Scratch() as scratch:
            if self.direct:
                algorithm.accumulate(self._sum(slot), batch, scratch)
            else:
                for columns in algorithm.to_update_columns(batch, scratch):
                    self.rows.append((slot, columns))

    def messages(self, query: str, slots: Sequence[Slot]) -> Iterator[TableMessage]:
        """Yield the message of every shard, for all states that are open."""
        named = np.array(slots, np.int64).reshape(-1, 2)
        if self.summed or self.sums_are_less(len(slots), self.listed):
            self._add_up()
            for shard in range(self.partitioning.shards):
                yield TableMessage(query, named, sums=self._sums(slots, shard))
            return
        size = padded_size(self.listed)
        for _ in range(self.partitioning.shards):  # new arrays for each: the receiver wipes them
            rows = to_padded_columns(self.partitioning.algorithm.update_columns, slots, self.rows, size, blank=0)
            yield TableMessage(query, named, rows=rows)

    def wipe(self) -> None:
        """Wipe and empty the queue."""
        for _, columns in self.rows:
            for column in columns:
                wipe(column)
        for state in self.sums.values():
            wipe_state(state)
        self.rows = []
        self.sums = {}
        self.listed = 0
        self.summed = False

    def _sum(self, slot: Slot) -> Any:
        algorithm = self.partitioning.algorithm
        if slot not in self.sums:
            self.sums[slot] = algorithm.zero_tables(np.arange(algorithm.tables))
        return self.sums[slot]

    def _add_up(self) -> None:
        """Replace the listed rows by sums."""
        algorithm = self.partitioning.algorithm
        for slot, columns in self.rows:
            all_tables = np.arange(algorithm.tables)
            all_rows = np.arange(columns[0].size)
            with Scratch() as scratch:
                algorithm.apply_update_columns(self._sum(slot), all_tables, columns, all_rows, scratch)
            for column in columns:
                wipe(column)
        self.rows = []

    def _sums(self, slots: Sequence[Slot], shard: int) -> dict[str, NDArray[np.int32]]:
        indices = self.partitioning.indices(shard)
        shapes = self.partitioning.shapes(shard)
        sums = {name: np.zeros((len(slots), *shape), np.int32) for name, shape in shapes.items()}
        for number, slot in enumerate(slots):
            if slot in self.sums:
                for name, owned in indices.items():
                    sums[name][number] = getattr(self.sums[slot], name)[owned]
        return sums
