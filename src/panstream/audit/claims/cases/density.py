"""Density: one bit per user, enumerated with the user before and after the copy and the release, in all orders.

The controls are the published estimators: output noise for the wrong sensitivity, and their other mistakes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from panstream.algorithms.density.cropped_mean import CroppedMean
from panstream.algorithms.density.dwork_pair import DworkPair
from panstream.algorithms.density.fixed_level import FixedLevel
from panstream.algorithms.density.graph_density import GraphDensity
from panstream.algorithms.density.heavy_fraction import HeavyFraction
from panstream.algorithms.density.optbern import OptBern
from panstream.algorithms.density.quantised_laplace import QuantisedLaplace
from panstream.algorithms.density.refreshable_cropped_mean import RefreshableCroppedMean
from panstream.audit.claims.case import Case, Trial
from panstream.audit.claims.exact import Scenario, case_of, presence_scenarios
from panstream.core.monitor import Monitor
from panstream.papers.as_printed.density import (
    PublishedDwork,
    PublishedLaplace,
    PublishedOptBern,
    PublishedQuantisedLaplace,
)
from panstream.papers.as_printed.density_base import LiteralDensity
from panstream.papers.as_printed.density_ppds import PublishedPPDS
from panstream.primitives.noise import NoiseSource
from panstream.testing.enumeration import Step, enumerate_streams, refresh, release, update

_NOTHING = update([])
_APPEAR = update([0])
_TWICE = update([0, 0])
_LEAVE = update(delete=[0])


def _case(name: str, algorithm: Any, scenarios: Sequence[Scenario], *, high: int = 1, sampled: bool = False) -> Case:
    return case_of(algorithm, window=(-1, high + 1), name=name, scenarios=scenarios, sampled=sampled, quick_runs=1_000)


def _variants(kind: Callable[..., Any], name: str, nothing: Step, appear: Step, leave: Step) -> Iterator[Case]:
    """Yield the options that all algorithms with one bit per user have in common."""
    yield _case(
        f"{name}, three releases", kind(epsilon=1.0, releases=3), presence_scenarios(nothing, appear, releases=3)
    )
    yield _case(f"{name}, deletions", kind(epsilon=1.0, deletions=True), presence_scenarios(nothing, appear, leave))
    scenarios = presence_scenarios(nothing, appear, announced=1)
    yield _case(f"{name}, one announced intrusion", kind(epsilon=2.0, announced=1), scenarios)


def _pairs() -> Iterator[Case]:
    """Yield the three pairs of coins with each of their options."""
    for kind in (OptBern, DworkPair, QuantisedLaplace):
        name = kind.__name__
        one = partial(kind, universe=1)
        scenarios = presence_scenarios(_NOTHING, _APPEAR, _TWICE)
        yield _case(name, one(epsilon=1.0), scenarios, sampled=kind is OptBern)
        yield from _variants(one, name, _NOTHING, _APPEAR, _LEAVE)


def _samples() -> Iterator[Case]:
    """Yield other users, a sample, a list of names, a public level, a graph."""
    sampled = OptBern(universe=3, epsilon=1.0, sample=1)
    two = OptBern(universe=2, epsilon=1.0)
    names = OptBern(universe=("ann", "bob"), epsilon=1.0)
    level = partial(FixedLevel, universe=2, level=1)
    low = _inside(level(epsilon=1.0), 2)
    graph = partial(GraphDensity, vertices=2)
    edge = update([(0, 1)])
    some = [update([1]), update([0, 1]), update([1, 0])]
    yield _case("OptBern, others around", two, presence_scenarios(*some, others=update([1])), high=2)
    yield _case("OptBern, sampled", sampled, presence_scenarios(_NOTHING, update([_inside(sampled)])))
    yield _case("OptBern, listed universe", names, presence_scenarios(_NOTHING, update(["bob"])), high=2)
    yield _case("FixedLevel", level(epsilon=1.0), presence_scenarios(_NOTHING, update([low])))
    yield _case("GraphDensity", graph(epsilon=1.0), presence_scenarios(_NOTHING, edge))
    yield from _variants(graph, "GraphDensity", _NOTHING, edge, update(delete=[(1, 0)]))
    yield _case(
        "FixedLevel, three releases, deletions",
        level(epsilon=1.0, releases=3, deletions=True),
        presence_scenarios(_NOTHING, update([low]), update(delete=[low]), releases=3),
    )
    yield _case(
        "FixedLevel, one announced intrusion",
        level(epsilon=2.0, announced=1),
        presence_scenarios(_NOTHING, update([low]), announced=1),
    )
    for kind in (DworkPair, QuantisedLaplace):
        algorithm = kind(universe=3, epsilon=1.0, sample=1)
        scenarios = presence_scenarios(_NOTHING, update([_inside(algorithm)]))
        yield _case(f"{kind.__name__}, sampled", algorithm, scenarios)
    one = GraphDensity(vertices=3, epsilon=1.0, sample=1)
    edge = update([[(0, 1), (0, 2), (1, 2)][_inside(one)]])
    yield _case("GraphDensity, sampled", one, presence_scenarios(_NOTHING, edge))


def _counts() -> Iterator[Case]:
    """Yield cropped means, heavy fractions, and bits read as a count."""
    crops = [update([0] * times) for times in range(3)]
    mean = partial(CroppedMean, universe=1, epsilon=1.0)
    heavy = partial(HeavyFraction, universe=1, epsilon=1.0)
    bits = OptBern(universe=1, epsilon=1.0, count=True)
    last: list[Step | None] = [None, None, release()]
    twice: list[Step | None] = [*last, release()]
    yield _case("CroppedMean", mean(crop=2), presence_scenarios(*crops))
    yield _case("CroppedMean of one appearance", mean(crop=1), presence_scenarios(_NOTHING, _APPEAR, _TWICE))
    yield _case("CroppedMean, two releases", mean(crop=2, releases=2), [Scenario(enumerate_streams(twice, crops))])
    refreshable = RefreshableCroppedMean(universe=1, epsilon=2.0, crop=2)
    phases: list[Step | None] = [None, refresh(), None, release(), None]
    yield _case("RefreshableCroppedMean", refreshable, [Scenario(enumerate_streams(phases, crops), (None, 5))])
    yield _case("HeavyFraction", heavy(threshold=2), [Scenario(enumerate_streams(last, crops))])
    yield _case("OptBern, count", bits, presence_scenarios(_NOTHING, _APPEAR, _TWICE))
    few: dict[str, Any] = {"universe": 3, "epsilon": 1.0, "sample": 1}
    refreshable = RefreshableCroppedMean(crop=1, releases=2, **few)
    inside = _inside(refreshable.presence)
    both: list[Step | None] = [None, release(), refresh(), None, release()]
    in_both = Scenario(enumerate_streams(both, [_NOTHING, update([inside])]), (None, 3, 4, 5))
    yield _case("RefreshableCroppedMean, sampled, a release in each phase", refreshable, [in_both])
    cropped = CroppedMean(crop=1, **few)
    heavy_fraction = HeavyFraction(threshold=2, **few)
    for algorithm, presence in ((cropped, cropped.presence), (heavy_fraction, heavy_fraction.low.presence)):
        inside = _inside(presence)
        actions = [_NOTHING, update([inside]), update([inside, inside])]
        yield _case(f"{type(algorithm).__name__}, sampled", algorithm, [Scenario(enumerate_streams(last, actions))])
    scenario = Scenario(enumerate_streams(twice, [_NOTHING, _TWICE]), (1,))
    yield _case("HeavyFraction, two releases", heavy(threshold=2, releases=2), [scenario])


def _inside(algorithm: Any, users: int = 3) -> int:
    """Return the user in the first cell of the public permutation."""
    if not algorithm.population.permuted:
        return 0
    numbers = np.arange(users)
    return int(np.flatnonzero(algorithm.population.permute(numbers, numbers) == 0)[0])


_IMPROVED = "Digalakis et al. 2018"
_THESIS = "Digalakis 2018"

# epsilon (the papers claim twice that) and the true joint losses of Dwork/Roth, OptBern, quantised Laplace
TABLE = {
    0.05: (3.374, 1.503, 1.524),
    0.1: (3.423, 1.573, 1.613),
    0.2: (3.522, 1.713, 1.787),
    0.5: (3.829, 2.143, 2.281),
}
_PAPERS: tuple[tuple[str, type[LiteralDensity], str], ...] = (
    ("Dwork/Roth", PublishedDwork, f"{_IMPROVED}, Algorithm 1, last line"),
    ("OptBern", PublishedOptBern, f"{_IMPROVED}, Algorithm 2, last line"),
    ("quantised Laplace", PublishedQuantisedLaplace, f"{_THESIS}, §4.4.3"),
)


def _stored_zero_then_one(algorithm: LiteralDensity) -> Callable[[bool], bool]:
    """Return a trial of the published estimator: the user arrives after the copy, or before it.

    The event is a stored 0 in the copy and an output of at least 1. Opening a noise source is slow, so one source
    serves 500 runs.
    """
    arrival = algorithm.batch([0])
    rng = NoiseSource()
    remaining_runs = 0

    def happens(first: bool) -> bool:
        nonlocal rng, remaining_runs
        if remaining_runs == 0:
            rng.close()
            rng = NoiseSource()
            remaining_runs = 500
        remaining_runs -= 1
        state = algorithm.initial_state(rng)
        if not first:
            algorithm.update(state, arrival, rng)
        if state.stored[0] != 0:
            return False
        if first:
            algorithm.update(state, arrival, rng)
        return bool(algorithm.release(state, rng).released[0] >= 1)

    return happens


def _output_noise() -> Iterator[Case]:
    streams = enumerate_streams([None, None, release()], [_NOTHING, _APPEAR, _LEAVE])
    for epsilon in TABLE:
        for name, kind, reference in _PAPERS:
            algorithm: Any = kind(universe=1, epsilon=epsilon, integer_noise=True)
            dwork = kind is PublishedDwork and epsilon == 0.1
            # The event of the exact layer's witness, fixed beforehand.
            event = "a stored 0 was seen, and the output is 1 or more"
            yield case_of(
                algorithm,
                streams,
                window=(0, 1),
                name=f"{name} as published, epsilon {epsilon:g}",
                kind="control",
                claimed=2 * epsilon,
                trial=Trial(event, _stored_zero_then_one(algorithm), share=0.25) if dwork else None,
                represents=f"{reference}: Laplace(1/(ε·m)) on the debiased mean",
                sampled=dwork,
                runs=800_000 if dwork else 4_000,
                quick_runs=8_000,
            )


def _far_from_what_was_stored() -> Case:
    epsilon = 0.1
    far = 3.0
    algorithm = PublishedLaplace(universe=1, epsilon=epsilon)
    low = algorithm.law.mean(False)

    def happens(first: bool) -> bool:
        monitor = Monitor(algorithm)
        seen = float(monitor.state.stored[0])
        if first:
            monitor.update([0])
        return abs(epsilon * monitor.release().value + low - seen) > far

    return Case(
        name="Laplace density as published",
        kind="control",
        claimed=2 * epsilon,
        trial=Trial(f"the output lies more than {far:g} scales from the stored number that was seen before", happens),
        algorithm=algorithm,
        represents=f"{_THESIS}, Algorithm 4.3: a stored real number has no bound, so the output's sensitivity has none",
        sampled=True,
    )


def _others() -> Iterator[Case]:
    """Yield the other mistakes of the published estimators."""
    yield case_of(
        PublishedOptBern(universe=1, epsilon=0.5, centre=0.8, integer_noise=True),
        enumerate_streams([None, None], [_NOTHING, _APPEAR]),
        window=(-1, 2),
        name="OptBern as published, c = 4/5, state alone",
        kind="control",
        claimed=0.5,
        represents=f"{_IMPROVED}, §4.2: “any c in (0, 4/5]”; only c ≤ 1/2 is sound",
        sampled=False,
    )
    yield case_of(
        PublishedPPDS(universe=4, epsilon=0.5, sample=1, factor=1, shift=0, integer_noise=True),
        [(update([2] * times),) for times in (0, 1, 3)],
        window=(-1, 2),
        name="PPDS, three appearances",
        kind="control",
        claimed=1.0,
        represents=f"{_IMPROVED}, Algorithm 3: the level follows the data and every return draws again; "
        "k returns lose k·ln(1+e^ε)",
        sampled=False,
    )
    yield _far_from_what_was_stored()


CASES = (_pairs, _samples, _counts, _output_noise, _others)
