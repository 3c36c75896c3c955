"""HAVING, ORDER BY and LIMIT: which released rows are shown, and in which order.

Privacy: all groups are released and charged; the view is post-processing of released numbers and has no loss.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from panstream.engine.sql.formulas import Formula, What, evaluate

Comparison = Literal["=", "<>", "<", "<=", ">", ">="]
_COMPARED: dict[str, Callable[[float, float], bool]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


@dataclass(frozen=True, slots=True)
class AnswerComparison:
    """A comparison of formulas over named answers."""

    sign: Comparison
    left: Formula
    right: Formula


@dataclass(frozen=True, slots=True)
class BooleanOp:
    """Two conditions joined by AND or OR."""

    word: Literal["AND", "OR"]
    left: Condition
    right: Condition


@dataclass(frozen=True, slots=True)
class Not:
    """The negation of a condition."""

    of: Condition


Condition: TypeAlias = AnswerComparison | BooleanOp | Not


@dataclass(frozen=True, slots=True, kw_only=True)
class SortKey:
    """What rows are sorted by: a group key, by its index, or a formula over answers."""

    key: int | None = None
    by: Formula | None = None
    descending: bool = False
    nulls_first: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CombinedAnswer:
    """An answer that is computed from released answers of several states, such as a sum per user."""

    name: str
    formula: Formula


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultView:
    """The view of the released rows. ``shown`` are the names of the answers, in order; some may be ``combined``."""

    shown: tuple[str, ...] = ()
    combined: tuple[CombinedAnswer, ...] = ()
    having: Condition | None = None
    order: tuple[SortKey, ...] = ()
    limit: int | None = None
    offset: int = 0

    def rows(self, groups: Sequence[tuple[Any, ...]], answers: Sequence[Mapping[str, float | None]]) -> list[int]:
        """Return the indices of the groups that are shown, in order; a missing answer counts as NULL.

        >>> from panstream.engine.sql.formulas import Constant, StateValue
        >>> above = AnswerComparison(">", StateValue("n"), Constant(2.0))
        >>> view = ResultView(having=above, order=(SortKey(by=StateValue("n"), descending=True),))
        >>> view.rows([("a",), ("b",), ("c",)], [{"n": 3.0}, {"n": 1.0}, {"n": 9.0}])
        [2, 0]
        """
        reads = [_reader(row_answers) for row_answers in answers]
        indices = [
            index for index in range(len(groups)) if self.having is None or _holds(self.having, reads[index]) is True
        ]
        for sorting in reversed(self.order):
            values = {index: _value(sorting, groups[index], reads[index]) for index in indices}
            there = [index for index in indices if values[index] is not None]
            there.sort(key=lambda index: values[index], reverse=sorting.descending)
            absent = [index for index in indices if values[index] is None]
            indices = absent + there if sorting.nulls_first else there + absent
        return indices[self.offset : None if self.limit is None else self.offset + self.limit]


def _reader(answers: Mapping[str, float | None]) -> Callable[[What], float]:
    def read(what: What) -> float:
        answer = answers.get(str(what))
        return math.nan if answer is None else answer

    return read


def _value(sorting: SortKey, group: tuple[Any, ...], read: Callable[[What], float]) -> Any:
    if sorting.by is None:
        return group[sorting.key or 0]
    value = evaluate(sorting.by, read)
    return None if math.isnan(value) else value


def _holds(condition: Condition, read: Callable[[What], float]) -> bool | None:
    """Return whether a condition holds; None if it is unknown, by the three-valued logic of SQL."""
    if isinstance(condition, Not):
        inner = _holds(condition.of, read)
        return None if inner is None else not inner
    if isinstance(condition, BooleanOp):
        sides = _holds(condition.left, read), _holds(condition.right, read)
        decisive = condition.word == "OR"
        return decisive if decisive in sides else None if None in sides else not decisive
    left = evaluate(condition.left, read)
    right = evaluate(condition.right, read)
    return None if math.isnan(left) or math.isnan(right) else _COMPARED[condition.sign](left, right)
