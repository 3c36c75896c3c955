"""Parse and check one SELECT: its aggregates, conditions, groups, and the view of its answers.

Expressions over rows must be functions of one row (``expressions``); expressions over answers are computed from
released numbers (``formulas``, ``result_view``). Everything else is refused with its line and column and the nearest
supported construct. Nothing is guessed: the privacy claim is about exactly this query.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from panstream.engine.sql.aggregates import AggregateParser
from panstream.engine.sql.expressions import LookupColumn, ScalarScope, StatementText, conjuncts, limit_nesting
from panstream.engine.sql.formulas import OWN, Arithmetic, Formula, StateValue
from panstream.engine.sql.projection import Projection
from panstream.engine.sql.result_view import CombinedAnswer, ResultView
from panstream.engine.sql.retention_outputs import retention_answers
from panstream.engine.sql.sketch_statements import without_overlap, without_range_of_windows
from panstream.engine.sql.state_sharing import Aggregate, StateSpec, group_into_states, simplify
from panstream.errors import UnsupportedQuery, import_optional, translate_errors

if TYPE_CHECKING:
    from panstream.engine.sql.lookup_tables import LookupTable

__all__ = ["Aggregate", "Output", "ParsedQuery", "ParsedSelect", "check_derived", "parse"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """One answer of a query: its name, and its formula over the numbers of the state."""

    name: str
    aggregate: Aggregate
    formula: Formula = OWN
    level: float = 0.95  # of its interval: higher where it is combined with answers from other states

    @property
    def additive(self) -> bool:
        """Return whether the answers for two disjoint periods add up to the answer for both."""
        return self.aggregate in (Aggregate.COUNT, Aggregate.SUM) and not isinstance(self.formula, Arithmetic)


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedQuery:
    """The query of one state. Expressions are SQL over declared columns, without the user column unless said
    otherwise.
    """

    aggregate: Aggregate
    stream: str
    outputs: tuple[Output, ...]
    single_output: bool = True  # whether the statement has no other answer; then the answer has the query's name
    value: str | None = None  # scalar expression that is summed, averaged, ...
    weight: str | None = None  # signed weight of a turnstile question
    constants: tuple[float, ...] = ()  # q of a quantile, tau, threshold
    bounds: tuple[float, float] | None = None  # of the value, where it says whether a condition holds
    literal_bounds: tuple[float, float] | None = None  # of the value, where it is a CASE of literals
    where: str | None = None  # condition on other columns
    user_where: str | None = None  # condition on the user column only
    group_by: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()  # the expression of each
    integer_key: bool = False  # whether there is one key, a column of integers
    columns: frozenset[str] = frozenset()  # every column that must be read, the user column included
    joined: tuple[LookupColumn, ...] = ()
    meaning: Mapping[str, str] = field(default_factory=dict)  # definitions of derived columns, digests of lookup tables


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedSelect:
    """A parsed statement: the queries of its states, and the view of their answers."""

    parts: tuple[ParsedQuery, ...]
    view: ResultView

    @property
    def is_open_domain(self) -> bool:
        """Whether the statement only counts rows per value of one key, which works without declared values."""
        first = self.parts[0]
        plain = len(self.parts) == 1 and first.aggregate is Aggregate.COUNT and len(first.group_by) == 1
        return plain and [output.formula for output in first.outputs] == [OWN]


_LEVEL = 0.95
_CLAUSES = {"expressions", "from", "from_", "joins", "where", "group", "having", "order", "limit", "offset"}
_INSTEAD = {
    "distinct": ("SELECT DISTINCT", "use COUNT(DISTINCT user), or GROUP BY"),
    "with": ("WITH", "write the expression out, or name it in [stream.derived]"),
    "with_": ("WITH", "write the expression out, or name it in [stream.derived]"),
    "qualify": ("QUALIFY", "use HAVING"),
    "windows": ("WINDOW", "use window = or every = for answers over time"),
    "laterals": ("LATERAL", "every row may produce at most one row"),
    "sample": ("TABLESAMPLE", "all rows are counted"),
}


@limit_nesting
def parse(
    statement: str,
    *,
    columns: Mapping[str, str],
    user: str | None,
    stream: str,
    derived: Mapping[str, str] | None = None,
    lookups: Mapping[str, LookupTable] | None = None,
    cap: int | None = None,
) -> ParsedSelect:
    """Return the checked parts of ``statement``.

    ``columns`` maps the declared columns of ``stream`` to their types; ``user`` is the column that holds ids;
    ``derived`` are expressions by name, ``lookups`` public tables that may be joined, and ``cap`` is the number of rows
    of a user that COUNT(*) counts at most, and SUM(x) as rows of the largest x.
    """
    tree = _select_tree(statement)
    statement_text = StatementText(statement)
    scalars = ScalarScope(statement_text, columns, user, frozenset({stream, _short_name(stream)}), dict(derived or {}))
    return _SelectParser(tree, scalars, stream, dict(lookups or {}), cap).read()


@limit_nesting
def table_read(statement: str, public: Collection[str] = ()) -> tuple[Any, dict[str, str]]:
    """Return the table that ``statement`` reads FROM, and the keys of the ``public`` tables that it joins, by name.

    Everything else that needs no columns is checked.
    """
    tree = without_range_of_windows(_select_tree(statement))
    reader = _SelectParser(tree, ScalarScope(StatementText(statement), {}, None), "'file'", {}, None)
    reader.check_shape()
    joins = tree.args.get("joins") or []
    return reader.table(), dict(reader.named_key(join, public) for join in joins)


def _select_tree(statement: str) -> Any:
    """Parse the statement; raise UnsupportedQuery unless it is one SELECT."""
    trees = [tree for tree in _trees(statement) if tree is not None]
    if len(trees) == 1 and type(trees[0]).__name__ in ("Union", "Intersect", "Except"):
        raise StatementText(statement).refuse(
            trees[0], "UNION is not supported", "ask each SELECT as a query of its own"
        )
    if len(trees) != 1 or type(trees[0]).__name__ != "Select":
        raise UnsupportedQuery(
            "one SELECT is expected", hint="write SELECT aggregate FROM stream [WHERE ...] [GROUP BY ...]"
        )
    return without_overlap(trees[0], StatementText(statement))


@limit_nesting
def check_derived(
    name: str, text: str, columns: Mapping[str, str], user: str | None, derived: Mapping[str, str]
) -> None:
    """Raise UnsupportedQuery if a derived column is not a function of one row, or is about the user."""
    trees = _trees(text)
    if len(trees) != 1 or trees[0] is None:
        raise UnsupportedQuery("one expression is expected")
    others = {other: expression for other, expression in derived.items() if other != name}
    scalars = ScalarScope(StatementText(text), columns, user, derived=others)
    scalars.value(scalars.resolve(trees[0]))


class _SelectParser:
    """Parses one SELECT; anything that is not supported raises UnsupportedQuery."""

    def __init__(
        self, tree: Any, scalars: ScalarScope, stream: str, lookups: dict[str, LookupTable], cap: int | None
    ) -> None:
        from sqlglot import expressions

        self.tree = tree
        self.scalars = scalars
        self.stream = stream
        self.lookups = lookups
        self.e = expressions
        self.refuse = scalars.statement.refuse
        self.aggregates = AggregateParser(scalars, cap)
        self.used = self.aggregates.used
        self.conditions: list[str] = []
        self.user_conditions: list[str] = []
        self.meaning: dict[str, str] = {}

    def read(self) -> ParsedSelect:
        self.check_shape()
        self._from()
        where = self.tree.args.get("where")
        for condition in [] if where is None else conjuncts(where.this):
            text, about_user = self.aggregates.condition(condition)
            (self.user_conditions if about_user else self.conditions).append(text)
        shown = Projection(self.tree, self.scalars, self.aggregates.parse_call)
        names, keys = shown.keys(self.aggregates.is_user)
        outputs = shown.outputs()
        view = shown.view()
        self.used |= shown.used
        states = group_into_states(shown.calls, self.conditions)
        lone = next((call.aggregate for call in shown.calls if call.aggregate.is_alone), None)
        if lone is not None:
            self._require_alone(lone, outputs)
        if lone is Aggregate.RETENTION:
            return self._retention(states, names, keys)
        outputs_by_state: list[list[Output]] = [[] for _ in states]
        combined: list[CombinedAnswer] = []
        for name, formula, _ in outputs:
            calls = list(dict.fromkeys(shown.aggregate_calls(formula)))
            state_numbers = {call: next(n for n, s in enumerate(states) if call in s.reads) for call in calls}
            if len(set(state_numbers.values())) == 1:
                state = state_numbers[calls[0]]
                final = simplify(shown.substitute(formula, states[state].reads))
                outputs_by_state[state].append(Output(name=name, aggregate=calls[0].aggregate, formula=final))
                continue
            level = 1 - (1 - _LEVEL) / len(calls)  # together, all intervals hold with the level of one
            operands = {call: StateValue(f"{shown.text_of(call)} for {name}") for call in calls}
            for call, operand in operands.items():
                state = state_numbers[call]
                one = Output(
                    name=str(operand.what), aggregate=call.aggregate, formula=states[state].reads[call], level=level
                )
                outputs_by_state[state].append(one)
            combined.append(CombinedAnswer(name=name, formula=shown.substitute(formula, operands)))
        self.meaning |= {f"derived {name}": self.scalars.derived[name] for name in sorted(self.scalars.used)}
        parts = [
            self._part(state, outputs, names, keys) for state, outputs in zip(states, outputs_by_state, strict=True)
        ]
        view = replace(view, combined=tuple(combined))
        single_output = len(outputs) == 1 and not combined
        return ParsedSelect(parts=tuple(replace(part, single_output=single_output) for part in parts), view=view)

    def _require_alone(self, kind: Aggregate, outputs: list[Any]) -> None:
        """Raise UnsupportedQuery unless RETENTION or SKETCH is selected on its own."""
        _, formula, node = outputs[0]
        clauses = [clause for clause in ("having", "order", "limit", "offset") if self.tree.args.get(clause)]
        if len(outputs) > 1 or not isinstance(formula, StateValue) or clauses:
            raise self.refuse(
                node,
                f"{kind.name} is selected on its own, without arithmetic, HAVING, ORDER BY or LIMIT",
                "ask other answers in a [[query]] of their own",
            )

    def _retention(self, states: list[StateSpec], names: tuple[str, ...], keys: tuple[str, ...]) -> ParsedSelect:
        """Return a statement that selects RETENTION and nothing else, with all its answers."""
        answers = [
            Output(name=answer.name, aggregate=Aggregate.RETENTION, formula=answer.formula)
            for answer in retention_answers(int(states[0].call.constants[0]))
        ]
        self.meaning |= {f"derived {name}": self.scalars.derived[name] for name in sorted(self.scalars.used)}
        part = self._part(states[0], answers, names, keys)
        return ParsedSelect(
            parts=(replace(part, single_output=False),), view=ResultView(shown=tuple(output.name for output in answers))
        )

    def _part(
        self, state: StateSpec, outputs: list[Output], names: tuple[str, ...], keys: tuple[str, ...]
    ) -> ParsedQuery:
        where = list(self.conditions)
        user_where = list(self.user_conditions)
        call = state.call
        value = state.call.value
        if call.filter is not None:
            (user_where if call.about_user else where).append(call.filter)
        if call.aggregate is Aggregate.COUNT and value is not None:
            where.append(f"NOT {value if value.isidentifier() else f'({value})'} IS NULL")
            value = None
        of_joined = {column.name: column for columns in self.scalars.tables.values() for column in columns.values()}
        user = {self.scalars.user} if call.aggregate.of_users and self.scalars.user is not None else set()
        joined = tuple(of_joined[name] for name in sorted(self.used) if name in of_joined)
        return ParsedQuery(
            aggregate=call.aggregate,
            stream=self.stream,
            outputs=tuple(outputs),
            value=value,
            weight=call.weight,
            constants=call.constants,
            bounds=state.bounds,
            literal_bounds=self.aggregates.literal.get(value or ""),
            where=" AND ".join(where) or None,
            user_where=" AND ".join(user_where) or None,
            group_by=names,
            keys=keys,
            integer_key=[self.scalars.columns.get(key.strip('"')) for key in keys] == ["int"],
            columns=frozenset((self.used - set(of_joined)) | user),
            joined=joined,
            meaning=self.meaning,
        )

    def check_shape(self) -> None:
        for part, value in self.tree.args.items():
            if value and part not in {*_CLAUSES, "kind", "hint"}:
                name, hint = _INSTEAD.get(part, (part.rstrip("s_").upper(), "one SELECT over one stream"))
                start = self.scalars.statement.text.upper().find(name.split()[-1])
                raise self.scalars.statement.at(start if start >= 0 else None, f"{name} is not supported", hint)
        window = next(self.tree.find_all(self.e.Window), None)
        if window is not None:
            raise self.refuse(window, "OVER is not supported", "use window = or every = for answers over time")

    def table(self) -> Any:
        """Return the table of FROM."""
        source = self.tree.args.get("from_") or self.tree.args.get("from")
        if source is None or not isinstance(source.this, self.e.Table):
            raise self.refuse(source or self.tree, "FROM must name the stream", f"FROM {self.stream}")
        return source.this

    def _from(self) -> None:
        table = self.table()
        extras = [part for part, value in table.args.items() if value and part not in ("this", "alias")]
        if table.name != self.stream or extras:
            raise self.refuse(
                table, f"FROM must name the stream {self.stream!r}", "other tables and files are not read"
            )
        if table.alias:
            self.scalars.streams = frozenset({table.alias})
        for join in self.tree.args.get("joins") or []:
            self.join(join)

    def join(self, join: Any) -> None:
        """Add the columns of a public lookup table."""
        table = join.this
        name = table.name if isinstance(table, self.e.Table) else ""
        if name not in self.lookups:
            declared = ", ".join(self.lookups) or "none is declared"
            raise self.refuse(
                join,
                f"JOIN is not supported except with a public lookup table of [lookup.*] ({declared})",
                "a join with a stream or file could turn one row into many",
            )
        side = (join.args.get("side") or "").upper()
        kind = (join.args.get("kind") or "").upper()
        if side not in ("", "LEFT") or kind not in ("", "INNER", "OUTER") or join.args.get("method"):
            raise self.refuse(join, f"{side or kind or 'this'} JOIN is not supported", "JOIN and LEFT JOIN are")
        lookup = self.lookups[name]
        alias = table.alias or _short_name(name)
        key = self._join_key(join, lookup, alias)
        # The key may be the user's id: it is looked up without the SQL engine, which is never handed ids.
        is_user = isinstance(key, self.e.Column) and key.name == self.scalars.user
        text = self.scalars.text(key) if is_user else self.scalars.value(key)
        self.used |= self.scalars.names(key)
        self.meaning[f"lookup {name}"] = lookup.digest
        self.scalars.tables[alias] = {
            column: LookupColumn(name=f"{name}[{text}].{column}", lookup=name, key=text, column=column, kind=kind_of)
            for column, kind_of in lookup.columns.items()
        }
        if side != "LEFT":  # an inner join drops rows without a match
            matched = self.scalars.tables[alias][lookup.key].name
            self.used.add(matched)
            self.conditions.append(f'NOT "{matched}" IS NULL')

    def named_key(self, join: Any, public: Collection[str]) -> tuple[str, str]:
        """Return the name of a joined table that is declared public, and the column that the join names as its key."""
        table = join.this
        name = table.name if isinstance(table, self.e.Table) else ""
        if name not in public:
            raise self.refuse(
                join,
                "only a public table can be joined",
                f"give public, the files that may be joined: {name}, if it holds nothing private"
                if name
                else "a join with other rows could turn one row into many",
            )
        using = join.args.get("using") or []
        on = join.args.get("on")
        columns = [] if on is None else list(on.find_all(self.e.Column))
        alias = table.alias or _short_name(name)
        keys = [column.name for column in using] or [column.name for column in columns if column.table == alias]
        if len(keys) != 1:
            raise self.refuse(join, "a table is joined by one key", f"write USING (key), or ON column = {alias}.key")
        return name, keys[0]

    def _join_key(self, join: Any, lookup: LookupTable, alias: str) -> Any:
        """Return the stream's side of the join condition, which must be an equality with the table's unique key."""
        hint = f"write ON stream_column = {alias}.{lookup.key}"
        using = join.args.get("using")
        if using:
            if [column.name for column in using] != [lookup.key]:
                raise self.refuse(using, f"the key of {lookup.name!r} is {lookup.key!r}", hint)
            return self.scalars.resolve(self.e.Column(this=using[0].copy()))
        on = join.args.get("on")
        if not isinstance(on, self.e.EQ):
            raise self.refuse(on or join, "a lookup table is joined by its unique key", hint)
        for mine, theirs in ((on.this, on.expression), (on.expression, on.this)):
            column = isinstance(theirs, self.e.Column) and theirs.name == lookup.key
            if column and (theirs.table == alias or (not theirs.table and theirs.name not in self.scalars.columns)):
                return self.scalars.resolve(mine)
        raise self.refuse(on, "a lookup table is joined by its unique key", hint)


def _short_name(name: str) -> str:
    """Return what a table is called in a statement: a file by its name without folder and ending."""
    return PurePath(name).stem if name.endswith((".csv", ".parquet")) else name


def _trees(statement: str) -> Any:
    sqlglot = import_optional("sqlglot", "a SQL query", "engine")

    def refusal(error: Any) -> UnsupportedQuery:
        details = (getattr(error, "errors", None) or [{}])[0]
        description = str(details.get("description") or "this is not SQL").partition(" but got <Token")[0]
        if description.startswith("Required keyword"):  # the message names a class of the parser
            description = "an argument or expression is missing"
        return UnsupportedQuery(description, line=details.get("line"), column=details.get("col"))

    return translate_errors(lambda: sqlglot.parse(statement, read="duckdb"), sqlglot.errors.SqlglotError, refusal)
