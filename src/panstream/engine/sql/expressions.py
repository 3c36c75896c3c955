"""Expressions that are functions of one row: the allowed form of conditions, values and keys.

Every allowed construct computes at most one value from the values of one row: no randomness, no clock, no file, no
state, no other row. So adding or removing a row changes the counted rows by at most one (docs/proofs/sql.md). Patterns
must be literals, and run in linear time (RE2). Functions that make a long string of a short one (REPEAT, LPAD) are not
allowed: they could exhaust memory.
"""

from __future__ import annotations

import contextlib
import difflib
import functools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ParamSpec, TypeVar

from panstream.errors import UnsupportedQuery, translate_errors

P = ParamSpec("P")
T = TypeVar("T")

_NODES = frozenset(
    word
    for words in (
        "Column Identifier Literal Boolean Null Paren Tuple Var Interval Timestamp Date",
        "Not And Or Xor EQ NEQ GT GTE LT LTE NullSafeEQ NullSafeNEQ Is In Between",
        "Like ILike Glob RegexpLike RegexpFullMatch StartsWith EndsWith Contains",
        "Neg Add Sub Mul Div IntDiv Mod Pow Abs Round Floor Ceil Trunc Sqrt Cbrt Ln Log Exp Sign Greatest Least",
        "BitwiseAnd BitwiseOr BitwiseXor BitwiseLeftShift BitwiseRightShift Sin Cos Pi IsNan",
        "Case If Coalesce Nullif Cast TryCast DataType DataTypeParam",
        "Lower Upper Length Trim Substring Left Right Reverse Concat DPipe Replace StrPosition SplitPart",
        "RegexpExtract RegexpReplace Ascii Translate",
        "Extract Year Month Day Hour Minute Second DayOfWeek DayOfWeekIso DayOfYear Week Quarter LastDay",
        "TimestampTrunc DateTrunc DateDiff DateBin TimeToStr TimeToUnix UnixToTime Dayname Monthname",
    )
    for word in words.split()
)
_FUNCTIONS = frozenset({"PREFIX", "SUFFIX", "DATE_PART", "ISFINITE", "GCD", "EVEN", "STRIP_ACCENTS"})
_PATTERNS = ("RegexpLike", "RegexpFullMatch", "RegexpExtract", "RegexpReplace")
_INSTEAD = {
    "Repeat": "texts must not grow: SUBSTR, LEFT and SPLIT_PART shorten them",
    "Pad": "texts must not grow: compare numbers, or use a CASE",
    "Split": "SPLIT_PART(text, '/', 2) gives one part",
    "Bracket": "SUBSTR(text, start, length) or SPLIT_PART gives one part",
    "JSONExtract": "declare the field as a column of its own",
    "Rand": "noise is added for you",
    "CurrentDate": "compare with a date that you write out, or ask with window",
    "CurrentTimestamp": "compare with a time that you write out, or ask with window",
    "SimilarTo": "REGEXP_MATCHES(text, 'pattern') does",
    "Window": "use window = or every = for answers over time",
}
_NAMED = {"NOW": _INSTEAD["CurrentTimestamp"], "TODAY": _INSTEAD["CurrentDate"]}
FROM_SKETCHES = 'panstream sketch ask STORE "SELECT ..." answers it from the [[sketch]]es of a store, at no cost'
_USUAL = "comparisons, arithmetic, CASE, COALESCE, text and date functions of one row are"
_DEEPEST = 20  # levels of derived columns that use derived columns


def limit_nesting(function: Callable[P, T]) -> Callable[P, T]:
    """Decorate a function that parses SQL, so that a RecursionError of the parser becomes UnsupportedQuery."""

    @functools.wraps(function)
    def read(*args: P.args, **kwargs: P.kwargs) -> T:
        return translate_errors(
            lambda: function(*args, **kwargs),
            RecursionError,
            lambda error: UnsupportedQuery("this is nested too deeply"),
        )

    return read


def parse_sql(sql: str) -> Any:
    """Return the syntax tree of a statement or expression, None if it is not SQL."""
    from sqlglot import errors, parse_one

    with contextlib.suppress(errors.SqlglotError):
        return parse_one(sql, read="duckdb")
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class LookupColumn:
    """A column of a public lookup table, joined by a key that is a function of the row."""

    name: str  # in expressions
    lookup: str
    key: str
    column: str
    kind: str


@dataclass(frozen=True, slots=True)
class StatementText:
    """A statement, for errors that give line and column."""

    text: str

    def refuse(self, node: Any, message: str, hint: str = "") -> UnsupportedQuery:
        """Return an error at the first character of a node."""
        return self.at(self._start(node), message, hint)

    def _start(self, node: Any) -> int | None:
        """Return the offset of a node; of a function without one, the offset of its name before its arguments."""
        from sqlglot import expressions

        if node is None:  # an argument that is missing
            return None
        if isinstance(node, list):
            return min((start for child in node if (start := self._start(child)) is not None), default=None)
        if "start" in node.meta:
            return int(node.meta["start"])
        start = self._start(list(node.iter_expressions()))
        if start is None or not isinstance(node, expressions.Func):
            return start
        called = re.search(r"[A-Za-z_]\w*\s*\(\s*(DISTINCT\s+)?$", self.text[:start], re.IGNORECASE)
        return start if called is None else called.start()

    def at(self, start: int | None, message: str, hint: str = "") -> UnsupportedQuery:
        """Return an error at an offset."""
        if start is None:
            return UnsupportedQuery(message, hint=hint)
        preceding = self.text[:start]
        column = start - (preceding.rfind("\n") + 1) + 1
        return UnsupportedQuery(message, line=preceding.count("\n") + 1, column=column, hint=hint)


