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
from panstream.engine.rows import MicroBatch
from panstream.engine.selection import Chosen, Rows
from panstream.engine.sql import Aggregate, ParsedQuery
from panstream.errors import ConfigError, InvalidParameter, SqlRefused
from panstream.scratch import wipe

__all__ = ["Selector"]

_PRESENCE = (Aggregate.COUNT_DISTINCT, Aggregate.DENSITY)
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

    def __call__(self, batch: MicroBatch) -> Rows:
        """Return the micro-batch as the engine takes it."""
        if batch.ids is not None and self._looks_at_ids:
            batch = replace(batch, columns=_with_ids(batch, str(self._stream.user)), ids=None)
        results = dict(zip(self._expressions, self._evaluator.evaluate(batch.columns), strict=True))
        return Rows(
            count=len(batch),
            queries={query.name: self._chosen(query, batch, results) for query in self._queries},
            ids=self._ids(batch),
            times=self._times(batch),
            bad=None if batch.faults is None else batch.faults.bad,
            producer=None if batch.producer == _PIPE else batch.producer,
            sequence=batch.sequence or 0,
            numbers=batch.row_numbers,
        )

    def wipe(self) -> None:
        """Overwrite what was computed from the last micro-batch."""
        for array in self._made:
            wipe(array)
        self._made.clear()

    def _chosen(self, query: QueryConfig, batch: MicroBatch, results: dict[Expression, Result]) -> Chosen:
        parsed = query.parsed
        masks = [results[Expression(sql=sql)] for sql in (parsed.where, parsed.user_where) if sql is not None]
        rows: Mask | None = None
        for mask in masks:
            assert not isinstance(mask, Values)
            rows = mask if rows is None else rows & mask
        values, bad_values = self._numbers(results, parsed.value, np.float64)
        weights, bad_weights = self._numbers(results, parsed.weight, np.int64)
        if weights is None and self._stream.weight is not None and parsed.aggregate in _PRESENCE:
            column = batch.columns.column(self._stream.weight)
            bad_weights = truth_of(column.is_null()) if column.null_count else None
            weights = self._own(np.array(numbers_of(column), np.int64))
            if bad_weights is not None:
                weights[bad_weights] = 0
        groups = None
        if query.name in self._keys:
            groups = self._own(self._keys[query.name].numbers(batch.columns))
        unusable = bad_values if bad_weights is None else bad_weights
        return Chosen(rows=rows, values=values, weights=weights, groups=groups, unusable=unusable)

    def _numbers(self, results: dict[Expression, Result], sql: str | None, kind: Any) -> tuple[Any, Mask | None]:
        """Return the numbers of an expression, and where there is none or, for weights, none that is whole."""
        if sql is None:
            return None, None
        found = results[Expression(sql=sql, kind="value")]
        assert isinstance(found, Values)
        bad = None if found.valid is None else ~found.valid
        numbers = found.numbers
        if kind is np.int64 and numbers.dtype != np.int64:
            broken = (numbers != np.trunc(numbers)) | (np.abs(numbers) >= 2.0**62)
            bad = broken if bad is None else bad | broken
            numbers = np.where(broken, 0.0, numbers)
        return (numbers if numbers.dtype == kind else self._own(numbers.astype(kind))), bad

    def _times(self, batch: MicroBatch) -> NDArray[np.float64] | None:
        """Return event times as seconds since 1970, NaN where there is none."""
        if self._stream.time is None:
            return None
        column = batch.columns.column(self._stream.time)
        unit = {"timestamp": 1e-6, "date": 86400.0, "int": 1.0}[self._stream.columns[self._stream.time]]
        whole = column.cast(pa.int32()).cast(pa.int64()) if unit == 86400.0 else column.cast(pa.int64())
        values: NDArray[np.float64] = numbers_of(whole) * unit
        if column.null_count:
            values[truth_of(column.is_null())] = np.nan
        return values

    def _ids(self, batch: MicroBatch) -> Any:
        if batch.ids is not None:
            return batch.ids
        name = self._stream.user
        return None if name is None or name not in batch.columns.schema.names else batch.columns.column(name)

    def _own(self, array: NDArray[Any]) -> NDArray[Any]:
        self._made.append(array)
        return array


def _with_ids(batch: MicroBatch, user: str) -> Any:
    """Return the columns with the user's, which stays the batch's to wipe."""
    assert batch.ids is not None
    columns = batch.columns
    return pa.RecordBatch.from_arrays([*columns.columns, batch.ids.all()], names=[*columns.schema.names, user])


def _expressions(parsed: ParsedQuery) -> list[Expression]:
    conditions = [Expression(sql=sql) for sql in (parsed.where, parsed.user_where) if sql is not None]
    return conditions + [Expression(sql=sql, kind="value") for sql in (parsed.value, parsed.weight) if sql is not None]
