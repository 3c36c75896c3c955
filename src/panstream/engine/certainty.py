"""Whether an answer says enough to be of use: decided from the plan, what is expected, and released numbers only."""

from __future__ import annotations

import math

from panstream.engine.foresee import at_size, reach, size_expected, universe_of
from panstream.engine.plan import QueryPlan
from panstream.engine.sql import Aggregate
from panstream.estimate import Estimate, figure

__all__ = ["doubt", "help_for", "too_uncertain"]

_FEW = 10.0  # a count within this many / epsilon is as good as it gets, whatever it is
_PART = 0.25  # of the range or the population: an interval over half of it says next to nothing


def too_uncertain(plan: QueryPlan, estimate: Estimate) -> bool:
    """Return whether the 95% interval reaches further than the answer itself, and than all that is expected."""
    low, high = estimate.interval()
    kind, query = plan.config.parsed.aggregate, plan.config
    if math.isnan(low) or (math.isnan(estimate.value) and not estimate.only_interval):
        return False  # no data: said already
    if kind in (Aggregate.MIN, Aggregate.MAX):
        return estimate.value == (query.lower if kind is Aggregate.MAX else query.upper)
    half = (high - low) / 2
    ranges = _range(plan)
    if ranges is not None:
        return half > _PART * ranges
    size = 0.0 if estimate.only_interval else abs(estimate.value)
    return half > _PART * _most(plan) or half > max(_enough(plan), size)


def doubt(plan: QueryPlan) -> str | None:
    """Return what is wrong with a plan whose answers will say too little at the size that is expected."""
    size = size_expected(plan)
    if size is None or math.isinf(plan.config.epsilon):
        return None
    estimate = at_size(plan, size)
    empty = math.isnan(estimate.value) and not estimate.only_interval
    if not empty and not too_uncertain(plan, estimate):
        return None
    about = f"with {size:,.0f} {'rows' if plan.continual else 'users'}"
    error = f"the 95% error is {figure(off)}" if math.isfinite(off := reach(estimate)) else "no upper end is known"
    error = "there is too little to see anything" if empty else error
    return f"{about} {error}: answers will be too uncertain to use. What would help: {help_for(plan)}"


def help_for(plan: QueryPlan) -> str:
    """Return what would make the answers of a query better."""
    query = plan.config
    ways = ["a larger epsilon"]
    if query.window is not None:
        ways.append("a longer window")
    if plan.releases > 1:
        ways.append("fewer releases")
    if query.announced:
        ways.append("fewer announced intrusions")
    if query.expected is None and query.universe is None and query.parsed.aggregate is Aggregate.COUNT_DISTINCT:
        ways.append("expected =, about how many users will come")
    return ", ".join(ways)


def _range(plan: QueryPlan) -> float | None:
    """Return the length of the range that answers lie in, of questions whose answers do not grow with the data."""
    kind, query = plan.config.parsed.aggregate, plan.config
    if kind is Aggregate.DENSITY:
        return 1.0
    span = (query.upper or 0.0) - (query.lower or 0.0)
    ranges = {
        Aggregate.AVG: span,
        Aggregate.QUANTILE: span,
        Aggregate.VAR_POP: span**2 / 4,
        Aggregate.STDDEV_POP: span / 2,
    }
    return ranges.get(kind)


def _each(plan: QueryPlan) -> float:
    """Return the most that one user or row can add to a count or sum."""
    query = plan.config
    if query.parsed.aggregate is Aggregate.SUM:
        return max(abs(query.lower or 0.0), abs(query.upper or 0.0))
    return float(query.parsed.constants[0]) if query.parsed.aggregate is Aggregate.CROPPED_SUM else 1.0


def _most(plan: QueryPlan) -> float:
    """Return the largest count or sum that is possible in a known population."""
    universe = universe_of(plan)
    return math.inf if universe is None or plan.continual else _each(plan) * universe


def _enough(plan: QueryPlan) -> float:
    """Return the error below which any count or sum says something: what is expected, or part of what is possible."""
    if plan.config.expected is not None:
        return _each(plan) * plan.config.expected
    return _PART * _most(plan) if math.isfinite(_most(plan)) else _each(plan) * _FEW / plan.config.epsilon
