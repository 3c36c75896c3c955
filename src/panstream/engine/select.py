"""From a micro-batch of typed columns to what every query looks at."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from panstream.engine.arrow import numbers_of, pa, truth_of
from panstream.engine.config import Config, QueryConfig
from panstream.engine.groups import GroupKeys
from panstream.engine.predicates import Expression, Mask, Result, Values, compile_masks
from panstream.engine.rows import QueryRows, Rows
from panstream.engine.sql import ParsedQuery
from panstream.errors import ConfigError, InvalidParameter, SqlRefused
from panstream.scratch import wipe

__all__ = ["Selector"]

_PIPE = "standard input"  # another run's pipe is another stream: there is no position to go on from


class Selector:
    """Evaluates the conditions, values and groups of a configuration's queries on micro-batches.

    Making one checks every expression against the declared columns. What it computes from rows is its own and
    overwritten by ``wipe``, once the engine has taken the batch in.
    """

    def __init__(self, config: Config) -> None:
        self._stream, self._queries = config.stream, config.queries
        self._expressions: list[Expression] = []
        self._keys: dict[str, GroupKeys] = {}
        for query in config.queries:
            self._expressions += self._checked(query)
        self._evaluator = compile_masks(self._expressions, self._stream.columns, user=self._stream.user)
        self._looks_at_ids = self._stream.user in {*self._evaluator.columns, self._stream.time, self._stream.weight}
        self._made: list[NDArray[Any]] = []

    def _checked(self, query: QueryConfig) -> list[Expression]:
        """Return the expressions of one query, and keep its group keys; raise ConfigError with its name."""
        columns, found = self._stream.columns, _expressions(query.parsed)
        refused: str | None = None
        try:
            compile_masks(found, columns, user=self._stream.user).close()
            if query.parsed.group_by:
                self._keys[query.name] = GroupKeys.of(
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
