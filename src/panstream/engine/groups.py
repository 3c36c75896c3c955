"""Group keys to the numbers of declared groups. Keys are declared, never read from the data, which would tell who is in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.engine.arrow import compute, numbers_of, pa, truth_of, words_of
from panstream.engine.rows import arrow_type
from panstream.errors import InvalidParameter

__all__ = ["GroupKeys"]


@dataclass(frozen=True, slots=True, eq=False)
class GroupKeys:
    """The declared keys of one query's GROUP BY.

    >>> groups = GroupKeys.of({"region": ("north", "south"), "sex": ("f", "m")}, {"region": "string", "sex": "string"})
    >>> len(groups), groups.key(3)
    (4, ('south', 'm'))
    """

    columns: tuple[str, ...]
    declared: tuple[Any, ...]  # one Arrow array of keys a column

    @classmethod
    def of(cls, groups: Mapping[str, tuple[Any, ...]], columns: Mapping[str, str]) -> GroupKeys:
        """Check the keys against the declared types of their columns."""
        arrays = []
        for name, keys in groups.items():
            array = _typed(keys, columns[name])
            if array is None or array.null_count or len(array.unique()) != len(array):
                raise InvalidParameter(f"groups.{name} must list different keys of the column's type, {columns[name]}")
            arrays.append(array)
        return cls(tuple(groups), tuple(arrays))

    def __len__(self) -> int:
        return int(np.prod([len(array) for array in self.declared], dtype=np.int64))

    def key(self, number: int) -> tuple[Any, ...]:
        """Return the keys of a group."""
        found = []
        for array in reversed(self.declared):
            number, position = divmod(number, len(array))
            found.append(array[position].as_py())
        return tuple(reversed(found))

    def numbers(self, batch: Any) -> NDArray[np.int64]:
        """Return every row's group; -1 for a row with an undeclared or missing key, of which only the sender is told."""
        total = np.zeros(batch.num_rows, np.int64)
        known = np.ones(batch.num_rows, bool)
        for name, array in zip(self.columns, self.declared, strict=True):
            positions = _positions(batch.column(name), array)
            known &= positions >= 0
            total = total * len(array) + positions
        return np.where(known, total, -1)


def _typed(keys: tuple[Any, ...], kind: str) -> Any:
    fits: dict[str, tuple[type, ...]] = {"int": (int,), "double": (int, float), "string": (str,), "bool": (bool,)}
    for key in keys:
        if kind in fits and (not isinstance(key, fits[kind]) or isinstance(key, bool) != (kind == "bool")):
            return None
    try:
        if kind == "string":
            return words_of(keys)
        return pa.array(keys, arrow_type(kind))
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return None


def _positions(column: Any, keys: Any) -> NDArray[np.int64]:
    if pa.types.is_dictionary(column.type):
        words = compute.index_in(column.dictionary, value_set=keys)
        positions = words.take(column.indices)
    else:
        positions = compute.index_in(column, value_set=keys)
    return np.where(truth_of(positions.is_valid()), numbers_of(positions), -1).astype(np.int64)
