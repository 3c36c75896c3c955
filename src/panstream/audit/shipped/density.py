"""Density: one bit per user, enumerated with the user before, after and on both sides of the look, and of the release."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from panstream.audit.case import Case
from panstream.audit.exact import Enumeration, Scenario
from panstream.density.cropped_mean import CroppedMean
from panstream.density.dwork_pair import DworkPair
from panstream.density.fixed_level import FixedLevel
from panstream.density.graph import GraphDensity
from panstream.density.heavy_fraction import HeavyFraction
from panstream.density.optbern import OptBern
from panstream.density.quantised_laplace import QuantisedLaplace
from panstream.testing.enumerate import Step, refresh, release, update, worlds

__all__ = ["density_cases", "presence_scenarios"]

NOTHING, APPEAR, TWICE, LEAVE = update([]), update([0]), update([0, 0]), update(delete=[0])


def presence_scenarios(
    actions: Sequence[Step], *, releases: int = 1, announced: int = 0, others: Step | None = None
) -> list[Scenario]:
    """Return streams in which one user acts in every free slot: release last, and release first where it matters."""
    before: list[Step | None] = [] if others is None else [others]
    last: list[Step | None] = [*before, *([None, refresh()] * announced), None, None, *([release()] * releases)]
    looks = (None, *range(2 * announced, len(last) + 1)) if announced else None
    scenarios = [Scenario(worlds(last, actions), looks)]
    if not announced:
        between: list[Step | None] = [*before, None, release(), None]
        for _ in range(releases - 1):
            between += [release()]
        scenarios.append(Scenario(worlds(between, actions)))
    return scenarios


def _case(name: str, algorithm: Any, scenarios: Sequence[Scenario], *, high: int = 1, sampled: bool = False) -> Case:
    return Case(
        name=name,
        kind="production",
        claimed=algorithm.claim().epsilon,
        exact=Enumeration(algorithm, (-1, high + 1), scenarios),
        algorithm=algorithm,
        sampled=sampled,
        quick_runs=1_000,
    )


def _pairs() -> list[Case]:
    """The three pairs of coins with each of their options."""
    found = []
    for kind in (OptBern, DworkPair, QuantisedLaplace):
        name = kind.__name__
        simple, more = [NOTHING, APPEAR], [NOTHING, APPEAR, TWICE]
        found += [
            _case(name, kind(universe=1, epsilon=1.0), presence_scenarios(more), sampled=kind is OptBern),
            _case(
                f"{name}, three releases",
                kind(universe=1, epsilon=1.0, releases=3),
                presence_scenarios(simple, releases=3),
            ),
            _case(
                f"{name}, deletions",
                kind(universe=1, epsilon=1.0, deletions=True),
                presence_scenarios([NOTHING, APPEAR, LEAVE]),
            ),
            _case(
                f"{name}, one announced intrusion",
                kind(universe=1, epsilon=2.0, announced=1),
                presence_scenarios(simple, announced=1),
            ),
        ]
    return found


def _samples() -> list[Case]:
    """Others around, a sample, a list of names, a public level, a graph."""
    sampled = OptBern(universe=3, epsilon=1.0, sample=1)
    inside = next(user for user in range(3) if _cell(sampled, user) == 0)
    two = OptBern(universe=2, epsilon=1.0)
    names = OptBern(universe=("ann", "bob"), epsilon=1.0)
    level = FixedLevel(universe=2, epsilon=1.0, level=1)
    low = next(user for user in range(2) if _cell(level, user) == 0)
    graph, edge = GraphDensity(vertices=2, epsilon=1.0), update([(0, 1)])
    some = [update([1]), update([0, 1]), update([1, 0])]
    return [
        _case("OptBern, others around", two, presence_scenarios(some, others=update([1])), high=2),
        _case("OptBern, sampled", sampled, presence_scenarios([NOTHING, update([inside])])),
        _case("OptBern, listed universe", names, presence_scenarios([NOTHING, update(["bob"])]), high=2),
        _case("FixedLevel", level, presence_scenarios([NOTHING, update([low])])),
        _case("GraphDensity", graph, presence_scenarios([NOTHING, edge])),
        _case(
            "GraphDensity, three releases",
            GraphDensity(vertices=2, epsilon=1.0, releases=3),
            presence_scenarios([NOTHING, edge], releases=3),
        ),
        _case(
            "GraphDensity, deletions",
            GraphDensity(vertices=2, epsilon=1.0, deletions=True),
            presence_scenarios([NOTHING, edge, update(delete=[(1, 0)])]),
        ),
        _case(
            "GraphDensity, one announced intrusion",
            GraphDensity(vertices=2, epsilon=2.0, announced=1),
            presence_scenarios([NOTHING, edge], announced=1),
        ),
        _case(
            "FixedLevel, three releases, deletions",
            FixedLevel(universe=2, epsilon=1.0, level=1, releases=3, deletions=True),
            presence_scenarios([NOTHING, update([low]), update(delete=[low])], releases=3),
        ),
        _case(
            "FixedLevel, one announced intrusion",
            FixedLevel(universe=2, epsilon=2.0, level=1, announced=1),
            presence_scenarios([NOTHING, update([low])], announced=1),
        ),
    ]


def _sampled_pairs() -> list[Case]:
    found = []
    for kind in (DworkPair, QuantisedLaplace):
        algorithm = kind(universe=3, epsilon=1.0, sample=1)
        inside = next(user for user in range(3) if _cell(algorithm, user) == 0)
        found.append(_case(f"{kind.__name__}, sampled", algorithm, presence_scenarios([NOTHING, update([inside])])))
    graph = GraphDensity(vertices=3, epsilon=1.0, sample=1)
    edge = next(e for n, e in enumerate([(0, 1), (0, 2), (1, 2)]) if _cell(graph.edges, n) == 0)
    found.append(_case("GraphDensity, sampled", graph, presence_scenarios([NOTHING, update([edge])])))
    return found


def _counts() -> list[Case]:
    """Cropped means, heavy fractions, and bits read as a count."""
    crops = [update([0] * times) for times in range(3)]
    found = [
        _case("CroppedMean", CroppedMean(universe=1, epsilon=1.0, crop=2), presence_scenarios(crops)),
        _case(
            "CroppedMean of one appearance",
            CroppedMean(universe=1, epsilon=1.0, crop=1),
            presence_scenarios([NOTHING, APPEAR, TWICE]),
        ),
        _case(
            "CroppedMean, two releases",
            CroppedMean(universe=1, epsilon=1.0, crop=2, releases=2),
            [Scenario(worlds([None, None, release(), release()], crops))],
        ),
        _case(
            "HeavyFraction",
            HeavyFraction(universe=1, epsilon=1.0, threshold=2),
            [Scenario(worlds([None, None, release()], crops))],
        ),
        _case(
            "OptBern, count", OptBern(count=True, universe=1, epsilon=1.0), presence_scenarios([NOTHING, APPEAR, TWICE])
        ),
    ]
    for kind, more in ((CroppedMean, {"crop": 1}), (HeavyFraction, {"threshold": 2})):
        algorithm: Any = kind(universe=3, epsilon=1.0, sample=1, **more)
        cells = algorithm.presence if kind is CroppedMean else algorithm.low.presence
        inside = next(user for user in range(3) if _cell(cells, user) == 0)
        scenario = Scenario(worlds([None, None, release()], [NOTHING, update([inside]), update([inside, inside])]))
        found.append(_case(f"{kind.__name__}, sampled", algorithm, [scenario]))
    heavy = HeavyFraction(universe=1, epsilon=1.0, threshold=2, releases=2)
    found.append(
        _case(
            "HeavyFraction, two releases",
            heavy,
            [Scenario(worlds([None, None, release(), release()], [NOTHING, TWICE]), (1,))],
        )
    )
    return found


def _cell(algorithm: Any, user: int) -> int:
    """Return a user's place in the public permutation."""
    import numpy as np

    numbers = np.array([user], np.int64)
    if not algorithm.population.permuted:
        return user
    return int(algorithm.population.permute(numbers, numbers)[0])


def density_cases() -> list[Case]:
    """Return the cases of the density room."""
    return [*_pairs(), *_samples(), *_sampled_pairs(), *_counts()]
