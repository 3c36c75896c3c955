"""Choose the secret-shared statistic that answers a query on two machines, or raise with the reason."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from panstream.algorithms.auto import DistinctCount
from panstream.algorithms.continual.tree_base import Tree
from panstream.algorithms.distinct.bitmap import Bitmap
from panstream.algorithms.heavy_hitters.prefix_sketch import FrequentItems
from panstream.algorithms.secret_shared.capped_counts import SharedCappedSum, SharedCroppedSum, SharedHeavyCount
from panstream.algorithms.secret_shared.continual import SharedContinual
from panstream.algorithms.secret_shared.continual_presence import (
    SharedContinualDensity,
    SharedContinualDistinct,
    beats_paying,
)
from panstream.algorithms.secret_shared.presence import SharedDensity, SharedDistinct
from panstream.engine.config.config import QueryConfig, StreamConfig
from panstream.engine.sql.parser import Aggregate
from panstream.errors import InvalidParameter

_MAX_CROP = 64  # a crop of k takes k shared bits per user
_CELLS_PER_USER = 32


def choose_shared_user_statistic(query: QueryConfig, stream: StreamConfig, releases: int) -> tuple[Any, str]:
    """Return the shared statistic of a query about users, and the reason for it."""
    kind = query.parsed.aggregate
    universe = query.universe
    if query.announced:
        raise InvalidParameter("two machines need no announced intrusions: any number of looks at one is covered")
    if query.unit is not None or query.user_window is not None:
        raise InvalidParameter("unit and user_window are not offered on two machines: users are protected as a whole")
    noisy = stream.cells == "noisy"
    common: dict[str, Any] = {"epsilon": query.epsilon, "releases": releases, "key": query.key}
    bits = {**common, "noisy": noisy}
    if kind is Aggregate.DENSITY:
        if universe is None:
            raise InvalidParameter("DENSITY needs universe, the known population")
        deletions = stream.weight is not None
        if not noisy and (not deletions or query.changes) and beats_paying(query.epsilon, releases, query.changes or 1):
            changes = query.changes or 1
            live = SharedContinualDensity(universe=universe, deletions=deletions, changes=changes, **common)
            return live, f"{_why(noisy)}; {_LIVE}"
        pays = _PAYS if deletions and releases > 1 and not noisy and not query.changes else ""
        return SharedDensity(universe=universe, deletions=deletions, **bits), _why(noisy) + pays
    if kind is Aggregate.COUNT_DISTINCT:
        if stream.weight is not None:
            raise InvalidParameter(
                "COUNT(DISTINCT user) with deletions needs counters modulo a prime, which two machines cannot "
                "hold as shares: ask for DENSITY, or use one machine"
            )
        live_counts = not noisy and beats_paying(query.epsilon, releases)
        if universe is not None:
            if live_counts:
                return SharedContinualDensity(universe=universe, count=True, **common), f"{_why(noisy)}; {_LIVE}"
            return SharedDensity(universe=universe, count=True, **bits), _why(noisy)
        size: dict[str, Any] = {"expected": query.expected, "memory": query.memory, "hash": query.hash}
        if noisy:
            one = DistinctCount(**common, **size, mergeable=True).algorithm
            assert isinstance(one, Bitmap)  # since no universe is known
            return SharedDistinct(buckets=one.buckets, levels=one.levels, hash=query.hash, **bits), f"a noisy {_TABLE}"
        if live_counts:
            return SharedContinualDistinct.sized(**common, **size), f"an exact {_TABLE}; {_LIVE}"
        return SharedDistinct.sized(**common, **size), f"an exact {_TABLE}"
    if kind in (Aggregate.INCIDENCE, Aggregate.CROPPED_SQUARES):
        raise InvalidParameter(
            f"{kind.value} is for one machine: the cells of two machines count a user's weight only up to a cap"
        )
    if noisy:
        raise InvalidParameter(_EXACT_ONLY.format(kind.value))
    return _capped(query, common)


def _capped(query: QueryConfig, common: dict[str, Any]) -> tuple[SharedCroppedSum, str]:
    """Return the statistic that caps every user, and the reason for it."""
    kind = query.parsed.aggregate
    last = query.parsed.constants[0] if query.parsed.constants else 0.0
    if last != int(last) or not 1 <= last <= _MAX_CROP:
        bound = "contributions" if query.bounded_by == "two_party" else "a last argument"
        raise InvalidParameter(f"{kind.value} on two machines needs {bound} in 1..{_MAX_CROP}: each takes a shared bit")
    cap = int(last)
    why = _BITS_UP_TO
    if query.universe is not None:
        common["universe"] = query.universe
    elif query.expected is not None or query.memory is not None:
        common["buckets"] = buckets = _buckets(query, cap)
        why = f"{_BITS_UP_TO}; ids are hashed to {buckets:,} cells"
        if query.expected is not None:
            why += f", where {query.expected / buckets:.1%} of {query.expected:,} users share a cell and its cap"
    else:
        raise InvalidParameter(
            f"{kind.value} on two machines needs universe, the known users, or expected, their number: ids are then "
            "hashed to cells, and users of one cell share its cap"
        )
    if query.parsed.value is not None:
        if query.lower != 0 or query.upper is None or query.upper <= 0:
            raise InvalidParameter(
                'SUM with bounded_by = "two_party" needs lower = 0 and an upper above it: a capped counter only goes up'
            )
        return SharedCappedSum(contributions=cap, upper=query.upper, **common), f"{why}; {_WHOLE_STEPS}"
    shared = SharedCroppedSum if kind is Aggregate.CROPPED_SUM else SharedHeavyCount
    return shared(crop=cap, **common), why


def _buckets(query: QueryConfig, cap: int) -> int:
    """Return how many cells fit into ``memory``, or are enough that few of the expected users share one."""
    if query.memory is None:
        return _CELLS_PER_USER * (query.expected or 1)
    bits = _MAX_CROP if query.parsed.value is not None else cap
    return max(1, query.memory // next(size for size in (1, 2, 4, 8) if bits <= 8 * size))


def _why(noisy: bool) -> str:
    return f"one {'noisy' if noisy else 'exact'} bit per user, as shares"


def choose_shared_continual_statistic(algorithm: Any, cells: str) -> tuple[Any, str]:
    """Return the shared counterpart of a tree algorithm, and the reason for it."""
    if not isinstance(algorithm, Tree):
        raise InvalidParameter(
            "unlisted names cannot be secret-shared between two machines: list them in groups, or use one machine"
            if isinstance(algorithm, FrequentItems)
            else f"{type(algorithm).__name__} cannot be secret-shared between two machines"
        )
    if cells == "noisy":
        raise InvalidParameter(_EXACT_ONLY.format("this statistic"))
    return SharedContinual.of(algorithm), "exact totals and a least-squares tree of noise, both as shares"


def two_party_summary(plans: Sequence[Any], lateness: float, cells: str) -> list[str]:
    """Return lines about what each machine sees, what a step sends, and which copies are covered."""
    dealt = sent = answers = 0
    for plan in plans:
        rule = plan.algorithm.rule
        states = plan.max_state_bytes(lateness) // plan.algorithm.rule.size
        dealt += states * rule.dealt_size(answers=False)
        answers = max(answers, rule.dealt_size(answers=True))
        sent += states * (0 if isinstance(plan.algorithm, SharedContinual) else rule.dealt_size(answers=False) // 2)
    return [
        "two machines: any number of looks at one of them at a time loses nothing beyond the answers",
        "  front end    sees rows in flight and the answers, nothing else; run it on neither machine",
        "  a, b         one share each, uniform by itself, re-randomised in every step",
        "  an epoch     lasts from one step to the next: a commit, or panstream party --blind without one",
        f"  a step       sends {dealt:,} bytes from the front end to b, and {sent:,} each way between a and b",
        f"  an answer    sends up to {answers:,} bytes more to b",
        f"  price        {_PRICE[cells]}",
    ]


_LIVE = "a tree of noise over the changes of their number, so that many answers need less noise"
_PAYS = "; every answer is paid for: for a smaller error declare changes, how often one user comes or leaves at most"
_TABLE = "bitmap as shares; ids of any kind are hashed to its cells"
_EXACT_ONLY = (
    '{} cannot be stored with cells = "noisy", which is for bits of presence (COUNT(DISTINCT user), DENSITY): its '
    "totals are exact under their shares, so leave cells out, or use one machine"
)
_BITS_UP_TO = "a thermometer of exact bits per user, as shares"
_WHOLE_STEPS = "values are rounded, and the sum of each user's values is capped"
_PRICE = {
    "exact": "both machines in one epoch show the exact state",
    "noisy": "both machines in one epoch are covered once; a second time, the loss has no bound",
}
