"""What a step means for the tables of every shard: as many bytes whatever the rows hold.

A row moves a cell in many tables, so it is cheaper to send the row than its cells: every shard is sent all rows, equal
ones together, padded with rows that came 0 times, and finds the cells in its own tables. Where the tables themselves
are fewer bytes than the rows, as in a task of a million rows, rows are added up first, and every shard is sent what to
add to its cells. Which of the two is decided by public numbers alone.
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
    slot_number,
    to_padded_columns,
    wipe_arrays,
)
from panstream.distributed.sharded._partitioning import TablePartitioning, wipe_state
from panstream.primitives.memory.scratch import Scratch, wipe
from panstream.primitives.noise import NoiseSource


@dataclass(frozen=True, slots=True, eq=False)
class TableMessage:
    """What one shard does for one query: to its ``slots``, all that are open, either sums or rows.

    ``sums`` has for every array of the state what is added to it, slot by slot. ``rows`` has how often each row came,
    which slot it is for, where there are several, and the rest of the algorithm's columns. ``repr`` shows none of it.
    """

    query: str
    slots: NDArray[np.int64]
    sums: Mapping[str, NDArray[np.int32]] = field(default_factory=dict, repr=False)
    rows: Touches = field(default=(), repr=False)

    def apply(
        self, division: Any, shard: int, state_of: Callable[[Slot], Any], random: Callable[[], NoiseSource]
    ) -> None:
        """Do to a shard's states what the message says; the caller wipes it."""
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
                owned = division.owned(shard)
                division.algorithm.apply_update_columns(state_of(slot), owned, (counts, *columns), chosen, rng.scratch)

    def wipe(self) -> None:
        """Overwrite it, also where it came as memory that may not be written."""
        wipe_arrays(self.sums.values())
        wipe_arrays(self.rows)


@dataclass(slots=True, eq=False)
class TableQueue:
    """What waits of one query: rows, or tables of sums, and how many rows it came from."""

    division: TablePartitioning
    groups: int
    listed: int = 0  # rows of batches that are listed, selected or not
    summed: bool = False  # whether a batch was so large that its rows are added up instead
    direct: bool = False  # whether the batch under way is
    rows: list[tuple[Slot, Touches]] = field(default_factory=list)
    sums: dict[Slot, Any] = field(default_factory=dict)
    cells: int = field(init=False)

    def __post_init__(self) -> None:
        self.cells = sum(self.division.cells(shard) for shard in range(self.division.shards))

    def expect(self, rows: int) -> None:
        """Hear how many rows the next batch has, selected or not."""
        self.direct = self.sums_are_less(self.groups, rows)
        self.summed |= self.direct
        self.listed += 0 if self.direct else rows

    def sums_are_less(self, slots: int, rows: int) -> bool:
        """Return whether sums of all tables are fewer bytes than rows for every shard."""
        which = slot_number(slots).itemsize if slots > 1 else 0
        row = which + sum(kind.itemsize for kind in self.division.algorithm.update_columns)
        return 4 * slots * self.cells <= self.division.shards * row * padded_size(rows)

    def add(self, slot: Slot, batch: Any) -> None:
        """Take the selected rows of a batch for one state; the caller wipes them."""
        algorithm = self.division.algorithm
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
            for shard in range(self.division.shards):
                yield TableMessage(query, named, sums=self._sums(slots, shard))
            return
        size = padded_size(self.listed)
        for _ in range(self.division.shards):  # afresh for each: who takes them in overwrites them
            rows = to_padded_columns(self.division.algorithm.update_columns, slots, self.rows, size, blank=0)
            yield TableMessage(query, named, rows=rows)

    def wipe(self) -> None:
        """Overwrite and forget what was collected."""
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
        algorithm = self.division.algorithm
        if slot not in self.sums:
            self.sums[slot] = algorithm.zero_tables(np.arange(algorithm.tables))
        return self.sums[slot]

    def _add_up(self) -> None:
        """Turn rows that were listed into sums."""
        algorithm = self.division.algorithm
        for slot, columns in self.rows:
            everything = np.arange(algorithm.tables)
            chosen = np.arange(columns[0].size)
            with Scratch() as scratch:
                algorithm.apply_update_columns(self._sum(slot), everything, columns, chosen, scratch)
            for column in columns:
                wipe(column)
        self.rows = []

    def _sums(self, slots: Sequence[Slot], shard: int) -> dict[str, NDArray[np.int32]]:
        indices = self.division.places(shard)
        shapes = self.division.shapes(shard)
        sums = {name: np.zeros((len(slots), *shape), np.int32) for name, shape in shapes.items()}
        for number, slot in enumerate(slots):
            if slot in self.sums:
                for name, owned in indices.items():
                    sums[name][number] = getattr(self.sums[slot], name)[owned]
        return sums
