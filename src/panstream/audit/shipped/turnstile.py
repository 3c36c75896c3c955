"""Turnstile: modular counters on small fields, with weights of both signs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from panstream.audit.case import Case
from panstream.audit.exact import Enumeration, Scenario
from panstream.testing.enumerate import Step, World, release, update, worlds
from panstream.turnstile.block import BlockCounter
from panstream.turnstile.heavy import HeavyHitterCount
from panstream.turnstile.legendre import LegendreCounter
from panstream.turnstile.profile import ProfileSketch

__all__ = ["turnstile_cases"]


def _weights(*values: int, user: Any = 0) -> list[Step]:
    return [update(ids=[user], weight=[value]) for value in values]


def _scenarios(algorithm: Any, *, releases: int = 1) -> list[Scenario]:
    far = algorithm.width * 2 + 1
    slots: list[Step | None] = [None, None, *([release()] * releases)]
    found = [Scenario(worlds(slots, _weights(0, 1, -far)))]
    if releases == 1:
        found.append(Scenario(worlds([None, release(), None], _weights(0, 2, far))))
    return found


def _replacements() -> list[tuple[World, World]]:
    """Return pairs in which some weight of user 0 goes to user 1 instead."""
    return [
        (
            (*_weights(first), *_weights(second), release()),
            (*_weights(first, user=1), *_weights(second, user=1), release()),
        )
        for first in (1, 3)
        for second in (0, 2)
    ]


def _case(
    name: str,
    algorithm: Any,
    scenarios: Sequence[Scenario] | None = None,
    *,
    window: tuple[int, int] | None = None,
    sampled: bool = False,
) -> Case:
    reach = 1 if isinstance(algorithm, ProfileSketch) else algorithm.sensitivity
    return Case(
        name=name,
        kind="production",
        claimed=algorithm.claim().epsilon,
        exact=Enumeration(algorithm, window or (-1, 1 + reach), scenarios or _scenarios(algorithm)),
        algorithm=algorithm,
        sampled=sampled,
        quick_runs=1_000,
    )


def _legendre() -> list[Case]:
    plain = LegendreCounter(universe=1, epsilon=1.0, prime=7)
    twice = LegendreCounter(universe=1, epsilon=1.0, prime=7, releases=2)
    replaced = LegendreCounter(universe=2, epsilon=1.0, prime=7, max_weight=3, adjacency="replace")
    opened = LegendreCounter(buckets=2, levels=1, epsilon=1.0, prime=3)
    others = update(ids=["bob", "eve"], weight=[1, 2])
    streams = worlds([others, None, None, release()], [update(ids=["ann"], weight=[value]) for value in (0, 1)])
    return [
        _case("LegendreCounter", plain, sampled=True),
        _case("LegendreCounter, two releases", twice, _scenarios(twice, releases=2)),
        _case("LegendreCounter, replace", replaced, [Scenario(pairs=_replacements())], window=(-1, 3)),
        _case("LegendreCounter, open universe", opened, [Scenario(streams)], window=(-1, 3)),
    ]


def _sampled_and_replaced() -> list[Case]:
    """Options that the counters share."""
    found = []
    kinds: list[tuple[Any, dict[str, Any], list[tuple[int, int]]]] = [
        (BlockCounter, {"crop": 2, "largest": 4}, [(1, 0), (1, 2), (3, 0), (3, 2)]),
        (HeavyHitterCount, {"threshold": 2, "least": 0, "largest": 5}, [(a, b) for a in range(3) for b in range(1, 5)]),
        (ProfileSketch, {"largest": 1}, [(1, 1), (0, 1), (1, 2)]),
    ]
    for kind, more, pairs in kinds:
        name = kind.__name__
        twice = kind(universe=1, epsilon=1.0, releases=2, **more)
        small = kind is ProfileSketch  # one noisy number per residue: a narrow window keeps it enumerable
        streams = worlds([None, None, release(), release()], _weights(0, 1) if small else _weights(0, 1, 2, 3))
        window = (0, 1) if small else (-1, 1 + twice.sensitivity)
        found.append(_case(f"{name}, two releases", twice, [Scenario(streams)], window=window))
        replaced = kind(universe=2, epsilon=1.0, adjacency="replace", **more)
        window = (0, 2) if small else (-1, 2 * replaced.sensitivity + 1)
        moved = [
            ((*_weights(a), *_weights(b), release()), (*_weights(a, user=1), *_weights(b, user=1), release()))
            for a, b in pairs
        ]
        found.append(_case(f"{name}, replace", replaced, [Scenario(pairs=moved)], window=window))
    return found


def turnstile_cases() -> list[Case]:
    """Return the cases of the turnstile room."""
    return [
        *_legendre(),
        _case("BlockCounter", BlockCounter(universe=1, epsilon=0.7, crop=2, largest=12)),
        _case("HeavyHitterCount", HeavyHitterCount(universe=1, epsilon=1.5, threshold=2, least=0, largest=5)),
        _case(
            "HeavyHitterCount, bracket",
            HeavyHitterCount(universe=1, epsilon=1.5, threshold=4, steps=2, least=0, largest=18),
            window=(-1, 3),
        ),
        _case(
            "HeavyHitterCount, graded",
            HeavyHitterCount(universe=1, epsilon=1.5, threshold=4, steps=2, least=0, largest=6, graded=True),
        ),
        _case("ProfileSketch", ProfileSketch(universe=1, epsilon=1.0, largest=1)),
        *_sampled_and_replaced(),
    ]
