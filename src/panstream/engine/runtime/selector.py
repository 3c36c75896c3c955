"""Evaluate the conditions, values and groups of every query on the typed columns of a micro-batch.

Group keys are declared, never read from the data: which keys occur would reveal who is in it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, time
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from panstream.engine.arrow import boolean_bytes, compute, numeric_view, pa, string_array
from panstream.engine.config.config import Config, QueryConfig, StreamConfig
from panstream.engine.planner.open_domain import check_key_type
from panstream.engine.planner.person_division import divide_person_budget, load_divided_config
from panstream.engine.rows.evaluator import Evaluator, Expression, KeyColumn, Mask, NumericColumn, Result
from panstream.engine.rows.group_keys import KeyText, parse_group_key
from panstream.engine.rows.row_batch import QuerySelection, RowBatch, arrow_type
from panstream.engine.rows.sender_counts import counted_windows
from panstream.engine.rows.wiping import wipe_array
from panstream.engine.sql.expressions import LookupColumn
from panstream.engine.sql.lookup_tables import LookupTable
from panstream.engine.sql.parser import ParsedQuery
from panstream.errors import ConfigError, InvalidParameter, UnsupportedQuery
from panstream.primitives.sender_counts import COLUMN


def _key_indices(column: Any, keys: Any) -> Any:
    """Return the index of every value among ``keys``, null if it is not one; dictionary values are looked up once."""
    if not pa.types.is_dictionary(column.type):
        return compute.index_in(column, value_set=keys)
    return compute.index_in(column.dictionary, value_set=keys).take(column.indices)


class _LookupJoiner:
    """Left join of public lookup tables to a micro-batch: each row matches at most one row of a table."""

    def __init__(
        self,
        joined: Sequence[LookupColumn],
        lookups: Mapping[str, LookupTable],
        columns: Mapping[str, str],
        user: str | None,
    ) -> None:
        self._joined = tuple(dict.fromkeys(joined))
        self._user = user
        keys = dict.fromkeys(lookup_column.key for lookup_column in self._joined if lookup_column.key != user)
        self._keys = tuple(Expression(sql=key, kind="key") for key in keys)
        self._evaluator = Evaluator(self._keys, {name: kind for name, kind in columns.items() if name != user})
        self._to_wipe: list[Any] = []
        self._tables = {}
        for lookup_column in self._joined:
            lookup = lookups[lookup_column.lookup]
            is_user = lookup_column.key == user
            key = Expression(sql=lookup_column.key, kind="key")
            kind = columns[lookup_column.key] if is_user else self._evaluator.kind_of(key)
            other = lookup.columns[lookup.key]
            if kind != other:
                raise UnsupportedQuery(
                    f"{lookup_column.key} is {kind}, and {lookup_column.lookup}.{lookup.key} is {other}",
                    hint="declare the user as that type" if is_user else "use CAST",
                )
            self._tables[lookup_column] = (_column(lookup, lookup.key), _column(lookup, lookup_column.column))

    @property
    def types(self) -> dict[str, str]:
        """Return the types of the joined columns, by name."""
        return {lookup_column.name: lookup_column.kind for lookup_column in self._joined}

    def with_lookup_columns(self, batch: Any) -> Any:
        """Return the batch with the joined columns appended."""
        if not self._joined:
            return batch
        keys = dict(zip(self._keys, self._evaluator.evaluate(batch), strict=True))
        joined_columns = []
        for lookup_column in self._joined:
            if lookup_column.key == self._user:
                column = batch.column(self._user)
            else:
                key = keys[Expression(sql=lookup_column.key, kind="key")]
                assert isinstance(key, KeyColumn)
                column = key.column
            lookup_keys, values = self._tables[lookup_column]
            indices = _key_indices(column, lookup_keys)
            joined_columns.append(values.take(indices))
            self._to_wipe += [indices, joined_columns[-1]]
        names = [*batch.schema.names, *(lookup_column.name for lookup_column in self._joined)]
        return pa.RecordBatch.from_arrays([*batch.columns, *joined_columns], names=names)

    def wipe(self) -> None:
        """Overwrite the joined columns of the last micro-batch."""
        for array in self._to_wipe:
            wipe_array(array)
        self._to_wipe.clear()
        self._evaluator.wipe()

    def close(self) -> None:
        """Close the evaluator's database connection."""
        self._evaluator.close()


_EXAMPLES = {"date": ", such as 2026-03-01", "timestamp": ", such as 2026-03-01 12:00:00", "bool": ": true, false"}


def _column(lookup: LookupTable, name: str) -> Any:
    """Return a column of a lookup table in the Arrow type of stream columns."""
    return lookup.table.column(name).cast(arrow_type(lookup.columns[name])).combine_chunks()


