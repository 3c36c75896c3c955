"""Continual counters with a delta: the least squares on the shipped steps, converted to epsilon at that delta."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

from panstream.algorithms.continual.decayed_sum import DecayedSum
from panstream.algorithms.continual.gauss_markov import GaussMarkovCount
from panstream.algorithms.continual.gauss_markov_noise import GaussMarkovNoise
from panstream.algorithms.continual.moments import ContinualMean, ContinualVariance
from panstream.algorithms.continual.noise_sum_tails import Law
from panstream.algorithms.continual.noisy_tree import NoisyTree
from panstream.algorithms.continual.range_histogram import RangeHistogram
from panstream.algorithms.continual.sums import ContinualCount, ContinualSum, KaryTree
from panstream.algorithms.continual.windowed_sum import WindowedSum
from panstream.audit.claims.case import Case, ExactLoss
from panstream.audit.claims.exact import gaussian_loss, with_update_replaced
from panstream.audit.claims.person_periods import GaussianPeriod, one_copy
from panstream.primitives.noise import DiscreteGaussian
from panstream.privacy.composition import zcdp_epsilon
from panstream.testing.enumeration import Step, refresh, tick, update
from panstream.testing.linear_views import linear_views, ticks

_DELTA = 1e-6
_SETTINGS: dict[str, Any] = {"epsilon": 1.0, "delta": _DELTA}
_ONE = update([1])
_HALVED = "Correlated noise halved"
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
    moved = [[*steps[:index], ticks([1]), *steps[index + 1 :]] for index in range(5)]
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


class _HalfOfTheCorrelatedNoise(GaussMarkovCount):
    """Draws with half of sigma. A control: never use it."""

    def noise(self, epoch: int = 0) -> GaussMarkovNoise:
        """Return noise of half the scale that the claim needs."""
        full = super().noise(epoch)
        coarse = tuple(DiscreteGaussian.at_least(law.sigma / 2) for law in full.coarse)
        starts = tuple((shift, DiscreteGaussian.at_least(law.sigma / 2)) for shift, law in full.starts)
        return replace(full, count=DiscreteGaussian.at_least(full.count.sigma / 2), coarse=coarse, starts=starts)


def _correlated() -> Iterator[Case]:
    """Yield counts whose noise is correlated over time, with ticks of several steps and of one, and a broken one."""
    slots = [update([]), tick()] * 8
    announced = [*slots[:5], refresh(), *slots[5:]]
    steps = [ticks([0])] * 8
    moved = [[*steps[:index], ticks([1]), *steps[index + 1 :]] for index in range(8)]
    cases: tuple[tuple[str, type[GaussMarkovCount], dict[str, Any], Any, Any], ...] = (
        ("GaussMarkovCount", GaussMarkovCount, {}, slots, with_update_replaced(slots, _ONE)),
        ("GaussMarkovCount, one-step ticks", GaussMarkovCount, {"one_step_ticks": True}, steps, moved),
        (
            "GaussMarkovCount, three rows",
            GaussMarkovCount,
            {"contributions": 3},
            slots,
            with_update_replaced(slots, update([1, 1, 1])),
        ),
        ("GaussMarkovCount, unbounded", GaussMarkovCount, {"horizon": None}, slots, with_update_replaced(slots, _ONE)),
        (
            "GaussMarkovCount, announced intrusions",
            GaussMarkovCount,
            {},
            announced,
            with_update_replaced(announced, _ONE),
        ),
        (_HALVED, _HalfOfTheCorrelatedNoise, {}, slots, with_update_replaced(slots, _ONE)),
    )
    for name, kind, settings, stream, neighbours in cases:
        algorithm = kind(**(_SETTINGS | {"horizon": 8} | settings))
        streams = [tuple(neighbour) for neighbour in neighbours]
        refreshes = [index for index, step in enumerate(stream, 1) if step.verb == "refresh"]
        last = max(refreshes, default=0)  # an unannounced copy is covered after the last refresh
        moments = [moment for moment in one_copy([len(stream)]) if moment[0] is None or moment[0] >= last]
        exact = GaussianPeriod(algorithm, tuple(stream), streams, moments, _DELTA, amplitude=1 << 24)
        options: dict[str, Any] = {"name": f"{name}, delta {_DELTA:g}", "exact": exact}
        if name == _HALVED:
            options |= {"name": name, "kind": "control", "represents": "half of sigma loses four times the zCDP"}
        yield _case(algorithm, stream, neighbours, **options)


@dataclass(frozen=True)
class _GroupedRows:
    """All ways in which the rows of one sender can fall into groups, each of which is a counter of its own."""

    algorithm: Any
    rows: int
    groups: int

    def __call__(self) -> ExactLoss:
        """Return the largest loss of all groups together: one copy shows all of their states at the same moment."""
        stream = (update([]), update([]), tick())
        rho: dict[int, dict[int | None, float]] = {0: {}}
        for sent in range(1, self.rows + 1):
            spread = [(update([1] * first), update([1] * (sent - first)), tick()) for first in range(sent + 1)]
            rho[sent] = {}
            for view in linear_views(self.algorithm, stream, spread):
                covariance = view.matrix @ np.diag(view.kappas**-2.0) @ view.matrix.T
                rho[sent][view.look] = max(gaussian_loss(shift, covariance) for shift in view.shifts)
        splits = [split for split in np.ndindex(*[self.rows + 1] * self.groups) if sum(split) <= self.rows]
        totals = {
            (split, look): sum(rho[sent].get(look, 0.0) for sent in split)
            for split in splits
            for look in (None, *range(4))
        }
        (split, look), worst = max(totals.items(), key=lambda total: total[1])
        return ExactLoss(loss=zcdp_epsilon(worst, _DELTA), witness=f"rho {worst:.4g}; rows {split}, copy {look}")


class _GroupsWithHalfOfTheNoise(ContinualCount):
    """Draws with half of sigma. A control: never use it."""

    @property
    def engine(self) -> NoisyTree:
        """Return a tree for a quarter of the square of the rows."""
        return replace(super().engine, norm_square=Fraction(1, 4))  # type: ignore[arg-type]


def _sender_in_groups() -> Iterator[Case]:
    """Yield the rows of one sender, whose bound holds for all groups of a window together, and a broken one."""
    common: dict[str, Any] = {**_SETTINGS, "horizon": 1, "contributions": 3}
    cases: tuple[tuple[type[ContinualCount], str, dict[str, Any]], ...] = (
        (ContinualCount, "Rows of a sender in three groups", {"kind": "production"}),
        (
            _GroupsWithHalfOfTheNoise,
            "Groups of a sender whose Gaussian noise is halved",
            {"kind": "control", "represents": "half of sigma loses four times the zCDP"},
        ),
    )
    for kind, name, options in cases:
        algorithm = kind(**common)
        exact = _GroupedRows(algorithm, rows=3, groups=3)
        full = f"{name}, delta {_DELTA:g}"
        yield Case(name=full, claimed=1.0, exact=exact, algorithm=algorithm, **options)


CASES = (_trees, _lately, _correlated, _sender_in_groups)
