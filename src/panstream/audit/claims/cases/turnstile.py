"""Turnstile algorithms: modular counters on small fields, with weights of both signs.

The controls are the published algorithms: a finite set of noise, and noise in floating point.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from panstream.algorithms.continual.noisy_tree import NoisyTree
from panstream.algorithms.continual_users.continual_moments import ContinualInnerProduct, ContinualSecondMoment
from panstream.algorithms.turnstile.block_counter import BlockCounter
from panstream.algorithms.turnstile.heavy_hitter_count import HeavyHitterCount
from panstream.algorithms.turnstile.inner_product import InnerProduct
from panstream.algorithms.turnstile.legendre_counter import LegendreCounter
from panstream.algorithms.turnstile.profile_sketch import ProfileSketch
from panstream.algorithms.turnstile.second_moment import SecondMoment
from panstream.algorithms.turnstile.signed_sketch import SketchState
from panstream.audit.claims.case import Case, ExactLoss, Trial
from panstream.audit.claims.exact import Scenario, case_of, linear_case
from panstream.core.estimate import Estimate
from panstream.core.monitor import Monitor
from panstream.papers.as_printed.mir import PublishedCroppedSum, PublishedDistinct
from panstream.primitives.noise import NoiseSource
from panstream.testing.enumeration import Step, Stream, enumerate_streams, refresh, release, update

_PAPER = "Mir et al. 2011"
_GRID = float(1 << 53)
_TWICE: list[Step | None] = [None, None, release(), release()]


def _weights(*values: int, user: Any = 0) -> list[Step]:
    return [update(ids=[user], weight=[value]) for value in values]


def _moved(pairs: Iterable[tuple[int, int]]) -> list[Scenario]:
    """Return pairs of streams in which user 1 has the events of user 0."""

    def stream(weights: tuple[int, int], user: int) -> Stream:
        return (*_weights(*weights, user=user), release())

    return [Scenario(pairs=[(stream(weights, 0), stream(weights, 1)) for weights in pairs])]


def _case(
    option: str, algorithm: Any, scenarios: list[Scenario] | None = None, *, window: tuple[int, int] | None = None
) -> Case:
    name = type(algorithm).__name__
    if scenarios is None:
        far = algorithm.width * 2 + 1
        early = _weights(0, 1, -far)
        late = _weights(0, 2, far)
        scenarios = [
            Scenario(enumerate_streams([None, None, release()], early)),
            Scenario(enumerate_streams([None, release(), None], late)),
        ]
    return case_of(
        algorithm,
        window=window or (-1, 1 + (1 if name == "ProfileSketch" else algorithm.sensitivity)),
        name=f"{name}, {option}" if option else name,
        scenarios=scenarios,
        sampled=name == "LegendreCounter" and not option,
        quick_runs=1_000,
    )


def _legendre() -> Iterator[Case]:
    one = partial(LegendreCounter, universe=1, epsilon=1.0, prime=7)
    twice = one(releases=2)
    yield _case("", one())
    early = enumerate_streams(_TWICE, _weights(0, 1, -(twice.width * 2 + 1)))
    yield _case("two releases", twice, [Scenario(early)])
    replaced = LegendreCounter(universe=2, epsilon=1.0, prime=7, max_weight=3, adjacency="replace")
    yield _case("replace", replaced, _moved((a, b) for a in (1, 3) for b in (0, 2)), window=(-1, 3))
    others = update(ids=["bob", "eve"], weight=[1, 2])
    streams = enumerate_streams([others, None, None, release()], _weights(0, 1, user="ann"))
    opened = LegendreCounter(buckets=2, levels=1, epsilon=1.0, prime=3)
    yield _case("open universe", opened, [Scenario(streams)], window=(-1, 3))


def _released_twice_and_replaced() -> Iterator[Case]:
    """Yield the options that the other counters have in common."""
    kinds: list[tuple[Any, dict[str, Any], list[tuple[int, int]]]] = [
        (BlockCounter, {"crop": 2, "largest": 4}, [(1, 0), (1, 2), (3, 0), (3, 2)]),
        (
            HeavyHitterCount,
            {"threshold": 2, "min_net_weight": 0, "largest": 5},
            [(a, b) for a in range(3) for b in range(1, 5)],
        ),
        (ProfileSketch, {"largest": 1}, [(1, 1), (0, 1), (1, 2)]),
    ]
    for kind, more, pairs in kinds:
        small = kind is ProfileSketch  # one noisy number per residue, enumerable only in a narrow window
        twice = kind(universe=1, epsilon=1.0, releases=2, **more)
        streams = enumerate_streams(_TWICE, _weights(0, 1) if small else _weights(0, 1, 2, 3))
        yield _case("two releases", twice, [Scenario(streams)], window=(0, 1) if small else None)
        replaced = kind(universe=2, epsilon=1.0, adjacency="replace", **more)
        window = (0, 2) if small else (-1, 2 * replaced.sensitivity + 1)
        yield _case("replace", replaced, _moved(pairs), window=window)


def _rounded(algorithm: PublishedCroppedSum, first: bool) -> bool:
    monitor = Monitor(algorithm)
    if not first:
        monitor.update([0], weight=[12])
    counter = float(monitor.state.counters[0])
    return counter < 1 and int(counter * _GRID) % 8 != 0


class _NotRestarted(SecondMoment):
    """Continues after a release with the released counters. A control: never use it, nor the other one."""

    def release(self, state: SketchState, rng: NoiseSource) -> Estimate:
        previous_counters = state.counters.copy()
        estimate = SecondMoment.release(self, state, rng)
        state.counters[:] = previous_counters
        return estimate


class _StartsClear(SecondMoment):
    """Adds noise only when it publishes."""

    def initial_state(self, rng: NoiseSource) -> SketchState:
        """Start as the sketch does, then clear the counters."""
        state = SecondMoment.initial_state(self, rng)
        state.counters.fill(0)
        return state


def _rows(*weights: int | None, **more: str) -> list[Step]:
    """Return an update of user 0 for each weight, and a release for each None."""
    return [release() if w is None else update(ids=[0], weight=[w], **more) for w in weights]


def _moments() -> Iterator[Case]:
    """Yield the signed sketches: rows of either sign, releases between rows, and announced intrusions."""
    second = SecondMoment(epsilon=1.0, expected=1000.0, buckets=16, max_weight=2, releases=2)
    stream = _rows(0, 0, None, 0, None, 0)
    rows = [index for index, step in enumerate(stream) if step.verb == "update"]

    def differing(steps: Sequence[Step], index_sets: Iterable[Iterable[int]], row: Any) -> list[list[Step]]:
        return [
            [row if index in chosen else step for index, step in enumerate(steps)] for chosen in map(set, index_sets)
        ]

    two, minus = _rows(2, -2)
    singles = [[index] for index in rows]
    events = differing(stream, singles, two) + differing(stream, singles, minus)
    once = linear_case(replace(second, releases=1), stream[:4], differing(stream[:4], [[0], [1], [3]], two))
    yield replace(once, sampled=False)
    yield linear_case(second, stream, events, name="SecondMoment, two releases", sampled=False)
    both = differing(stream, ([a, b] for a in rows for b in rows if a < b), two)
    user = replace(second, contributions=2)
    yield linear_case(user, stream, both, name="SecondMoment, two contributions", sampled=False)
    seen = [*_rows(0, 0), refresh(), *_rows(0, None, 0), refresh(), *_rows(0, None)]
    changed = differing(seen, ([index] for index, step in enumerate(seen) if step.verb == "update"), two)
    looks = (None, *range(7, len(seen) + 1))
    yield linear_case(second, seen, changed, looks=looks, name="SecondMoment, announced intrusions", sampled=False)
    sides = [*_rows(0, stream="left"), *_rows(0, stream="right"), release()]
    product = InnerProduct(epsilon=1.0, expected=1000.0, buckets=16)
    joined = [[*_rows(1, stream="left"), *sides[1:]], [sides[0], *_rows(1, stream="right"), release()]]
    yield linear_case(product, sides, joined, sampled=False)
    again = [*sides, *_rows(0, stream="left"), release()]
    user_rows = [
        [*_rows(1, stream="left"), *_rows(1, stream="right"), *again[2:]],
        [*again[:3], *_rows(1, stream="left"), release()],
    ]
    paid = replace(product, releases=2, contributions=2)
    yield linear_case(paid, again, user_rows, name="InnerProduct, two releases and contributions", sampled=False)
    announced = [sides[0], refresh(), *sides[1:]]
    late = [[*_rows(1, stream="left"), *announced[1:]], [*announced[:2], *_rows(1, stream="right"), release()]]
    yield linear_case(
        product, announced, late, looks=(None, 2, 3, 4), name="InnerProduct, announced intrusions", sampled=False
    )
    for kind, name, why in (
        (
            _NotRestarted,
            "Second moment that goes on after a release",
            "a row between a release and a look moves two draws",
        ),
        (_StartsClear, "Second moment of a clear sketch", "noise at the release only: the state shows every row"),
    ):
        broken = kind(epsilon=1.0, expected=1000.0, buckets=16, max_weight=2, releases=2)
        yield linear_case(broken, stream, events, name=name, kind="control", claimed=1.0, represents=why, sampled=False)


class _OneLevelRates(ContinualSecondMoment):
    """Draws the noise of every level as if there were no other. A control: never use it."""

    @property
    def engine(self) -> NoisyTree:
        """Return the tree with the rates of one level."""
        engine: NoisyTree = ContinualSecondMoment.engine.fget(self)  # type: ignore[attr-defined]
        return replace(engine, epsilon=engine.epsilon * self.shape.rows)


def _continual_moments() -> Iterator[Case]:
    """Yield the signed sketches on a tree of two levels: rows in every slot, announced intrusions, two streams."""
    tree: dict[str, Any] = {"epsilon": 1.0, "expected": 1e6, "buckets": 12, "levels": 2, "capacity": 2, "releases": 5}
    second = ContinualSecondMoment(**tree, max_weight=2)
    stream = _rows(0, None, 0, 0, None, None, 0, None)
    rows = [index for index, step in enumerate(stream) if step.verb == "update"]
    two, minus = _rows(2, -2)
    events = [[*stream[:index], row, *stream[index + 1 :]] for index in rows for row in (two, minus)]
    yield linear_case(second, stream, events, sampled=False)
    both = [
        [two if index in (a, b) else step for index, step in enumerate(stream)] for a in rows for b in rows if a < b
    ]
    user = replace(second, contributions=2)
    yield linear_case(user, stream, both, name="ContinualSecondMoment, two contributions", sampled=False)
    seen = [*_rows(0, None, 0), refresh(), *_rows(0, None, 0, None)]
    changed = [[*seen[:index], two, *seen[index + 1 :]] for index in (0, 2, 4, 6)]
    looks = (None, *range(4, len(seen) + 1))
    name = "ContinualSecondMoment, announced intrusions"
    yield linear_case(second, seen, changed, looks=looks, name=name, sampled=False)
    product = ContinualInnerProduct(**tree)
    sides = [*_rows(0, stream="left"), *_rows(0, stream="right"), release(), *_rows(0, stream="left"), release()]
    joined = [
        [*sides[:index], *_rows(1, stream=side), *sides[index + 1 :]]
        for index, side in ((0, "left"), (1, "right"), (3, "left"))
    ]
    yield linear_case(product, sides, joined, sampled=False)
    both_sides = [[*_rows(1, stream="left"), *_rows(1, stream="right"), *sides[2:]]]
    name = "ContinualInnerProduct, two contributions"
    yield linear_case(replace(product, contributions=2), sides, both_sides, name=name, sampled=False)
    announced = [sides[0], refresh(), *sides[1:]]
    late = [[*_rows(1, stream="left"), *announced[1:]], [*announced[:2], *_rows(1, stream="right"), *announced[3:]]]
    name = "ContinualInnerProduct, announced intrusions"
    yield linear_case(product, announced, late, looks=(None, 2, 3, 4, 5, 6), name=name, sampled=False)
    broken = _OneLevelRates(**tree, max_weight=2)
    yield linear_case(
        broken,
        stream,
        events,
        name="Second moments on a tree with the noise of one level",
        kind="control",
        claimed=1.0,
        represents="every level draws at the whole epsilon, although a row is in a node on each",
        sampled=False,
    )


def _counters() -> Iterator[Case]:
    """Yield the block counter, the heavy-hitter count and the profile sketch."""
    heavy = partial(HeavyHitterCount, universe=1, epsilon=1.5, min_net_weight=0)
    yield _case("", BlockCounter(universe=1, epsilon=0.7, crop=2, largest=12))
    yield _case("", heavy(threshold=2, largest=5))
    yield _case("bracket", heavy(threshold=4, steps=2, largest=18), window=(-1, 3))
    yield _case("", ProfileSketch(universe=1, epsilon=1.0, largest=1))
    announced: list[Step | None] = [None, refresh(), None, None, release()]
    seen = Scenario(enumerate_streams(announced, _weights(0, 1)), looks=(None, 3, 4, 5))
    sketch = ProfileSketch(universe=1, epsilon=2.0, largest=1, announced=1)
    yield _case("one announced intrusion", sketch, [seen], window=(0, 1))


def _published() -> Iterator[Case]:
    """Yield two algorithms as printed in the paper."""
    yield Case(
        name="Mir's Algorithm 1 as printed",
        kind="control",
        claimed=1.0,
        exact=lambda: ExactLoss(
            loss=PublishedDistinct(rows=((1,), (3,)), largest=1, epsilon=1.0).loss(),
            witness="a noise vector at the edge of the set, moved out of it by one user",
        ),
        represents=f"{_PAPER}, Algorithm 1: |c_i| ≤ 2Z is a finite set, which no translation leaves in place",
    )
    real = PublishedCroppedSum(universe=1, epsilon=0.1, crop=8)
    yield Case(
        name="Mir's Algorithm 2 in floating point",
        kind="control",
        claimed=0.2,
        trial=Trial("a counter below 1 still has its last binary digits", partial(_rounded, real)),
        algorithm=real,
        represents=f"{_PAPER}, Algorithm 2, c := (c + w·d) mod 2τ over floats: an update rounds the last digits away",
        sampled=True,
    )


CASES = (_legendre, _counters, _released_twice_and_replaced, _moments, _continual_moments, _published)