@dataclass(frozen=True, slots=True, eq=False)
class _GroupKeys:
    """The declared keys of one query's GROUP BY.

    >>> groups = _GroupKeys.of({"region": ("north", "south"), "sex": ("f", "m")}, {"region": "string", "sex": "string"})
    >>> len(groups), groups.key(3)
    (4, ('south', 'm'))
    """

    columns: tuple[str, ...]
    declared: tuple[Any, ...]  # one Arrow array of keys per column

    @classmethod
    def of(cls, groups: Mapping[str, tuple[Any, ...]], columns: Mapping[str, str]) -> _GroupKeys:
        """Convert the keys to the types of their columns; raise InvalidParameter if one does not fit or is repeated."""
        arrays = []
        for name, keys in groups.items():
            array = _typed(keys, columns[name])
            if array is None or array.null_count or len(array.unique()) != len(array):
                example = _EXAMPLES.get(columns[name], "")
                raise InvalidParameter(f"groups.{name} must list different keys of type {columns[name]}{example}")
            arrays.append(array)
        return cls(tuple(groups), tuple(arrays))

    def __len__(self) -> int:
        return int(np.prod([len(array) for array in self.declared], dtype=np.int64))

    def key(self, number: int) -> tuple[Any, ...]:
        """Return the keys of the group with this number, the last column varying fastest."""
        key_values = []
        for array in reversed(self.declared):
            number, position = divmod(number, len(array))
            key_values.append(array[position].as_py())
        return tuple(reversed(key_values))

    def numbers(self, keys: Sequence[Any]) -> NDArray[np.int64]:
        """Return every row's group number, -1 for a row with an undeclared or missing key."""
        total: NDArray[np.int64] | None = None
        for column, array in zip(keys, self.declared, strict=True):
            indices = _key_indices(column, array)
            positions = np.where(boolean_bytes(indices.is_valid()), numeric_view(indices), -1).astype(np.int64)
            if total is None:
                total = positions
            else:
                total = np.where((total >= 0) & (positions >= 0), total * len(array) + positions, -1)
        assert total is not None
        return total


def _typed(keys: tuple[Any, ...], kind: str) -> Any:
    try:
        keys = tuple(parse_group_key(key, kind) if isinstance(key, KeyText) else key for key in keys)
    except ValueError:
        return None
    fits: dict[str, tuple[type, ...]] = {"int": (int,), "double": (int, float), "string": (str,), "bool": (bool,)}
    for key in keys:
        if kind in fits and (not isinstance(key, fits[kind]) or isinstance(key, bool) != (kind == "bool")):
            return None
    try:
        if kind == "string":
            return string_array(keys)
        if kind == "timestamp":  # a date means its midnight
            keys = tuple(datetime.combine(key, time()) if type(key) is date else key for key in keys)
        return pa.array(keys, arrow_type(kind))
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return None


TIME_UNITS = {"timestamp": 1e-6, "date": 86400.0, "int": 1.0}  # seconds, by the type of the time column
_PIPE = "standard input"  # not a producer: the pipe of the next run has other rows, so there is no position to resume


