"""Algorithms whose state consists of independent cells, so that it can be split into shards.

Where a row updates one cell, single cells are assigned to shards (`Shardable`); where it updates a cell in each of many
tables, whole tables are (`ShardableTables`).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, Protocol, TypeGuard, TypeVar

import numpy as np
from numpy.typing import NDArray

from panstream.core.algorithm import Algorithm
from panstream.core.estimate import Estimate
from panstream.errors import NotSupported
from panstream.primitives.memory.scratch import Scratch
from panstream.primitives.noise import NoiseSource

StateT = TypeVar("StateT")

Touches = tuple[NDArray[Any], ...]
"""Cells, one for each row, and the further columns of the rows. A column of one value applies to all rows."""


class Shardable(Algorithm[StateT], Protocol[StateT]):
    """An algorithm that converts rows to updates of cells, and applies updates to any subset of the cells.

    A *shard* is a state of the same type with shorter arrays: some of the cells, numbered from 0, and nothing about the
    others. Rows are converted where they are read, so that ids are not sent; a shard draws its own noise; shards are
    assembled by concatenating their arrays, as ``layout`` describes them.

    The same methods serve an owner of all cells, shards that own some of them, and two machines that hold secret shares
    of every cell: ``mark_cells`` writes the cells that a batch touches as a dense vector, ``cell_updates`` the weights
    that are added to them (or, for presence, -1 for a delete, the last of which wins), and ``layout`` the range of a
    cell. A release is a function of the whole state.
    """

    @property
    def cells(self) -> int:
        """Return the number of cells of the whole state."""
        ...

    @property
    def update_columns(self) -> tuple[type[np.generic], ...]:
        """Return the types of a row's columns besides its cell; they depend on public parameters only."""
        return ()

    @property
    def is_idempotent(self) -> bool:
        """Return whether only the set of touched cells matters, not how often or in which order they are."""
        return False

    @abstractmethod
    def initial_cells(self, count: int, rng: NoiseSource) -> StateT:
        """Return a state of ``count`` untouched cells.

        Args:
            rng: Source of the noise.
            count: Number of cells.
        """

    @abstractmethod
    def cell_updates(self, batch: Any, scratch: Scratch) -> Iterator[Touches]:
        """Yield the updates of a checked batch, block by block, in arrays that the next block may overwrite.

        Cells beyond the last are not sampled. Columns may be omitted at the end if they are 0.

        Args:
            batch: The checked batch.
            scratch: Working memory that is wiped.
        """

    @abstractmethod
    def apply_updates(self, state: StateT, touches: Touches, rng: NoiseSource) -> None:
        """Apply updates to the cells of a state or shard, in row order.

        Args:
            state: The state or shard.
            touches: Updates of its cells.
            rng: Source of the noise.
        """

    def mark_cells(self, batch: Any, marks: NDArray[np.uint8], scratch: Scratch) -> None:
        """Set ``marks`` to 1 at the cells that a checked batch touches.

        Args:
            batch: The checked batch.
            scratch: Working memory that is wiped.
            marks: The dense vector, which is changed.
        """
        from panstream.primitives.kernels.hashing.cell_marks import mark_inside

        for cells, *_ in self.cell_updates(batch, scratch):
            mark_inside(marks, cells)

    def apply_marked(self, state: StateT, marks: NDArray[np.uint8], rng: NoiseSource) -> None:
        """Apply updates of all marked cells, if `is_idempotent`; ``marks`` may be longer than the state.

        Args:
            state: The state or shard.
            rng: Source of the noise.
            marks: The dense vector that `mark_cells` has written.
        """
        raise NotSupported(f"{type(self).__name__} must know more than which cells are touched")

    def refresh_shard(self, state: StateT, count: int, rng: NoiseSource) -> None:
        """Refresh a shard of ``count`` cells; whether that is allowed is checked by ``refresh``.

        Args:
            state: The shard.
            rng: Source of the noise.
            count: Number of its cells.
        """
        raise NotSupported(f"{type(self).__name__} cannot be refreshed")

    def initial_state(self, rng: NoiseSource) -> StateT:
        """Return a new state of all cells."""
        return self.initial_cells(self.cells, rng)

    def update(self, state: StateT, batch: Any, rng: NoiseSource) -> None:
        """Apply the updates of a batch, block by block."""
        scratch = rng.scratch
        for touches in self.cell_updates(batch, scratch):
            taken = scratch.mark
            self.apply_updates(state, touches, rng)
            scratch.rewind(taken)  # the next block's coins reuse memory that is in the cache


class ShardableTables(Algorithm[StateT], Protocol[StateT]):
    """An algorithm of several tables with noise in every cell; a row updates a cell in some of them, or in all.

    A *shard* is a state with some of the tables: those whose numbers are in ``local_tables``, in order. ``refresh``
    adds one draw of noise to every cell of all tables that a state or shard has. A start does the same to tables of
    zeros, and a release to a copy, from which the answer is computed. On a cluster a state is released once.
    """

    @property
    def tables(self) -> int:
        """Return the number of tables, or groups of them, that can be assigned to shards."""
        ...

    @abstractmethod
    def table_offsets(self, local_tables: NDArray[np.int64]) -> Mapping[str, NDArray[np.int64]]:
        """Return, for every array, the indices along its first axis that a shard has.

        Args:
            local_tables: Numbers of the shard's tables.
        """

    @abstractmethod
    def zero_tables(self, local_tables: NDArray[np.int64]) -> StateT:
        """Return a shard of zeros without noise, in which rows of an open batch are summed.

        Args:
            local_tables: Numbers of the shard's tables.
        """

    @abstractmethod
    def accumulate(self, state: StateT, batch: Any, scratch: Scratch) -> None:
        """Add a checked batch to a state of all tables.

        Args:
            state: The state.
            batch: The checked batch.
            scratch: Working memory that is wiped.
        """

    @property
    def update_columns(self) -> tuple[np.dtype[Any], ...]:
        """Return the types of the columns that are sent for a row; the first is its count, 0 for padding.

        They depend on public parameters only, never on rows.
        """
        ...

    @abstractmethod
    def to_update_columns(self, batch: Any, scratch: Scratch) -> Iterator[Touches]:
        """Yield the rows of a checked batch in these columns, equal ones merged; the receiver wipes them.

        Args:
            batch: The checked batch.
            scratch: Working memory that is wiped.
        """

    @abstractmethod
    def apply_update_columns(
        self,
        state: StateT,
        local_tables: NDArray[np.int64],
        columns: Touches,
        chosen: NDArray[np.int64],
        scratch: Scratch,
    ) -> None:
        """Add the ``chosen`` rows to the tables of a shard.

        Args:
            state: The shard.
            local_tables: Numbers of its tables.
            columns: What `to_update_columns` has yielded.
            scratch: Working memory that is wiped.
            chosen: Which rows to add.
        """

    @abstractmethod
    def estimate(self, state: StateT) -> Estimate:
        """Return the answer from tables that include their release noise.

        Args:
            state: The state.
        """


# ``isinstance`` of a protocol compares attribute by attribute, which takes longer than merging small states.
def has_cells(algorithm: Any) -> TypeGuard[Shardable[Any]]:
    """Return whether the state of an algorithm can be split by cells."""
    return Shardable in type(algorithm).__mro__


def has_tables(algorithm: Any) -> TypeGuard[ShardableTables[Any]]:
    """Return whether the state of an algorithm can be split by tables."""
    return ShardableTables in type(algorithm).__mro__


def is_shardable(algorithm: Any) -> bool:
    """Return whether the state of an algorithm can be split into shards."""
    return has_cells(algorithm) or has_tables(algorithm)
