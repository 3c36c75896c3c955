"""Expected errors of a plan, and whether answers are accurate enough to be useful.

Expected answers are computed by the code that computes the real ones. Everything depends on the plan, the declared
size, and released numbers only.
"""

from __future__ import annotations

import math
from typing import Any

from panstream.algorithms.continual.gauss_markov import GaussMarkovCount
from panstream.algorithms.continual.moments import ContinualMean, ContinualVariance
from panstream.algorithms.continual.range_histogram import RangeHistogram
from panstream.algorithms.continual.tree_base import Tree
from panstream.algorithms.continual_users.continual_bitmap import ContinualBitmap
from panstream.algorithms.continual_users.continual_density import ContinualDensity
from panstream.algorithms.continual_users.ones_counter import SetBitCounter
from panstream.algorithms.density.optbern import OptBern
from panstream.algorithms.distinct.bitmap import Bitmap
from panstream.algorithms.heavy_hitters.prefix_sketch import FrequentItems
from panstream.algorithms.secret_shared.capped_counts import SharedCroppedSum, SharedHeavyCount
from panstream.algorithms.secret_shared.continual import SharedContinual
from panstream.algorithms.secret_shared.continual_presence import SharedContinualDensity, SharedContinualDistinct
from panstream.algorithms.secret_shared.presence import SharedDensity, SharedDistinct
from panstream.algorithms.turnstile.block_counter import BlockCounter
from panstream.algorithms.turnstile.heavy_hitter_count import HeavyHitterCount
from panstream.algorithms.turnstile.profile_sketch import ProfileSketch
from panstream.core.estimate import Estimate, format_number
from panstream.core.printed_value import has_useful_value
from panstream.engine.planner.open_domain import top_items_for
from panstream.engine.planner.query_plan import QueryPlan
from panstream.engine.planner.retention_rules import RetainedWindows, expected_retention_errors, needed_text
from panstream.engine.sql.formulas import Arithmetic
from panstream.engine.sql.parser import Aggregate, Output

_ROWS = (1_000, 10_000, 100_000, 1_000_000)
_SHARES = (0.01, 0.1, 0.5, 1.0)
_USERS = 100_000
_SOME = 1_000  # ticks at which a plan without horizon is evaluated
_MANY = 1_000_000
_BETA = 0.05
_FEW = 10.0  # a count with an error of this many / epsilon is useful whatever its size: no mechanism does much better
_PART = 0.25  # half width of an interval, as a share of the range or the population, from which it is useless


def expected_errors(plan: QueryPlan) -> list[tuple[str, float]]:
    """Return pairs of a size, as text, and the 95% error at that size, from public parameters only."""
    if isinstance(plan.algorithm, RetainedWindows):
        return expected_retention_errors(plan.algorithm, _around(plan.config.expected or _USERS))
    if len(plan.outputs) == 1:
        return _errors_of(plan, plan.outputs[0])
    return [
        (f"{output.name}, {size_label}", error)
        for output in plan.outputs
        for size_label, error in _errors_of(plan, output)
    ]


def _errors_of(plan: QueryPlan, output: Output) -> list[tuple[str, float]]:
    algorithm = plan.algorithm
    query = plan.config
    if isinstance(algorithm, FrequentItems):
        return [("the count of a listed name", algorithm.count_error(beta=_BETA))]
    if query.announced and isinstance(algorithm, OptBern | Bitmap):
        return _after_announced(plan)
    read = algorithm.reader if isinstance(algorithm, SharedContinual) else algorithm
    if isinstance(read, ContinualMean | ContinualVariance | RangeHistogram):
        sizes = _ROWS if query.expected is None else _around(query.expected)
        what = "values beyond the next edge, " if output.aggregate in (Aggregate.MIN, Aggregate.MAX) else ""
        suffix = f", at release {_SOME:,}" if plan.is_unbounded else ""
        return [
            (f"{what}with {n:,} rows over the range{suffix}", _half_width(_at_size(plan, n, output))) for n in sizes
        ]
    if isinstance(algorithm, SetBitCounter) and plan.releases > 1:
        size = query.expected or algorithm.planned
        return [
            (f"at release {tick:,}, with {size:,.0f} users", _half_width(algorithm.expected_estimate(tick, size)))
            for tick in _ticks(plan)
        ]
    if isinstance(algorithm, SharedContinualDensity | SharedContinualDistinct):
        size = query.expected or _universe(plan) or _USERS
        return [
            (f"at release {tick:,}, with {size:,} users", _half_width(algorithm.expected_estimate(size, tick)))
            for tick in _ticks(plan)
        ]
    if isinstance(algorithm, Tree | GaussMarkovCount | SharedContinual):
        return [
            (f"at release {tick:,}", _half_width(_expected_answer(plan, output, tick, 0.0))) for tick in _ticks(plan)
        ]
    return [(_size_label(plan, size), _half_width(_at_size(plan, size, output))) for size in _sizes(plan)]


