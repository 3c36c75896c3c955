"""Group the aggregates of a statement into as few states as possible, since epsilon is split between them.

One tree of Bernstein parts answers COUNT(x), SUM(x), AVG(x), the variances and deviations of x; one histogram every
quantile, minimum and maximum of x; and COUNT(*) with COUNT(*) FILTER (WHERE p) are the count and the sum of a value
that is 1 where p holds and 0 elsewhere. A row changes each of these states by no more than it changes a single count,
so sharing costs no budget.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from panstream.engine.sql.formulas import OWN, Arithmetic, Constant, Formula, SquareRoot, StateValue


class Aggregate(Enum):
    """The supported aggregates, with their SQL form."""

    COUNT_DISTINCT = "COUNT(DISTINCT user)"
    COUNT = "COUNT(*)"
    SUM = "SUM(value)"
    AVG = "AVG(value)"
    VAR_POP = "VAR_POP(value)"
    VAR_SAMP = "VAR_SAMP(value)"
    STDDEV_POP = "STDDEV_POP(value)"
    STDDEV_SAMP = "STDDEV_SAMP(value)"
    MIN = "MIN(value)"
    MAX = "MAX(value)"
    QUANTILE = "QUANTILE_CONT(value, q)"
    DENSITY = "DENSITY(user)"
    CROPPED_SUM = "CROPPED_SUM(user, weight, tau)"
    HEAVY_HITTERS = "HEAVY_HITTERS(user, weight, threshold)"
    INCIDENCE = "INCIDENCE(user, weight, t)"
    CROPPED_SQUARES = "CROPPED_SQUARES(user, weight, tau)"
    RETENTION = "RETENTION(user, windows)"
    SKETCH = "SKETCH(user)"

    @property
    def of_presence(self) -> bool:
        """Whether it is about which users are present; then weights of +1 and -1 add and remove users."""
        return self in (Aggregate.COUNT_DISTINCT, Aggregate.DENSITY)

    @property
    def of_users(self) -> bool:
        """Whether its unit is a user rather than a row."""
        return self.of_presence or self.is_alone or self.of_net_weights

    @property
    def of_net_weights(self) -> bool:
        """Whether it is a sum over users of a function of their net weight."""
        weighted = (Aggregate.CROPPED_SUM, Aggregate.HEAVY_HITTERS, Aggregate.INCIDENCE, Aggregate.CROPPED_SQUARES)
        return self in weighted

    @property
    def is_alone(self) -> bool:
        """Whether it is the only answer of a statement."""
        return self in (Aggregate.RETENTION, Aggregate.SKETCH)


@dataclass(frozen=True, slots=True, kw_only=True)
class AggregateCall:
    """One aggregate call of a statement; expressions are SQL over declared columns."""

    aggregate: Aggregate
    value: str | None = None  # of COUNT: rows where it is NULL are not counted
    weight: str | None = None
    constants: tuple[float, ...] = ()
    filter: str | None = None  # the condition of FILTER (WHERE ...)
    about_user: bool = False  # whether the filter is on the user column


@dataclass(frozen=True, slots=True, kw_only=True)
class StateSpec:
    """The query of one state, and the formula of every aggregate over its numbers."""

    call: AggregateCall
    bounds: tuple[float, float] | None = None  # of the value, where it says whether a condition holds
    reads: dict[AggregateCall, Formula] = field(default_factory=dict)


_MOMENTS: dict[Aggregate, Formula] = {
    Aggregate.COUNT: StateValue("count"),
    Aggregate.SUM: StateValue("sum"),
    Aggregate.AVG: StateValue("mean"),
    Aggregate.VAR_POP: StateValue("var_pop"),
    Aggregate.VAR_SAMP: StateValue("var_samp"),
    Aggregate.STDDEV_POP: SquareRoot(StateValue("var_pop")),
    Aggregate.STDDEV_SAMP: SquareRoot(StateValue("var_samp")),
}
_SPREADS = tuple(kind for kind in _MOMENTS if kind.value.startswith(("VAR", "STDDEV")))
_DEVIATIONS = (Aggregate.STDDEV_POP, Aggregate.STDDEV_SAMP)
_LEVELS = {Aggregate.MIN: 0.0, Aggregate.MAX: 1.0}


def group_into_states(calls: Iterable[AggregateCall], where: Sequence[str] = ()) -> list[StateSpec]:
    """Return states that together answer ``calls`` on the rows that meet all conditions of ``where``."""
    remaining = list(dict.fromkeys(calls))
    states: list[StateSpec] = []
    while remaining:
        state = _state(remaining[0], remaining, where)
        states.append(state)
        remaining = [call for call in remaining if call not in state.reads]
    return states


def _state(first: AggregateCall, remaining: list[AggregateCall], where: Sequence[str]) -> StateSpec:
    if first.aggregate in _MOMENTS:
        return _moments(first, remaining, where)
    if first.aggregate in (Aggregate.QUANTILE, *_LEVELS):
        same = [call for call in remaining if _like(call, first) and call.aggregate in (Aggregate.QUANTILE, *_LEVELS)]
        levels: dict[AggregateCall, Formula] = {
            call: StateValue(_LEVELS.get(call.aggregate, (*call.constants, 0.0)[0])) for call in same
        }
        return _own_state(first) if len(same) == 1 else StateSpec(call=first, reads=levels)
    return _own_state(first)


def _moments(first: AggregateCall, remaining: list[AggregateCall], where: Sequence[str]) -> StateSpec:
    family = [call for call in remaining if call.aggregate in _MOMENTS and _like(call, first)]
    if first.value is None:  # COUNT(*) may share a state with another aggregate
        return _counts(first, remaining, where)
    row_count = AggregateCall(aggregate=Aggregate.COUNT, filter=first.filter, about_user=first.about_user)
    if row_count in remaining and f"NOT {first.value} IS NULL" in where:
        family.append(row_count)  # the statement selects rows with a value, so COUNT(*) equals COUNT(value)
    kinds = {call.aggregate for call in family}
    if kinds == {Aggregate.COUNT}:
        return _own_state(first)
    if len(kinds) == 1 and kinds <= {Aggregate.SUM, Aggregate.AVG, Aggregate.VAR_POP, Aggregate.VAR_SAMP}:
        return _own_state(first)
    if kinds <= set(_DEVIATIONS) and len(kinds) == 1:
        return StateSpec(call=first, reads=dict.fromkeys(family, SquareRoot(OWN)))
    widest = Aggregate.VAR_POP if kinds & set(_SPREADS) else Aggregate.AVG
    reads = {call: _MOMENTS[call.aggregate] for call in family}
    return StateSpec(call=replace(first, aggregate=widest), reads=reads)


def _counts(first: AggregateCall, remaining: list[AggregateCall], where: Sequence[str]) -> StateSpec:
    """Return one state for COUNT(*) and COUNT(*) FILTER (WHERE ...), or for COUNT(*) only."""
    plain = AggregateCall(aggregate=Aggregate.COUNT)
    for call in remaining:
        same = call.filter == first.filter and call.about_user == first.about_user
        if call.value is not None and call.aggregate in _MOMENTS and same and f"NOT {call.value} IS NULL" in where:
            return _moments(call, remaining, where)
    some = [call for call in remaining if call.aggregate is Aggregate.COUNT and call.value is None and call.filter]
    part = first if first.filter else next(iter(some), None)
    if part is None or part.filter is None or part.about_user or plain not in remaining:
        return _own_state(first)
    share = AggregateCall(aggregate=Aggregate.AVG, value=f"CASE WHEN {part.filter} THEN 1 ELSE 0 END")
    return StateSpec(call=share, bounds=(0.0, 1.0), reads={plain: StateValue("count"), part: StateValue("sum")})


def _own_state(first: AggregateCall) -> StateSpec:
    return StateSpec(call=first, reads={first: OWN})


def _like(one: AggregateCall, other: AggregateCall) -> bool:
    """Return whether two aggregates are about the same values of the same rows."""
    return (one.value, one.filter, one.about_user) == (other.value, other.filter, other.about_user)


def simplify(formula: Formula) -> Formula:
    """Return the formula with a sum over its count as what it is, a mean, whose interval is much shorter.

    >>> simplify(Arithmetic("/", Arithmetic("*", Constant(100.0), StateValue("sum")), StateValue("count")))
    Arithmetic(sign='*', left=Constant(number=100.0), right=StateValue(what='mean'))
    """
    if not isinstance(formula, Arithmetic):
        return formula
    left = simplify(formula.left)
    right = simplify(formula.right)
    if formula.sign == "/" and right == StateValue("count"):
        if left == StateValue("sum"):
            return StateValue("mean")
        if isinstance(left, Arithmetic) and left.sign == "*" and StateValue("sum") in (left.left, left.right):
            factor = left.right if left.left == StateValue("sum") else left.left
            return Arithmetic("*", factor, StateValue("mean"))
    if formula.sign == "/" and (left, right) == (StateValue("count"), StateValue("sum")):
        return Arithmetic("/", Constant(1.0), StateValue("mean"))
    return Arithmetic(formula.sign, left, right)
