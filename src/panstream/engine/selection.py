"""A micro-batch as the queries see it: shared ids and times, and for every query which rows, values and groups."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.engine.arrow import arrow_mask
from panstream.engine.memory import shares, wipe_array
from panstream.engine.stored_ids import StoredIds
from panstream.scratch import wipe

__all__ = ["Applied", "Chosen", "Rows", "Taken", "either", "take_ids"]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Chosen:
    """What one query looks at; every column is as long as the micro-batch, and None means all, or none needed.

    ``unusable`` marks rows whose value or weight could not be computed; ``groups`` is -1 for undeclared keys.
    """

    rows: NDArray[np.bool_] | None = None
    values: NDArray[np.float64] | None = None
    weights: NDArray[np.int64] | None = None
    groups: NDArray[np.int64] | None = None
    unusable: NDArray[np.bool_] | None = None


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Rows:
    """One micro-batch. A batch with a ``producer`` is applied once, however often it is sent.

    ``bad`` rows count for nothing but their times. ``ids`` is a NumPy or Arrow array, or ids that are still in a file's pages; ``times`` are seconds of event time (NaN where unknown), or None where the time of
    arrival counts. ``numbers`` returns the rows' numbers for the sender, 0, 1, ... by default. Batches of several producers that were
    joined are named by ``origins``, and are known to be new.
    """

    count: int
    queries: Mapping[str, Chosen]
    ids: Any = None
    times: NDArray[np.float64] | None = None
    bad: NDArray[np.bool_] | None = None
    producer: str | None = None
    sequence: int = 0
    numbers: Callable[[], NDArray[np.int64]] | None = None
    origins: tuple[tuple[str, int], ...] = ()

    def told(self, chosen: NDArray[np.bool_] | None) -> tuple[int, ...]:
        """Return the numbers of some rows, for their sender; None is no row."""
        if chosen is None or not chosen.any():
            return ()
        places = np.flatnonzero(chosen)
        return tuple((places if self.numbers is None else self.numbers()[places]).tolist())


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """What became of a micro-batch: for whoever sent it, and nobody else."""

    new: bool  # False if it was applied before
    skipped: tuple[int, ...] = ()  # numbers of the rows that some query could not use
    late: tuple[int, ...] = ()  # numbers of the rows whose window was over


@dataclass(frozen=True, slots=True, eq=False)
class Taken:
    """Some of the ids, and whether they are a copy of ours."""

    data: Any
    owned: bool

    def wipe(self) -> None:
        """Overwrite our copy."""
        if self.owned and isinstance(self.data, np.ndarray):
            if self.data.dtype != object:
                wipe(self.data)
        elif self.owned:
            wipe_array(self.data)


def either(one: NDArray[np.bool_] | None, other: NDArray[np.bool_] | None) -> NDArray[np.bool_] | None:
    """Return the rows that are in one of two choices; None is no row."""
    if one is None or other is None:
        return other if one is None else one
    return one | other


def take_ids(ids: Any, part: NDArray[np.bool_] | None) -> Taken:
    """Return the ids of some rows."""
    if isinstance(ids, StoredIds):
        return Taken(ids.all(), False) if part is None else Taken(ids.chosen(part), True)
    if part is None:
        return Taken(ids, False)
    if isinstance(ids, np.ndarray):
        return Taken(ids[part], True)
    taken = ids.filter(arrow_mask(part))
    return Taken(taken, not shares(taken, ids))
