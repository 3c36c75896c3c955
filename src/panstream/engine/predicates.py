"""Which rows a query is about, and the number each of them brings: all conditions and values of all queries at once.

Plain conditions run in pyarrow, richer ones in one DuckDB statement per micro-batch. A row whose condition is NULL, or cannot be
computed, is not selected; a value that cannot be computed is marked as missing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from panstream.engine.arrow import compute, numbers_of, pa, truth_of
from panstream.engine.duck import Duck, Kind
from panstream.engine.plain import PlainCompiler
from panstream.errors import SqlRefused

__all__ = ["Evaluator", "Expression", "Mask", "Result", "Values", "compile_masks"]

Mask: TypeAlias = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Expression:
    """SQL text as ``ParsedQuery`` holds it: a condition (``mask``) or a number (``value``) of one row."""

    sql: str
    kind: Kind = "mask"


@dataclass(frozen=True, slots=True, eq=False)
class Values:
    """One number a row, int64 or float64; ``valid`` marks those that are there."""

    numbers: NDArray[np.int64] | NDArray[np.float64]
    valid: Mask

    def __repr__(self) -> str:
        return f"Values({self.numbers.size} rows of {self.numbers.dtype})"


Result: TypeAlias = Mask | Values
_Step: TypeAlias = Callable[[Any, list[Any]], Result]  # batch and DuckDB's results to one result


def compile_masks(
    expressions: Sequence[Expression], columns: Mapping[str, str], *, user: str | None = None, plain: bool = True
) -> Evaluator:
    """Check the expressions of all queries against the declared columns and prepare them for micro-batches.

    Conditions on the user column must be plain: =, <>, IN, LIKE 'prefix%', and <, <=, >, >=, BETWEEN for whole numbers.
    ``plain=False`` leaves everything else to DuckDB, which must make no difference but for speed.
    """
    return Evaluator(expressions, columns, user=user, plain=plain)


class Evaluator:
    """Expressions ready to be evaluated; made by ``compile_masks``."""

    def __init__(
        self, expressions: Sequence[Expression], columns: Mapping[str, str], *, user: str | None, plain: bool
    ) -> None:
        self._columns, self._user = dict(columns), user
        self._duck = Duck(columns, forbidden=user)
        self._plain = PlainCompiler(columns, self._duck.constant, user=user)
        self._prefers_plain = plain
        self._used: set[str] = set()
        steps: dict[Expression, _Step] = {}
        for expression in expressions:
            if expression not in steps:
                steps[expression] = self._step(expression)
        self._steps = steps
        self._order = tuple(expressions)

    @property
    def columns(self) -> frozenset[str]:
        """The columns that the expressions are about."""
        return frozenset(self._used)

    @property
    def duck_columns(self) -> tuple[str, ...]:
        """The columns that DuckDB gets to see: never the user column."""
        return self._duck.columns

    def evaluate(self, batch: Any) -> list[Result]:
        """Return one result an expression, in order; equal expressions share theirs."""
        rich = self._duck.evaluate(batch)
        results = {expression: step(batch, rich) for expression, step in self._steps.items()}
        return [results[expression] for expression in self._order]

    def close(self) -> None:
        """Close the database."""
        self._duck.close()

    def _step(self, expression: Expression) -> _Step:
        tree = _parsed(expression.sql)
        names = {node.name for node in tree.walk() if type(node).__name__ == "Column"}
        for name in names:
            if name not in self._columns:
                raise SqlRefused(f"column {name!r} is not declared", hint=f"declared: {', '.join(self._columns)}")
        self._used |= names
        if self._user in names:
            return self._user_step(tree, names)
        if not names:
            return self._constant_step(tree, expression.kind)
        if self._prefers_plain:
            simple = self._plain_step(tree, expression.kind)
            if simple is not None:
                return simple
        number, target = self._duck.add(tree, expression.kind)
        if target == "BOOLEAN":
            return lambda batch, rich: _mask(rich[number])
        return lambda batch, rich: _values(rich[number])

    def _user_step(self, tree: Any, names: set[str]) -> _Step:
        condition = self._plain.compile(tree) if len(names) == 1 else None
        if condition is None:
            raise SqlRefused(
                "this condition on the user column cannot be evaluated",
                hint="=, <>, IN and LIKE 'prefix%' can, and <, >, BETWEEN for whole numbers",
            )
        return lambda batch, rich: truth_of(condition(batch))

    def _plain_step(self, tree: Any, kind: Kind) -> _Step | None:
        if kind == "mask":
            condition = self._plain.compile(tree)
            return None if condition is None else lambda batch, rich: truth_of(condition(batch))
        if type(tree).__name__ == "Column" and self._columns[tree.name] in ("int", "double"):
            name = tree.name
            return lambda batch, rich: _values(batch.column(name))
        return None

    def _constant_step(self, tree: Any, kind: Kind) -> _Step:
        sql = str(tree.sql(dialect="duckdb"))
        value = self._duck.constant(f"CAST({sql} AS {'BOOLEAN' if kind == 'mask' else 'DOUBLE'})")
        if kind == "mask":
            return lambda batch, rich: np.full(batch.num_rows, bool(value))
        whole = float(value).is_integer() and abs(value) < 2**53
        number = int(value) if whole else float(value)
        return lambda batch, rich: Values(np.full(batch.num_rows, number), np.ones(batch.num_rows, bool))


def _parsed(sql: str) -> Any:
    from sqlglot import errors, parse_one

    tree = None
    try:
        tree = parse_one(sql, read="duckdb")
    except errors.SqlglotError:
        tree = None
    if tree is None:
        raise SqlRefused("this is not an expression in SQL")
    return tree


def _mask(array: Any) -> Mask:
    """Return where a condition is true; NULL is not."""
    return truth_of(array)


def _values(array: Any) -> Values:
    """Return the numbers of a column, with zero where there is none."""
    if pa.types.is_floating(array.type):
        valid = truth_of(compute.is_finite(array))
        numbers = np.asarray(numbers_of(array), np.float64)
    else:
        valid = truth_of(array.is_valid())
        numbers = np.asarray(numbers_of(array), np.int64)
    return Values(numbers if valid.all() else np.where(valid, numbers, 0), valid)
