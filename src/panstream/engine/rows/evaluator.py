"""Evaluate the conditions, values and group keys of all queries on a micro-batch.

Simple conditions run in pyarrow, all others in one DuckDB statement per micro-batch, in a database without access to
files or the network. DuckDB's allocator leaves residue of its input in memory, so it gets the columns of the
expressions and never the ids. A row whose condition is NULL, or cannot be computed, is not selected; a value that
cannot be computed is marked as missing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from panstream.engine.arrow import boolean_bytes, compute, numeric_view, pa
from panstream.engine.rows.arrow_predicates import ArrowPredicateCompiler
from panstream.engine.rows.row_batch import arrow_type
from panstream.engine.rows.wiping import wipe_unused
from panstream.engine.sql.expressions import parse_sql
from panstream.errors import EvaluationFailed, MissingExtra, UnsupportedQuery

Kind = Literal["mask", "value", "key"]

_SETTINGS = (
    "threads = 1",
    "memory_limit = '512MB'",
    "temp_directory = ''",
    # A common subexpression would be computed before the TRY around each: an error in one row would fail the batch.
    "disabled_optimizers = 'common_subexpressions'",
)
_OPTIONAL_SETTINGS = (  # some versions lack one
    "error_on_division_by_zero = false",
    "ieee_floating_point_ops = false",
    "python_enable_replacements = false",
    "autoinstall_known_extensions = false",
    "autoload_known_extensions = false",
    "enable_progress_bar = false",
    "TimeZone = 'UTC'",
)
_LOCKS = ("enable_external_access = false", "lock_configuration = true")
_INTEGER = ("BOOLEAN", "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER")
_REAL = ("FLOAT", "DOUBLE", "DECIMAL", "HUGEINT", "UBIGINT", "UHUGEINT")
_SAMPLE_VALUES = {  # to try an expression before the first row
    "int": "1::BIGINT",
    "double": "1::DOUBLE",
    "string": "'1'",
    "binary": "'1'::BLOB",
    "bool": "true",
    "timestamp": "TIMESTAMP '2020-01-01'",
    "date": "DATE '2020-01-01'",
}
_KEYS = {  # of a DuckDB type: what a key is cast to, and the declared type that this is
    **dict.fromkeys(_INTEGER, ("BIGINT", "int")),
    **dict.fromkeys(_REAL, ("DOUBLE", "double")),
    "BOOLEAN": ("BOOLEAN", "bool"),
    "VARCHAR": ("VARCHAR", "string"),
    "DATE": ("DATE", "date"),
    "TIMESTAMP": ("TIMESTAMP", "timestamp"),
}


class _DuckDBEvaluator:
    """Expressions that DuckDB evaluates together, in one statement per record batch."""

    def __init__(self, columns: Mapping[str, str], *, forbidden: str | None = None) -> None:
        self._columns = dict(columns)
        self._forbidden = forbidden
        self._names: list[str] = []
        self._results: list[str] = []
        self._opened: Any = None
        self._error: type[Exception] = Exception

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that are passed to DuckDB."""
        return tuple(self._names)

    def constant(self, sql: str) -> Any:
        """Return the value of an expression without columns; raise UnsupportedQuery if it has none."""
        value = None
        connection = self._connection
        with contextlib.suppress(self._error):
            value = connection.execute(f"SELECT TRY({sql})").fetchall()[0][0]
        if value is None:
            raise UnsupportedQuery(f"{sql} has no value")
        return value

    def add(self, tree: Any, kind: Kind) -> tuple[int, str]:
        """Add an expression to the statement.

        Returns:
            The index of its result, and its type: BOOLEAN, BIGINT or DOUBLE; for a key, as columns are declared.

        Raises:
            UnsupportedQuery: DuckDB does not accept it, or its type does not suit its use.
        """
        text = str(tree.sql(dialect="duckdb"))
        sql = self._renamed(tree)
        sql_type = self._type_of(sql)
        if sql_type is None or not self._works(sql):
            raise UnsupportedQuery(f"DuckDB does not accept {text}", hint="compare and compute with matching types")
        family = sql_type.partition("(")[0]
        if kind == "mask" and family != "BOOLEAN":
            raise UnsupportedQuery(f"{text} is not a condition", hint="write a comparison")
        if kind == "value" and family not in (*_INTEGER, *_REAL):
            raise UnsupportedQuery(f"{text} is not a number", hint="use CAST or a numeric function")
        if kind == "key":
            if family not in _KEYS:
                raise UnsupportedQuery(
                    f"{text} cannot be a group key", hint="keys are text, numbers, booleans or times"
                )
            self._results.append(f"TRY(CAST({sql} AS {_KEYS[family][0]}))")
            return len(self._results) - 1, _KEYS[family][1]
        target = "BOOLEAN" if kind == "mask" else "BIGINT" if family in _INTEGER else "DOUBLE"
        self._results.append(f"TRY(CAST({sql} AS {target}))")
        return len(self._results) - 1, target

    def evaluate(self, batch: Any) -> list[Any]:
        """Return the results for a record batch as Arrow arrays, NULL where there is no value."""
        if not self._results:
            return []
        shown = pa.Table.from_arrays(
            [batch.column(name) for name in self._names], names=[f"c{number}" for number in range(len(self._names))]
        )
        statement = f"SELECT {', '.join(f'{sql} AS r{n}' for n, sql in enumerate(self._results))} FROM batch"
        table = None
        connection = self._connection
        with contextlib.suppress(self._error):
            connection.register("batch", shown)
            table = connection.sql(statement).to_arrow_table()
        with contextlib.suppress(self._error):
            connection.unregister("batch")
        if table is None or table.num_rows != batch.num_rows:
            raise EvaluationFailed("the conditions and values of the queries could not be evaluated for a micro-batch")
        columns = [column.combine_chunks() for column in table.columns]
        wipe_unused(table.columns, columns)
        return columns

    def close(self) -> None:
        """Close the database."""
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    @property
    def _connection(self) -> Any:
        """The database, opened when something first needs it."""
        if self._opened is None:
            try:
                import duckdb
            except ImportError:
                raise MissingExtra("this SQL condition", "engine") from None
            self._error = duckdb.Error
            self._opened = _database(duckdb)
        return self._opened

    def _renamed(self, tree: Any) -> str:
        """Return the expression with numbered columns: DuckDB ignores the case of names."""
        from sqlglot import expressions

        def rename(node: Any) -> Any:
            if not isinstance(node, expressions.Column):
                return node
            if node.name == self._forbidden:
                raise UnsupportedQuery("the user column holds ids and is not handed to DuckDB")
            if node.name not in self._names:
                self._names.append(node.name)
            return expressions.column(f"c{self._names.index(node.name)}")

        return str(tree.transform(rename).sql(dialect="duckdb"))

    def _works(self, sql: str) -> bool:
        """Return whether an expression can be computed: DuckDB checks a pattern, for one, when it evaluates it."""
        row = ", ".join(f"{_SAMPLE_VALUES[self._columns[name]]} AS c{index}" for index, name in enumerate(self._names))
        connection = self._connection
        try:
            connection.execute(f"SELECT TRY({sql}) FROM (SELECT {row})").fetchall()
        except self._error:
            return False
        return True

    def _type_of(self, sql: str) -> str | None:
        schema = pa.schema([(f"c{n}", arrow_type(self._columns[name])) for n, name in enumerate(self._names)])
        sql_type = None
        connection = self._connection
        connection.register("batch", schema.empty_table())
        with contextlib.suppress(self._error):
            sql_type = str(connection.execute(f"DESCRIBE SELECT TRY({sql}) FROM batch").fetchall()[0][1])
        connection.unregister("batch")
        return sql_type


