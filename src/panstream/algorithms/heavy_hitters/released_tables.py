"""Released tables of prefixes and counts, from which names are decoded, and their stored form."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from panstream.errors import InvalidBytes, MergeError

CELLS_PER_NAME = 16  # of a level, for every name that can be listed
MAX_LISTED_NAMES = 4_000  # for which cells are provided
_LISTED_FROM_SD = 3.0  # standard deviations of a level's cell from which a name is listed with 95%
_TESTED_FROM_SD = 7.0  # standard errors of a count from which it passes the test with 95%
_INT16_BOUND = 1 << 15
_NUMBERS: dict[str, Callable[[Any], Any]] = {"bits": int, "laplace": bool, "level_sd": float, "row_sd": float}


def listing_threshold(level_sd: float, row_sd: float, rows: int, repeats: int = 1) -> float:
    """Return how many events a name needs to be listed with probability 95% by tables that are wide enough.

    Each of its symbols is on ``repeats`` levels.
    """
    return max(_LISTED_FROM_SD * level_sd / math.sqrt(repeats), _TESTED_FROM_SD * row_sd / math.sqrt(rows), 1.0)


def crowded_listing_threshold(threshold: float, events: float, width: int) -> float:
    """Return how many events a name needs among ``events``: more than ``threshold`` if levels have too few cells."""
    return threshold * max(1.0, CELLS_PER_NAME * min(events / threshold, MAX_LISTED_NAMES) / width)


def local_levels(
    local_tables: NDArray[np.int64], max_item_bytes: int, bits: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the first local level of every byte, -1 for bytes of other shards, and the local rows.

    Tables are numbered: the bytes of a name from 0, then the rows.

    >>> [indices.tolist() for indices in local_levels(np.array([0, 2, 4]), 3, 4)]
    [[0, -1, 2], [1]]
    """
    starts = np.full(max_item_bytes, -1)
    local_bytes = local_tables[local_tables < max_item_bytes]
    starts[local_bytes] = np.arange(local_bytes.size) * (8 // bits)
    return starts, local_tables[local_tables >= max_item_bytes] - max_item_bytes


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ReleasedTables:
    """Released tables and the public numbers to decode them; ``level_sd`` and ``row_sd`` are those of the noise."""

    levels: NDArray[np.int32]
    rows: NDArray[np.int32]
    bits: int
    seed: np.uint64
    laplace: bool
    level_sd: float
    row_sd: float
    repeats: int = 1

    @property
    def per_byte(self) -> int:
        """Return the number of levels per byte."""
        return 8 // self.bits

    @property
    def max_item_bytes(self) -> int:
        """Return the largest length of a name in bytes."""
        return len(self.levels) // self.per_byte

    @property
    def events(self) -> float:
        """Return an unbiased number of events: the sum of the first level's cells, with the noise of all of them."""
        return float(self.levels[0, : 1 << self.bits].sum(dtype=np.int64))

    @property
    def listing_threshold(self) -> float:
        """Return how many events a name needs to be listed with probability 95%."""
        threshold = listing_threshold(self.level_sd, self.row_sd, len(self.rows))
        return crowded_listing_threshold(threshold, max(self.events, 0.0), self.levels.shape[1])

    @classmethod
    def added(cls, tables: Sequence[ReleasedTables]) -> ReleasedTables:
        """Return the sum of tables that sites, or windows, have released, and of their noise.

        Raises:
            MergeError: The tables differ in size, key or kind of noise.
        """
        first = tables[0]
        for other in tables[1:]:
            if (other.levels.shape, other.rows.shape) != (first.levels.shape, first.rows.shape):
                raise MergeError(
                    "tables of names must have the same size: the same max_item_bytes, expected and memory"
                )
            if (other.bits, other.seed, other.repeats) != (first.bits, first.seed, first.repeats):
                raise MergeError("tables of names must have the same key, and all have a delta or none")
        return cls(
            levels=np.sum([table.levels for table in tables], 0, np.int32),
            rows=np.sum([table.rows for table in tables], 0, np.int32),
            bits=first.bits,
            seed=first.seed,
            laplace=first.laplace,
            level_sd=math.hypot(*(table.level_sd for table in tables)),
            row_sd=math.hypot(*(table.row_sd for table in tables)),
            repeats=first.repeats,
        )

    def to_bytes(self) -> bytes:
        """Return a line of JSON and all cells, in two bytes each if they fit."""
        cells = (self.levels, self.rows)
        kinds = ["<i2" if array.min() >= -_INT16_BOUND and array.max() < _INT16_BOUND else "<i4" for array in cells]
        head = {
            "shapes": [list(array.shape) for array in cells],
            "kinds": kinds,
            "seed": f"{int(self.seed):016x}",
            **{name: getattr(self, name) for name in _NUMBERS},
            **({"repeats": self.repeats} if self.repeats > 1 else {}),
        }
        packed = [array.astype(kind).tobytes() for array, kind in zip(cells, kinds, strict=True)]
        return b"".join([json.dumps(head).encode(), b"\n", *packed])

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Read what `to_bytes` wrote; raise InvalidBytes for anything else."""
        try:
            start = data.index(b"\n") + 1
            head = json.loads(data[: start - 1])
            cells = []
            for (count, width), kind in zip(head["shapes"], head["kinds"], strict=True):
                flat = np.frombuffer(data, {"<i2": "<i2", "<i4": "<i4"}[kind], count * width, start)
                cells.append(flat.astype(np.int32).reshape(count, width))
                start += flat.nbytes
            levels, rows = cells
            numbers = {name: kind(head[name]) for name, kind in _NUMBERS.items()}
            seed = np.uint64(int(head["seed"], 16))
            return cls(levels=levels, rows=rows, seed=seed, repeats=int(head.get("repeats", 1)), **numbers)
        except (KeyError, TypeError, ValueError, AttributeError):
            raise InvalidBytes("these are not tables of names") from None
