"""Joins of micro-batches with public lookup tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from panstream.engine.arrow import compute, pa
from panstream.engine.lookups import Lookup
from panstream.engine.memory import wipe_array
from panstream.engine.predicates import Evaluator, Expression, Keys
from panstream.engine.rows import arrow_type
from panstream.engine.scalars import Joined
from panstream.errors import SqlRefused

__all__ = ["Joins", "places_of"]


def places_of(column: Any, keys: Any) -> Any:
    """Return where among ``keys`` every value of a column is, null where it is not; of a dictionary, word by word."""
    if not pa.types.is_dictionary(column.type):
        return compute.index_in(column, value_set=keys)
    return compute.index_in(column.dictionary, value_set=keys).take(column.indices)


class Joins:
    """Columns of public lookup tables, put beside the columns of a micro-batch: one row in, at most one found."""

    def __init__(self, joined: Sequence[Joined], lookups: Mapping[str, Lookup], columns: Mapping[str, str]) -> None:
        self._joined = tuple(dict.fromkeys(joined))
        self._keys = tuple(dict.fromkeys(Expression(sql=each.key, kind="key") for each in self._joined))
        self._evaluator = Evaluator(self._keys, columns)
        self._made: list[Any] = []
        self._tables = {
            each: [_column(lookups[each.lookup], name) for name in (lookups[each.lookup].key, each.column)]
            for each in self._joined
        }
        for each in self._joined:
            key, kind = lookups[each.lookup].key, self._evaluator.kind_of(Expression(sql=each.key, kind="key"))
            if kind != lookups[each.lookup].columns[key]:
                other = lookups[each.lookup].columns[key]
                raise SqlRefused(f"{each.key} is {kind}, and {each.lookup}.{key} is {other}", hint="use CAST")

    @property
    def types(self) -> dict[str, str]:
        """Return the types of the columns that are put beside."""
        return {each.name: each.kind for each in self._joined}

    def beside(self, batch: Any) -> Any:
        """Return the batch with all of them."""
        if not self._joined:
            return batch
        keys = dict(zip(self._keys, self._evaluator.evaluate(batch), strict=True))
        found = []
        for each in self._joined:
            key = keys[Expression(sql=each.key, kind="key")]
            assert isinstance(key, Keys)
            own, values = self._tables[each]
            places = places_of(key.column, own)
            found.append(values.take(places))
            self._made += [places, found[-1]]
        names = [*batch.schema.names, *(each.name for each in self._joined)]
        return pa.RecordBatch.from_arrays([*batch.columns, *found], names=names)

    def wipe(self) -> None:
        """Overwrite what was found for the last micro-batch."""
        for array in self._made:
            wipe_array(array)
        self._made.clear()
        self._evaluator.wipe()

    def close(self) -> None:
        """Close the database."""
        self._evaluator.close()


def _column(lookup: Lookup, name: str) -> Any:
    """Return a column of a lookup table as the columns of streams travel."""
    return lookup.table.column(name).cast(arrow_type(lookup.columns[name])).combine_chunks()
