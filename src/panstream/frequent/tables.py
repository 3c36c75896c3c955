"""Tables of prefixes and counts as they were released: all that names are read from."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from panstream.errors import InvalidBytes

_HALF = 1 << 15
_NUMBERS: dict[str, Callable[[Any], Any]] = {"bits": int, "laplace": bool, "level_sd": float, "row_sd": float}


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Tables:
    """What was released, and the public numbers it takes to read it; standard deviations are those of its noise."""

    levels: NDArray[np.int32]
    rows: NDArray[np.int32]
    bits: int
    seed: np.uint64
    laplace: bool
    level_sd: float
    row_sd: float

    @property
    def per_byte(self) -> int:
        """Return the levels that a byte takes."""
        return 8 // self.bits

    @property
    def longest(self) -> int:
        """Return the bytes of the longest name."""
        return len(self.levels) // self.per_byte

    def to_bytes(self) -> bytes:
        """Return a line of JSON and all cells, in two bytes each where they fit."""
        cells = (self.levels, self.rows)
        kinds = ["<i2" if each.min() >= -_HALF and each.max() < _HALF else "<i4" for each in cells]
        head = {
            "shapes": [list(each.shape) for each in cells],
            "kinds": kinds,
            "seed": f"{int(self.seed):016x}",
            **{name: getattr(self, name) for name in _NUMBERS},
        }
        packed = [each.astype(kind).tobytes() for each, kind in zip(cells, kinds, strict=True)]
        return b"".join([json.dumps(head).encode(), b"\n", *packed])

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Return what :meth:`to_bytes` wrote."""
        try:
            start = data.index(b"\n") + 1
            head, cells = json.loads(data[: start - 1]), []
            for (many, width), kind in zip(head["shapes"], head["kinds"], strict=True):
                found = np.frombuffer(data, {"<i2": "<i2", "<i4": "<i4"}[kind], many * width, start)
                cells.append(found.astype(np.int32).reshape(many, width))
                start += found.nbytes
            levels, rows = cells
            numbers = {name: kind(head[name]) for name, kind in _NUMBERS.items()}
            return cls(levels=levels, rows=rows, seed=np.uint64(int(head["seed"], 16)), **numbers)
        except (KeyError, TypeError, ValueError, AttributeError):
            raise InvalidBytes("these are not tables of names") from None
