"""Answers as they will look, made by the code that makes them: from public parameters and a guess at the size only."""

from __future__ import annotations

import math
from dataclasses import dataclass

from panstream.continual.histogram import RangeHistogram
from panstream.continual.moments import ContinualMean, ContinualVariance
from panstream.continual.tree_base import Tree
from panstream.density.optbern import OptBern
from panstream.distinct.bitmap import Bitmap
from panstream.engine.plan import QueryPlan
from panstream.estimate import Estimate
from panstream.turnstile.block import BlockCounter
from panstream.turnstile.counter import ModularCounter

__all__ = ["Foreseen", "at_size", "foresee", "reach", "size_expected", "universe_of"]

_ROWS = (1_000, 10_000, 100_000, 1_000_000)
_SHARES = (0.01, 0.1, 0.5, 1.0)
_USERS = 100_000
_BETA = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Foreseen:
    """The error that 95% of answers will keep, and at what size."""

    at: str
    error: float


def foresee(plan: QueryPlan) -> list[Foreseen]:
    """Return the reach of the intervals that will be printed, at several sizes."""
    algorithm, query = plan.algorithm, plan.config
    if query.announced and isinstance(algorithm, OptBern | Bitmap):
        return _after_announced(plan)
    if isinstance(algorithm, ContinualMean | ContinualVariance | RangeHistogram):
        sizes = _ROWS if query.expected is None else _around(query.expected)
        extreme = isinstance(algorithm, RangeHistogram) and algorithm.quantile in (0.0, 1.0)
        what = "values beyond the next edge, " if extreme else ""
        return [Foreseen(at=f"{what}with {n:,} rows over the range", error=reach(at_size(plan, n))) for n in sizes]
    if isinstance(algorithm, Tree):
        ticks = dict.fromkeys((1, max(1, plan.releases // 2), plan.releases))
        found = [(tick, plan.finish(algorithm.foreseen(tick))) for tick in ticks]
        return [Foreseen(at=f"at release {tick:,}", error=reach(estimate)) for tick, estimate in found]
    return [Foreseen(at=_said(plan, size), error=reach(at_size(plan, size))) for size in _sizes(plan)]


def reach(estimate: Estimate) -> float:
    """Return how far the 95% interval reaches from the value; half its width if there is none, all of it without data."""
    low, high = estimate.interval()
    if estimate.beyond is not None:
        return float(estimate.beyond)
    if math.isnan(estimate.value):
        return (high - low) / 2 if estimate.only_interval else high - low
    return max(high - estimate.value, estimate.value - low)


def at_size(plan: QueryPlan, size: float) -> Estimate:
    """Return the last answer if ``size`` users or rows come."""
    algorithm = plan.algorithm
    if isinstance(algorithm, Tree):
        return plan.finish(algorithm.foreseen(plan.releases, size))
    found: Estimate = algorithm.foreseen(size * algorithm.crop if isinstance(algorithm, BlockCounter) else size)
    return found


def size_expected(plan: QueryPlan) -> float | None:
    """Return the number of users or rows that the configuration tells of, if it does."""
    universe = universe_of(plan)
    return plan.config.expected if plan.config.expected is not None else universe


def universe_of(plan: QueryPlan) -> int | None:
    """Return the number of users that may come, if it is known."""
    universe = plan.config.universe
    return len(universe) if isinstance(universe, tuple) else universe


def _sizes(plan: QueryPlan) -> list[int]:
    universe = universe_of(plan)
    known = universe is not None and not isinstance(plan.algorithm, Bitmap)
    if known and universe is not None:
        return list(dict.fromkeys(max(1, round(universe * share)) for share in _SHARES))
    return _around(plan.config.expected or _USERS, (1, 10, 100, 1000))


def _around(expected: int, factors: tuple[int, ...] = (10, 100, 1000)) -> list[int]:
    return list(dict.fromkeys(max(min(100, expected), expected * factor // 100) for factor in factors))


def _said(plan: QueryPlan, users: int) -> str:
    if isinstance(plan.algorithm, OptBern) and not plan.algorithm.count:
        return f"of the density, if {users:,} users come"
    if isinstance(plan.algorithm, BlockCounter):
        return f"of the sum, if {users:,} users are at the crop"
    if isinstance(plan.algorithm, ModularCounter) and hasattr(plan.algorithm, "threshold"):
        return f"users, if {users:,} are heavy and nobody is near the threshold"
    return f"users, if {users:,} come"


def _after_announced(plan: QueryPlan) -> list[Foreseen]:
    """Return errors after all intrusions that were paid for: answers before the first are better."""
    algorithm, after = plan.algorithm, f"after {plan.config.announced} announced"
    if isinstance(algorithm, OptBern) and not algorithm.count:
        return [Foreseen(at=f"of the density, {after}", error=algorithm.error(beta=_BETA))]
    errors = {
        size: 1.96
        * (algorithm.standard_error(size) if isinstance(algorithm, OptBern) else size * algorithm.relative_error(size))
        for size in _sizes(plan)
    }
    return [Foreseen(at=f"users, if {size:,} come, {after}", error=error) for size, error in errors.items()]
