"""Choose the turnstile counter of a query about users' net weights: one modulo a prime per user or bucket."""

from __future__ import annotations

import math
from typing import Any

from panstream.algorithms.turnstile.block_counter import BlockCounter
from panstream.algorithms.turnstile.heavy_hitter_count import HeavyHitterCount
from panstream.algorithms.turnstile.legendre_counter import LegendreCounter
from panstream.algorithms.turnstile.profile_sketch import ProfileSketch
from panstream.engine.config.config import QueryConfig, StreamConfig
from panstream.engine.sql.parser import Aggregate
from panstream.errors import InvalidParameter
from panstream.privacy.turnstile_loss import refresh_factor

_BUCKETS = 1 << 14


def choose_turnstile_counter(query: QueryConfig, stream: StreamConfig, releases: int) -> tuple[Any, str]:
    """Return the counter for a distinct count with deletions, a cropped sum or heavy hitters, and the reason."""
    kind = query.parsed.aggregate
    universe = query.universe
    placement = {"universe": universe} if isinstance(universe, int) else {"buckets": query.expected or _BUCKETS}
    common: dict[str, Any] = {"epsilon": query.epsilon, "releases": releases, "key": query.key, **placement}
    if query.max_weight is not None:
        common["max_weight"] = query.max_weight
    last = (*query.parsed.constants, 1)[0]
    if last != int(last) or last < 1:
        raise InvalidParameter(f"the last argument of {kind.value} must be a positive whole number, got {last:g}")
    options: dict[str, int] = {
        Aggregate.CROPPED_SUM: {"crop": int(last)},
        Aggregate.HEAVY_HITTERS: {"threshold": int(last)},
        Aggregate.INCIDENCE: {"exactly": int(last)},
        Aggregate.CROPPED_SQUARES: {"crop": int(last), "order": 2},
    }.get(kind, {})
    if query.announced:
        return _announced(query, stream, {**common, **options})
    if kind in (Aggregate.INCIDENCE, Aggregate.CROPPED_SQUARES):
        return _profile(query, stream, {**common, **options})
    if kind is Aggregate.COUNT_DISTINCT:
        return LegendreCounter(**common), "rows carry signed weights, so each user has a counter modulo a prime"
    if kind is Aggregate.CROPPED_SUM:
        return BlockCounter(**common, crop=int(last)), "a block counter per user: unbiased for the sum of min(|a|, tau)"
    if stream.weight is not None and query.lower is None:
        raise InvalidParameter(
            f"{kind.value} needs lower, the lowest net weight that a user may end with (0 if no one can go below)"
        )
    return _heavy(HeavyHitterCount(**common, threshold=int(last), **_net_weights(query)))


def _profile(query: QueryConfig, stream: StreamConfig, common: dict[str, Any]) -> tuple[ProfileSketch, str]:
    """Return the sketch that any function of the net weight can be read from, and the reason."""
    sketch = _sketch(query, stream, common, f"{query.parsed.aggregate.value} needs")
    why = f"a counter modulo {sketch.prime} per user, whose noisy histogram is published and read for this function"
    if sketch.placement.open:
        why += f"; ids of any kind share {sketch.cells:,} buckets, whose weights add up: give universe if it is known"
    return sketch, why


def _sketch(query: QueryConfig, stream: StreamConfig, common: dict[str, Any], needs: str) -> ProfileSketch:
    """Return a profile sketch for the declared net weights; raise InvalidParameter if they are not declared."""
    bounds = _net_weights(query)
    if "largest" not in bounds:
        raise InvalidParameter(f"{needs} upper, the largest net weight that a user may end with")
    if stream.weight is not None and "min_net_weight" not in bounds:
        raise InvalidParameter(f"{needs} lower, the lowest net weight that a user may end with (0 if none is below)")
    lowest = bounds.get("min_net_weight", 0)
    largest = max(bounds["largest"], -lowest)
    return ProfileSketch(**common, largest=largest, signed=lowest < 0, announced=query.announced)


def _announced(query: QueryConfig, stream: StreamConfig, common: dict[str, Any]) -> tuple[ProfileSketch, str]:
    """Return the only turnstile counter that can be refreshed, and the reason; its prime must be small to decode it."""
    price = "an announced intrusion multiplies the variance by more than the largest net weight"
    if "universe" not in common:
        raise InvalidParameter(f"announced needs universe, a number of users, where users have counters: {price}")
    sketch = _sketch(query, stream, common, "announced needs")
    factor = refresh_factor(sketch.law.epsilon_state, sketch.prime) if math.isfinite(sketch.epsilon) else 1.0
    return sketch, (
        f"a counter modulo {sketch.prime} per user, whose whole histogram is published: the one that can be refreshed; "
        f"every announced intrusion multiplies the variance by {factor:,.0f}"
    )


def _net_weights(query: QueryConfig) -> dict[str, Any]:
    """Return the declared bounds of a user's net weight; raise InvalidParameter if one is invalid."""
    bounds = {"min_net_weight": query.lower, "largest": query.upper}
    for name, bound in zip(("lower", "upper"), bounds.values(), strict=True):
        if bound is not None and bound != int(bound):
            raise InvalidParameter(f"{name} must be a whole number, a bound of net weights, got {name}={bound:g}")
    if query.lower is not None and query.lower > 0:
        raise InvalidParameter(f"lower must be 0 or below: users who never came are at 0, got lower={query.lower:g}")
    return {name: int(bound) for name, bound in bounds.items() if bound is not None}


def _heavy(counter: HeavyHitterCount) -> tuple[HeavyHitterCount, str]:
    why = "a block counter per user, read at every weight below the threshold"
    if counter.bracketed:
        why = (
            f"a block counter per user, read in steps of {counter.width}: an interval without a point, wider by the "
            f"number of users from {counter.light + 1} to {counter.threshold + counter.width - 1}"
        )
    if counter.placement.open:
        why += (
            f"; ids of any kind share {counter.cells:,} buckets, and buckets are counted: give universe if it is known"
        )
    return counter, why