class Selector:
    """Evaluate the conditions, values and groups of a configuration's queries on micro-batches.

    The constructor checks every expression against the declared columns. Call ``wipe`` once the engine has applied
    the batch: it overwrites everything that was computed from its rows.

    Args:
        config: The configuration whose queries select rows.

    Raises:
        ConfigError: An expression or a group key does not fit the columns.
    """

    def __init__(self, config: Config) -> None:
        config = divide_person_budget(config)
        self._stream = config.stream
        self._lookups = config.lookups
        self._queries = [query for query in config.queries if not query.of_unusable]  # that one reads no column
        self._to_wipe: list[NDArray[Any]] = []
        refused: str | None = None
        try:
            self._joins, self._evaluator, self._expressions, self._keys = self._compiled(self._queries)
        except (UnsupportedQuery, InvalidParameter) as error:
            refused = self._first_invalid_query() or str(error)
        if refused is not None:
            raise ConfigError(refused)

    def _compiled(
        self, queries: Sequence[QueryConfig]
    ) -> tuple[_LookupJoiner, Evaluator, list[Expression], dict[str, _GroupKeys]]:
        """Compile some queries; raise UnsupportedQuery or InvalidParameter if one of them cannot be evaluated."""
        stream = self._stream
        joined = [lookup_column for query in queries for lookup_column in query.parsed.joined]
        joins = _LookupJoiner(joined, self._lookups, stream.columns, stream.user)
        expressions = [expression for query in queries for expression in _expressions(query.parsed)]
        evaluator = Evaluator(expressions, {**stream.columns, **joins.types}, user=stream.user)
        keys = {}
        for query in queries:
            names = query.parsed.group_by
            kinds = {
                name: evaluator.kind_of(expression) for name, expression in zip(names, _keys(query.parsed), strict=True)
            }
            if query.names is not None:
                check_key_type(query.names, kinds[query.names])
            elif names:
                keys[query.name] = _GroupKeys.of({name: query.groups[name] for name in names}, kinds)
        return joins, evaluator, expressions, keys

    def _first_invalid_query(self) -> str | None:
        """Compile the queries one by one, and return the name of the first invalid one with the reason."""
        for query in self._queries:
            try:
                joins, evaluator, _, _ = self._compiled([query])
            except (UnsupportedQuery, InvalidParameter) as error:
                return f"[[query]] {query.statement or query.name}: {error}"
            evaluator.close()
            joins.close()
        return None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.wipe()
        self._evaluator.close()
        self._joins.close()

    def __call__(self, rows: RowBatch) -> RowBatch:
        """Return the rows with every query's selection, ids and times."""
        evaluated = self._evaluator.evaluate(self._joins.with_lookup_columns(rows.columns))
        results = dict(zip(self._expressions, evaluated, strict=True))
        return replace(
            rows,
            queries={query.name: self._chosen(query, rows, results) for query in self._queries},
            ids=self._ids(rows),
            times=event_times(rows.columns, self._stream),
            producer=None if rows.producer == _PIPE else rows.producer,
        )

    def wipe(self) -> None:
        """Overwrite everything computed from the last micro-batch."""
        for array in self._to_wipe:
            wipe_array(array)
        self._to_wipe.clear()
        self._evaluator.wipe()
        self._joins.wipe()

    def _chosen(self, query: QueryConfig, rows: RowBatch, results: dict[Expression, Result]) -> QuerySelection:
        parsed = query.parsed
        chosen = np.ones(len(rows), bool)
        unusable = np.zeros(len(rows), bool)
        for sql in (parsed.where, parsed.user_where):
            if sql is not None:
                mask = results[Expression(sql=sql)]
                assert isinstance(mask, np.ndarray)
                chosen &= mask
        values = self._numbers(results, parsed.value, np.float64, unusable)
        weights = self._numbers(results, parsed.weight, np.int64, unusable)
        if weights is None and self._stream.weight is not None and parsed.aggregate.of_presence:
            column = rows.columns.column(self._stream.weight)
            unusable |= boolean_bytes(column.is_null())
            weights = self._adopt(np.array(numeric_view(column), np.int64))
            weights[unusable] = 0
        groups = names = None
        if query.names is not None:
            (key,) = (results[expression] for expression in _keys(parsed))
            assert isinstance(key, KeyColumn)
            names = key.column
            chosen &= boolean_bytes(names.is_valid())
        elif query.name in self._keys:
            keys = [results[expression] for expression in _keys(parsed)]
            groups = self._adopt(
                self._keys[query.name].numbers(
                    [key_column.column for key_column in keys if isinstance(key_column, KeyColumn)]
                )
            )
        counted = None
        if query.contributions is not None and query.bounded_by == "sender" and query.window is not None:
            entries = rows.columns.column(COLUMN)
            counted = self._adopt(counted_windows(entries, query.counter, query.window, query.contributions))
        return QuerySelection(
            rows=chosen, values=values, weights=weights, groups=groups, names=names, unusable=unusable, counted=counted
        )

    def _numbers(self, results: dict[Expression, Result], sql: str | None, kind: Any, unusable: Mask) -> Any:
        """Return the values of an expression; mark rows where it is null or, for weights, not an integer."""
        if sql is None:
            return None
        column = results[Expression(sql=sql, kind="value")]
        assert isinstance(column, NumericColumn)
        unusable |= ~column.valid
        numbers = column.numbers
        if kind is np.int64 and numbers.dtype != np.int64:
            broken = (numbers != np.trunc(numbers)) | (np.abs(numbers) >= 2.0**62)  # the cast to int64 would overflow
            unusable |= broken
            numbers = np.where(broken, 0.0, numbers)
        return numbers if numbers.dtype == kind else self._adopt(numbers.astype(kind))

    def _ids(self, rows: RowBatch) -> Any:
        name = self._stream.user
        return rows.columns.column(name) if name in rows.columns.schema.names else None

    def _adopt(self, array: NDArray[Any]) -> NDArray[Any]:
        """Register an array to be wiped, and return it."""
        self._to_wipe.append(array)
        return array


def event_times(columns: Any, stream: StreamConfig) -> NDArray[np.float64] | None:
    """Return the event times of a record batch in seconds since 1970, NaN for null; None without a time column."""
    if stream.time is None:
        return None
    column = columns.column(stream.time)
    unit = TIME_UNITS[stream.columns[stream.time]]
    integers = column.cast(pa.int32()).cast(pa.int64()) if unit == TIME_UNITS["date"] else column.cast(pa.int64())
    values: NDArray[np.float64] = numeric_view(integers) * unit
    if column.null_count:
        values[boolean_bytes(column.is_null())] = np.nan
    return values


def load_and_check(path: Path) -> Config:
    """Read a configuration file and check every expression in it; raise ConfigError if one is invalid."""
    config = load_divided_config(path)
    with Selector(config):
        return config


def _expressions(parsed: ParsedQuery) -> list[Expression]:
    conditions = [Expression(sql=sql) for sql in (parsed.where, parsed.user_where) if sql is not None]
    values = [Expression(sql=sql, kind="value") for sql in (parsed.value, parsed.weight) if sql is not None]
    return conditions + values + _keys(parsed)


def _keys(parsed: ParsedQuery) -> list[Expression]:
    return [Expression(sql=sql, kind="key") for sql in parsed.keys]
