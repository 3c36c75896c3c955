"""Continual counters: the linear program on the view matrix of each, with ticks of several steps and of one.

The controls are the published counters (cleartext sums, too few levels, ignored ranges) and broken copies of the tree.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.algorithms.continual.decayed_sum import DecayedSum
from panstream.algorithms.continual.least_squares_tree import LeastSquaresTree
from panstream.algorithms.continual.moments import ContinualMean, ContinualVariance
from panstream.algorithms.continual.noisy_tree import NoisyTree, TreeState
from panstream.algorithms.continual.range_histogram import RangeHistogram
from panstream.algorithms.continual.sums import ContinualCount, ContinualSum, KaryTree
from panstream.algorithms.continual.tree_shape import TreeShape
from panstream.algorithms.continual.windowed_sum import WindowedSum
from panstream.audit.claims.case import Case
from panstream.audit.claims.exact import linear_case, with_update_replaced
from panstream.core.estimate import Estimate
from panstream.papers.as_printed.counters import (
    PublishedAverage,
    PublishedBinary,
    PublishedHybrid,
    PublishedInitialNoise,
    PublishedPointNoise,
    PublishedSimpleCounterI,
    PublishedVariance,
)
from panstream.papers.counters.binary import BinaryMechanism
from panstream.papers.counters.event_counter import EventCounter
from panstream.papers.counters.hybrid import HybridMechanism
from panstream.papers.counters.logarithmic import LogarithmicMechanism
from panstream.papers.counters.simple_counters import SimpleCounterI, SimpleCounterII
from panstream.primitives.noise import NoiseSource
from panstream.testing.enumeration import Step, refresh, tick, update
from panstream.testing.linear_views import ticks

_LARGE = 1 << 40  # the least-squares tree rounds; noise of this size measures its weights to twelve digits
Neighbours = Sequence[Sequence[Step]]


def _slots(count: int, *, updates: int = 1, nothing: Any = 0, one_step: bool = False) -> list[Step]:
    """Return slots of several steps each, updates and then the tick; with ``one_step``, slots of one step."""
    return ([ticks([nothing])] if one_step else [*[update([nothing])] * updates, tick()]) * count


_one_step = partial(_slots, one_step=True)


def _with_events(stream: Sequence[Step], *events: Any) -> list[list[Step]]:
    """Return the streams with one of ``events`` in any one step that takes a value."""
    indices = [index for index, step in enumerate(stream) if step.verb in ("update", "tick_many")]
    return [_with_event(stream, index, event) for index in indices for event in events]


def _with_two_events(
    stream: Sequence[Step], first: Sequence[int], second: Sequence[int], event: Any
) -> list[list[Step]]:
    """Return the streams with ``event`` in a step of ``first`` and in a later one of ``second``."""
    return [_with_event(_with_event(stream, a, event), b, event) for a in first for b in second if a < b]


def _with_added(stream: Sequence[Step], value: Any, *extra: Any) -> list[list[Step]]:
    """Return the streams with one more value besides ``value`` in any one update."""
    return with_update_replaced(stream, *(update([value, more]) for more in extra))


def _with_refreshes(stream: Sequence[Step], every: int) -> tuple[list[Step], tuple[int | None, ...]]:
    """Return the stream with an announced intrusion after every ``every`` steps, and the looks of its last phase."""
    steps = [
        step
        for number, original in enumerate(stream, 1)
        for step in ([original, refresh()] if number % every == 0 else [original])
    ]
    last = max((number for number, step in enumerate(steps, 1) if step.verb == "refresh"), default=0)
    return steps, (None, *range(last, len(steps) + 1))


def _with_event(stream: Sequence[Step], index: int, event: Any) -> list[Step]:
    changed = ticks([event]) if stream[index].verb == "tick_many" else update([event])
    return [*stream[:index], changed, *stream[index + 1 :]]


def _case(name: str, algorithm: Any, stream: Sequence[Step], neighbours: Neighbours, **options: Any) -> Case:
    case_options = {"sampled": False, "runs": 1_000, **options}
    return linear_case(algorithm, stream, neighbours, name=name, **case_options)


def _closed_sums(state: Any, result: Any) -> NDArray[np.float64]:
    """Return the public sums that a tree computes its answers from: the answers themselves are not linear."""
    return np.array(state.sums, np.float64).ravel()


_closed = partial(_case, published=_closed_sums)


def _slot_counters() -> Iterator[Case]:
    """Yield every counter of the papers: ticks of several steps, of one, announced intrusions, and a replaced slot."""
    counters: dict[str, tuple[Any, int]] = {
        "BinaryMechanism": (BinaryMechanism(epsilon=1.0, horizon=5), 5),
        "EventCounter": (EventCounter(epsilon=1.0, horizon=5), 5),
        "SimpleCounterI": (SimpleCounterI(epsilon=1.0, horizon=5), 5),
        "SimpleCounterII": (SimpleCounterII(epsilon=1.0), 5),
        "LogarithmicMechanism": (LogarithmicMechanism(epsilon=1.0), 5),
        "HybridMechanism": (HybridMechanism(epsilon=1.0), 5),
        "HybridMechanism of event counters": (HybridMechanism(epsilon=1.0, bounded="EventCounter"), 5),
        "HybridMechanism of simple counters": (HybridMechanism(epsilon=1.0, bounded="SimpleCounterI"), 5),
        "WindowedSum": (WindowedSum(epsilon=1.0, window=3), 5),
        "DecayedSum, exponential": (DecayedSum(epsilon=1.0, decay="exponential", rate=0.5), 4),
        "DecayedSum, polynomial": (DecayedSum(epsilon=1.0, decay="polynomial", rate=1.0), 4),
    }
    for name, (algorithm, count) in counters.items():
        steps = _slots(count)
        closed = _one_step(count)
        yield _case(name, algorithm, steps, _with_events(steps, 1), sampled=name == "BinaryMechanism")
        one_step = replace(algorithm, one_step_ticks=True)
        yield _case(f"{name}, one-step ticks", one_step, closed, _with_events(closed, 1))
        seen, looks = _with_refreshes(_slots(count - 1), 3)
        yield _case(f"{name}, announced intrusions", algorithm, seen, _with_events(seen, 1), looks=looks)
        slot = replace(one_step, unit="slot", lower=-1, upper=2)
        full = _one_step(count, nothing=-1)
        yield _case(f"{name}, slot exchanged", slot, full, _with_events(full, 2))
    wide = BinaryMechanism(epsilon=1.0, horizon=5, lower=-3, upper=2)
    steps = _slots(5, updates=2)
    yield _case("BinaryMechanism, range and several updates", wide, steps, _with_events(steps, -3, 2))
    events = BinaryMechanism(epsilon=1.0, horizon=4, one_step_ticks=True, max_events=3)
    closed = _one_step(4, nothing=2)
    yield _case("BinaryMechanism, several events a value", events, closed, _with_events(closed, 1, 3))


def _trees() -> Iterator[Case]:
    tree = KaryTree(epsilon=1.0, horizon=7, levels=3)
    steps = _slots(7)
    closed = _one_step(7)
    yield _case("KaryTree", tree, steps, _with_events(steps, 1), sampled=True)
    one_step = replace(tree, one_step_ticks=True, capacity=None)
    yield _closed("KaryTree, one-step ticks", one_step, closed, _with_events(closed, 1))
    seen, looks = _with_refreshes(steps, 3)
    yield _case("KaryTree, announced intrusions", tree, seen, _with_events(seen, 1), looks=looks)
    for is_one_step, case, name in ((False, _case, ""), (True, _closed, ", one-step ticks")):
        stream = _slots(TreeShape.of_epoch(0, is_one_step).slots + 2, one_step=is_one_step)
        some = (None, *range(0, len(stream) + 1, 3), len(stream))
        unbounded = KaryTree(epsilon=1.0, one_step_ticks=is_one_step)
        yield case(f"KaryTree, unbounded{name}", unbounded, stream, _with_events(stream, 1), looks=some)
    small = partial(KaryTree, epsilon=1.0, horizon=5, levels=2)
    stream = _slots(5)
    closed = _one_step(5)
    twice = _with_two_events(stream, (0, 2, 4), (4, 8), 1)
    yield _case("KaryTree, two contributions", small(contributions=2), stream, twice)
    slot = small(lower=0, upper=4, unit="slot", one_step_ticks=True)
    yield _closed("KaryTree, slot exchanged", slot, closed, _with_events(closed, 4))
    yield _case("KaryTree, range", small(lower=-2, upper=5), stream, _with_events(stream, -2, 5))


def _sums() -> Iterator[Case]:
    stream = _slots(4)
    closed = _one_step(4)
    low = _one_step(4, nothing=-1.0)
    seen, looks = _with_refreshes(stream, 3)
    far = _slots(TreeShape.of_epoch(0, False).slots + 2)
    some = (None, *range(0, len(far) + 1, 4), len(far))
    grid: dict[str, Any] = {"lower": -1.0, "upper": 3.0, "resolution": 0.5}
    count = ContinualCount(epsilon=1.0, horizon=4, levels=2)
    total = ContinualSum(epsilon=1.0, horizon=4, levels=2, **grid)
    once = replace(count, one_step_ticks=True, levels=None, capacity=None)
    slot = replace(total, unit="slot", one_step_ticks=True, levels=None, capacity=None)
    twice = _with_two_events(stream, (0, 2, 4), (4, 6), 1)
    two = _with_two_events(stream, (0, 2), (4, 6), 3.0)
    unbounded = ContinualSum(epsilon=1.0, **grid)
    yield _case("ContinualCount, announced intrusions", count, seen, _with_events(seen, 1, -1), looks=looks)
    yield _case("ContinualSum, announced intrusions", total, seen, _with_events(seen, 3.0, -1.0), looks=looks)
    yield _case("ContinualCount", count, stream, _with_events(stream, 1, -1))
    yield _closed("ContinualCount, one-step ticks", once, closed, _with_events(closed, 1, -1))
    yield _case("ContinualCount, two contributions", replace(count, contributions=2), stream, twice)
    yield _case("ContinualCount, unbounded", ContinualCount(epsilon=1.0), far, _with_events(far, 1), looks=some)
    yield _case("ContinualSum", total, stream, _with_events(stream, 3.0, -1.0))
    yield _closed("ContinualSum, slot exchanged", slot, low, _with_events(low, 3.0))
    yield _case("ContinualSum, two contributions", replace(total, contributions=2), stream, two)
    yield _case("ContinualSum, unbounded", unbounded, far, _with_events(far, 3.0), looks=some)


def _moments() -> Iterator[Case]:
    stream = _slots(3, nothing=4.0)
    top = _slots(3, nothing=8.0)
    shut = _one_step(4, nothing=8.0)
    seen, looks = _with_refreshes(stream, 3)
    two = _with_added(_with_added(stream, 4.0, 8.0)[0], 4.0, 8.0)[-1:]
    for kind in (ContinualMean, ContinualVariance):
        name = kind.__name__
        grid = partial(kind, epsilon=1.0, lower=0.0, upper=8.0, resolution=2.0)
        base: Any = grid(horizon=3, levels=2)
        once = grid(horizon=4, levels=2, adjacency="replace", one_step_ticks=True)
        yield _case(f"{name}, announced intrusions", base, seen, _with_added(seen, 4.0, 0.0, 8.0), looks=looks)
        yield _case(name, base, stream, _with_added(stream, 4.0, 0.0, 2.0, 8.0))
        exchanged = _with_events(top, 0.0, 2.0, 6.0)
        yield _case(f"{name}, replace", replace(base, adjacency="replace"), top, exchanged)
        yield _closed(f"{name}, replace, one-step ticks", once, shut, _with_events(shut, 0.0, 2.0))
        yield _case(f"{name}, two contributions", replace(base, contributions=2), stream, two)
        yield _case(f"{name}, unbounded", grid(), stream, _with_added(stream, 4.0, 0.0, 8.0))


def _histograms() -> Iterator[Case]:
    grid = partial(RangeHistogram, epsilon=1.0, lower=0.0, upper=4.0, branching=2, depth=2)
    histogram = grid(horizon=3, levels=2)
    stream = _slots(3, nothing=0.5)
    shut = _one_step(3, nothing=0.5)
    added = _with_added(stream, 0.5, 0.5, 3.5)
    pairs = _with_added(_with_added(stream, 0.5, 3.5)[0], 0.5, 3.5)[-1:]
    seen, looks = _with_refreshes(stream, 3)
    yield _case("RangeHistogram, announced intrusions", histogram, seen, _with_added(seen, 0.5, 3.5), looks=looks)
    yield _case("RangeHistogram", histogram, stream, added)
    yield _case("RangeHistogram, two contributions", replace(histogram, contributions=2), stream, pairs)
    yield _case("RangeHistogram, unbounded", grid(), stream, added)
    # With one value per slot none can be added; a value is replaced, which costs as much as removing and adding.
    once = grid(horizon=3, one_step_ticks=True)
    name = "RangeHistogram, one-step ticks, value exchanged"
    yield _closed(name, once, shut, _with_events(shut, 3.5), claimed=2 * once.claim().epsilon)


def _outputs_only() -> Iterator[Case]:
    """Yield the least-squares tree, whose claim covers no intrusion: the view has its outputs only."""
    outputs = partial(_case, looks=(None,), amplitude=_LARGE)
    for radices in ((3, 2), (2, 2, 2)):
        tree = LeastSquaresTree(epsilon=1.0, horizon=math.prod(radices), radices=radices)
        stream = _one_step(math.prod(radices))
        yield outputs(f"LeastSquaresTree {radices}, outputs", tree, stream, _with_events(stream, 1))
    wide = LeastSquaresTree(epsilon=1.0, horizon=4, radices=(2, 2), lower=-2, upper=1)
    steps = _slots(4)
    yield outputs("LeastSquaresTree, range, outputs", wide, steps, _with_events(steps, -2))


def _published() -> Iterator[Case]:
    """Yield the papers' counters, with a copy right after a tick, when no slot is open, or with outputs only."""
    count = 4
    stream = _slots(4)
    closed = tuple(range(0, 2 * count + 1, 2))
    none = (None,)
    options: dict[str, Any] = {"epsilon": 1.0, "horizon": count}
    binary = PublishedBinary(**options)
    papers: list[tuple[str, Any, tuple[int | None, ...], int, str]] = [
        ("Binary mechanism, clear sums", binary, closed, 1, "§2.4: true p-sums in memory"),
        ("Binary mechanism, literal level count", binary, none, 1, "Theorem 3: ε/(N·log T), one level short"),
        (
            "Binary mechanism, initial noise only",
            PublishedInitialNoise(**options),
            closed,
            1,
            "§2.4.4: noise at the start of a sum and none at its release",
        ),
        (
            "Simple counter I, clear count",
            PublishedSimpleCounterI(**options),
            closed,
            1,
            "§2.3.2: the true count in memory",
        ),
        ("Average as stated", PublishedAverage(bound=4, **options), none, 4, "Algorithm 3: noise ignores the range"),
        ("Variance as stated", PublishedVariance(bound=4, **options), none, 4, "Algorithm 4: noise ignores the range"),
        ("Hybrid as stated", PublishedHybrid(**options), closed, 1, "Theorem 4: both parts on clear sums"),
        ("Noise on each point as stated", PublishedPointNoise(bound=4, **options), none, 4, "§5.1: Lap(1/ε) on 0..N"),
    ]
    for name, algorithm, looks, event, reference in papers:
        yield _case(
            name,
            algorithm,
            stream,
            _with_events(stream, event),
            looks=looks,
            kind="control",
            claimed=algorithm.epsilon,
            represents=f"Budaeva et al. 2013, {reference}",
            sampled="clear sums" in name or "initial noise" in name,
            quick_runs=300,
        )


