"""From rows with typed columns to what every query looks at: its conditions, values and groups.

Keys of groups are declared, never read from the data, which would tell who is in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from panstream.engine.arrow import compute, numbers_of, pa, truth_of, words_of
from panstream.engine.config import Config, QueryConfig
from panstream.engine.predicates import Evaluator, Expression, Mask, Result, Values
from panstream.engine.rows import QueryRows, Rows, arrow_type
from panstream.engine.sql import ParsedQuery
from panstream.errors import ConfigError, InvalidParameter, SqlRefused
from panstream.scratch import wipe

__all__ = ["Selector"]


@dataclass(frozen=True, slots=True, eq=False)
class _GroupKeys:
    """The declared keys of one query's GROUP BY.

    >>> groups = _GroupKeys.of({"region": ("north", "south"), "sex": ("f", "m")}, {"region": "string", "sex": "string"})
    >>> len(groups), groups.key(3)
    (4, ('south', 'm'))
    """

    columns: tuple[str, ...]
    declared: tuple[Any, ...]  # one Arrow array of keys a column

    @classmethod
    def of(cls, groups: Mapping[str, tuple[Any, ...]], columns: Mapping[str, str]) -> _GroupKeys:
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
        """Return every row's group; -1 for a row with an undeclared or missing key, of which only the sender is
        told.
        """
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


_PIPE = "standard input"  # another run's pipe is another stream: there is no position to go on from


class Selector:
    """Evaluates the conditions, values and groups of a configuration's queries on micro-batches.

    Making one checks every expression against the declared columns. What it computes from rows is its own and
    overwritten by ``wipe``, once the engine has taken the batch in.
    """

    def __init__(self, config: Config) -> None:
        self._stream, self._queries = config.stream, config.queries
        self._expressions: list[Expression] = []
        self._keys: dict[str, _GroupKeys] = {}
        for query in config.queries:
            self._expressions += self._checked(query)
        self._evaluator = Evaluator(self._expressions, self._stream.columns, user=self._stream.user)
        self._looks_at_ids = self._stream.user in {*self._evaluator.columns, self._stream.time, self._stream.weight}
        self._made: list[NDArray[Any]] = []

    def _checked(self, query: QueryConfig) -> list[Expression]:
        """Return the expressions of one query, and keep its group keys; raise ConfigError with its name."""
        columns, found = self._stream.columns, _expressions(query.parsed)
        refused: str | None = None
        try:
            Evaluator(found, columns, user=self._stream.user).close()
            if query.parsed.group_by:
                self._keys[query.name] = _GroupKeys.of(
                    {key: query.groups[key] for key in query.parsed.group_by}, columns
                )
        except (SqlRefused, InvalidParameter) as error:
            refused = f"[[query]] {query.name}: {error}"
        if refused is not None:
            raise ConfigError(refused)
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.wipe()
        self._evaluator.close()

    def __call__(self, rows: Rows) -> Rows:
        """Return the rows as the engine takes them."""
        if rows.ids is not None and self._looks_at_ids:
            rows = replace(rows, columns=_with_ids(rows, str(self._stream.user)), ids=None)
        results = dict(zip(self._expressions, self._evaluator.evaluate(rows.columns), strict=True))
        return replace(
            rows,
            queries={query.name: self._chosen(query, rows, results) for query in self._queries},
            ids=self._ids(rows),
            times=self._times(rows),
            producer=None if rows.producer == _PIPE else rows.producer,
        )

    def wipe(self) -> None:
        """Overwrite what was computed from the last micro-batch."""
        for array in self._made:
            wipe(array)
        self._made.clear()

    def _chosen(self, query: QueryConfig, rows: Rows, results: dict[Expression, Result]) -> QueryRows:
        parsed = query.parsed
        chosen, unusable = np.ones(len(rows), bool), np.zeros(len(rows), bool)
        for sql in (parsed.where, parsed.user_where):
            if sql is not None:
                mask = results[Expression(sql=sql)]
                assert not isinstance(mask, Values)
                chosen &= mask
        values = self._numbers(results, parsed.value, np.float64, unusable)
        weights = self._numbers(results, parsed.weight, np.int64, unusable)
        if weights is None and self._stream.weight is not None and parsed.aggregate.of_presence:
            column = rows.columns.column(self._stream.weight)
            unusable |= truth_of(column.is_null())
            weights = self._own(np.array(numbers_of(column), np.int64))
            weights[unusable] = 0
        groups = None
        if query.name in self._keys:
            groups = self._own(self._keys[query.name].numbers(rows.columns))
        return QueryRows(rows=chosen, values=values, weights=weights, groups=groups, unusable=unusable)

    def _numbers(self, results: dict[Expression, Result], sql: str | None, kind: Any, unusable: Mask) -> Any:
        """Return the numbers of an expression; mark where there is none or, for weights, none that is whole."""
        if sql is None:
            return None
        found = results[Expression(sql=sql, kind="value")]
        assert isinstance(found, Values)
        unusable |= ~found.valid
        numbers = found.numbers
        if kind is np.int64 and numbers.dtype != np.int64:
            broken = (numbers != np.trunc(numbers)) | (np.abs(numbers) >= 2.0**62)
            unusable |= broken
            numbers = np.where(broken, 0.0, numbers)
        return numbers if numbers.dtype == kind else self._own(numbers.astype(kind))

    def _times(self, rows: Rows) -> NDArray[np.float64] | None:
        """Return event times as seconds since 1970, NaN where there is none."""
        if self._stream.time is None:
            return None
        column = rows.columns.column(self._stream.time)
        unit = {"timestamp": 1e-6, "date": 86400.0, "int": 1.0}[self._stream.columns[self._stream.time]]
        whole = column.cast(pa.int32()).cast(pa.int64()) if unit == 86400.0 else column.cast(pa.int64())
        values: NDArray[np.float64] = numbers_of(whole) * unit
        if column.null_count:
            values[truth_of(column.is_null())] = np.nan
        return values

    def _ids(self, rows: Rows) -> Any:
        name = self._stream.user
        if rows.ids is not None or name is None or name not in rows.columns.schema.names:
            return rows.ids
        return rows.columns.column(name)

    def _own(self, array: NDArray[Any]) -> NDArray[Any]:
        self._made.append(array)
        return array


def _with_ids(rows: Rows, user: str) -> Any:
    """Return the columns with the user's, which stays the rows' to wipe."""
    columns = rows.columns
    return pa.RecordBatch.from_arrays([*columns.columns, rows.ids.all()], names=[*columns.schema.names, user])


def _expressions(parsed: ParsedQuery) -> list[Expression]:
    conditions = [Expression(sql=sql) for sql in (parsed.where, parsed.user_where) if sql is not None]
    return conditions + [Expression(sql=sql, kind="value") for sql in (parsed.value, parsed.weight) if sql is not None]
