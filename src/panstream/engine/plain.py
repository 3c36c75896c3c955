"""Plain conditions without DuckDB: comparisons with literals, IN, BETWEEN, LIKE 'prefix%', IS NULL, and their combinations.

They mean exactly what DuckDB would make of them, three-valued logic included; what is not sure to be the same is left to
DuckDB. Conditions on the user column must be plain, since ids never go there. Numbers are compared by NumPy, which sees Arrow's
memory as it is, strings by pyarrow; a dictionary's words are compared once, whatever the number of rows.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from panstream.engine.arrow import compute, pa, truth_of, words_of
from panstream.engine.rows import arrow_type

__all__ = ["Condition", "Constant", "PlainCompiler", "Truth"]

Bits: TypeAlias = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Truth:
    """Where a condition is true and where it is false; ``no=None`` means wherever it is not true. Elsewhere it is NULL."""

    yes: Bits
    no: Bits | None = None

    def __and__(self, other: Truth) -> Truth:
        return Truth(self.yes & other.yes, None if self.no is other.no is None else self.false() | other.false())

    def __or__(self, other: Truth) -> Truth:
        return Truth(self.yes | other.yes, None if self.no is other.no is None else self.false() & other.false())

    def __invert__(self) -> Truth:
        return Truth(~self.yes) if self.no is None else Truth(self.no, self.yes)

    def false(self) -> Bits:
        """Return where the condition is false."""
        return ~self.yes if self.no is None else self.no


Condition: TypeAlias = Callable[[Any], Truth]  # of a record batch
Constant: TypeAlias = Callable[[str], Any]  # SQL without columns to its value; raises if there is none

_COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "EQ": operator.eq,
    "NEQ": operator.ne,
    "GT": operator.gt,
    "GTE": operator.ge,
    "LT": operator.lt,
    "LTE": operator.le,
}
_OF_STRINGS = {
    "EQ": compute.equal,
    "NEQ": compute.not_equal,
    "GT": compute.greater,
    "GTE": compute.greater_equal,
    "LT": compute.less,
    "LTE": compute.less_equal,
}
_MIRRORED = {"GT": "LT", "GTE": "LTE", "LT": "GT", "LTE": "GTE"}
_ORDERINGS = ("GT", "GTE", "LT", "LTE")
_KNOWN_PARTS = ("this", "expression", "expressions", "low", "high", "negate")
_FEW_WORDS = 8  # of a dictionary, for which comparing codes beats looking them up
_EXACT_DIGITS = 15  # a decimal literal with more digits may be rounded in two ways
_MEMORY = {"int": np.int64, "double": np.float64, "timestamp": np.int64, "date": np.int32}


class PlainCompiler:
    """Turns a condition into a function of record batches, or returns ``None`` where that is not sure to be the same."""

    def __init__(self, columns: Mapping[str, str], constant: Constant, *, user: str | None = None) -> None:
        self._columns, self._constant, self._user = columns, constant, user

    def compile(self, node: Any) -> Condition | None:
        """Return the condition."""
        kind = type(node).__name__
        if any(value and part not in _KNOWN_PARTS for part, value in node.args.items()):
            return None
        if node.args.get("negate"):
            positive = node.copy()
            positive.set("negate", None)
            return _inverted(self.compile(positive))
        if kind in _COMPARISONS:
            return self._comparison(kind, node.this, node.expression)
        rules: dict[str, Callable[[Any], Condition | None]] = {
            "Paren": lambda node: self.compile(node.this),
            "Not": lambda node: _inverted(self.compile(node.this)),
            "And": lambda node: _both(operator.and_, self.compile(node.this), self.compile(node.expression)),
            "Or": lambda node: _both(operator.or_, self.compile(node.this), self.compile(node.expression)),
            "Column": self._flag,
            "Is": self._is,
            "In": self._in,
            "Between": self._between,
            "Like": self._like,
            "StartsWith": self._like,
        }
        return rules[kind](node) if kind in rules else None

    def _flag(self, node: Any) -> Condition | None:
        name = node.name
        if self._columns.get(name) != "bool":
            return None
        return lambda batch: _known(truth_of(batch.column(name)), batch.column(name))

    def _comparison(self, kind: str, left: Any, right: Any) -> Condition | None:
        left, right = _bare(left), _bare(right)
        if type(right).__name__ == "Column" and type(left).__name__ != "Column":
            left, right, kind = right, left, _MIRRORED.get(kind, kind)
        name = self._column(left, ordering=kind in _ORDERINGS)
        if name is None:
            return None
        form = self._columns[name]
        other = self._column(right, ordering=kind in _ORDERINGS)
        if other is not None:
            if self._columns[other] != form or self._user in (name, other):
                return None
            return lambda batch: _compared_columns(kind, form, batch.column(name), batch.column(other))
        value = self._value(right, form)
        if value is not None and form == "string":
            value = words_of([value])[0]
        return None if value is None else lambda batch: _compared(kind, form, batch.column(name), value)

    def _is(self, node: Any) -> Condition | None:
        column = _bare(node.this)
        if type(column).__name__ != "Column" or type(node.expression).__name__ != "Null" or column.name == self._user:
            return None
        name = column.name
        return lambda batch: Truth(truth_of(batch.column(name).is_null()))

    def _in(self, node: Any) -> Condition | None:
        found: Condition | None = None
        for item in node.expressions:
            equal = self._comparison("EQ", node.this, item)
            if equal is None or type(_bare(item)).__name__ == "Column":
                return None
            found = equal if found is None else _both(operator.or_, found, equal)
        return found

    def _between(self, node: Any) -> Condition | None:
        low = self._comparison("GTE", node.this, node.args["low"])
        return _both(operator.and_, low, self._comparison("LTE", node.this, node.args["high"]))

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
        return lambda batch: _of_words(batch.column(name), lambda words: compute.starts_with(words, prefix))

    def _column(self, node: Any, *, ordering: bool) -> str | None:
        node = _bare(node)
        if type(node).__name__ != "Column" or self._columns.get(node.name) in (None, "binary"):
            return None
        if node.name == self._user and ordering and self._columns[node.name] != "int":
            return None
        return str(node.name)

    def _value(self, node: Any, kind: str) -> Any:
        """Return a literal as the column's memory has it, or ``None`` if they do not plainly fit together."""
        node = _bare(node)
        form = type(node).__name__
        if kind == "bool":
            return node.this if form == "Boolean" else None
        if kind == "string":
            return node.this if form == "Literal" and node.is_string else None
        if kind in ("timestamp", "date"):
            return self._moment(node, kind)
        sign = -1 if form == "Neg" else 1
        node = _bare(node.this) if form == "Neg" else node
        if type(node).__name__ != "Literal" or node.is_string:
            return None
        digits = node.this
        if digits.isdigit() and kind == "int":
            return sign * int(digits) if int(digits) < 2**63 else None
        if kind == "double" and len(digits.strip("0.").replace(".", "")) <= _EXACT_DIGITS and len(digits) < 20:
            return sign * float(digits)
        return None

    def _moment(self, node: Any, kind: str) -> int | None:
        form = type(node).__name__
        is_text = form == "Literal" and node.is_string
        is_typed = form == "Cast" and type(node.this).__name__ == "Literal" and node.this.is_string
        if is_typed and node.to.sql(dialect="duckdb") != kind.upper():
            return None
        if not (is_text or is_typed):
            return None
        value = self._constant(f"CAST({node.sql(dialect='duckdb')} AS {kind.upper()})")
        return int(pa.scalar(value, arrow_type(kind)).value)


