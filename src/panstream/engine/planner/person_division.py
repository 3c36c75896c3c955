"""Divide a person's budget between the queries of a configuration that state no epsilon.

With ``[stream.budget] person``, a query may leave ``epsilon`` out, and give several windows between which the planner
chooses. `divide_person_budget` returns the same configuration with an epsilon, a delta and one window for each query
that is asked; those that cannot be useful within the budget are left out. It depends on the configuration only.

A caller with candidates of its own, such as a preset, writes each as a ``[[query]]`` with a list of windows, shortest
first (and ``expected``, ``target_error`` and ``contributions`` as lists beside it, one entry for each window), no
epsilon, ``target_error`` as what it calls useful, and ``weight``; then::

    config = divide_person_budget(read_config(values))  # idempotent; any other configuration is returned as it is
    config.queries                        # the queries that are asked, with epsilon, delta and window
    config.choices                        # of every [[query]] without epsilon: its window, or none if dropped, and why
    plans = plan_all(config)              # as for any configuration
    planned_person_total(config, plans)   # at most the budget, and at least 99% of it

`plan_all` does the same with a configuration that is not divided yet. For open-domain names the error that
``target_error`` bounds is the number of rows from which a name is listed. Without ``target_error`` a query is useful
up to a quarter of what is ``expected`` (of the range, for means and quantiles); without either it is never dropped, and
its share is such as if an equal share made it just useful.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from pathlib import Path

from panstream.core.estimate import format_number
from panstream.engine.config.candidates import WindowChoice
from panstream.engine.config.config import Config, QueryConfig, load_config
from panstream.engine.planner.accuracy import largest_useful_error
from panstream.engine.planner.loss_tables import LossTables
from panstream.engine.planner.person_period import planned_person_total
from panstream.engine.planner.query_plan import plan_query, state_locations
from panstream.errors import BudgetExceeded, ConfigError
from panstream.primitives.durations import format_duration
from panstream.privacy.budget_division import Account, Choice, choose_windows, divide
from panstream.privacy.person_loss import PersonTotal
from panstream.privacy.rounding import equal_share, round_down, rounded_up

_DIGITS = 4  # of a planned epsilon
_AIM = 0.998  # part of the budget that is aimed at; at least _ENOUGH of it is used
_ENOUGH = 0.99
_ROUNDS = 12


@dataclass(frozen=True, slots=True)
class _QueryStates:
    """One [[query]]: the queries for its states, by window."""

    name: str
    windows: tuple[tuple[QueryConfig, ...], ...]

    @classmethod
    def of_states(cls, name: str, queries: Sequence[QueryConfig]) -> _QueryStates:
        return cls(name, tuple(zip(*((query, *query.later) for query in queries), strict=True)))

    @property
    def weight(self) -> float:
        return self.windows[0][0].weight


def load_divided_config(path: str | Path) -> Config:
    """Read a configuration file, and divide the person's budget in it if queries leave that to the planner."""
    return divide_person_budget(load_config(path))


def divide_person_budget(config: Config) -> Config:
    """Return the configuration with an epsilon for each query; as it is, if every one states its own.

    Args:
        config: The configuration, with a budget for a person.

    Raises:
        ConfigError: A query cannot be answered, or is left out of the person's total.
        BudgetExceeded: No query can be useful within the budget, or nothing bounds the rows of one person in one.
    """
    undivided = [query for query in config.queries if not query.epsilon]
    if not undivided:
        return config
    person = config.stream.person
    assert person.epsilon is not None  # else the configuration is refused without epsilons
    for query in undivided:
        if query.statement in person.allow_unbounded:
            raise ConfigError(
                f"[[query]] {query.statement}: epsilon is missing: [stream.budget] allow_unbounded leaves this query "
                "out of the person's total, so it has no share of it"
            )
    questions = [
        _QueryStates.of_states(name, list(queries))
        for name, queries in groupby(undivided, key=lambda query: query.statement)
    ]
    tables = LossTables(config, person.epsilon, len(questions))
    account = _account(config, tables)
    choices = choose_windows(
        [[partial(tables.table, queries) for queries in question.windows] for question in questions],
        [question.weight for question in questions],
        account,
    )
    outcomes = tuple(
        WindowChoice(
            name=question.name,
            window=None if choice.window is None else question.windows[choice.window][0].window,
            dropped=choice.window is None,
            reasons=_reasons(question, choice, tables),
        )
        for question, choice in zip(questions, choices, strict=True)
    )
    asked = {
        question.name: question.windows[choice.window]
        for question, choice in zip(questions, choices, strict=True)
        if choice.window is not None
    }
    if not asked:
        reasons = "; ".join(f"{outcome.name!r}: {outcome.reasons[-1]}" for outcome in outcomes)
        raise BudgetExceeded(f"[stream.budget] person: no query can be useful with {person.epsilon:g}: {reasons}")
    entries = divide(
        [tables.table(queries) for queries in asked.values()],
        [queries[0].weight for queries in asked.values()],
        account,
    )
    shares = {name: float(tables.epsilons[entry]) for name, entry in zip(asked, entries, strict=True)}
    noisy = {name: tuple(map(tables.with_delta, queries)) for name, queries in asked.items()}
    return replace(_scaled(config, noisy, shares), choices=outcomes)