def conjuncts(tree: Any) -> list[Any]:
    """Return the operands of AND, through any brackets."""
    kind = type(tree).__name__
    if kind == "Paren" and type(tree.this).__name__ == "And":
        return conjuncts(tree.this)
    return [*conjuncts(tree.this), *conjuncts(tree.expression)] if kind == "And" else [tree]


@dataclass(slots=True)
class ScalarScope:
    """The columns that expressions may use, and the rules for expressions.

    ``derived`` are expressions by name; ``tables`` maps names or aliases of joined lookup tables to their columns.
    """

    statement: StatementText
    columns: Mapping[str, str]
    user: str | None
    streams: frozenset[str] = frozenset()
    derived: Mapping[str, str] = field(default_factory=dict)
    tables: dict[str, dict[str, LookupColumn]] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)  # names of derived columns that were substituted
    _depth: int = 0

    def resolve(self, node: Any) -> Any:
        """Return an expression of declared and lookup columns only, with derived columns substituted."""
        from sqlglot import expressions

        def put_in(part: Any) -> Any:
            return self._column(part) if isinstance(part, expressions.Column) else part

        resolved = node.copy().transform(put_in)
        while isinstance(resolved, expressions.Paren):
            resolved = resolved.this
        return resolved

    def _column(self, node: Any) -> Any:
        from sqlglot import exp, parse_one

        table = node.table
        name = node.name
        if table in self.tables:
            return self._looked_up(node, table)
        if table and table not in self.streams:
            raise self.statement.refuse(node, f"{table!r} is neither the stream nor a joined lookup table")
        if name in self.columns:
            return self._exactly(node, name)
        if name in self.derived:
            if self._depth > _DEEPEST:
                raise self.statement.refuse(node, f"derived column {name!r} refers to itself")
            self.used.add(name)
            self._depth += 1
            inner = parse_one(self.derived[name], read="duckdb")
            for part in inner.walk():
                part.meta.clear()  # offsets in another text
            resolved = exp.Paren(this=self.resolve(inner))
            resolved.meta.update(node.this.meta)
            self._depth -= 1
            return resolved
        owners = [] if table else [owner for owner, columns in self.tables.items() if name in columns]
        if len(owners) == 1:
            return self._looked_up(node, owners[0])
        if owners:
            raise self.statement.refuse(node, f"column {name!r} is in several tables", f"write {owners[0]}.{name}")
        known_columns = [*self.columns, *self.derived]
        near = difflib.get_close_matches(name, known_columns, 1)
        hint = f"did you mean {near[0]}?" if near else f"declared: {', '.join(known_columns)}"
        if name == "window" and not near:
            hint = FROM_SKETCHES
        raise self.statement.refuse(node, f"column {name!r} is not declared", hint)

    def _looked_up(self, node: Any, table: str) -> Any:
        lookup_column = self.tables[table].get(node.name)
        if lookup_column is None:
            known_columns = ", ".join(self.tables[table])
            raise self.statement.refuse(
                node, f"lookup table {table!r} has no column {node.name!r}", f"it has {known_columns}"
            )
        return self._exactly(node, lookup_column.name)

    def _exactly(self, node: Any, name: str) -> Any:
        from sqlglot import expressions

        column = expressions.column(name, quoted=not name.isidentifier())
        column.this.meta.update(node.this.meta)
        return column

    def text(self, node: Any) -> str:
        """Return a resolved expression as SQL; raise UnsupportedQuery if it is not a function of one row."""
        for part in node.walk():
            kind = type(part).__name__
            if kind == "Anonymous" and part.name.upper() in _FUNCTIONS:
                continue
            if kind not in _NODES:
                raise self._forbidden(part, kind)
            self._check_fixed(part, kind)
        return str(node.sql(dialect="duckdb"))

    def _check_fixed(self, part: Any, kind: str) -> None:
        """Refuse patterns, formats and units that are not literals: their validity is checked once, before any row."""
        fixed = {"TimeToStr": part.args.get("format"), "DateDiff": part.args.get("unit")}
        if kind in _PATTERNS:
            fixed[kind] = part.expression
        if kind == "Anonymous":  # DATE_PART
            fixed[kind] = part.expressions[0] if part.name.upper() == "DATE_PART" else None
        value = fixed.get(kind)
        if value is not None and type(value).__name__ not in ("Literal", "Var"):
            raise self.statement.refuse(part, "the pattern, format or unit must be a literal", "it is checked once")

    def value(self, node: Any) -> str:
        """Return a resolved expression that does not use the user column."""
        from sqlglot import expressions

        if next(node.find_all(expressions.AggFunc), None) is not None:
            raise self.statement.refuse(node, "aggregates cannot be nested")
        if self.user in self.names(node):
            raise self.statement.refuse(node, "the user column holds ids, not values", "use COUNT(DISTINCT ...)")
        return self.text(node)

    def names(self, node: Any) -> set[str]:
        """Return the columns of a resolved expression."""
        from sqlglot import expressions

        return {column.name for column in node.find_all(expressions.Column)}

    def _forbidden(self, part: Any, kind: str) -> UnsupportedQuery:
        from sqlglot import expressions

        if isinstance(part, expressions.Subquery | expressions.Select | expressions.Exists):
            return self.statement.refuse(part, "subqueries are not supported", "join a public lookup table instead")
        if isinstance(part, expressions.AggFunc):
            name = part.sql(dialect="duckdb").split("(")[0]
            return self.statement.refuse(part, f"{name} looks at many rows, not at one", "write it in SELECT or HAVING")
        anonymous = kind == "Anonymous"
        name = part.name.upper() if anonymous else part.sql(dialect="duckdb").split("(")[0]
        hint = _NAMED.get(name) if anonymous else _INSTEAD.get(kind)
        return self.statement.refuse(part, f"{name} is not allowed here", hint or _USUAL)
