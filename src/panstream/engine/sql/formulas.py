"""Answers as arithmetic on numbers released from one state.

Privacy: post-processing of released numbers; it has no loss.

Error: The interval combines those of all numbers in the formula. Each is taken at a level at which all of them hold
together (Bonferroni), so that coverage does not depend on how the numbers are correlated.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from panstream.core.estimate import Estimate

What: TypeAlias = str | float | None
"""A released number of a state: its answer, a moment by name, or a quantile."""
Ends: TypeAlias = tuple[float, float]
Sign = Literal["+", "-", "*", "/"]

_STEP = 1e-6  # of a standard error, for numerical derivatives


@dataclass(frozen=True, slots=True)
class StateValue:
    """A released number of the state."""

    what: What = None


@dataclass(frozen=True, slots=True)
class Constant:
    """A constant."""

    number: float


@dataclass(frozen=True, slots=True)
class SquareRoot:
    """The square root; of a negative number, 0."""

    of: Formula


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """A sum, difference, product or quotient."""

    sign: Sign
    left: Formula
    right: Formula


Formula: TypeAlias = StateValue | Constant | SquareRoot | Arithmetic
OWN = StateValue()


def evaluate(formula: Formula, value_of: Callable[[What], float]) -> float:
    """Return the value of a formula; NaN where it is undefined.

    >>> evaluate(Arithmetic("/", StateValue("sum"), StateValue("count")), {"sum": 6.0, "count": 4.0}.__getitem__)
    1.5
    """
    if isinstance(formula, StateValue):
        return value_of(formula.what)
    if isinstance(formula, Constant):
        return formula.number
    if isinstance(formula, SquareRoot):
        inner = evaluate(formula.of, value_of)
        return math.nan if math.isnan(inner) else math.sqrt(max(inner, 0.0))
    left = evaluate(formula.left, value_of)
    right = evaluate(formula.right, value_of)
    if formula.sign == "/":
        return left / right if right else math.nan
    return float({"+": operator.add, "-": operator.sub, "*": operator.mul}[formula.sign](left, right))


def estimate_formula(formula: Formula, read: Callable[[What], Estimate], name: str) -> Estimate:
    """Return the estimate of a formula with its interval; ``name`` is used in its description.

    It is computed from unclipped numbers, whose errors cancel on average, and then clipped to the possible range.
    """
    if isinstance(formula, StateValue):
        return read(formula.what)
    if isinstance(formula, SquareRoot) and isinstance(formula.of, StateValue):
        return _deviation(read(formula.of.what))
    estimates = {what: read(what) for what in state_values_in(formula)}
    first = next(iter(estimates.values()))
    support = range_of(formula, {what: estimate.support for what, estimate in estimates.items()})

    def rule(level: float) -> Ends:
        part_level = 1 - (1 - level) / len(estimates)
        return range_of(formula, {what: estimate.interval(part_level) for what, estimate in estimates.items()})

    value = evaluate(formula, lambda what: estimates[what].unclipped)
    return replace(
        first,
        value=min(max(value, support[0]), support[1]),
        unbiased=value,
        standard_error=math.inf if math.isnan(value) else _error(formula, estimates, value),
        name=name,
        support=support,
        at_most_beyond=None,
        text="",
        interval_rule=rule,
    )


def _deviation(estimate: Estimate) -> Estimate:
    """Return the standard deviation of a variance."""
    value = math.sqrt(max(estimate.value, 0.0))
    error = estimate.standard_error / (2 * value) if value > 0 else math.sqrt(estimate.standard_error)

    def rule(level: float) -> Ends:
        low, high = estimate.interval(level)
        return math.sqrt(max(low, 0.0)), math.sqrt(max(high, 0.0))

    return replace(
        estimate,
        value=value,
        unbiased=math.nan,
        standard_error=error,
        support=(0.0, math.sqrt(max(estimate.support[1], 0.0))),
        name="standard deviation",
        interval_rule=rule,
    )


def state_values_in(formula: Formula) -> Iterator[What]:
    """Yield every released number in a formula."""
    if isinstance(formula, StateValue):
        yield formula.what
    elif isinstance(formula, SquareRoot):
        yield from state_values_in(formula.of)
    elif isinstance(formula, Arithmetic):
        yield from state_values_in(formula.left)
        yield from state_values_in(formula.right)


def _error(formula: Formula, estimates: dict[What, Estimate], value: float) -> float:
    """Return the standard error by the delta method, for the worst correlation of the numbers."""
    total = 0.0
    for what, estimate in estimates.items():
        error = estimate.standard_error
        if not error or not math.isfinite(error):
            total += error
            continue
        moved = {**{key: other.unclipped for key, other in estimates.items()}, what: estimate.unclipped + _STEP * error}
        total += abs(evaluate(formula, moved.__getitem__) - value) / _STEP
    return total


def range_of(formula: Formula, ends: Mapping[What, Ends]) -> Ends:
    """Return the range of a formula whose numbers lie in these intervals (interval arithmetic)."""
    if isinstance(formula, StateValue):
        return ends[formula.what]
    if isinstance(formula, Constant):
        return formula.number, formula.number
    if isinstance(formula, SquareRoot):
        low, high = range_of(formula.of, ends)
        return math.sqrt(max(low, 0.0)), math.sqrt(max(high, 0.0))
    left = range_of(formula.left, ends)
    right = range_of(formula.right, ends)
    if formula.sign == "+":
        return left[0] + right[0], left[1] + right[1]
    if formula.sign == "-":
        return left[0] - right[1], left[1] - right[0]
    if formula.sign == "/":
        if right[0] <= 0.0 <= right[1]:
            return _over_zero(left, right)
        right = 1 / right[1], 1 / right[0]
    products = [0.0 if 0.0 in (a, b) else a * b for a in left for b in right]
    return min(products), max(products)


def _over_zero(left: Ends, right: Ends) -> Ends:
    """Return the range of a quotient whose divisor may be 0: infinite, except where the sign is certain."""
    if right == (0.0, 0.0) or (right[0] < 0.0 < right[1]):
        return -math.inf, math.inf
    quotients = [a / b for a in left for b in right if b and math.isfinite(b)] or [0.0]
    if left[0] >= 0.0:
        return (min(quotients), math.inf) if right[1] > 0.0 else (-math.inf, max(quotients))
    return -math.inf, math.inf
