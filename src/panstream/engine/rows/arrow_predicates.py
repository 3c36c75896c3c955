"""Compile simple conditions to pyarrow: comparisons with literals, IN, BETWEEN, LIKE 'prefix%', IS NULL, AND, OR, NOT.

Results equal DuckDB's, three-valued logic included; a condition for which this is not certain is left to DuckDB.
Conditions on the user column must be simple, since ids are never passed to DuckDB. Of a dictionary-encoded column, each
entry of the dictionary is compared once, whatever the number of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from panstream.engine.arrow import arrow_mask, boolean_bytes, compute, numeric_view, pa, string_array
from panstream.engine.rows.row_batch import arrow_type

Mask: TypeAlias = NDArray[np.bool_]

# From a record batch to an Arrow array of booleans, NULL where unknown, or to a mask where none is unknown.
Condition: TypeAlias = Callable[[Any], Any]
Constant: TypeAlias = Callable[[str], Any]  # from SQL without columns to its value; raises if it has none

_COMPARISONS = {  # functions of pyarrow.compute
    "EQ": "equal",
    "NEQ": "not_equal",
    "GT": "greater",
    "GTE": "greater_equal",
    "LT": "less",
    "LTE": "less_equal",
}
_JOINED = {"And": "and_kleene", "Or": "or_kleene"}
_MIRRORED = {"GT": "LT", "GTE": "LTE", "LT": "GT", "LTE": "GTE"}
_KNOWN_PARTS = ("this", "expression", "expressions", "low", "high", "negate")
_EXACT_DIGITS = 15  # a decimal with more may be rounded differently here and in DuckDB (IEEE 754: 53 bits)
_MEMORY = {"int": np.int64, "double": np.float64, "timestamp": np.int64, "date": np.int32}


class _Unsupported(Exception):
    """It is not certain that the condition has the same result here as in DuckDB."""


class ArrowPredicateCompiler:
    """Compiles conditions over declared columns."""

    def __init__(self, columns: Mapping[str, str], constant: Constant, *, user: str | None = None) -> None:
        self._columns = columns
        self._constant = constant
        self._user = user

    def compile(self, node: Any) -> Callable[[Any], Mask] | None:
        """Return a function from a record batch to a mask, false where the condition is unknown.

        Returns None if the condition is not certain to have the same result as in DuckDB.
        """
        try:
            condition = self._compiled(node)
        except _Unsupported:
            return None

        def mask(batch: Any) -> Mask:
            truths = condition(batch)
            return truths if isinstance(truths, np.ndarray) else boolean_bytes(truths)

        return mask

    def _compiled(self, node: Any) -> Condition:
        kind = type(node).__name__
        if any(value and part not in _KNOWN_PARTS for part, value in node.args.items()):
            raise _Unsupported
        if node.args.get("negate"):
            positive = node.copy()
            positive.set("negate", None)
            return _inverted(self._compiled(positive))
        if kind in _COMPARISONS:
            return self._comparison(kind, node.this, node.expression)
        if kind in _JOINED:
            return _joined(kind, self._compiled(node.this), self._compiled(node.expression))
        rules: dict[str, Callable[[Any], Condition]] = {
            "Paren": lambda node: self._compiled(node.this),
            "Not": lambda node: _inverted(self._compiled(node.this)),
            "Column": self._flag,
            "Is": self._is,
            "In": self._in,
            "Between": self._between,
            "Like": self._like,
            "StartsWith": self._like,
        }
        if kind not in rules:
            raise _Unsupported
        return rules[kind](node)

    def _flag(self, node: Any) -> Condition:
        name = node.name
        _need(self._columns.get(name) == "bool")
        return lambda batch: batch.column(name)

    def _comparison(self, kind: str, left: Any, right: Any) -> Condition:
        left = left.unnest()
        right = right.unnest()
        if type(right).__name__ == "Column" and type(left).__name__ != "Column":
            left, right = right, left
            kind = _MIRRORED.get(kind, kind)
        name = self._column(left, kind)
        form = self._columns[name]
        if type(right).__name__ == "Column":
            other = self._column(right, kind)
            _need(self._columns[other] == form and self._user not in (name, other))
            return lambda batch: _compare(kind, _decoded(batch.column(name)), _decoded(batch.column(other)))
        value = self._value(right, form)
        if form == "string":
            word = string_array([value])[0]
            return lambda batch: self._of_words(batch.column(name), lambda words: _compare(kind, words, word))
        if form == "bool":
            return lambda batch: _compare(kind, batch.column(name), pa.scalar(value))
        number = _scalar(value, form)
        return lambda batch: _compared(kind, batch.column(name), number)

    def _is(self, node: Any) -> Condition:
        column = node.this.unnest()
        _need(type(column).__name__ == "Column" and type(node.expression).__name__ == "Null")
        _need(column.name != self._user)
        name = column.name
        return lambda batch: batch.column(name).is_null()

    def _in(self, node: Any) -> Condition:
        _need(bool(node.expressions) and all(type(item.unnest()).__name__ != "Column" for item in node.expressions))
        equal = [self._comparison("EQ", node.this, item) for item in node.expressions]
        return reduce(lambda one, two: _joined("Or", one, two), equal)

    def _between(self, node: Any) -> Condition:
        low = self._comparison("GTE", node.this, node.args["low"])
        return _joined("And", low, self._comparison("LTE", node.this, node.args["high"]))

    def _like(self, node: Any) -> Condition:
        column = node.this.unnest()
        pattern = node.expression.unnest()
        _need(type(column).__name__ == "Column" and self._columns.get(column.name) == "string")
        _need(type(pattern).__name__ == "Literal" and pattern.is_string)
        name = column.name
        prefix = pattern.this
        if type(node).__name__ == "Like":
            prefix = prefix.removesuffix("%")
            _need(prefix != pattern.this and not any(sign in prefix for sign in "%_\\"))
        return lambda batch: self._of_words(batch.column(name), lambda words: compute.starts_with(words, prefix))

    def _of_words(self, array: Any, test: Callable[[Any], Any]) -> Any:
        """Apply a test to strings; of a dictionary, to its entries, and then to the rows by their codes."""
        if not pa.types.is_dictionary(array.type):
            return test(array)
        truths = test(array.dictionary)
        if array.indices.null_count or truths.null_count:
            return truths.take(array.indices)
        codes = numeric_view(array.indices)
        right = boolean_bytes(truths)
        matches = np.empty(codes.size, np.bool_)
        if np.count_nonzero(right) == 1:
            return np.equal(codes, codes.dtype.type(right.argmax()), out=matches)
        return np.take(right, codes, out=matches, mode="clip") if codes.size else matches  # codes were checked

    def _column(self, node: Any, kind: str) -> str:
        """Return the name of a column that can be compared by ``kind``; only integer ids have an order."""
        _need(type(node).__name__ == "Column" and self._columns.get(node.name) not in (None, "binary"))
        _need(node.name != self._user or kind not in _MIRRORED or self._columns[node.name] == "int")
        return str(node.name)

    def _value(self, node: Any, kind: str) -> Any:
        """Return a literal as a value of the column's type."""
        form = type(node).__name__
        if kind == "bool":
            _need(form == "Boolean")
            return node.this
        if kind == "string":
            _need(form == "Literal" and node.is_string)
            return node.this
        if kind in ("timestamp", "date"):
            return self._moment(node, kind)
        sign = -1 if form == "Neg" else 1
        node = node.this.unnest() if form == "Neg" else node
        _need(type(node).__name__ == "Literal" and not node.is_string)
        digits = node.this
        if kind == "int":
            _need(digits.isdigit() and int(digits) < 2**63)
            return sign * int(digits)
        _need(len(digits.strip("0.").replace(".", "")) <= _EXACT_DIGITS and len(digits) < 20)
        return sign * float(digits)

    def _moment(self, node: Any, kind: str) -> int:
        form = type(node).__name__
        is_text = form == "Literal" and node.is_string
        is_typed = form == "Cast" and type(node.this).__name__ == "Literal" and node.this.is_string
        _need(is_text or (is_typed and node.to.sql(dialect="duckdb") == kind.upper()))
        value = self._constant(f"CAST({node.sql(dialect='duckdb')} AS {kind.upper()})")
        return int(pa.scalar(value, arrow_type(kind)).value)


