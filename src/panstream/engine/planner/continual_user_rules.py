"""Choose the continual algorithm of a query about users that is released repeatedly."""

from __future__ import annotations

import math
from typing import Any

from panstream.algorithms.continual_users.continual_density import ContinualDensity
from panstream.algorithms.continual_users.continual_distinct import ContinualDistinct
from panstream.engine.config.config import QueryConfig, StreamConfig
from panstream.engine.sql.parser import Aggregate
from panstream.errors import InvalidParameter

_ABOUT = (Aggregate.COUNT_DISTINCT, Aggregate.DENSITY)


def choose_continual_algorithm(query: QueryConfig, stream: StreamConfig, releases: int) -> tuple[Any, str] | None:
    """Return a continual algorithm and the reason, where its error is below that of paying for every release.

    None where it is not, or where none exists for the query. Without ``unit`` whole users are protected either way.
    """
    kind = query.parsed.aggregate
    deletions = stream.weight is not None
    _check(query, deletions, has_user_query=kind in _ABOUT)
    if kind not in _ABOUT or query.announced or math.isinf(query.epsilon):
        return None
    if kind is Aggregate.COUNT_DISTINCT and deletions:
        return None
    if kind is Aggregate.DENSITY and query.universe is None:
        return None
    single = kind is Aggregate.DENSITY and releases == 1 and query.expected is not None and not deletions
    if query.unit is None and (releases == 1 or query.every is None) and not single:
        return None
    common: dict[str, Any] = {
        "horizon": query.horizon if query.every is not None and query.window is None else releases,
        "unit": query.unit or "user",
        "window": _ticks(query),
        "contributions": query.contributions if query.unit == "user" else None,
        "expected": query.expected,
        "universe": query.universe,
        "deletions": deletions,
        "key": query.key,
    }
    if kind is Aggregate.DENSITY:
        density = ContinualDensity(epsilon=query.epsilon, **common)
        algorithm = density
        why = density.explain()
    else:
        question = ContinualDistinct(query.epsilon, memory=query.memory, hash=query.hash, **common)
        algorithm = question.algorithm  # type: ignore[assignment]
        why = question.explain()
    return None if algorithm.pays_per_release and query.unit is None and not single else (algorithm, why)


def _check(query: QueryConfig, deletions: bool, *, has_user_query: bool) -> None:
    """Raise InvalidParameter for a unit that the query does not offer."""
    if query.unit is None:
        if query.user_window is not None:
            raise InvalidParameter('user_window needs unit = "user-window"')
        return
    if not has_user_query:
        raise InvalidParameter("unit can be chosen for COUNT(DISTINCT user) and DENSITY(user) only")
    if query.announced:
        raise InvalidParameter("announced cannot be combined with unit: a tree over changes covers one intrusion")
    if (query.unit == "user-window") != (query.user_window is not None):
        raise InvalidParameter('unit = "user-window" needs user_window, its length, and nothing else does')
    if query.unit == "user-window" and (query.window is not None or query.every is None):
        raise InvalidParameter('unit = "user-window" needs every, and no window, which makes windows the unit anyway')
    if deletions and query.parsed.aggregate is Aggregate.COUNT_DISTINCT:
        raise InvalidParameter(
            "unit cannot be chosen with signed weights: one event turns a counter modulo a prime for ever, so a tree "
            "over its changes loses more than releases that are paid for one by one; DENSITY(user) can take deletions"
        )


def _ticks(query: QueryConfig) -> int | None:
    """Return the most ticks that rows within one ``user_window`` can fall into: it may begin inside a slot."""
    if query.user_window is None or query.step_grid is None:
        return None
    return math.ceil(query.user_window / query.step_grid.shortest) + 1