def _ticks(plan: QueryPlan) -> tuple[int, ...]:
    """Return the first, a middle and the last tick; without a horizon, three fixed ones."""
    if plan.is_unbounded:
        return 1, _SOME, _MANY
    return tuple(dict.fromkeys((1, max(1, plan.releases // 2), plan.releases)))


def _expected_answer(plan: QueryPlan, output: Output, ticks: int, rows: float) -> Estimate:
    """Return the answer of a continual algorithm after ``ticks`` and ``rows``, with the noise at its mean."""
    tree = plan.algorithm
    if isinstance(tree, GaussMarkovCount):
        count = tree.expected_estimate(ticks, rows)
        return plan.answer(output, count, lambda what: count)

    def read(what: Any) -> Estimate:
        law = () if isinstance(tree, SharedContinual) else (tree.engine.law(),)
        expected: Estimate = tree.from_totals(tree.expected_totals(ticks, rows), what, *law)
        return expected

    return plan.answer(output, tree.expected_estimate(ticks, rows), read)


def _half_width(estimate: Estimate) -> float:
    """Return the larger distance of the value to an end of its 95% interval.

    For an interval without a point it is half the width; for no data, the whole width.
    """
    low, high = estimate.interval()
    if estimate.at_most_beyond is not None:
        return float(estimate.at_most_beyond)
    if math.isnan(estimate.value):
        return (high - low) / 2 if estimate.has_no_value else high - low
    return max(high - estimate.value, estimate.value - low)


def _at_size(plan: QueryPlan, size: float, output: Output) -> Estimate:
    """Return the expected last answer for ``size`` users or rows; without a horizon, that of a late tick."""
    algorithm = plan.algorithm
    last = _SOME if plan.is_unbounded else plan.releases
    if isinstance(algorithm, Tree | GaussMarkovCount | SharedContinual):
        return _expected_answer(plan, output, last, size)
    if isinstance(algorithm, SetBitCounter):
        expected: Estimate = algorithm.expected_estimate(last, size)
    else:
        if isinstance(algorithm, SharedContinualDensity | SharedContinualDistinct):
            expected = algorithm.expected_estimate(size, last)
            return plan.answer(output, expected, lambda what: expected)
        cropped = isinstance(algorithm, BlockCounter | SharedCroppedSum) and not isinstance(algorithm, SharedHeavyCount)
        expected = algorithm.expected_estimate(size * algorithm.crop if cropped else size)
    return plan.answer(output, expected, lambda what: expected)


def _of_rows(plan: QueryPlan) -> bool:
    """Return whether a query counts rows, not users."""
    return plan.continual and not isinstance(plan.algorithm, SetBitCounter)


def _universe(plan: QueryPlan) -> int | None:
    """Return the number of users in the declared universe, None without one."""
    universe = plan.config.universe
    return len(universe) if isinstance(universe, tuple) else universe


def _sizes(plan: QueryPlan) -> list[int]:
    universe = _universe(plan)
    is_universe_counted = universe is not None and not isinstance(
        plan.algorithm, Bitmap | ContinualBitmap | SharedDistinct
    )
    if is_universe_counted and universe is not None:
        return list(dict.fromkeys(max(1, round(universe * share)) for share in _SHARES))
    sizes = _around(plan.config.expected or _USERS, (1, 10, 100, 1000))
    buckets = _buckets(plan)
    return sizes if buckets is None else [size for size in sizes if size <= buckets] or [min(sizes[0], buckets)]


def _buckets(plan: QueryPlan) -> int | None:
    """Return the buckets of counters whose answers do not account for users that share one, None for others."""
    return plan.algorithm.buckets if isinstance(plan.algorithm, HeavyHitterCount | ProfileSketch) else None


def _around(expected: int, factors: tuple[int, ...] = (10, 100, 1000)) -> list[int]:
    return list(dict.fromkeys(max(min(100, expected), expected * factor // 100) for factor in factors))


def _size_label(plan: QueryPlan, users: int) -> str:
    if isinstance(plan.algorithm, OptBern | ContinualDensity | SharedDensity) and not plan.algorithm.count:
        return f"of the density, with {users:,} users"
    suffix = "" if _buckets(plan) is None else ", no two in one bucket"
    suffix += f", after {_announced(plan)}" if plan.config.announced else ""
    kind = plan.config.parsed.aggregate
    if kind is Aggregate.CROPPED_SUM:
        return f"of the sum, with {users:,} users at the crop{suffix}"
    if kind is Aggregate.CROPPED_SQUARES:
        return f"of the sum of squares, with {users:,} users at the crop{suffix}"
    if kind is Aggregate.INCIDENCE:
        return f"users if {users:,} have exactly this weight{suffix}"
    if kind is Aggregate.HEAVY_HITTERS:
        return f"users if {users:,} are heavy and none is near the threshold{suffix}"
    return f"users if there are {users:,}{suffix}"


def _announced(plan: QueryPlan) -> str:
    number = plan.config.announced
    return f"{number} announced intrusion{'' if number == 1 else 's'}"


def _after_announced(plan: QueryPlan) -> list[tuple[str, float]]:
    """Return errors after all announced intrusions that are paid for; answers before the first are more accurate."""
    algorithm = plan.algorithm
    label = f"after {_announced(plan)}"
    if isinstance(algorithm, OptBern) and not algorithm.count:
        return [(f"of the density, {label}", algorithm.error_bound(beta=_BETA))]
    errors = {
        size: 1.96
        * (algorithm.standard_error(size) if isinstance(algorithm, OptBern) else size * algorithm.relative_error(size))
        for size in _sizes(plan)
    }
    return [(f"users if there are {size:,}, {label}", error) for size, error in errors.items()]


def error_at(plan: QueryPlan, size: float) -> float:
    """Return the 95% error of the last answer for ``size`` users or rows; the largest if there are several answers."""
    if isinstance(plan.algorithm, FrequentItems):
        return plan.algorithm.count_error(beta=_BETA)
    if isinstance(plan.algorithm, RetainedWindows):
        return 1.96 * plan.algorithm.overlap_error(size)
    return max(_half_width(_at_size(plan, size, output)) for output in plan.outputs)


def planned_error(plan: QueryPlan) -> float:
    """Return the 95% error of the last answer at the declared size; for names, the rows from which one is listed."""
    if isinstance(plan.algorithm, FrequentItems):
        return float(top_items_for(plan.config).listing_threshold)
    return error_at(plan, plan.config.expected or _universe(plan) or _USERS)


def largest_useful_error(plan: QueryPlan) -> float | None:
    """Return the largest `planned_error` that is useful: ``target_error``, or a part of the size or range, if known."""
    query = plan.config
    if query.target_error is not None:
        return query.target_error
    kind = query.parsed.aggregate
    if (span := _range(plan, kind)) is not None:
        return _PART * span
    size = query.expected or _universe(plan)
    if size is None or kind in (Aggregate.MIN, Aggregate.MAX):
        return None
    return _PART * (1.0 if isinstance(plan.algorithm, FrequentItems) else _largest_step(plan, kind)) * size


def too_uncertain(plan: QueryPlan, estimate: Estimate, output: Output) -> bool:
    """Return whether the 95% interval is too wide to be useful, compared with the answer and the expected size."""
    low, high = estimate.interval()
    kind = output.aggregate
    query = plan.config
    if kind is Aggregate.RETENTION:
        return not (math.isnan(low) or has_useful_value(estimate))
    if math.isnan(low) or (math.isnan(estimate.value) and not estimate.has_no_value):
        return False  # no data, which the answer says itself
    if kind in (Aggregate.MIN, Aggregate.MAX):
        return estimate.value == (query.lower if kind is Aggregate.MAX else query.upper)
    half = (high - low) / 2
    size = 0.0 if estimate.has_no_value else abs(estimate.value)
    if isinstance(output.formula, Arithmetic):
        return half > size
    ranges = _range(plan, kind)
    if ranges is not None:
        return half > _PART * ranges
    return half > _PART * _largest_total(plan, kind) or half > max(_useful_error(plan, kind), size)


def accuracy_warning(plan: QueryPlan) -> str | None:
    """Return a warning if the answers of a plan will be too uncertain at the expected size."""
    size = plan.config.expected if plan.config.expected is not None else _universe(plan)
    if size is None or math.isinf(plan.config.epsilon) or isinstance(plan.algorithm, RetainedWindows):
        return None  # RETENTION is refused where it would be too uncertain
    if isinstance(plan.algorithm, FrequentItems):
        return _names_warning(plan, size)
    for output in plan.outputs:
        estimate = _at_size(plan, size, output)
        empty = math.isnan(estimate.value) and not estimate.has_no_value
        if not empty and not too_uncertain(plan, estimate, output):
            continue
        about = f"with {size:,.0f} {'rows' if _of_rows(plan) else 'users'}"
        error = (
            f"the 95% error is {format_number(off)}"
            if math.isfinite(off := _half_width(estimate))
            else "no upper end is known"
        )
        error = "there is too little to see anything" if empty else error
        return f"{about} {error}: answers will be too uncertain to use. What would help: {improvement_hint(plan)}"
    return None


def _names_warning(plan: QueryPlan, size: float) -> str | None:
    """Return a warning if hardly any name can reach the listing threshold."""
    threshold = top_items_for(plan.config).listing_threshold
    if threshold <= _PART * size:
        return None
    return (
        f"with {size:,.0f} rows, a name needs {math.ceil(threshold):,} of them to be listed: hardly any will be. What "
        f"would help: {improvement_hint(plan)}"
    )


def improvement_hint(plan: QueryPlan) -> str:
    """Return the settings that would make the answers of a query more accurate."""
    query = plan.config
    if query.retention_window is not None:
        size = needed_text(plan.algorithm)
        return f"a longer window, a larger epsilon, more users ({size} tell the share that comes back)"
    sized = query.expected is not None or query.universe is not None
    hints = {
        "a larger epsilon": True,
        "delta = 1e-6": query.names is not None and not query.delta,
        "a smaller max_item_bytes": query.names is not None,
        "listed keys, if they are known": query.names is not None,
        "a longer window": query.window is not None,
        "horizon =, the number of answers": plan.is_unbounded,
        "fewer releases": plan.releases > 1 and not plan.is_unbounded,
        "fewer announced intrusions": query.announced,
        "expected =, about how many users there will be": not sized
        and query.parsed.aggregate is Aggregate.COUNT_DISTINCT,
    }
    return ", ".join(hint for hint, helps in hints.items() if helps)


def _range(plan: QueryPlan, kind: Aggregate) -> float | None:
    """Return the length of the range of possible answers; None for counts and sums, which grow with the data."""
    query = plan.config
    if kind is Aggregate.DENSITY:
        return 1.0
    span = (query.upper or 0.0) - (query.lower or 0.0)
    ranges = {
        Aggregate.AVG: span,
        Aggregate.QUANTILE: span,
        Aggregate.VAR_POP: span**2 / 4,
        Aggregate.VAR_SAMP: span**2 / 4,
        Aggregate.STDDEV_POP: span / 2,
        Aggregate.STDDEV_SAMP: span / 2,
    }
    return ranges.get(kind)


def _largest_step(plan: QueryPlan, kind: Aggregate) -> float:
    """Return the largest contribution of one user or row to a count or sum."""
    query = plan.config
    if kind is Aggregate.SUM:
        return max(abs(query.lower or 0.0), abs(query.upper or 0.0))
    largest_value = 1.0 if query.parsed.value is None else query.upper or 1.0
    if kind is Aggregate.CROPPED_SQUARES:
        return float(query.parsed.constants[0] ** 2)
    return largest_value * query.parsed.constants[0] if kind is Aggregate.CROPPED_SUM else 1.0


def _largest_total(plan: QueryPlan, kind: Aggregate) -> float:
    """Return the largest possible count or sum; infinite without a universe."""
    universe = _universe(plan)
    return math.inf if universe is None or _of_rows(plan) else _largest_step(plan, kind) * universe


def _useful_error(plan: QueryPlan, kind: Aggregate) -> float:
    """Return the error below which any count or sum is useful: the expected size, or a part of the largest possible."""
    if plan.config.expected is not None:
        return _largest_step(plan, kind) * plan.config.expected
    largest = _largest_total(plan, kind)
    return _PART * largest if math.isfinite(largest) else _largest_step(plan, kind) * _FEW / plan.config.epsilon
