"""Algorithms whose state is made of independent cells, so that its parts may live in different places.

Where a row touches one cell, single cells are dealt out (`Shardable`); where it moves a cell in each of many
tables, whole tables are (`ShardableTables`).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from panstream.core.algorithm import Algorithm
from panstream.core.estimate import Estimate
from panstream.errors import NotSupported
from panstream.primitives.memory.scratch import Scratch
from panstream.primitives.noise import NoiseSource

StateT = TypeVar("StateT")

Touches = tuple[NDArray[Any], ...]
"""Cells, one for each row, and what the rows carry. A single value stands for all rows."""


@runtime_checkable
class Shardable(Algorithm[StateT], Protocol[StateT]):
    """An algorithm that turns rows into touches of cells, and does to any set of cells what touches do.

    A *part* is a state of the same type whose arrays are shorter: some of the cells, and nothing about the others.
    Whoever divides a state numbers a part's cells from 0. Rows become touches where they are read, so that ids do not
    travel; a part draws its own noise; parts join again by putting their arrays together, as ``layout`` describes
    them.

    The same verbs serve an owner of all cells, shards that own some of them, and two machines that hold shares of
    every cell: ``mark_cells`` gives the cells that a batch touches as a dense vector, ``cell_updates`` the weights
    that are added to them (or, of presence, -1 for a delete, the last of which wins), and ``layout`` the integers that
    a cell may hold. What a release opens is a function of the whole state.
    """

    @property
    def cells(self) -> int:
        """Return how many cells the whole state has."""
        ...

    @property
    def update_columns(self) -> tuple[type[np.generic], ...]:
        """Return what a row carries besides its cell. It depends on public parameters only, whatever the rows hold."""
        return ()

    @property
    def is_idempotent(self) -> bool:
        """Return whether it only matters which cells are touched, not how often or in which order."""
        return False

    @abstractmethod
    def initial_cells(self, count: int, rng: NoiseSource) -> StateT:
        """Return a state of ``count`` cells that nobody has touched."""

    @abstractmethod
    def cell_updates(self, batch: Any, scratch: Scratch) -> Iterator[Touches]:
        """Yield what a checked batch touches, piece by piece, in arrays that the next piece may overwrite.

        Cells beyond the last are outside the sample. What is carried may be left out at the end: 0, then.
        """

    @abstractmethod
    def apply_updates(self, state: StateT, touches: Touches, rng: NoiseSource) -> None:
        """Do to the cells of a state, or of a part, what their rows do, row by row."""

    def mark_cells(self, batch: Any, marks: NDArray[np.uint8], scratch: Scratch) -> None:
        """Set ``marks`` to 1 at the cells that a checked batch touches."""
        from panstream.primitives.kernels.hashing.cell_marks import mark_inside

        for cells, *_ in self.cell_updates(batch, scratch):
            mark_inside(marks, cells)

    def apply_marked(self, state: StateT, marks: NDArray[np.uint8], rng: NoiseSource) -> None:
        """Do what touches of all marked cells do, where only that matters; ``marks`` may be longer than the state."""
        raise NotSupported(f"{type(self).__name__} must know more than which cells are touched")

    def refresh_shard(self, state: StateT, count: int, rng: NoiseSource) -> None:
        """Do to a part of ``count`` cells what ``refresh``, which says whether it may be, does to the whole."""
        raise NotSupported(f"{type(self).__name__} cannot be refreshed")

    def initial_state(self, rng: NoiseSource) -> StateT:
        """Return a fresh state of all cells."""
        return self.initial_cells(self.cells, rng)

    def update(self, state: StateT, batch: Any, rng: NoiseSource) -> None:
        """Do to the cells what the rows of the batch do."""
        scratch = rng.scratch
        for touches in self.cell_updates(batch, scratch):
            taken = scratch.mark
            self.apply_updates(state, touches, rng)
            scratch.rewind(taken)  # the coins of the next piece find these in the cache


@runtime_checkable
class ShardableTables(Algorithm[StateT], Protocol[StateT]):
    """An algorithm of several tables with noise in every cell; a row moves a cell in some of them, or in all.

    A *part* is a state with some of the tables: those whose numbers are in ``own``, in order. ``refresh`` adds one draw
    of noise to every cell of whatever tables a state or a part has. A start does the same to tables of zeros, and a
    release to a copy, of which the answer is a function. On a cluster a state is released once.
    """

    @property
    def tables(self) -> int:
        """Return how many tables, or bundles of them, there are to deal out."""
        ...

    @abstractmethod
    def table_offsets(self, local_tables: NDArray[np.int64]) -> Mapping[str, NDArray[np.int64]]:
        """Return which entries of the first axis of every array a part has."""

    @abstractmethod
    def zero_tables(self, local_tables: NDArray[np.int64]) -> StateT:
        """Return a part of zeros without any noise, in which rows in flight are added up."""

    @abstractmethod
    def accumulate(self, state: StateT, batch: Any, scratch: Scratch) -> None:
        """Do to a state of all tables what a checked batch does."""

    @property
    def update_columns(self) -> tuple[np.dtype[Any], ...]:
        """Return the types of what travels of a row: first how often it came, where 0 is no row at all.

        They depend on public parameters only, whatever the rows hold.
        """
        ...

    @abstractmethod
    def to_update_columns(self, batch: Any, scratch: Scratch) -> Iterator[Touches]:
        """Yield the rows of a checked batch in these columns, equal ones together; whoever takes them in wipes them."""

    @abstractmethod
    def apply_update_columns(
        self,
        state: StateT,
        local_tables: NDArray[np.int64],
        columns: Touches,
        chosen: NDArray[np.int64],
        scratch: Scratch,
    ) -> None:
        """Do to the tables of a part what the ``chosen`` of listed rows do."""

    @abstractmethod
    def estimate(self, state: StateT) -> Estimate:
        """Return the answer of tables that have their release noise."""


def is_shardable(algorithm: Any) -> bool:
    """Return whether the state of an algorithm can be dealt out."""
    return isinstance(algorithm, Shardable | ShardableTables)
