"""The canonical form of a batch: integers, strings or dictionary codes in contiguous read-only arrays."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from panstream.primitives.memory.scratch import wipe


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Integers:
    """Integer ids as 64-bit two's complement.

    An id above 2**63 - 1 (uint64, or such a Python int) keeps its 64 bits and so reads as a negative number:
    2**64 - 1 and -1 are the same id.
    """

    values: NDArray[np.int64]

    def __len__(self) -> int:
        return self.values.size

    def __repr__(self) -> str:
        return f"Integers({len(self)} rows)"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Strings:
    """Strings (as UTF-8) or raw bytes as Arrow lays them out: row i is ``data[offsets[i]:offsets[i + 1]]``.

    ``offsets`` never decreases and need not start at 0: a slice of an Arrow array points into the whole
    array's data.
    """

    offsets: NDArray[np.int32] | NDArray[np.int64]
    data: NDArray[np.uint8]

    def __len__(self) -> int:
        return self.offsets.size - 1

    def __repr__(self) -> str:
        return f"Strings({len(self)} rows)"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Dictionary:
    """Dictionary-encoded ids: row i is ``values[codes[i]]``.

    Every code is in range. ``values`` may hold entries that no row uses, and the same entry twice.
    """

    codes: NDArray[np.int32] | NDArray[np.int64]
    values: Integers | Strings

    def __len__(self) -> int:
        return self.codes.size

    def __repr__(self) -> str:
        return f"Dictionary({len(self)} rows, {len(self.values)} values)"


Part: TypeAlias = Integers | Strings | Dictionary


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ItemBatch:
    """A batch of ids in one or more parts of the same kind; an empty batch has none.

    All arrays in ``parts`` are read-only. ``owned`` are the arrays that were allocated for this batch, as opposed to
    the caller's memory.
    """

    parts: tuple[Part, ...]
    owned: tuple[NDArray[Any], ...] = ()

    def __len__(self) -> int:
        return sum(map(len, self.parts))

    def __repr__(self) -> str:
        return f"Items({len(self)} rows, {self.kind or 'no'} kind, {len(self.parts)} parts)"

    @property
    def kind(self) -> Literal["integer", "string"] | None:
        """The kind of the ids (bytes count as strings), or ``None`` for an empty batch."""
        if not self.parts:
            return None
        first = self.parts[0]
        values = first.values if isinstance(first, Dictionary) else first
        return "string" if isinstance(values, Strings) else "integer"

    def spans(self) -> Iterator[tuple[int, Part]]:
        """Yield every part with its first row number."""
        row = 0
        for part in self.parts:
            yield row, part
            row += len(part)

    def wipe(self) -> None:
        """Overwrite the arrays that were allocated for this batch; the caller's memory is not changed."""
        for array in self.owned:
            wipe(array)