def _account(config: Config, tables: LossTables) -> Account:
    """Return the budget, with what queries with an epsilon of their own take of it."""
    person = config.stream.person
    assert person.epsilon is not None
    fixed = [
        plan
        for query in config.queries
        if query.epsilon and query.statement not in person.allow_unbounded
        for plan in tables.plans([query], query.epsilon)
    ]
    pure, rho = tables.losses(fixed)
    account = Account(person.epsilon, person.delta, pure + (config.stream.unusable_epsilon or 0.0), rho)
    if (spent := account.total(0.0, 0.0)) > person.epsilon:
        names = ", ".join([*(repr(plan.config.name) for plan in fixed), "[stream] unusable_epsilon"])
        raise BudgetExceeded(
            f"[stream.budget] person: {names}, with their own epsilons, take {rounded_up(spent)} of "
            f"{person.epsilon:g}: lower them or leave them out, or raise person"
        )
    return account


def _reasons(question: _QueryStates, choice: Choice, tables: LossTables) -> tuple[str, ...]:
    """Return why a question is not asked in each of the windows that it cannot take."""
    texts = []
    for rejected in choice.rejected:
        queries = question.windows[rejected.window]
        window = queries[0].window
        span = "" if window is None else f" in windows of {format_duration(window)}"
        targets = [largest_useful_error(plan) for plan in tables.plans(queries, tables.limit)]
        error = (
            "an answer"
            if None in targets
            else f"a 95% error of {format_number(min(t for t in targets if t is not None), 3)}"
        )
        if math.isinf(rejected.price):
            texts.append(f"{error}{span} is out of reach, whatever the budget")
        else:
            texts.append(f"{error}{span} needs {rounded_up(rejected.price)} of {tables.limit:g} alone")
    return tuple(texts)


def _scaled(config: Config, asked: Mapping[str, tuple[QueryConfig, ...]], shares: Mapping[str, float]) -> Config:
    """Return the configuration with epsilons proportional to ``shares``, as large as the budget allows."""
    budget = config.stream.person.epsilon
    assert budget is not None
    limit = budget - (config.stream.unusable_epsilon or 0.0)  # which ``run`` charges for files
    factor = 1.0
    low = 0.0  # the largest factor known to fit
    high = math.inf  # the smallest known not to
    best = None
    for _ in range(_ROUNDS):
        divided = _with_epsilons(config, asked, {name: share * factor for name, share in shares.items()})
        used = _total(divided).bounded.epsilon / limit
        if used <= 1.0:
            best = divided
            low = factor
        else:
            high = factor
        if _ENOUGH <= used <= 1.0:
            break
        factor *= _AIM / used if used else 2.0
        if not low < factor < high:
            factor = (low + high) / 2
    if best is None:
        raise BudgetExceeded(f"[stream.budget] person: the queries cannot be answered with {limit:g}")
    return best


def _with_epsilons(
    config: Config, asked: Mapping[str, tuple[QueryConfig, ...]], epsilons: Mapping[str, float]
) -> Config:
    queries: list[QueryConfig] = []
    for query in config.queries:
        if query.epsilon:
            queries.append(query)
        elif query.statement in asked and not any(query.statement == other.statement for other in queries):
            states = asked[query.statement]
            part = round_down(equal_share(_rounded(epsilons[query.statement]), len(states)))
            queries += [replace(state, epsilon=part, later=()) for state in states]
    names = {query.statement for query in queries}
    return replace(
        config,
        queries=tuple(queries),
        statements=tuple(statement for statement in config.statements if statement.name in names),
    )


def _rounded(epsilon: float) -> float:
    return float(f"{epsilon:.{_DIGITS}g}")


def _total(config: Config) -> PersonTotal:
    """Return a person's total of the queries that are in it."""
    plans = tuple(plan_query(query, config.stream, state_locations(config)) for query in config.queries)
    return planned_person_total(config, plans)