def _database(duckdb: Any) -> Any:
    connection = duckdb.connect(":memory:")
    for setting in _SETTINGS:
        connection.execute(f"SET {setting}")
    for setting in _OPTIONAL_SETTINGS:
        with contextlib.suppress(duckdb.Error):
            connection.execute(f"SET {setting}")
    for setting in _LOCKS:
        connection.execute(f"SET {setting}")
    return connection


Mask: TypeAlias = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Expression:
    """SQL text as ``ParsedQuery`` holds it: a condition (``mask``), number (``value``) or ``key`` of one row."""

    sql: str
    kind: Kind = "mask"


@dataclass(frozen=True, slots=True, eq=False)
class NumericColumn:
    """One number per row, int64 or float64; ``valid`` is false where it is missing."""

    numbers: NDArray[np.int64] | NDArray[np.float64]
    valid: Mask

    def __repr__(self) -> str:
        return f"Values({self.numbers.size} rows of {self.numbers.dtype})"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class KeyColumn:
    """One key per row as an Arrow array, NULL where it is missing."""

    column: Any


Result: TypeAlias = Mask | NumericColumn | KeyColumn
_Step: TypeAlias = Callable[[Any, list[Any]], Result]  # from a record batch and DuckDB's results


class Evaluator:
    """The expressions of all queries, checked against the declared columns and ready for micro-batches.

    Conditions on the user column must be simple, since DuckDB never gets ids: =, <>, IN, LIKE 'prefix%', and <, <=, >,
    >=, BETWEEN for integers. ``plain=False`` evaluates everything else in DuckDB: same results, slower.
    """

    def __init__(
        self,
        expressions: Sequence[Expression],
        columns: Mapping[str, str],
        *,
        user: str | None = None,
        plain: bool = True,
    ) -> None:
        self._columns = dict(columns)
        self._user = user
        self._duck = _DuckDBEvaluator(columns, forbidden=user)
        self._plain = ArrowPredicateCompiler(columns, self._duck.constant, user=user)
        self._prefers_plain = plain
        self._used: set[str] = set()
        self._kinds: dict[Expression, str] = {}
        # DuckDB's results, to be wiped, and the columns of the input that they may share memory with.
        self._unwiped: list[tuple[list[Any], list[Any]]] = []
        self._steps = {expression: self._step(expression) for expression in dict.fromkeys(expressions)}
        self._order = tuple(expressions)

    @property
    def columns(self) -> frozenset[str]:
        """The columns that the expressions use."""
        return frozenset(self._used)

    def evaluate(self, batch: Any) -> list[Result]:
        """Return one result per expression, in order; equal expressions share one."""
        rich = self._duck.evaluate(batch)
        if rich:
            self._unwiped.append((rich, list(batch.columns)))
        results = {expression: step(batch, rich) for expression, step in self._steps.items()}
        return [results[expression] for expression in self._order]

    def wipe(self) -> None:
        """Overwrite DuckDB's results since the last call; they must not be used afterwards."""
        for computed, columns in self._unwiped:
            wipe_unused(computed, columns)
        self._unwiped.clear()

    def kind_of(self, key: Expression) -> str:
        """Return the type of a key expression, as columns are declared."""
        return self._kinds[key]

    def close(self) -> None:
        """Close the database."""
        self._duck.close()

    def _step(self, expression: Expression) -> _Step:
        tree = parse_sql(expression.sql)
        if tree is None:
            raise UnsupportedQuery("this is not a SQL expression")
        names = {node.name for node in tree.walk() if type(node).__name__ == "Column"}
        for name in names:
            if name not in self._columns:
                raise UnsupportedQuery(f"column {name!r} is not declared", hint=f"declared: {', '.join(self._columns)}")
        self._used |= names
        if self._user in names:
            return self._user_step(tree, names)
        if expression.kind == "key":
            return self._key_step(tree, expression)
        if not names:
            return self._constant_step(tree, expression.kind)
        if self._prefers_plain:
            simple = self._plain_step(tree, expression.kind)
            if simple is not None:
                return simple
        number, target = self._duck.add(tree, expression.kind)
        if target == "BOOLEAN":
            return lambda batch, rich: boolean_bytes(rich[number])  # NULL is not true
        return lambda batch, rich: _values(rich[number])

    def _key_step(self, tree: Any, expression: Expression) -> _Step:
        if type(tree).__name__ == "Column":
            name = tree.name
            self._kinds[expression] = self._columns[name]
            return lambda batch, rich: KeyColumn(batch.column(name))
        number, self._kinds[expression] = self._duck.add(tree, "key")
        return lambda batch, rich: KeyColumn(rich[number])

    def _user_step(self, tree: Any, names: set[str]) -> _Step:
        condition = self._plain.compile(tree) if len(names) == 1 else None
        if condition is None:
            raise UnsupportedQuery(
                "this condition on the user column cannot be evaluated",
                hint="=, <>, IN and LIKE 'prefix%' can, and <, >, BETWEEN for whole numbers",
            )
        return lambda batch, rich: condition(batch)

    def _plain_step(self, tree: Any, kind: Kind) -> _Step | None:
        if kind == "mask":
            condition = self._plain.compile(tree)
            return None if condition is None else lambda batch, rich: condition(batch)
        if type(tree).__name__ == "Column" and self._columns[tree.name] in ("int", "double"):
            name = tree.name
            return lambda batch, rich: _values(batch.column(name))
        return None

    def _constant_step(self, tree: Any, kind: Kind) -> _Step:
        sql = str(tree.sql(dialect="duckdb"))
        value = self._duck.constant(f"CAST({sql} AS {'BOOLEAN' if kind == 'mask' else 'DOUBLE'})")
        if kind == "mask":
            return lambda batch, rich: np.full(batch.num_rows, bool(value))
        is_integer = float(value).is_integer() and abs(value) < 2**53
        number = int(value) if is_integer else float(value)
        return lambda batch, rich: NumericColumn(np.full(batch.num_rows, number), np.ones(batch.num_rows, bool))


def _values(array: Any) -> NumericColumn:
    """Return the numbers of a column, 0 where it is NULL or not finite."""
    if pa.types.is_floating(array.type):
        valid = boolean_bytes(compute.is_finite(array))
        numbers = np.asarray(numeric_view(array), np.float64)
    else:
        valid = boolean_bytes(array.is_valid())
        numbers = np.asarray(numeric_view(array), np.int64)
    return NumericColumn(numbers if valid.all() else np.where(valid, numbers, 0), valid)
