"""Trees with a delta: the least squares on the shipped steps, converted to epsilon at that delta."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from panstream.algorithms.continual.moments import ContinualMean, ContinualVariance
from panstream.algorithms.continual.range_histogram import RangeHistogram
from panstream.algorithms.continual.sums import ContinualCount, ContinualSum, KaryTree
from panstream.audit.claims.case import Case
from panstream.audit.claims.exact import with_update_replaced
from panstream.audit.claims.person_periods import GaussianPeriod, one_copy
from panstream.testing.enumeration import Step, tick, update
from panstream.testing.linear_views import ticks

_DELTA = 1e-6
_SETTINGS: dict[str, Any] = {"epsilon": 1.0, "delta": _DELTA}
_RANGE: dict[str, Any] = {"lower": 0.0, "upper": 8.0}


def _case(algorithm: Any, stream: Sequence[Step], neighbours: Sequence[Sequence[Step]]) -> Case:
    streams = [tuple(neighbour) for neighbour in neighbours]
    return Case(
        name=f"{type(algorithm).__name__}, delta {_DELTA:g}",
        kind="production",
        claimed=algorithm.claim().epsilon,
        exact=GaussianPeriod(algorithm, tuple(stream), streams, one_copy([len(stream)]), _DELTA),
        algorithm=algorithm,
    )


def _trees() -> Iterator[Case]:
    """Yield every tree that takes a delta, with a row in each update, of the smallest and the largest value."""
    slots = [update([]), update([]), tick()] * 2
    yield _case(ContinualCount(**_SETTINGS, horizon=2), slots, with_update_replaced(slots, update([1])))
    steps = [ticks([0])] * 5
    moved = [[*steps[:at], ticks([1]), *steps[at + 1 :]] for at in range(5)]
    yield _case(KaryTree(**_SETTINGS, horizon=5, levels=2, one_step_ticks=True), steps, moved)
    sizes: dict[str, Any] = {"horizon": 2, "resolution": 1.0}
    ends = (update([0.0]), update([8.0]))
    for algorithm in (
        ContinualSum(**_SETTINGS, **_RANGE, **sizes),
        ContinualMean(**_SETTINGS, **_RANGE, **sizes),
        ContinualVariance(**_SETTINGS, **_RANGE, **sizes),
        RangeHistogram(**_SETTINGS, **_RANGE, horizon=2, branching=2, depth=3),
    ):
        yield _case(algorithm, slots, with_update_replaced(slots, *ends))


CASES = (_trees,)
