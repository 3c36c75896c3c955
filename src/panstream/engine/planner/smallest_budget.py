"""The smallest budget of one person with which every query of a configuration reaches its error."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from panstream.engine.config.config import Config, QueryConfig
from panstream.engine.planner.accuracy import largest_useful_error, planned_error
from panstream.engine.planner.loss_tables import LossTables
from panstream.engine.planner.person_period import planned_person_total
from panstream.engine.planner.query_plan import QueryPlan, plan_query, state_locations
from panstream.errors import BudgetExceeded, ConfigError, InvalidParameter
from panstream.privacy.rounding import round_up

# Binary logarithms of the epsilons that are considered.
_LEAST = -20.0
_MOST = 12.0
_HALVINGS = 18


def smallest_person_budget(config: Config, errors: Mapping[str, float], *, longest: bool = False) -> Config:
    """Return the configuration with the smallest epsilons that reach the errors, and with their total as its budget.

    Args:
        config: Stream and queries; those with an epsilon keep it, unless ``errors`` names them.
        errors: Largest 95% errors, by [[query]]; without one, ``target_error``, or what is useful at the expected size.
        longest: Whether each query takes the last of its windows, not the first.

    Raises:
        InvalidParameter: ``errors`` names no query, or none is known for one.
        ConfigError: No epsilon reaches an error.
        BudgetExceeded: Nothing bounds the rows of one person in a query.
    """
    names = {query.statement for query in config.queries}
    for name in errors:
        if name not in names:
            raise InvalidParameter(f"there is no query named {name!r}; known: {', '.join(sorted(names))}")
    person = config.stream.person
    tables = LossTables(config, person.epsilon or 1.0, len(names))
    queries = []
    for query in config.queries:
        if query.epsilon and query.statement not in errors:
            queries.append(query)
            continue
        taken = query.later[-1] if longest and query.later else query
        target = errors.get(query.statement, taken.target_error)
        aimed = replace(taken, epsilon=0.0, target_error=target, later=())
        queries.append(_smallest(config, tables.with_delta(aimed)))
    affordable = replace(config, queries=tuple(queries))
    plans = tuple(plan_query(query, config.stream, state_locations(config)) for query in queries)
    total = planned_person_total(affordable, plans).bounded.epsilon
    limit = round_up(math.ceil(total * 1e4) / 1e4)
    return replace(affordable, stream=replace(config.stream, person=replace(person, epsilon=limit)))


def _smallest(config: Config, query: QueryConfig) -> QueryConfig:
    """Return the query with the smallest epsilon, of four digits, at which it is useful."""

    def plan(exponent: float) -> QueryPlan:
        return plan_query(replace(query, epsilon=_rounded_up(2.0**exponent)), config.stream, state_locations(config))

    def is_useful(exponent: float) -> bool:
        try:
            planned = plan(exponent)
        except ConfigError:
            return exponent > 0.0  # too small or too large an epsilon
        target = largest_useful_error(planned)
        if target is None:
            raise InvalidParameter(f"{query.statement!r} states no error: give target_error, expected, or --error")
        return planned_error(planned) <= target

    low = _LEAST
    high = 0.0
    while not is_useful(high):
        low = high
        high = high + 1.0
        if high > _MOST:
            raise BudgetExceeded(f"[[query]] {query.name}: no epsilon reaches an error of {query.target_error}")
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if is_useful(middle) else (middle, high)
    return plan(high).config


def _rounded_up(epsilon: float) -> float:
    unit = 10.0 ** (math.floor(math.log10(epsilon)) - 3)
    return float(f"{math.ceil(epsilon / unit * (1.0 - 1e-12)) * unit:.4g}")
