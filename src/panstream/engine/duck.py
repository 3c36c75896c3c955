"""Rich expressions by DuckDB: one statement for all of them per micro-batch, in a database that can reach nothing.

Its allocator keeps residue of what it was given, so it gets the columns of the expressions and never the ids.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any, Literal

from panstream.engine.arrow import pa
from panstream.engine.rows import arrow_type
from panstream.errors import EvaluationFailed, MissingExtra, SqlRefused

__all__ = ["Duck", "Kind"]

Kind = Literal["mask", "value"]

_SETTINGS = ("threads = 1", "memory_limit = '512MB'", "temp_directory = ''")
_NICETIES = (  # not known to every version
    "error_on_division_by_zero = false",
    "ieee_floating_point_ops = false",
    "python_enable_replacements = false",
    "autoinstall_known_extensions = false",
    "autoload_known_extensions = false",
    "enable_progress_bar = false",
    "TimeZone = 'UTC'",
)
_LOCKS = ("enable_external_access = false", "lock_configuration = true")
_WHOLE = ("BOOLEAN", "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER")
_REAL = ("FLOAT", "DOUBLE", "DECIMAL", "HUGEINT", "UBIGINT", "UHUGEINT")


class Duck:
    """Expressions over columns ``names`` (in the order of their numbers), evaluated together."""

    def __init__(self, columns: Mapping[str, str], *, forbidden: str | None = None) -> None:
        self._columns, self._forbidden = dict(columns), forbidden
        self._names: list[str] = []
        self._results: list[str] = []
        self._opened: Any = None
        self._error: type[Exception] = Exception

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that DuckDB gets to see."""
        return tuple(self._names)

    def constant(self, sql: str) -> Any:
        """Return the value of an expression without columns."""
        value, connection = None, self._connection
        with contextlib.suppress(self._error):
            value = connection.execute(f"SELECT TRY({sql})").fetchall()[0][0]
        if value is None:
            raise SqlRefused(f"{sql} has no value")
        return value

    def add(self, tree: Any, kind: Kind) -> tuple[int, str]:
        """Take in an expression; return the number of its result and its type, BOOLEAN, BIGINT or DOUBLE."""
        text = str(tree.sql(dialect="duckdb"))
        sql = self._renamed(tree)
        found = self._type_of(sql)
        if found is None:
            raise SqlRefused(f"DuckDB does not take {text}", hint="compare and compute with columns of fitting types")
        family = found.partition("(")[0]
        if kind == "mask" and family != "BOOLEAN":
            raise SqlRefused(f"{text} is not a condition", hint="write a comparison")
        if kind == "value" and family not in (*_WHOLE, *_REAL):
            raise SqlRefused(f"{text} is not a number", hint="use CAST or a numeric function")
        target = "BOOLEAN" if kind == "mask" else "BIGINT" if family in _WHOLE else "DOUBLE"
        self._results.append(f"TRY(CAST({sql} AS {target}))")
        return len(self._results) - 1, target

    def evaluate(self, batch: Any) -> list[Any]:
        """Return the results for a record batch, as Arrow arrays with nulls where there is no value."""
        if not self._results:
            return []
        shown = pa.Table.from_arrays(
            [batch.column(name) for name in self._names], names=[f"c{number}" for number in range(len(self._names))]
        )
        statement = f"SELECT {', '.join(f'{sql} AS r{n}' for n, sql in enumerate(self._results))} FROM batch"
        table, connection = None, self._connection
        with contextlib.suppress(self._error):
            connection.register("batch", shown)
            table = connection.sql(statement).to_arrow_table()
        with contextlib.suppress(self._error):
            connection.unregister("batch")
        if table is None or table.num_rows != batch.num_rows:
            raise EvaluationFailed("the conditions and values of the queries could not be evaluated for a micro-batch")
        return [column.combine_chunks() for column in table.columns]

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
                raise MissingExtra("rich SQL conditions", "engine") from None
            self._error = duckdb.Error
            self._opened = _database(duckdb)
        return self._opened

    def _renamed(self, tree: Any) -> str:
        """Return the expression with columns by number: names that differ only in case are one to DuckDB."""
        from sqlglot import expressions

        def rename(node: Any) -> Any:
            if not isinstance(node, expressions.Column):
                return node
            if node.name == self._forbidden:
                raise SqlRefused("the user column holds ids and is not handed to DuckDB")
            if node.name not in self._names:
                self._names.append(node.name)
            return expressions.column(f"c{self._names.index(node.name)}")

        return str(tree.transform(rename).sql(dialect="duckdb"))

    def _type_of(self, sql: str) -> str | None:
        schema = pa.schema([(f"c{n}", arrow_type(self._columns[name])) for n, name in enumerate(self._names)])
        found, connection = None, self._connection
        connection.register("batch", schema.empty_table())
        with contextlib.suppress(self._error):
            found = str(connection.execute(f"DESCRIBE SELECT TRY({sql}) FROM batch").fetchall()[0][1])
        connection.unregister("batch")
        return found


def _database(duckdb: Any) -> Any:
    connection = duckdb.connect(":memory:")
    for setting in _SETTINGS:
        connection.execute(f"SET {setting}")
    for setting in _NICETIES:
        with contextlib.suppress(duckdb.Error):
            connection.execute(f"SET {setting}")
    for setting in _LOCKS:
        connection.execute(f"SET {setting}")
    return connection
