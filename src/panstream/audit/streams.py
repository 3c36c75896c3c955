"""Streams to try a claim on, and their neighbours: slots for the counters, one user's doings for everything else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from panstream.audit.exact import Scenario
from panstream.testing.enumerate import Step, refresh, release, tick, update, worlds
from panstream.testing.linear import ticks

__all__ = ["presence_scenarios", "slots", "with_added", "with_events", "with_refreshes", "with_two_events"]


def presence_scenarios(
    *actions: Step, releases: int = 1, announced: int = 0, others: Step | None = None
) -> list[Scenario]:
    """Return streams in which one user acts in every free slot: release last, and release first where it matters."""
    before: list[Step | None] = [] if others is None else [others]
    published = [release()] * releases
    last: list[Step | None] = [*before, *([None, refresh()] * announced), None, None, *published]
    if announced:
        return [Scenario(worlds(last, actions), (None, *range(2 * announced, len(last) + 1)))]
    between: list[Step | None] = [*before, None, published[0], None, *published[1:]]
    return [Scenario(worlds(last, actions)), Scenario(worlds(between, actions))]


def slots(count: int, *, updates: int = 1, nothing: Any = 0, one_step: bool = False) -> list[Step]:
    """Return slots of several steps each, updates and then the tick; or slots that are filled and closed in one
    step.
    """
    return ([ticks([nothing])] if one_step else [*[update([nothing])] * updates, tick()]) * count


def with_events(world: Sequence[Step], *events: Any) -> list[list[Step]]:
    """Return the streams with one of ``events`` instead in any step that takes one."""
    places = [at for at, step in enumerate(world) if step.verb in ("update", "ticks")]
    return [_with_event(world, at, event) for at in places for event in events]


def with_two_events(world: Sequence[Step], first: Sequence[int], second: Sequence[int], event: Any) -> list[list[Step]]:
    """Return the streams with ``event`` in a step of ``first`` and in a later one of ``second``."""
    return [_with_event(_with_event(world, a, event), b, event) for a in first for b in second if a < b]


def with_added(world: Sequence[Step], value: Any, *extra: Any) -> list[list[Step]]:
    """Return the streams with one more value beside ``value`` in any update."""
    places = [at for at, step in enumerate(world) if step.verb == "update"]
    return [[*world[:at], update([value, more]), *world[at + 1 :]] for at in places for more in extra]


def with_refreshes(world: Sequence[Step], every: int) -> tuple[list[Step], tuple[int | None, ...]]:
    """Return the stream with an announced look after every ``every`` steps, and the looks of its last phase and
    none.
    """
    steps = [
        step for at, before in enumerate(world, 1) for step in ([before, refresh()] if at % every == 0 else [before])
    ]
    last = max((at for at, step in enumerate(steps, 1) if step.verb == "refresh"), default=0)
    return steps, (None, *range(last, len(steps) + 1))


def _with_event(world: Sequence[Step], at: int, event: Any) -> list[Step]:
    changed = ticks([event]) if world[at].verb == "ticks" else update([event])
    return [*world[:at], changed, *world[at + 1 :]]
