"""Parse and check aggregate calls, and the conditions of WHERE and FILTER."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from panstream.engine.sql.expressions import ScalarScope, conjuncts
from panstream.engine.sql.retention_outputs import MAX_LAGS, USUAL_LAGS
from panstream.engine.sql.state_sharing import Aggregate, AggregateCall

_USER_FUNCTIONS = {
    "DENSITY": Aggregate.DENSITY,
    "CROPPED_SUM": Aggregate.CROPPED_SUM,
    "HEAVY_HITTERS": Aggregate.HEAVY_HITTERS,
    "INCIDENCE": Aggregate.INCIDENCE,
    "CROPPED_SQUARES": Aggregate.CROPPED_SQUARES,
    "RETENTION": Aggregate.RETENTION,
    "SKETCH": Aggregate.SKETCH,
}


class AggregateParser:
    """Parses aggregates and conditions, and collects the columns that they use.

    With ``cap``, COUNT(*) counts that many rows of a user at most: CROPPED_SUM(user, 1, cap); and SUM(x) as many times
    the largest x.
    """

    def __init__(self, scalars: ScalarScope, cap: int | None = None) -> None:
        from sqlglot import expressions

        self._scalars = scalars
        self._cap = cap
        self._refuse = scalars.statement.refuse
        self._e = expressions
        self.used: set[str] = set()
        self.literal: dict[str, tuple[float, float]] = {}  # bounds of values that are CASE of literals

    def condition(self, node: Any) -> tuple[str, bool]:
        """Return a condition as SQL that can be an operand of AND, and whether it is on the user column."""
        tree = self._scalars.resolve(node)
        names = self._scalars.names(tree)
        if self._scalars.user in names and len(names) > 1:
            raise self._refuse(node, "a condition must not mix the user column with others", "use AND")
        self.used |= names
        return _joinable(tree, self._scalars.text(tree)), self._scalars.user in names

    def parse_call(self, node: Any) -> AggregateCall | None:
        """Return the aggregate call of a node; None if it is not one."""
        e = self._e
        conditions = []
        if isinstance(node, e.Filter):
            conditions.append(node.expression.this)
            node = node.this
        if isinstance(node, e.CountIf):
            conditions.append(node.this)
            node = e.Count(this=e.Star())
        call = self._bare(node)
        if call is None or not conditions:
            return call
        parts = [self.condition(conjunct) for condition in conditions for conjunct in conjuncts(condition)]
        if len({about for _, about in parts}) > 1:
            raise self._refuse(conditions[0], "FILTER must not mix the user column with others", "use WHERE too")
        condition = " AND ".join(text for text, _ in parts)
        return replace(call, filter=condition, about_user=parts[0][1])

    def _bare(self, node: Any) -> AggregateCall | None:
        e = self._e
        simple = {
            e.Sum: Aggregate.SUM,
            e.Avg: Aggregate.AVG,
            e.VariancePop: Aggregate.VAR_POP,
            e.Variance: Aggregate.VAR_SAMP,
            e.StddevPop: Aggregate.STDDEV_POP,
            e.Stddev: Aggregate.STDDEV_SAMP,
            e.StddevSamp: Aggregate.STDDEV_SAMP,
            e.Min: Aggregate.MIN,
            e.Max: Aggregate.MAX,
        }
        if isinstance(node, e.Count):
            return self._count(node)
        if isinstance(node, e.ApproxDistinct):
            return self._distinct(node, [node.this])
        if type(node) in simple and not node.expressions:
            if isinstance(node.this, e.Distinct):
                raise self._refuse(node, "DISTINCT is not supported here", "COUNT(DISTINCT user) is")
            if self._cap is not None and isinstance(node, e.Sum):
                return AggregateCall(
                    aggregate=Aggregate.CROPPED_SUM, value=self._value(node.this), constants=(float(self._cap),)
                )
            return AggregateCall(aggregate=simple[type(node)], value=self._value(node.this))
        if isinstance(node, e.Median):
            return AggregateCall(aggregate=Aggregate.QUANTILE, value=self._value(node.this), constants=(0.5,))
        if isinstance(node, e.WithinGroup) and isinstance(node.this, e.PercentileCont):
            (order,) = node.expression.expressions
            level = self._level(node, node.this.this)
            level = 1.0 - level if order.args.get("desc") else level
            return AggregateCall(aggregate=Aggregate.QUANTILE, value=self._value(order.this), constants=(level,))
        if isinstance(node, e.PercentileCont | e.Quantile | e.ApproxQuantile):
            level = self._level(node, node.args.get("quantile") or node.expression)
            return AggregateCall(aggregate=Aggregate.QUANTILE, value=self._value(node.this), constants=(level,))
        if isinstance(node, e.Anonymous) and node.name.upper() in _USER_FUNCTIONS:
            return self._user_function(_USER_FUNCTIONS[node.name.upper()], node)
        if isinstance(node, e.Anonymous) and node.name.upper() == "MEAN" and len(node.expressions) == 1:
            return AggregateCall(aggregate=Aggregate.AVG, value=self._value(node.expressions[0]))
        return None

    def _count(self, node: Any) -> AggregateCall:
        inner = node.this
        if isinstance(inner, self._e.Distinct):
            return self._distinct(node, inner.expressions)
        if inner is None or isinstance(inner, self._e.Star):
            if self._cap is not None:
                return AggregateCall(aggregate=Aggregate.CROPPED_SUM, constants=(float(self._cap),))
            return AggregateCall(aggregate=Aggregate.COUNT)
        return AggregateCall(aggregate=Aggregate.COUNT, value=self._value(inner))

    def _distinct(self, node: Any, arguments: list[Any]) -> AggregateCall:
        if len(arguments) != 1 or not self.is_user(arguments[0]):
            hint = f"COUNT(DISTINCT {self._scalars.user})" if self._scalars.user else "declare user in [stream]"
            raise self._refuse(node, "COUNT(DISTINCT ...) takes the user column", hint)
        return AggregateCall(aggregate=Aggregate.COUNT_DISTINCT)

    def _user_function(self, kind: Aggregate, node: Any) -> AggregateCall:
        arguments = node.expressions
        if kind is Aggregate.RETENTION:
            return self._retention(node)
        wanted = 1 if kind in (Aggregate.SKETCH, Aggregate.DENSITY) else 3
        if len(arguments) != wanted or not self.is_user(arguments[0]):
            raise self._refuse(node, f"{node.name.upper()} takes the arguments of {kind.value}")
        if wanted == 1:
            return AggregateCall(aggregate=kind)
        return AggregateCall(
            aggregate=kind,
            weight=self._value(arguments[1]),
            constants=(self._number(arguments[2], "the last argument"),),
        )

    def _retention(self, node: Any) -> AggregateCall:
        arguments = node.expressions
        if not 1 <= len(arguments) <= 2 or not self.is_user(arguments[0]):
            raise self._refuse(node, f"RETENTION takes the arguments of {Aggregate.RETENTION.value}")
        lags = self._number(arguments[1], "the last argument") if len(arguments) > 1 else float(USUAL_LAGS)
        if lags != int(lags) or not 1 <= lags <= MAX_LAGS:
            raise self._refuse(node, f"the last argument must be a whole number of windows, 1 to {MAX_LAGS}")
        return AggregateCall(aggregate=Aggregate.RETENTION, constants=(lags,))

    def _value(self, node: Any) -> str:
        tree = self._scalars.resolve(node)
        text = self._scalars.value(tree)
        self.used |= self._scalars.names(tree)
        bounds = _case_bounds(tree)
        if bounds is not None:
            self.literal[text] = bounds
        return text

    def _level(self, node: Any, level: Any) -> float:
        number = self._number(level, "the quantile")
        if not 0 <= number <= 1:
            raise self._refuse(node, "the quantile must be in [0, 1]")
        return number

    def _number(self, node: Any, what: str) -> float:
        if not isinstance(node, self._e.Literal) or node.is_string:
            raise self._refuse(node, f"{what} must be a number")
        return float(node.this)

    def is_user(self, node: Any) -> bool:
        """Return whether a node is the user column of the stream, not a lookup column of its name."""
        return (
            isinstance(node, self._e.Column)
            and node.name == self._scalars.user
            and node.table not in self._scalars.tables
        )


def _joinable(tree: Any, text: str) -> str:
    """Return a condition as an operand of AND, in brackets if it needs them."""
    return f"({text})" if type(tree).__name__ in ("Or", "Xor") else text


def _case_bounds(tree: Any) -> tuple[float, float] | None:
    """Return the bounds of a CASE whose results are all literals; None for any other expression."""
    if type(tree).__name__ == "If":
        results = [tree.args.get("true"), tree.args.get("false")]
    elif type(tree).__name__ == "Case":
        results = [*(branch.args["true"] for branch in tree.args["ifs"]), tree.args.get("default")]
    else:
        return None
    there = [branch for branch in results if branch is not None and type(branch).__name__ != "Null"]
    if not there or not all(type(branch).__name__ == "Literal" and not branch.is_string for branch in there):
        return None
    numbers = [float(branch.this) for branch in there]
    low = min(*numbers, 0.0)
    high = max(*numbers, 0.0)
    return (low, high) if low < high else None
