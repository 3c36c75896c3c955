"""Plain conditions by pyarrow: comparisons with literals, IN, BETWEEN, LIKE 'prefix%', IS NULL, and their combinations.

They mean exactly what DuckDB would make of them, three-valued logic included; what is not sure to be the same is left to
DuckDB. Conditions on the user column must be plain, since ids never go there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from panstream.engine.arrow import compute, pa
from panstream.engine.rows import arrow_type

__all__ = ["Condition", "Constant", "PlainCompiler"]

Condition: TypeAlias = Callable[[Any], Any]  # record batch to boolean array with nulls
Constant: TypeAlias = Callable[[str], Any]  # SQL without columns to its value; raises if there is none

_COMPARISONS = {
    "EQ": compute.equal,
    "NEQ": compute.not_equal,
    "GT": compute.greater,
    "GTE": compute.greater_equal,
    "LT": compute.less,
    "LTE": compute.less_equal,
}
_MIRRORED = {"GT": "LT", "GTE": "LTE", "LT": "GT", "LTE": "GTE"}
_ORDERINGS = ("GT", "GTE", "LT", "LTE", "Between")
_KNOWN_PARTS = ("this", "expression", "expressions", "low", "high", "negate")
_EXACT_DIGITS = 15  # a decimal literal with more digits may be rounded in two ways


class PlainCompiler:
    """Turns a condition into calls of pyarrow, or returns ``None`` where that is not the same as SQL."""

    def __init__(self, columns: Mapping[str, str], constant: Constant, *, user: str | None = None) -> None:
        self._columns, self._constant, self._user = columns, constant, user

    def compile(self, node: Any) -> Condition | None:
        """Return the condition as a function of a record batch."""
        kind = type(node).__name__
        if any(value and part not in _KNOWN_PARTS for part, value in node.args.items()):
            return None
        if node.args.get("negate"):
            return self._negated(node.copy())
        if kind == "Paren":
            return self.compile(node.this)
        if kind in ("And", "Or"):
            return self._both(node, compute.and_kleene if kind == "And" else compute.or_kleene)
        if kind == "Not":
            return self._inverted(self.compile(node.this))
        if kind == "Column":
            name = node.name
            return (lambda batch: batch.column(name)) if self._columns.get(name) == "bool" else None
        if kind in _COMPARISONS:
            return self._comparison(kind, node.this, node.expression)
        special = {
            "Is": self._is,
            "In": self._in,
            "Between": self._between,
            "Like": self._like,
            "StartsWith": self._like,
        }
        return special[kind](node) if kind in special else None

    def _negated(self, node: Any) -> Condition | None:
        node.set("negate", None)
        return self._inverted(self.compile(node))

    def _inverted(self, inner: Condition | None) -> Condition | None:
        return None if inner is None else lambda batch: compute.invert(inner(batch))

    def _both(self, node: Any, combine: Callable[[Any, Any], Any]) -> Condition | None:
        left, right = self.compile(node.this), self.compile(node.expression)
        if left is None or right is None:
            return None
        return lambda batch: combine(left(batch), right(batch))

    def _comparison(self, kind: str, left: Any, right: Any) -> Condition | None:
        left, right = _bare(left), _bare(right)
        if type(right).__name__ == "Column" and type(left).__name__ != "Column":
            left, right, kind = right, left, _MIRRORED.get(kind, kind)
        name = self._column(left, ordering=kind in _ORDERINGS)
        if name is None:
            return None
        compare = _COMPARISONS[kind]
        other = self._column(right, ordering=kind in _ORDERINGS)
        if other is not None:
            if self._columns[other] != self._columns[name] or self._user in (name, other):
                return None
            return lambda batch: compare(_decoded(batch.column(name)), _decoded(batch.column(other)))
        value = self._value(right, self._columns[name])
        return None if value is None else lambda batch: _compared(kind, batch.column(name), value)

    def _is(self, node: Any) -> Condition | None:
        column = _bare(node.this)
        if type(column).__name__ != "Column" or type(node.expression).__name__ != "Null" or column.name == self._user:
            return None
        name = column.name
        return lambda batch: batch.column(name).is_null()

    def _in(self, node: Any) -> Condition | None:
        name = self._column(node.this, ordering=False)
        if name is None:
            return None
        values = [self._value(item, self._columns[name]) for item in node.expressions]
        if not values or any(value is None for value in values):
            return None
        return lambda batch: _among(batch.column(name), values)

    def _between(self, node: Any) -> Condition | None:
        name = self._column(node.this, ordering=True)
        if name is None:
            return None
        low, high = (self._value(node.args[end], self._columns[name]) for end in ("low", "high"))
        if low is None or high is None:
            return None
        return lambda batch: compute.and_kleene(
            _compared("GTE", batch.column(name), low), _compared("LTE", batch.column(name), high)
        )

    def _like(self, node: Any) -> Condition | None:
        column, pattern = _bare(node.this), _bare(node.expression)
        if type(column).__name__ != "Column" or self._columns.get(column.name) != "string":
            return None
        if type(pattern).__name__ != "Literal" or not pattern.is_string:
            return None
        prefix = pattern.this
        if type(node).__name__ == "Like":
            prefix = prefix.removesuffix("%")
            if prefix == pattern.this or any(sign in prefix for sign in "%_\\"):
                return None
        name = column.name
        return lambda batch: _on_words(batch.column(name), lambda words: compute.starts_with(words, prefix))

    def _column(self, node: Any, *, ordering: bool) -> str | None:
        node = _bare(node)
        if type(node).__name__ != "Column" or self._columns.get(node.name) in (None, "binary"):
            return None
        if node.name == self._user and ordering and self._columns[node.name] != "int":
            return None
        return str(node.name)

    def _value(self, node: Any, kind: str) -> Any:
        """Return a literal as a scalar of the column's type, or ``None`` if they do not plainly fit together."""
        node = _bare(node)
        form = type(node).__name__
        if kind == "bool":
            return pa.scalar(node.this) if form == "Boolean" else None
        if kind == "string":
            return pa.scalar(node.this) if form == "Literal" and node.is_string else None
        if kind in ("timestamp", "date"):
            return self._moment(node, kind)
        sign = -1 if form == "Neg" else 1
        node = _bare(node.this) if form == "Neg" else node
        if type(node).__name__ != "Literal" or node.is_string:
            return None
        digits = node.this
        if digits.isdigit() and kind == "int":
            return pa.scalar(sign * int(digits)) if abs(sign * int(digits)) < 2**63 else None
        if kind == "double" and len(digits.strip("0.").replace(".", "")) <= _EXACT_DIGITS and len(digits) < 20:
            return pa.scalar(sign * float(digits))
        return None

    def _moment(self, node: Any, kind: str) -> Any:
        form = type(node).__name__
        is_text = form == "Literal" and node.is_string
        is_typed = form == "Cast" and type(node.this).__name__ == "Literal" and node.this.is_string
        if is_typed and node.to.sql(dialect="duckdb") != kind.upper():
            return None
        if not (is_text or is_typed):
            return None
        return pa.scalar(self._constant(f"CAST({node.sql(dialect='duckdb')} AS {kind.upper()})"), arrow_type(kind))


