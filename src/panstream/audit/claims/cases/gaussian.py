"""Continual counters with a delta: the least squares on the shipped steps, converted to epsilon at that delta."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from panstream.algorithms.continual.decayed_sum import DecayedSum
from panstream.algorithms.continual.moments import ContinualMean, ContinualVariance
from panstream.algorithms.continual.noise_sum_tails import Law
from panstream.algorithms.continual.range_histogram import RangeHistogram
from panstream.algorithms.continual.sums import ContinualCount, ContinualSum, KaryTree
from panstream.algorithms.continual.windowed_sum import WindowedSum
from panstream.audit.claims.case import Case
from panstream.audit.claims.exact import with_update_replaced
from panstream.audit.claims.person_periods import GaussianPeriod, one_copy
from panstream.primitives.noise import DiscreteGaussian
from panstream.testing.enumeration import Step, tick, update
from panstream.testing.linear_views import ticks

_DELTA = 1e-6
_SETTINGS: dict[str, Any] = {"epsilon": 1.0, "delta": _DELTA}
_RANGE: dict[str, Any] = {"lower": 0.0, "upper": 8.0}


def _case(algorithm: Any, stream: Sequence[Step], neighbours: Sequence[Sequence[Step]], **options: Any) -> Case:
    streams = [tuple(neighbour) for neighbour in neighbours]
    values: dict[str, Any] = {
        "name": f"{type(algorithm).__name__}, delta {_DELTA:g}",
        "kind": "production",
        "claimed": algorithm.claim().epsilon,
        "exact": GaussianPeriod(algorithm, tuple(stream), streams, one_copy([len(stream)]), _DELTA),
        "algorithm": algorithm,
        **options,
    }
    return Case(**values)


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


class _HalfOfTheNoise(WindowedSum):
    """Draws with half of sigma. A control: never use it."""

    @property
    def law(self) -> Law:
        """Return noise of half the scale that the claim needs."""
        law = super().law
        assert isinstance(law, DiscreteGaussian)
        return DiscreteGaussian.at_least(law.sigma / 2)


def _lately() -> Iterator[Case]:
    """Yield the sums over a window and with decay, with ticks of several steps and of one, and a broken one."""
    slots = [update([]), update([]), tick()] * 4
    steps = [ticks([0])] * 5
    moved = [[*steps[:index], ticks([1]), *steps[index + 1 :]] for index in range(5)]
    sums: dict[str, Any] = {
        "WindowedSum": WindowedSum(**_SETTINGS, window=3),
        "DecayedSum, exponential": DecayedSum(**_SETTINGS, decay="exponential", rate=0.5),
        "DecayedSum, polynomial": DecayedSum(**_SETTINGS, decay="polynomial", rate=1.0),
    }
    for kind, algorithm in sums.items():
        name = f"{kind}, delta {_DELTA:g}"
        yield _case(algorithm, slots, with_update_replaced(slots, update([1])), name=name)
        yield _case(replace(algorithm, one_step_ticks=True), steps, moved, name=f"{name}, one-step ticks")
    yield _case(
        _HalfOfTheNoise(**_SETTINGS, window=3),
        slots,
        with_update_replaced(slots, update([1])),
        name="Window whose Gaussian noise is halved",
        kind="control",
        represents="half of sigma loses four times the zCDP",
    )


CASES = (_trees, _lately)
