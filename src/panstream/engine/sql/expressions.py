"""Expressions that are functions of one row: what conditions, values and keys may be made of.

Every construct on the list takes the values of one row and gives at most one value for it: nothing random, no clock, no
file, no state, no other row. So one row more or less changes what is counted by one row at most (docs/proofs/sql.md).
Patterns must be literals, and run in an engine whose time grows with the length of the text only (RE2). What could make
a long text of a short one (REPEAT, LPAD) is not on the list.
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
_USUAL = "comparisons, arithmetic, CASE, COALESCE, text and date functions of one row are"
_DEEPEST = 20  # derived columns made of derived columns


def limit_nesting(function: Callable[P, T]) -> Callable[P, T]:
    """Decorate what reads SQL, so that a text nested too deeply for the parser is refused like any other."""

    @functools.wraps(function)
    def read(*args: P.args, **kwargs: P.kwargs) -> T:
        return translate_errors(
            lambda: function(*args, **kwargs),
            RecursionError,
            lambda error: UnsupportedQuery("this is nested too deeply"),
        )

    return read


def parse_sql(sql: str) -> Any:
    """Return the tree of a statement or expression, None if it is no SQL."""
    from sqlglot import errors, parse_one

    with contextlib.suppress(errors.SqlglotError):
        return parse_one(sql, read="duckdb")
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class LookupColumn:
    """A column of a public lookup table, found by a key that is a function of the row."""

    name: str  # as it stands in expressions
    lookup: str
    key: str
    column: str
    kind: str


@dataclass(frozen=True, slots=True)
class StatementText:
    """A statement, for saying where in it something stands."""

    text: str

    def refuse(self, node: Any, message: str, hint: str = "") -> UnsupportedQuery:
        """Return the error that points at the first letter of a node."""
        return self.at(self._start(node), message, hint)

    def _start(self, node: Any) -> int | None:
        """Return where a node begins; of a function whose own place is not known, from where its arguments are."""
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
        """Return the error that points at a letter."""
        if start is None:
            return UnsupportedQuery(message, hint=hint)
        preceding = self.text[:start]
        column = start - (preceding.rfind("\n") + 1) + 1
        return UnsupportedQuery(message, line=preceding.count("\n") + 1, column=column, hint=hint)


def conjuncts(tree: Any) -> list[Any]:
    """Return the conditions that AND joins, however they are bracketed."""
    kind = type(tree).__name__
    if kind == "Paren" and type(tree.this).__name__ == "And":
        return conjuncts(tree.this)
    return [*conjuncts(tree.this), *conjuncts(tree.expression)] if kind == "And" else [tree]


@dataclass(slots=True)
class ScalarScope:
    """The columns that expressions may name, and the rules that they must keep.

    ``derived`` are expressions by name; ``tables`` maps names of joined lookup tables, or their aliases, to the columns
    that they bring.
    """

    place: StatementText
    columns: Mapping[str, str]
    user: str | None
    streams: frozenset[str] = frozenset()
    derived: Mapping[str, str] = field(default_factory=dict)
    tables: dict[str, dict[str, LookupColumn]] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)  # names of derived columns that were put in
    _depth: int = 0

    def resolve(self, node: Any) -> Any:
        """Return an expression of declared and looked-up columns only, in place of what stands in the statement."""
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
            raise self.place.refuse(node, f"{table!r} is neither the stream nor a joined lookup table")
        if name in self.columns:
            return self._exactly(node, name)
        if name in self.derived:
            if self._depth > _DEEPEST:
                raise self.place.refuse(node, f"derived column {name!r} refers to itself")
            self.used.add(name)
            self._depth += 1
            inner = parse_one(self.derived[name], read="duckdb")
            for part in inner.walk():
                part.meta.clear()  # places of another text
            resolved = exp.Paren(this=self.resolve(inner))
            resolved.meta.update(node.this.meta)
            self._depth -= 1
            return resolved
        owners = [] if table else [owner for owner, columns in self.tables.items() if name in columns]
        if len(owners) == 1:
            return self._looked_up(node, owners[0])
        if owners:
            raise self.place.refuse(node, f"column {name!r} is in several tables", f"write {owners[0]}.{name}")
        known_columns = [*self.columns, *self.derived]
        near = difflib.get_close_matches(name, known_columns, 1)
        hint = f"did you mean {near[0]}?" if near else f"declared: {', '.join(known_columns)}"
        raise self.place.refuse(node, f"column {name!r} is not declared", hint)

    def _looked_up(self, node: Any, table: str) -> Any:
        lookup_column = self.tables[table].get(node.name)
        if lookup_column is None:
            known_columns = ", ".join(self.tables[table])
            raise self.place.refuse(
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
        """Refuse patterns, formats and units that a row could choose: whether they are valid is checked once."""
        fixed = {"TimeToStr": part.args.get("format"), "DateDiff": part.args.get("unit")}
        if kind in _PATTERNS:
            fixed[kind] = part.expression
        if kind == "Anonymous":  # DATE_PART
            fixed[kind] = part.expressions[0] if part.name.upper() == "DATE_PART" else None
        value = fixed.get(kind)
        if value is not None and type(value).__name__ not in ("Literal", "Var"):
            raise self.place.refuse(part, "the pattern, format or unit must be a literal", "it is checked once")

    def value(self, node: Any) -> str:
        """Return a resolved expression that is not about the user."""
        from sqlglot import expressions

        if next(node.find_all(expressions.AggFunc), None) is not None:
            raise self.place.refuse(node, "aggregates cannot be nested")
        if self.user in self.names(node):
            raise self.place.refuse(node, "the user column holds ids, not values", "use COUNT(DISTINCT ...)")
        return self.text(node)

    def names(self, node: Any) -> set[str]:
        """Return the columns of a resolved expression."""
        from sqlglot import expressions

        return {column.name for column in node.find_all(expressions.Column)}

    def _forbidden(self, part: Any, kind: str) -> UnsupportedQuery:
        from sqlglot import expressions

        if isinstance(part, expressions.Subquery | expressions.Select | expressions.Exists):
            return self.place.refuse(part, "subqueries are not supported", "join a public lookup table instead")
        if isinstance(part, expressions.AggFunc):
            name = part.sql(dialect="duckdb").split("(")[0]
            return self.place.refuse(part, f"{name} looks at many rows, not at one", "write it in SELECT or HAVING")
        anonymous = kind == "Anonymous"
        name = part.name.upper() if anonymous else part.sql(dialect="duckdb").split("(")[0]
        hint = _NAMED.get(name) if anonymous else _INSTEAD.get(kind)
        return self.place.refuse(part, f"{name} is not allowed here", hint or _USUAL)
