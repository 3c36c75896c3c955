"""The Monte-Carlo layer: a lower bound of the loss that fails with at most a given probability.

The shipped code is run many times on each of two neighbouring streams, and Clopper and Pearson's exact intervals bound
the probabilities of an event that was fixed beforehand. The failure probability is split over all trials of an audit,
and in each trial over both streams and both directions.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

from panstream.audit.claims.case import Trial, scipy_function
from panstream.errors import InvalidParameter
from panstream.primitives import validation as checks


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bound:
    """The number of times the event happened on each stream, and the lower bound of the loss."""

    runs: tuple[int, int]
    happened: tuple[int, int]
    loss: float
    advantage: float  # lower bound of the difference of the two probabilities


def _clopper_pearson(happened: int, runs: int, failure: float) -> tuple[float, float]:
    """Return an interval that misses the true probability with probability at most ``failure``, half on each side.

    >>> [round(end, 4) for end in _clopper_pearson(8, 10, 0.05)]
    [0.4439, 0.9748]
    """
    if not 0 <= happened <= runs or runs < 1:
        raise InvalidParameter(f"happened must be in 0..{runs}, got happened={happened}")
    checks.require_probability(failure=failure)
    quantile = scipy_function("special", "betaincinv", "the audit of claims")
    low = 0.0 if happened == 0 else float(quantile(happened, runs - happened + 1, failure / 2))
    high = 1.0 if happened == runs else float(quantile(happened + 1, runs - happened, 1 - failure / 2))
    return low, high


def lower_bound(trial: Trial, *, runs: int, failure: float) -> _Bound:
    """Return a lower bound of the loss of any algorithm that is wrong with probability at most ``failure``."""
    counts = (max(1, math.ceil(runs * trial.share)), runs)
    first, second = (sum(trial.happens(side) for _ in range(n)) for side, n in zip((True, False), counts, strict=True))
    return _bound_of((first, second), counts, failure)


def _bound_of(happened: tuple[int, int], runs: tuple[int, int], failure: float) -> _Bound:
    """Return the bound for an event that happened ``happened`` times in ``runs`` on each of the two streams."""
    ends = [_clopper_pearson(count, n, failure / 2) for count, n in zip(happened, runs, strict=True)]
    (first_low, first_high), (second_low, second_high) = ends
    ratios = (
        (first_low, second_high),
        (second_low, first_high),
        (1 - first_high, 1 - second_low),
        (1 - second_high, 1 - first_low),
    )
    loss = max([0.0, *(math.log(low / high) for low, high in ratios if low > 0 and high > 0)])
    return _Bound(runs=runs, happened=happened, loss=loss, advantage=max(first_low - second_high, 0.0))


def learn_event(
    observe: Callable[[bool], Hashable], *, runs: int, failure: float, event: str = "a learned set of views"
) -> Trial:
    """Return a trial whose event is learned: the set of views that distinguished two streams best in ``runs`` runs.

    The bound must come from new runs, as those of `lower_bound`: the event depends on these ones.
    """
    first, second = (Counter(observe(side) for _ in range(runs)) for side in (True, False))
    ranked: list[Any] = sorted(set(first) | set(second), key=lambda view: -(first[view] + 0.5) / (second[view] + 0.5))
    best = -1.0
    chosen = 0
    likely = 0
    unlikely = 0
    for size, view in enumerate(ranked, start=1):
        likely = likely + first[view]
        unlikely = unlikely + second[view]
        loss = _bound_of((likely, unlikely), (runs, runs), failure).loss
        if loss > best:
            best = loss
            chosen = size
    wanted = frozenset(ranked[:chosen])
    return Trial(event=f"{event} ({chosen} of {len(ranked)})", happens=lambda side: observe(side) in wanted)
