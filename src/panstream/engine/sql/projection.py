"""Parse the projection of a SELECT: group keys, named answers, and HAVING, ORDER BY and LIMIT on those."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from panstream.engine.sql.expressions import ScalarScope
from panstream.engine.sql.formulas import Arithmetic, Constant, Formula, StateValue, state_values_in
from panstream.engine.sql.result_view import AnswerComparison, BooleanOp, Condition, Not, ResultView, SortKey
from panstream.engine.sql.state_sharing import Aggregate, AggregateCall

_SIGNS = {"Add": "+", "Sub": "-", "Mul": "*", "Div": "/"}
_COMPARED = {"EQ": "=", "NEQ": "<>", "LT": "<", "LTE": "<=", "GT": ">", "GTE": ">="}
_NUMERIC = ("DOUBLE", "REAL", "FLOAT", "DECIMAL")
_GROUPINGS = {"Rollup": "ROLLUP", "Cube": "CUBE", "GroupingSets": "GROUPING SETS"}
_RANKED = (Aggregate.MIN, Aggregate.MAX)


class Projection:
    """The projection of a SELECT. Formulas refer to aggregates as ``#0``, ``#1``, … until ``substitute``."""

    def __init__(self, tree: Any, scalars: ScalarScope, aggregate: Callable[[Any], AggregateCall | None]) -> None:
        self._tree = tree
        self._scalars = scalars
        self._aggregate = aggregate
        self._refuse = scalars.statement.refuse
        self.calls: list[AggregateCall] = []
        self._texts: list[str] = []  # of the calls
        self.used: set[str] = set()  # columns of the keys
        self._keys: list[tuple[str, str]] = []  # name and expression
        self._outputs: list[tuple[str, Formula, Any]] = []
        self._shown = 0

    # Keys.

    def keys(self, is_user: Callable[[Any], bool]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the names and the expressions of the keys of GROUP BY."""
        group = self._tree.args.get("group")
        if group is not None:
            for part in group.walk():
                if type(part).__name__ in _GROUPINGS:
                    name = _GROUPINGS[type(part).__name__]
                    raise self._refuse(group, f"{name} is not supported", "ask each grouping as a query of its own")
        group_expressions = [] if group is None else list(group.expressions)
        if group is not None and group.args.get("all"):
            group_expressions = [_bare(item) for item in self._tree.expressions if not self._aggregated(_bare(item))]
        for node in group_expressions:
            name, plain = self._key(node)
            if any(is_user(column) for column in plain.walk()):
                raise self._refuse(node, "grouping by the user column would publish who is there", "count them instead")
            if self._aggregated(plain):
                raise self._refuse(node, "GROUP BY takes functions of one row, not aggregates", "use HAVING")
            tree = self._scalars.resolve(plain)
            text = self._scalars.text(tree)
            self.used |= self._scalars.names(tree)
            if not self._scalars.names(tree):
                raise self._refuse(node, "GROUP BY takes columns, or expressions of them")
            if text not in dict(self._keys).values():
                self._keys.append((name, text))
        names = tuple(name for name, _ in self._keys)
        return names, tuple(text for _, text in self._keys)

    def _key(self, node: Any) -> tuple[str, Any]:
        """Return the name and the expression of a key, which may be given by its position or alias in SELECT."""
        items = self._tree.expressions
        kind = type(node).__name__
        if kind == "Literal" and not node.is_string:
            item = self._at(node, "GROUP BY")
            return item.alias or _name(_bare(item)), _bare(item)
        declared = {*self._scalars.columns, *self._scalars.derived}
        for item in items:
            same = kind == "Column" and not node.table and item.alias == node.name and node.name not in declared
            if same or (item.alias and _bare(item) == node):
                return item.alias, _bare(item)
        return _name(node), node

    def _at(self, number: Any, clause: str) -> Any:
        """Return the column of SELECT at a position, counted from 1."""
        items = self._tree.expressions
        if not number.this.isdigit() or not 1 <= int(number.this) <= len(items):
            raise self._refuse(number, f"{clause} {number.this} names no column of SELECT")
        return items[int(number.this) - 1]

    # Answers.

    def outputs(self) -> list[tuple[str, Formula, Any]]:
        """Return name, formula and node of every answer of SELECT; HAVING and ORDER BY may add to them."""
        for item in self._tree.expressions:
            plain = _bare(item)
            if type(plain).__name__ == "Star":
                raise self._refuse(plain, "rows are never shown", "select aggregates, such as COUNT(*)")
            if not self._aggregated(plain):
                self._check_key(item, plain)
                continue
            self._add(item.alias or _name(plain), plain)
        self._shown = len(self._outputs)
        if not self._shown:
            raise self._refuse(self._tree, "this is not an aggregate that can be answered privately", _known())
        return self._outputs

    def _check_key(self, item: Any, plain: Any) -> None:
        if not list(plain.find_all(_column_type())):
            raise self._refuse(item, "this is not an aggregate that can be answered privately", _known())
        text = self._scalars.text(self._scalars.resolve(plain))
        if text not in dict(self._keys).values():
            raise self._refuse(
                item, f"{_name(plain)} is not an aggregate, and GROUP BY does not name it", f"GROUP BY {_name(plain)}"
            )

    def _add(self, name: str, node: Any) -> str:
        if any(name == other for other, _, _ in self._outputs):
            raise self._refuse(node, f"two answers are named {name!r}", "give each a name of its own: ... AS name")
        formula = self._formula(node, self._number_of)
        if not self.aggregate_calls(formula):
            raise self._refuse(node, "this is not an aggregate that can be answered privately", _known())
        kinds = {call.aggregate for call in self.aggregate_calls(formula)}
        if not isinstance(formula, StateValue) and kinds & set(_RANKED):
            raise self._refuse(node, "MIN and MAX are answered in ranks, not as numbers", "select them on their own")
        self._outputs.append((name, formula, node))
        return name

    def text_of(self, call: AggregateCall) -> str:
        """Return an aggregate as the statement writes it."""
        return self._texts[self.calls.index(call)]

    def aggregate_calls(self, formula: Formula) -> list[AggregateCall]:
        """Return the aggregates that a formula reads."""
        return [self.calls[int(str(what)[1:])] for what in state_values_in(formula)]

    def substitute(self, formula: Formula, reads: Mapping[AggregateCall, Formula]) -> Formula:
        """Return the formula with every aggregate replaced by its formula over its state."""
        if isinstance(formula, StateValue):
            return reads[self.calls[int(str(formula.what)[1:])]]
        if isinstance(formula, Arithmetic):
            return Arithmetic(formula.sign, self.substitute(formula.left, reads), self.substitute(formula.right, reads))
        return formula

    def _number_of(self, node: Any) -> Formula | None:
        aggregate = self._aggregate(node)
        if aggregate is None:
            return None
        if aggregate not in self.calls:
            self.calls.append(aggregate)
            self._texts.append(_name(node))
        return StateValue(f"#{self.calls.index(aggregate)}")

    def _formula(self, node: Any, leaf: Callable[[Any], Formula | None]) -> Formula:
        """Return the formula of an arithmetic expression; ``leaf`` gives those of its operands."""
        leaf_formula = leaf(node)
        if leaf_formula is not None:
            return leaf_formula
        kind = type(node).__name__
        if kind == "Literal" and not node.is_string:
            return Constant(float(node.this))
        if kind == "Neg":
            return Arithmetic("-", Constant(0.0), self._formula(node.this, leaf))
        if kind == "Paren":
            return self._formula(node.this, leaf)
        if kind in ("Cast", "TryCast") and node.to.sql(dialect="duckdb").partition("(")[0] in _NUMERIC:
            return self._formula(node.this, leaf)
        if kind == "Nullif" and type(node.expression).__name__ == "Literal" and float(node.expression.this) == 0:
            return self._formula(node.this, leaf)  # a quotient by 0 is NULL anyway
        if kind in _SIGNS:
            left = self._formula(node.this, leaf)
            right = self._formula(node.expression, leaf)
            return Arithmetic(_SIGNS[kind], left, right)  # type: ignore[arg-type]
        if kind == "Round":
            raise self._refuse(node, "ROUND is not supported on answers", "round what is shown")
        if isinstance(node, _column_type()):
            raise self._refuse(node, f"{node.name} is a column of rows, not an answer", "name an aggregate")
        raise self._refuse(node, f"{_name(node)} is not an aggregate that can be answered privately", _known())

    # HAVING, ORDER BY, LIMIT.

    def view(self) -> ResultView:
        """Return the view of the answers; call it after ``outputs``."""
        having = self._tree.args.get("having")
        order = self._tree.args.get("order")
        condition = None if having is None else self._condition(having.this)
        sorting = () if order is None else tuple(self._sorting(term) for term in order.expressions)
        limit, offset = (self._count(self._tree.args.get(part), part) for part in ("limit", "offset"))
        return ResultView(
            shown=tuple(name for name, _, _ in self._outputs[: self._shown]),
            having=condition,
            order=sorting,
            limit=limit,
            offset=offset or 0,
        )

    def _answer(self, node: Any) -> Formula | None:
        """Return an answer by its alias or by its expression; otherwise add one that is not shown."""
        items = self._tree.expressions
        for item in items:
            plain = _bare(item)
            named = isinstance(node, _column_type()) and not node.table and item.alias == node.name
            if (named or plain == node) and self._aggregated(plain):
                return StateValue(item.alias or _name(plain))
        for name, _, output_formula in self._outputs:
            if output_formula == node:
                return StateValue(name)
        return StateValue(self._add(_name(node), node)) if self._aggregate(node) is not None else None

    def _condition(self, node: Any) -> Condition:
        kind = type(node).__name__
        if kind == "Paren":
            return self._condition(node.this)
        if kind == "Not":
            return Not(self._condition(node.this))
        if kind in ("And", "Or"):
            return BooleanOp(kind.upper(), self._condition(node.this), self._condition(node.expression))  # type: ignore[arg-type]
        if kind in _COMPARED:
            left = self._formula(node.this, self._answer)
            right = self._formula(node.expression, self._answer)
            return AnswerComparison(_COMPARED[kind], left, right)  # type: ignore[arg-type]
        if kind == "Between":
            value = self._formula(node.this, self._answer)
            low, high = (self._formula(node.args[end], self._answer) for end in ("low", "high"))
            return BooleanOp("AND", AnswerComparison(">=", value, low), AnswerComparison("<=", value, high))
        raise self._refuse(node, "HAVING takes comparisons of answers with numbers", "HAVING COUNT(*) > 100")

    def _sorting(self, ordered: Any) -> SortKey:
        node = ordered.this
        items = self._tree.expressions
        options = SortKey(descending=bool(ordered.args.get("desc")), nulls_first=bool(ordered.args.get("nulls_first")))
        if type(node).__name__ == "Literal" and not node.is_string:
            node = _bare(self._at(node, "ORDER BY"))
        name, plain = self._key(node)
        answers = {item.alias for item in items if self._aggregated(_bare(item))}
        if not self._aggregated(plain) and not answers & {column.name for column in plain.find_all(_column_type())}:
            aliases = [key for key, _ in self._keys]
            if isinstance(node, _column_type()) and node.name in aliases:
                return replace(options, key=aliases.index(node.name))
            text = self._scalars.text(self._scalars.resolve(plain))
            texts = [text for _, text in self._keys]
            if text in texts:
                return replace(options, key=texts.index(text))
            raise self._refuse(ordered, f"{name} is neither a key of GROUP BY nor an answer", "order by one of those")
        return replace(options, by=self._formula(node, self._answer))

    def _count(self, clause: Any, word: str) -> int | None:
        if clause is None:
            return None
        node = clause.expression
        if type(node).__name__ != "Literal" or node.is_string or not node.this.isdigit():
            raise self._refuse(clause, f"{word.upper()} takes a whole number")
        return int(node.this)

    def _aggregated(self, node: Any) -> bool:
        from sqlglot import expressions

        for part in node.walk():
            if isinstance(part, expressions.AggFunc | expressions.Filter | expressions.WithinGroup):
                return True
            if isinstance(part, expressions.Anonymous) and self._aggregate(part) is not None:
                return True
        return False


def _bare(item: Any) -> Any:
    return item.this if type(item).__name__ == "Alias" else item


def _name(node: Any) -> str:
    return str(node.name if type(node).__name__ == "Column" else node.sql(dialect="duckdb"))


def _known() -> str:
    return f"known: {', '.join(kind.value for kind in Aggregate)}"


def _column_type() -> Any:
    from sqlglot import expressions

    return expressions.Column
