"""Continual: the linear program on the view matrix of every counter, ticks of several steps and of one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from panstream.audit.case import Case
from panstream.audit.exact import LinearProgram
from panstream.audit.streams import (
    closed_sums,
    one_step,
    several_steps,
    with_added,
    with_event,
    with_events,
    with_refreshes,
)
from panstream.continual.decayed import DecayedSum
from panstream.continual.histogram import RangeHistogram
from panstream.continual.least_squares import LeastSquaresTree
from panstream.continual.moments import ContinualMean, ContinualVariance
from panstream.continual.shapes import epoch_shape
from panstream.continual.sums import ContinualCount, ContinualSum, KaryTree
from panstream.continual.windowed import WindowedSum
from panstream.papers.binary import BinaryMechanism
from panstream.papers.event_counter import EventCounter
from panstream.papers.hybrid import HybridMechanism
from panstream.papers.logarithmic import LogarithmicMechanism
from panstream.papers.simple_counters import SimpleCounterI, SimpleCounterII
from panstream.testing.enumerate import Step

__all__ = ["continual_cases"]

_LARGE = 1 << 40  # the least-squares tree rounds; noise of this size shows its weights to twelve digits


def _case(
    name: str, algorithm: Any, world: Sequence[Step], neighbours: Sequence[Sequence[Step]], **options: Any
) -> Case:
    sampled = options.pop("sampled", False)
    return Case(
        name=name,
        kind="production",
        claimed=algorithm.claim().epsilon,
        exact=LinearProgram(algorithm, world, neighbours, **options),
        algorithm=algorithm,
        sampled=sampled,
        runs=1_000,
        quick_runs=500,
    )


def _slot_counters() -> list[Case]:
    """Every counter of the papers: several steps a tick, one step, announced looks, and a whole slot exchanged."""
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
    found = []
    for name, (algorithm, slots) in counters.items():
        steps = several_steps(slots)
        found.append(_case(name, algorithm, steps, with_events(steps, 1), sampled=name == "BinaryMechanism"))
        at_once = replace(algorithm, one_step_ticks=True)
        closed = one_step(slots)
        found.append(_case(f"{name}, one-step ticks", at_once, closed, with_events(closed, 1)))
        seen, looks = with_refreshes(several_steps(slots - 1), 3)
        found.append(_case(f"{name}, announced intrusions", algorithm, seen, with_events(seen, 1), looks=looks))
        slot = replace(at_once, unit="slot", lower=-1, upper=2)
        full = one_step(slots, nothing=-1)
        found.append(_case(f"{name}, slot exchanged", slot, full, with_events(full, 2)))
    wide = BinaryMechanism(epsilon=1.0, horizon=5, lower=-3, upper=2)
    steps = several_steps(5, updates=2)
    found.append(_case("BinaryMechanism, range and several updates", wide, steps, with_events(steps, -3, 2)))
    events = BinaryMechanism(epsilon=1.0, horizon=4, one_step_ticks=True, most_events=3)
    closed = one_step(4, nothing=2)
    found.append(_case("BinaryMechanism, several events a value", events, closed, with_events(closed, 1, 3)))
    return found


def _trees() -> list[Case]:
    found = []
    tree = KaryTree(epsilon=1.0, horizon=7, levels=3)
    steps, closed = several_steps(7), one_step(7)
    found.append(_case("KaryTree", tree, steps, with_events(steps, 1), sampled=True))
    at_once = replace(tree, one_step_ticks=True, capacity=None)
    found.append(_case("KaryTree, one-step ticks", at_once, closed, with_events(closed, 1), published=closed_sums))
    seen, looks = with_refreshes(steps, 3)
    found.append(_case("KaryTree, announced intrusions", tree, seen, with_events(seen, 1), looks=looks))
    for one in (False, True):
        unbounded = KaryTree(epsilon=1.0, one_step_ticks=one)
        slots = epoch_shape(0, one).slots + 2
        world = one_step(slots) if one else several_steps(slots)
        some = (None, *range(0, len(world) + 1, 3), len(world))
        name = "KaryTree, unbounded" + (", one-step ticks" if one else "")
        more = {"published": closed_sums} if one else {}
        found.append(_case(name, unbounded, world, with_events(world, 1), looks=some, **more))
    users = KaryTree(epsilon=1.0, horizon=5, levels=2, contributions=2)
    world = several_steps(5)
    twice = [with_event(with_event(world, a, 1), b, 1) for a in (0, 2, 4) for b in (4, 8) if a < b]
    found.append(_case("KaryTree, two contributions", users, world, twice))
    slot = KaryTree(epsilon=1.0, horizon=5, levels=2, lower=0, upper=4, unit="slot", one_step_ticks=True)
    closed = one_step(5)
    found.append(_case("KaryTree, slot exchanged", slot, closed, with_events(closed, 4), published=closed_sums))
    wide = KaryTree(epsilon=1.0, horizon=5, levels=2, lower=-2, upper=5)
    found.append(_case("KaryTree, range", wide, world, with_events(world, -2, 5)))
    return found


def _sums() -> list[Case]:
    world = several_steps(4)
    closed = one_step(4)
    count = ContinualCount(epsilon=1.0, horizon=4, levels=2)
    users = replace(count, contributions=2)
    twice = [with_event(with_event(world, a, 1), b, 1) for a in (0, 2, 4) for b in (4, 6) if a < b]
    total = ContinualSum(epsilon=1.0, horizon=4, levels=2, lower=-1.0, upper=3.0, resolution=0.5)
    far = several_steps(epoch_shape(0, False).slots + 2)
    some = (None, *range(0, len(far) + 1, 4), len(far))
    slot = replace(total, unit="slot", one_step_ticks=True, levels=None, capacity=None)
    low = one_step(4, nothing=-1.0)
    two = [with_event(with_event(world, a, 3.0), b, 3.0) for a in (0, 2) for b in (4, 6)]
    once = replace(count, one_step_ticks=True, levels=None, capacity=None)
    seen, looks = with_refreshes(world, 3)
    return [
        _case("ContinualCount, announced intrusions", count, seen, with_events(seen, 1, -1), looks=looks),
        _case("ContinualSum, announced intrusions", total, seen, with_events(seen, 3.0, -1.0), looks=looks),
        _case("ContinualCount", count, world, with_events(world, 1, -1)),
        _case("ContinualCount, one-step ticks", once, closed, with_events(closed, 1, -1), published=closed_sums),
        _case("ContinualCount, two contributions", users, world, twice),
        _case("ContinualCount, unbounded", ContinualCount(epsilon=1.0), far, with_events(far, 1), looks=some),
        _case("ContinualSum", total, world, with_events(world, 3.0, -1.0)),
        _case("ContinualSum, slot exchanged", slot, low, with_events(low, 3.0), published=closed_sums),
        _case("ContinualSum, two contributions", replace(total, contributions=2), world, two),
        _case(
            "ContinualSum, unbounded",
            ContinualSum(epsilon=1.0, lower=-1.0, upper=3.0, resolution=0.5),
            far,
            with_events(far, 3.0),
            looks=some,
        ),
    ]


def _moments() -> list[Case]:
    found = []
    for kind in (ContinualMean, ContinualVariance):
        name = kind.__name__
        base: Any = kind(epsilon=1.0, horizon=3, levels=2, lower=0.0, upper=8.0, resolution=2.0)
        world = several_steps(3, nothing=4.0)
        top = several_steps(3, nothing=8.0)
        shut = one_step(4, nothing=8.0)
        exchanged = with_events(top, 0.0, 2.0, 6.0)
        at_once = kind(
            epsilon=1.0,
            horizon=4,
            levels=2,
            lower=0.0,
            upper=8.0,
            resolution=2.0,
            adjacency="replace",
            one_step_ticks=True,
        )
        unbounded: Any = kind(epsilon=1.0, lower=0.0, upper=8.0, resolution=2.0)
        two = [with_added(first, 4.0, 8.0)[-1] for first in with_added(world, 4.0, 8.0)[:1]]
        seen, looks = with_refreshes(world, 3)
        found += [
            _case(f"{name}, announced intrusions", base, seen, with_added(seen, 4.0, 0.0, 8.0), looks=looks),
            _case(name, base, world, with_added(world, 4.0, 0.0, 2.0, 8.0)),
            _case(f"{name}, replace", replace(base, adjacency="replace"), top, exchanged),
            _case(
                f"{name}, replace, one-step ticks",
                at_once,
                shut,
                with_events(shut, 0.0, 2.0),
                published=closed_sums,
            ),
            _case(f"{name}, two contributions", replace(base, contributions=2), world, two),
            _case(f"{name}, unbounded", unbounded, world, with_added(world, 4.0, 0.0, 8.0)),
        ]
    grid: dict[str, Any] = {"lower": 0.0, "upper": 4.0, "branching": 2, "depth": 2}
    histogram = RangeHistogram(epsilon=1.0, horizon=3, levels=2, **grid)
    world = several_steps(3, nothing=0.5)
    shut = one_step(3, nothing=0.5)
    added = with_added(world, 0.5, 0.5, 3.5)
    pairs = [with_added(first, 0.5, 3.5)[-1] for first in with_added(world, 0.5, 3.5)[:1]]
    seen, looks = with_refreshes(world, 3)
    return [
        *found,
        _case("RangeHistogram, announced intrusions", histogram, seen, with_added(seen, 0.5, 3.5), looks=looks),
        _case("RangeHistogram", histogram, world, added),
        _case("RangeHistogram, two contributions", replace(histogram, contributions=2), world, pairs),
        _case("RangeHistogram, unbounded", RangeHistogram(epsilon=1.0, **grid), world, added),
        # With one value a slot nothing can be added: a value is exchanged, which costs what removing and adding do.
        _exchanged("RangeHistogram", RangeHistogram(epsilon=1.0, horizon=3, one_step_ticks=True, **grid), shut, 3.5),
    ]


def _exchanged(name: str, algorithm: Any, world: Sequence[Step], value: float) -> Case:
    case = _case(
        f"{name}, one-step ticks, value exchanged", algorithm, world, with_events(world, value), published=closed_sums
    )
    return case.with_claim(2 * case.claimed)


def _outputs_only() -> list[Case]:
    """The least-squares tree claims no intrusion: only its outputs are tried."""
    found = []
    for radices in ((3, 2), (2, 2, 2)):
        tree = LeastSquaresTree(epsilon=1.0, horizon=math.prod(radices), radices=radices)
        world = one_step(math.prod(radices))
        name = f"LeastSquaresTree {radices}, outputs"
        found.append(_case(name, tree, world, with_events(world, 1), looks=(None,), amplitude=_LARGE))
    wide = LeastSquaresTree(epsilon=1.0, horizon=4, radices=(2, 2), lower=-2, upper=1)
    steps = several_steps(4)
    found.append(
        _case("LeastSquaresTree, range, outputs", wide, steps, with_events(steps, -2), looks=(None,), amplitude=_LARGE)
    )
    return found


def continual_cases() -> list[Case]:
    """Return the cases of the continual room."""
    return [*_slot_counters(), *_trees(), *_sums(), *_moments(), *_outputs_only()]