def _bare(node: Any) -> Any:
    while type(node).__name__ == "Paren":
        node = node.this
    return node


def _both(combine: Callable[[Any, Any], Any], one: Condition | None, two: Condition | None) -> Condition | None:
    if one is None or two is None:
        return None
    return lambda batch: combine(one(batch), two(batch))


def _inverted(inner: Condition | None) -> Condition | None:
    return None if inner is None else lambda batch: ~inner(batch)


def _known(yes: Bits, *arrays: Any) -> Truth:
    """Return the truth of a comparison whose result counts only where all of ``arrays`` have values."""
    nullable = [array for array in arrays if array.null_count]
    if not nullable:
        return Truth(yes)
    known = truth_of(nullable[0].is_valid())
    for array in nullable[1:]:
        known &= truth_of(array.is_valid())
    return Truth(yes & known, ~yes & known)


def _memory(array: Any, kind: str) -> NDArray[Any]:
    """Return the memory of a column of numbers, with anything at all in place of nulls."""
    dtype = np.uint64 if array.type == pa.uint64() else _MEMORY[kind]
    if not len(array):
        return np.empty(0, dtype)
    return np.frombuffer(array.buffers()[1], dtype, len(array), array.offset * np.dtype(dtype).itemsize)


def _of_words(array: Any, test: Callable[[Any], Any]) -> Truth:
    """Apply a test to strings: to the words of a dictionary once, then to the rows by their codes."""
    if not pa.types.is_dictionary(array.type):
        return _known(truth_of(test(array)), array)
    right = np.flatnonzero(truth_of(test(array.dictionary))).tolist()
    codes = _memory(array.indices if array.indices.type == pa.int32() else array.indices.cast(pa.int32()), "date")
    if len(right) > _FEW_WORDS:
        return _known(np.isin(codes, right), array)
    yes = codes == right[0] if right else np.zeros(codes.size, bool)
    for code in right[1:]:
        yes |= codes == code
    return _known(yes, array)


def _compared(kind: str, form: str, array: Any, value: Any) -> Truth:
    if form == "string":
        return _of_words(array, lambda words: _OF_STRINGS[kind](words, value))
    compare = _COMPARISONS[kind]
    if form == "bool":
        return _known(compare(truth_of(array), value), array)
    memory = _memory(array, form)
    if memory.dtype == np.uint64 and value < 0:  # no unsigned id is below zero
        return _known(np.full(memory.size, kind in ("NEQ", "GT", "GTE")), array)
    return _known(compare(memory, memory.dtype.type(value)), array)


def _compared_columns(kind: str, form: str, left: Any, right: Any) -> Truth:
    if form in _MEMORY:
        return _known(_COMPARISONS[kind](_memory(left, form), _memory(right, form)), left, right)
    left, right = (a.dictionary_decode() if pa.types.is_dictionary(a.type) else a for a in (left, right))
    return _known(truth_of(_OF_STRINGS[kind](left, right)), left, right)
