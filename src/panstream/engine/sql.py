"""One SELECT, checked and taken apart: what is asked, of which rows, in which groups.

Accepted: one aggregate over one stream, with WHERE and GROUP BY on declared keys. Everything else (joins, subqueries,
file functions, undeclared columns) is refused with its position and a hint: a query is a promise about privacy, so
nothing is guessed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from panstream.errors import MissingExtra, SqlRefused, translated

__all__ = ["Aggregate", "ParsedQuery", "parse"]


class Aggregate(Enum):
    """The questions, by their SQL name."""

    COUNT_DISTINCT = "COUNT(DISTINCT user)"
    COUNT = "COUNT(*)"
    SUM = "SUM(value)"
    AVG = "AVG(value)"
    VAR_POP = "VAR_POP(value)"
    STDDEV_POP = "STDDEV_POP(value)"
    MIN = "MIN(value)"
    MAX = "MAX(value)"
    QUANTILE = "QUANTILE_CONT(value, q)"
    DENSITY = "DENSITY(user)"
    CROPPED_SUM = "CROPPED_SUM(user, weight, tau)"
    HEAVY_HITTERS = "HEAVY_HITTERS(user, weight, threshold)"

    @property
    def of_presence(self) -> bool:
        """Whether it asks which users are there, so that weights of the stream say who comes and goes."""
        return self in (Aggregate.COUNT_DISTINCT, Aggregate.DENSITY)

    @property
    def of_users(self) -> bool:
        """Whether it is about users, and not about rows."""
        return self.of_presence or self in (Aggregate.CROPPED_SUM, Aggregate.HEAVY_HITTERS)


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedQuery:
    """A statement taken apart. Expressions are SQL text again, free of the user column unless said otherwise."""

    aggregate: Aggregate
    stream: str
    value: str | None = None  # scalar expression that is summed, averaged, ...
    weight: str | None = None  # signed weight of a turnstile question
    constants: tuple[float, ...] = ()  # q of a quantile, tau, threshold
    where: str | None = None  # condition on other columns
    user_where: str | None = None  # condition on the user column alone
    group_by: tuple[str, ...] = ()
    columns: frozenset[str] = frozenset()  # every column that must be read, the user column included


# What a condition or a value may be made of: no randomness, no clock, no files, no state.
_SCALARS = frozenset(
    word
    for words in (
        "Column Identifier Literal Boolean Null Paren Tuple Var Interval Timestamp Date",
        "Not And Or Xor EQ NEQ GT GTE LT LTE Is In Between Like ILike RegexpLike StartsWith EndsWith",
        "Neg Add Sub Mul Div IntDiv Mod Pow Abs Round Floor Ceil Sqrt Ln Exp Sign Greatest Least",
        "Case If Coalesce Nullif Cast TryCast DataType DataTypeParam",
        "Lower Upper Length Trim Substring Concat DPipe Extract Year Month Day Hour DayOfWeek",
    )
    for word in words.split()
)

_USER_FUNCTIONS = {
    "DENSITY": Aggregate.DENSITY,
    "CROPPED_SUM": Aggregate.CROPPED_SUM,
    "HEAVY_HITTERS": Aggregate.HEAVY_HITTERS,
}


def parse(statement: str, *, columns: Mapping[str, str], user: str | None, stream: str) -> ParsedQuery:
    """Return the checked parts of ``statement``.

    ``columns`` maps the declared columns of ``stream`` to their types; ``user`` is the column that holds ids.
    """
    glot, expressions = _sqlglot()

    def told(error: Any) -> SqlRefused:
        details = (getattr(error, "errors", None) or [{}])[0]
        description = str(details.get("description") or "this is not SQL")
        return SqlRefused(description, line=details.get("line"), column=details.get("col"))

    trees = translated(lambda: glot.parse(statement, read="duckdb"), glot.errors.SqlglotError, told)
    statements = [tree for tree in trees if tree is not None]
    if len(statements) != 1 or not isinstance(statements[0], expressions.Select):
        raise SqlRefused("one SELECT is expected", hint="write SELECT aggregate FROM stream [WHERE ...] [GROUP BY ...]")
    return _Reader(statements[0], dict(columns), user, stream, expressions).read()


class _Reader:
    """Walks one SELECT and refuses what it does not know."""

    def __init__(self, tree: Any, columns: dict[str, str], user: str | None, stream: str, expressions: Any) -> None:
        self.tree, self.columns, self.user, self.stream, self.e = tree, columns, user, stream, expressions

    def read(self) -> ParsedQuery:
        self._check_shape()
        grouped = self._groups()
        aggregate, value, weight, constants = self._aggregate(self._projection(grouped))
        where, user_where = self._conditions()
        used = {column.name for column in self.tree.find_all(self.e.Column)}
        unknown = next((c for c in self.tree.find_all(self.e.Column) if c.name not in self.columns), None)
        if unknown is not None:
            raise self._refuse(
                unknown, f"column {unknown.name!r} is not declared", f"declared: {', '.join(self.columns)}"
            )
        return ParsedQuery(
            aggregate=aggregate,
            stream=self.stream,
            value=value,
            weight=weight,
            constants=constants,
            where=where,
            user_where=user_where,
            group_by=grouped,
            columns=frozenset(used),
        )

    def _check_shape(self) -> None:
        allowed = {"expressions", "from", "from_", "where", "group", "kind", "hint", "distinct"}
        for part, value in self.tree.args.items():
            if value and part not in allowed:
                name = part.rstrip("s_").upper()
                raise self._refuse(value, f"{name} is not supported", "one aggregate over one stream")
        if self.tree.args.get("distinct"):
            raise self._refuse(self.tree, "SELECT DISTINCT is not supported", "use COUNT(DISTINCT user)")
        source = self.tree.args.get("from_") or self.tree.args.get("from")
        if source is None or not isinstance(source.this, self.e.Table):
            raise self._refuse(source or self.tree, "FROM must name the stream", f"FROM {self.stream}")
        table = source.this
        extras = [part for part, value in table.args.items() if value and part != "this"]
        if table.name != self.stream or extras:
            raise self._refuse(
                table, f"FROM must name the stream {self.stream!r}", "other tables and files are not read"
            )
        for kind in (self.e.Subquery, self.e.Select, self.e.Window, self.e.Join):
            inner = next((node for node in self.tree.find_all(kind) if node is not self.tree), None)
            if inner is not None:
                raise self._refuse(inner, f"{kind.__name__.lower()} is not supported", "one aggregate over one stream")

    def _groups(self) -> tuple[str, ...]:
        group = self.tree.args.get("group")
        names = []
        for key in group.expressions if group is not None else []:
            if not isinstance(key, self.e.Column):
                raise self._refuse(key, "GROUP BY takes columns", "declare the keys of the group in the configuration")
            if key.name == self.user:
                raise self._refuse(key, "grouping by the user column would publish who is there", "count them instead")
            names.append(key.name)
        return tuple(names)

    def _projection(self, grouped: tuple[str, ...]) -> Any:
        aggregates = []
        for item in self.tree.expressions:
            plain = item.this if isinstance(item, self.e.Alias) else item
            if isinstance(plain, self.e.Column) and plain.name in grouped:
                continue
            aggregates.append(plain)
        if len(aggregates) != 1:
            raise self._refuse(self.tree, f"exactly one aggregate is expected, got {len(aggregates)}", "one query each")
        return aggregates[0]

    def _aggregate(self, node: Any) -> tuple[Aggregate, str | None, str | None, tuple[float, ...]]:
        e = self.e
        if isinstance(node, e.Count):
            return self._count(node)
        simple = {
            e.Sum: Aggregate.SUM,
            e.Avg: Aggregate.AVG,
            e.VariancePop: Aggregate.VAR_POP,
            e.StddevPop: Aggregate.STDDEV_POP,
            e.Min: Aggregate.MIN,
            e.Max: Aggregate.MAX,
        }
        for kind, aggregate in simple.items():
            if isinstance(node, kind) and not node.expressions:
                return aggregate, self._scalar(node.this), None, ()
        if isinstance(node, e.PercentileCont | e.Quantile):
            level = self._number(node.args.get("quantile") or node.expression, "the quantile")
            if not 0 <= level <= 1:
                raise self._refuse(node, "the quantile must be in [0, 1]")
            return Aggregate.QUANTILE, self._scalar(node.this), None, (level,)
        if isinstance(node, e.Anonymous) and node.name.upper() in _USER_FUNCTIONS:
            return self._user_function(_USER_FUNCTIONS[node.name.upper()], node)
        known = ", ".join(kind.value for kind in Aggregate)
        raise self._refuse(node, "this is not an aggregate that can be answered privately", f"known: {known}")

    def _count(self, node: Any) -> tuple[Aggregate, str | None, str | None, tuple[float, ...]]:
        inner = node.this
        if isinstance(inner, self.e.Distinct):
            if len(inner.expressions) != 1 or not self._is_user(inner.expressions[0]):
                raise self._refuse(node, "COUNT(DISTINCT ...) takes the user column", f"COUNT(DISTINCT {self.user})")
            return Aggregate.COUNT_DISTINCT, None, None, ()
        if isinstance(inner, self.e.Star):
            return Aggregate.COUNT, None, None, ()
        raise self._refuse(node, "COUNT takes * or DISTINCT user", "rows without a value are skipped as bad rows")

    def _user_function(self, kind: Aggregate, node: Any) -> tuple[Aggregate, None, str | None, tuple[float, ...]]:
        given = node.expressions
        wanted = {Aggregate.DENSITY: 1, Aggregate.CROPPED_SUM: 3, Aggregate.HEAVY_HITTERS: 3}[kind]
        if len(given) != wanted or not self._is_user(given[0]):
            raise self._refuse(node, f"{node.name.upper()} takes the arguments of {kind.value}")
        if wanted == 1:
            return kind, None, None, ()
        return kind, None, self._scalar(given[1]), (self._number(given[2], "the last argument"),)

    def _conditions(self) -> tuple[str | None, str | None]:
        where = self.tree.args.get("where")
        if where is None:
            return None, None
        others: list[str] = []
        mine: list[str] = []
        for condition in where.this.flatten(unnest=False) if isinstance(where.this, self.e.And) else [where.this]:
            names = {column.name for column in condition.find_all(self.e.Column)}
            if self.user in names and len(names) > 1:
                raise self._refuse(condition, "a condition must not mix the user column with others", "use AND")
            (mine if self.user in names else others).append(self._text(condition))
        return " AND ".join(others) or None, " AND ".join(mine) or None

    def _scalar(self, node: Any) -> str:
        used = {column.name for column in node.find_all(self.e.Column)}
        if self.user in used:
            raise self._refuse(node, "the user column holds ids, not values")
        if next(node.find_all(self.e.AggFunc), None) is not None:
            raise self._refuse(node, "aggregates cannot be nested")
        return self._text(node)

    def _text(self, node: Any) -> str:
        for part in node.walk():
            if type(part).__name__ not in _SCALARS:
                name = (
                    part.name.upper()
                    if isinstance(part, self.e.Anonymous)
                    else part.sql(dialect="duckdb").split("(")[0]
                )
                raise self._refuse(
                    part, f"{name} is not allowed here", "plain arithmetic, comparisons and text functions are"
                )
        return str(node.sql(dialect="duckdb"))

    def _number(self, node: Any, what: str) -> float:
        value: float | None = None
        if isinstance(node, self.e.Literal) and not node.is_string:
            value = float(node.this)
        if value is None:
            raise self._refuse(node, f"{what} must be a number")
        return value

    def _is_user(self, node: Any) -> bool:
        return isinstance(node, self.e.Column) and node.name == self.user

    def _refuse(self, node: Any, message: str, hint: str = "") -> SqlRefused:
        for candidate in [node, *getattr(node, "find_all", lambda *_: [])(self.e.Expression)]:
            meta = getattr(candidate, "meta", {})
            if meta.get("line"):
                return SqlRefused(message, line=meta["line"], column=meta["col"], hint=hint)
        return SqlRefused(message, hint=hint)


def _sqlglot() -> tuple[Any, Any]:
    try:
        import sqlglot
        from sqlglot import expressions
    except ImportError:
        raise MissingExtra("SQL queries", "engine") from None
    return sqlglot, expressions
