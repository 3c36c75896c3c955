"""The published counters: sums in the clear, too few levels, ranges forgotten."""

from __future__ import annotations

from typing import Any

from panstream.audit.case import Case
from panstream.audit.controls.trees import ClearLeaf, OneLevelTooFew, StaleRefresh
from panstream.audit.exact import LinearProgram
from panstream.audit.streams import several_steps, with_events, with_refreshes
from panstream.papers.literal_counters import (
    PublishedAverage,
    PublishedBinary,
    PublishedHybrid,
    PublishedInitialNoise,
    PublishedPointNoise,
    PublishedSimpleCounterI,
    PublishedVariance,
)

__all__ = ["continual_controls"]

_PAPER = "Private Aggregate Computations on Streams"
_SLOTS = 4
_CLOSED = tuple(range(0, 2 * _SLOTS + 1, 2))  # looks right after a tick, when no slot is open


def _case(
    name: str, algorithm: Any, stands_for: str, looks: tuple[int | None, ...], event: int = 1, **more: Any
) -> Case:
    world = several_steps(_SLOTS)
    return Case(
        name=name,
        kind="control",
        claimed=algorithm.epsilon,
        exact=LinearProgram(algorithm, world, with_events(world, event), looks),
        algorithm=algorithm,
        stands_for=f"{_PAPER}, {stands_for}",
        quick_runs=300,
        runs=1_000,
        **more,
    )


def _published() -> list[Case]:
    shared: dict[str, Any] = {"epsilon": 1.0, "horizon": _SLOTS}
    none: tuple[int | None, ...] = (None,)
    return [
        _case(
            "Binary mechanism, clear sums",
            PublishedBinary(**shared),
            "2.4: true p-sums in memory",
            _CLOSED,
            sampled=True,
        ),
        _case(
            "Binary mechanism, literal level count",
            PublishedBinary(**shared),
            "Theorem 3: ε/(N·log T), one level short",
            none,
        ),
        _case(
            "Binary mechanism, initial noise only",
            PublishedInitialNoise(**shared),
            "2.4.4: noise at the start of a sum and none at its release",
            _CLOSED,
            sampled=True,
        ),
        _case(
            "Simple counter I, clear count",
            PublishedSimpleCounterI(**shared),
            "2.3.2: the true count in memory",
            _CLOSED,
        ),
        _case(
            "Average as stated", PublishedAverage(bound=4, **shared), "Algorithm 3: noise ignores the range", none, 4
        ),
        _case(
            "Variance as stated", PublishedVariance(bound=4, **shared), "Algorithm 4: noise ignores the range", none, 4
        ),
        _case("Hybrid as stated", PublishedHybrid(**shared), "Theorem 4: both parts on clear sums", _CLOSED),
        _case(
            "Noise on each point as stated", PublishedPointNoise(bound=4, **shared), "5.1: Lap(1/ε) on 0..N", none, 4
        ),
    ]


def _broken_trees() -> list[Case]:
    world = several_steps(7)
    tree: dict[str, Any] = {"epsilon": 1.0, "horizon": 7, "levels": 3}
    seen, looks = with_refreshes(world, 3)
    kept: dict[str, Any] = {"kind": "control", "claimed": 1.0, "runs": 1_000}
    return [
        Case(
            name="Tree whose leaf starts in the clear",
            exact=LinearProgram(ClearLeaf(**tree), world, with_events(world, 1)),
            stands_for="a slot of several steps is looked at while it is open",
            **kept,
        ),
        Case(
            name="Tree that charges one level too few",
            exact=LinearProgram(OneLevelTooFew(**tree), world, with_events(world, 1)),
            stands_for="level count off by one",
            **kept,
        ),
        Case(
            name="Tree that is not refreshed after an announced look",
            exact=LinearProgram(StaleRefresh(**tree), seen, with_events(seen, 1), looks),
            stands_for="two looks in one phase have no finite loss",
            **kept,
        ),
    ]


def continual_controls() -> list[Case]:
    """Return the published counters and broken copies of the default tree."""
    return [*_published(), *_broken_trees()]