class _ClearLeaf(KaryTree):
    """An open slot has its sum without noise. A control: never use it, nor the other two."""

    def initial_state(self, rng: NoiseSource) -> TreeState:
        """Start as the tree does, then remove the leaf's noise."""
        state = KaryTree.initial_state(self, rng)
        state.open[0] = 0
        return state

    def tick(self, state: TreeState, rng: NoiseSource) -> Estimate:
        """Close the slot, then remove the noise of the next one."""
        estimate = KaryTree.tick(self, state, rng)
        state.open[0] = 0
        return estimate


class _OneLevelTooFew(KaryTree):
    """Splits epsilon over one level fewer than an event is in."""

    @property
    def engine(self) -> NoisyTree:
        """Return a tree whose noise is too small."""
        engine = super().engine
        rows = engine.shape(0).rows
        return replace(engine, epsilon=engine.epsilon * rows / (rows - 1))


class _StaleRefresh(KaryTree):
    """Does nothing after an announced intrusion."""

    def refresh(self, state: TreeState, rng: NoiseSource) -> None:
        """Leave the copied state unchanged."""


def _broken_trees() -> Iterator[Case]:
    stream = _slots(7)
    seen, looks = _with_refreshes(stream, 3)
    open_slot = "a slot of several steps is looked at while it is open"
    two_looks = "two looks in one phase have no finite loss"
    for kind, name, steps, when, why in (
        (_ClearLeaf, "Tree whose leaf starts in the clear", stream, None, open_slot),
        (_OneLevelTooFew, "Tree that charges one level too few", stream, None, "level count off by one"),
        (_StaleRefresh, "Tree that is not refreshed after an announced look", seen, looks, two_looks),
    ):
        tree: Any = kind(epsilon=1.0, horizon=7, levels=3)
        case_options = {"looks": when, "kind": "control", "claimed": 1.0, "represents": why}
        yield _case(name, tree, steps, _with_events(steps, 1), **case_options)


CASES = (_slot_counters, _trees, _sums, _moments, _histograms, _outputs_only, _published, _broken_trees)