def _need(plain: bool) -> None:
    if not plain:
        raise _Unsupported


def _joined(kind: str, one: Condition, two: Condition) -> Condition:
    return lambda batch: getattr(compute, _JOINED[kind])(_truths(one(batch)), _truths(two(batch)))


def _inverted(inner: Condition) -> Condition:
    return lambda batch: compute.invert(_truths(inner(batch)))


def _truths(values: Any) -> Any:
    return arrow_mask(values) if isinstance(values, np.ndarray) else values


def _scalar(value: Any, kind: str) -> Any:
    """Return a scalar from the number that Arrow stores; ``pa.scalar`` would expect a datetime for a time."""
    memory = pa.py_buffer(np.array([value], _MEMORY[kind]))
    return pa.Array.from_buffers(arrow_type(kind), 1, [None, memory])[0]


def _decoded(array: Any) -> Any:
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


def _compare(kind: str, left: Any, right: Any) -> Any:
    return getattr(compute, _COMPARISONS[kind])(left, right)


def _compared(kind: str, array: Any, value: Any) -> Any:
    if array.type != pa.uint64():
        return _compare(kind, array, value)
    if value.as_py() < 0:  # no unsigned id is below zero
        return (compute.equal if kind in ("NEQ", "GT", "GTE") else compute.not_equal)(array, array)
    return _compare(kind, array, value.cast(pa.uint64()))
