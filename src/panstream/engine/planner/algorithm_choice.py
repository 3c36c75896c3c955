"""Choose the algorithm that answers a query, with a reason for people."""

from __future__ import annotations

from typing import Any

from panstream.algorithms.auto import DistinctCount
from panstream.algorithms.continual.moments import ContinualMean, ContinualVariance
from panstream.algorithms.continual.range_histogram import RangeHistogram
from panstream.algorithms.continual.sums import ContinualCount, ContinualSum
from panstream.algorithms.density.optbern import OptBern
from panstream.engine.config.config import QueryConfig, StreamConfig
from panstream.engine.planner.continual_user_rules import choose_continual_algorithm
from panstream.engine.planner.correlated_count import choose_correlated_count
from panstream.engine.planner.open_domain import choose_heavy_hitter_sketch
from panstream.engine.planner.retention_rules import choose_retained_bitmap
from panstream.engine.planner.secret_shared_rules import choose_shared_user_statistic
from panstream.engine.planner.sender_bounds import check_sender_bound, limits_users
from panstream.engine.planner.sketch_rules import choose_sketch
from panstream.engine.planner.turnstile_rules import choose_turnstile_counter
from panstream.engine.sql.parser import Aggregate
from panstream.errors import ConfigError, InvalidParameter
from panstream.primitives.durations import format_duration

ENDLESS = 1 << 62  # number of releases without a horizon: more than there will ever be


def releases_of(query: QueryConfig) -> int:
    """Return the number of planned releases of a query; with windows, of each window."""
    if query.window is not None:
        return min(query.horizon or _ticks_per_window(query), _ticks_per_window(query))
    if query.every is not None:
        return query.horizon or ENDLESS
    return query.horizon or query.releases


def _ticks_per_window(query: QueryConfig) -> int:
    """Return the number of ticks per window: one if the window is only answered at its end."""
    if query.window is None or query.every is None:
        if query.window is not None and (query.releases > 1 or query.horizon is not None):
            raise ConfigError(f"[[query]] {query.name}: a window is answered once, when it is over; or give every")
        return 1
    ticks = round(query.window / query.every)
    if ticks < 1 or abs(ticks * query.every - query.window) > 1e-6 * query.every:
        raise ConfigError(
            f"[[query]] {query.name}: window must be a whole number of every, got "
            f"{format_duration(query.window)} and {format_duration(query.every)}"
        )
    return ticks


def choose_algorithm(query: QueryConfig, stream: StreamConfig) -> tuple[Any, str]:
    """Return the algorithm of a query, and the reason for it.

    Raises:
        InvalidParameter: No algorithm answers the query as it is configured.
    """
    kind = query.parsed.aggregate
    name = query.parsed.aggregate.value.split("(")[0].lower()
    _check_ids(query, stream)
    _check_horizon(query, stream)
    check_sender_bound(query, stream)
    if query.changes is not None and not (stream.machines and kind is Aggregate.DENSITY and stream.weight is not None):
        raise InvalidParameter("changes is for DENSITY(user) with a weight column on two machines")
    if query.at_most is not None:
        _check_range(query, stream)
    if kind.of_users:
        if query.delta and stream.machines:
            raise InvalidParameter("delta is for one machine: what two machines count has Laplace noise")
        if query.delta:
            raise InvalidParameter(
                f"delta is for queries about rows; {kind.value} has noise in its bits, which gains nothing by it"
            )
        _need(query, "a user column", stream.user)
        return (
            choose_shared_user_statistic(query, stream, releases_of(query))
            if stream.machines and kind not in (Aggregate.RETENTION, Aggregate.SKETCH)
            else _about_users(query, stream)
        )
    if query.names is not None:
        return choose_heavy_hitter_sketch(query, stream)
    if query.unit is not None:
        raise InvalidParameter("unit can be chosen for COUNT(DISTINCT user) and DENSITY(user) only")
    if stream.weight is not None and kind is not Aggregate.SUM:
        raise InvalidParameter(f"{kind.value} does not work with signed weights; SUM({stream.weight}) can")
    if limits_users(query):
        _need(query, "a user column for contributions", stream.user)
    bounds: dict[str, float | None] = {}
    if kind is not Aggregate.COUNT:
        _need(query, "lower and upper, the declared bounds of the values", query.lower, query.upper)
        bounds = {"lower": query.lower, "upper": query.upper}
    common: dict[str, Any] = {
        "epsilon": query.epsilon,
        "delta": query.delta,
        "horizon": None if releases_of(query) == ENDLESS else releases_of(query),
        "contributions": query.contributions,
        **bounds,
    }
    quantiles = {Aggregate.MIN: 0.0, Aggregate.MAX: 1.0, Aggregate.QUANTILE: (*query.parsed.constants, 0.5)[0]}
    if kind in quantiles:
        return RangeHistogram(**common, quantile=quantiles[kind]), _TREE_WHY["histogram"]
    algorithms = {
        Aggregate.COUNT: ContinualCount,
        Aggregate.SUM: ContinualSum,
        Aggregate.AVG: ContinualMean,
        Aggregate.VAR_POP: ContinualVariance,
        Aggregate.VAR_SAMP: ContinualVariance,
        Aggregate.STDDEV_POP: ContinualVariance,
        Aggregate.STDDEV_SAMP: ContinualVariance,
    }
    if kind in (Aggregate.VAR_POP, Aggregate.STDDEV_POP):
        common["population"] = True
    if kind is Aggregate.COUNT and query.delta and not stream.machines:
        correlated = choose_correlated_count(ContinualCount(**common))
        if correlated is not None:
            return correlated
    tree = "tree" if common["horizon"] else "endless"
    return algorithms[kind](**common), _TREE_WHY.get(name.partition("_")[0], _TREE_WHY[tree])