def _bare(node: Any) -> Any:
    while type(node).__name__ == "Paren":
        node = node.this
    return node


def _decoded(array: Any) -> Any:
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


def _on_words(array: Any, test: Callable[[Any], Any]) -> Any:
    """Apply a test to strings: to the words of a dictionary once, then to the rows by their codes."""
    if not pa.types.is_dictionary(array.type):
        return test(array)
    return test(array.dictionary).take(array.indices)


def _compared(kind: str, array: Any, value: Any) -> Any:
    if array.type == pa.uint64():
        if value.as_py() < 0:  # no unsigned id is below zero
            return compute.equal(array, array) if kind in ("NEQ", "GT", "GTE") else compute.not_equal(array, array)
        value = value.cast(pa.uint64())
    return _on_words(array, lambda words: _COMPARISONS[kind](words, value))


def _among(array: Any, values: list[Any]) -> Any:
    if array.type == pa.uint64():
        values = [value.cast(pa.uint64()) for value in values if value.as_py() >= 0]
    listed = [value.as_py() for value in values]
    if 0.0 in listed and array.type == pa.float64():
        listed += [0.0, -0.0]  # equal, but not the same to is_in
    wanted = pa.array(listed, values[0].type if values else array.type)

    def test(words: Any) -> Any:
        found = compute.is_in(words, value_set=wanted)
        return compute.if_else(words.is_valid(), found, pa.scalar(None, pa.bool_())) if words.null_count else found

    return _on_words(array, test)