_TREE_WHY = {
    "tree": "a k-ary tree of noisy partial sums, radices chosen for the horizon",
    "endless": "k-ary trees of noisy partial sums, one for every epoch, each longer than the one before",
    "avg": "Bernstein leaves (x, 1-x) in a k-ary tree: one budget for sum and count",
    "var": "Bernstein leaves of degree two in a k-ary tree: one budget for count, sum and squares",
    "stddev": "square root of the variance, which costs nothing more",
    "histogram": "a k-ary histogram of the declared range whose cells are tree counters",
}


def _about_users(query: QueryConfig, stream: StreamConfig) -> tuple[Any, str]:
    releases = releases_of(query)
    kind = query.parsed.aggregate
    universe = query.universe
    if kind is Aggregate.RETENTION:
        return choose_retained_bitmap(query, stream)
    if kind is Aggregate.SKETCH:
        return choose_sketch(query, stream)
    if (ticked := choose_continual_algorithm(query, stream, releases)) is not None:
        return ticked
    if kind is Aggregate.DENSITY:
        _need(query, "universe, the known population", universe)
        assert universe is not None
        bits = OptBern(
            universe=universe,
            epsilon=query.epsilon,
            releases=releases,
            deletions=stream.weight is not None,
            announced=query.announced,
            key=query.key,
        )
        return bits, "one noisy bit per user, the optimal pair of coins and split of the budget"
    if kind is Aggregate.COUNT_DISTINCT and stream.weight is None:
        question = DistinctCount(
            query.epsilon,
            universe=universe,
            expected=query.expected,
            memory=query.memory,
            releases=releases,
            announced=query.announced,
            key=query.key,
            hash=query.hash,
            at_most=query.at_most,
            # A start is released where a range was declared, since the state then ends with its answer.
            mergeable=universe is None and query.at_most is None,
        )
        return question.algorithm, question.explain()
    return choose_turnstile_counter(query, stream, releases)


def _check_range(query: QueryConfig, stream: StreamConfig) -> None:
    """Raise InvalidParameter where a declared range of the number of users is of no use."""
    if query.parsed.aggregate is not Aggregate.COUNT_DISTINCT or stream.weight is not None or stream.machines:
        raise InvalidParameter("at_most is for COUNT(DISTINCT user) on one machine, without a weight column")
    if releases_of(query) > 1 or query.unit is not None or query.announced:
        raise InvalidParameter("at_most is for one answer of each window: no every, releases, unit or announced")
    _need(query, "expected beside at_most: both together are the range of the number of users", query.expected)


def _check_horizon(query: QueryConfig, stream: StreamConfig) -> None:
    """Raise InvalidParameter without a horizon where each release costs epsilon, or where one row with a wrong time
    could trigger millions of releases.
    """
    if query.names is not None or releases_of(query) != ENDLESS:
        return
    kind = query.parsed.aggregate
    if stream.time is not None and kind is Aggregate.RETENTION:
        raise InvalidParameter("RETENTION needs horizon, the number of windows, where rows bring their own times")
    if stream.time is not None:
        raise InvalidParameter(f"{_NEEDS_HORIZON}, where rows bring their own times")
    if stream.machines:
        needs = "RETENTION needs horizon, the number of windows" if kind is Aggregate.RETENTION else _NEEDS_HORIZON
        raise InvalidParameter(f"{needs}, on two machines")
    if kind.of_users and kind is not Aggregate.RETENTION and not (kind.of_presence and query.unit == "event"):
        instead = ', unless unit = "event" is protected' if kind.of_presence and stream.weight is None else ""
        raise InvalidParameter(f"every needs horizon, the number of releases that are paid for{instead}")


_NEEDS_HORIZON = "every needs horizon, the number of answers"


def _check_ids(query: QueryConfig, stream: StreamConfig) -> None:
    """Raise InvalidParameter if the universe does not fit the type of the user column."""
    if query.universe is None or stream.user is None:
        return
    declared = stream.columns[stream.user]
    sample = 0 if isinstance(query.universe, int) else next(iter(query.universe), None)
    wanted = ("int",) if isinstance(sample, int) and not isinstance(sample, bool) else ("string", "binary")
    if declared not in wanted:
        raise InvalidParameter(f"universe does not fit the user column, whose declared type is {declared}")


def _need(query: QueryConfig, what: str, *values: Any) -> None:
    if any(value is None for value in values):
        raise InvalidParameter(f"{query.parsed.aggregate.value} needs {what}")
