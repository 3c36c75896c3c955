"""Streams of slots for the counters, and their neighbours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.testing.enumerate import Step, refresh, tick, update
from panstream.testing.linear import ticks

__all__ = ["closed_sums", "one_step", "several_steps", "with_added", "with_event", "with_events", "with_refreshes"]


def several_steps(slots: int, *, updates: int = 1, nothing: Any = 0) -> list[Step]:
    """Return slots of several steps each: updates, then the tick."""
    return [step for _ in range(slots) for step in (*[update([nothing])] * updates, tick())]


def one_step(slots: int, *, nothing: Any = 0) -> list[Step]:
    """Return slots that are filled and closed in one step."""
    return [ticks([nothing])] * slots


def with_event(world: Sequence[Step], at: int, event: Any) -> list[Step]:
    """Return the stream with another value in step ``at``."""
    changed = ticks([event]) if world[at].verb == "ticks" else update([event])
    return [*world[:at], changed, *world[at + 1 :]]


def with_events(world: Sequence[Step], *events: Any) -> list[list[Step]]:
    """Return the streams with one of ``events`` in any step that takes one."""
    places = [at for at, step in enumerate(world) if step.verb in ("update", "ticks")]
    return [with_event(world, at, event) for at in places for event in events]


def with_added(world: Sequence[Step], value: Any, *extra: Any) -> list[list[Step]]:
    """Return the streams with one more value beside ``value`` in any update."""
    places = [at for at, step in enumerate(world) if step.verb == "update"]
    return [[*world[:at], update([value, more]), *world[at + 1 :]] for at in places for more in extra]


def with_refreshes(world: Sequence[Step], every: int) -> tuple[list[Step], tuple[int | None, ...]]:
    """Return the stream with an announced look after every ``every`` steps, and the looks of its last phase and none."""
    steps = [
        step for at, before in enumerate(world, 1) for step in ([before, refresh()] if at % every == 0 else [before])
    ]
    last = max((at for at, step in enumerate(steps, 1) if step.verb == "refresh"), default=0)
    return steps, (None, *range(last, len(steps) + 1))


def closed_sums(state: Any, result: Any) -> NDArray[np.float64]:
    """Return the public sums that a tree computes its answers from, where the answers themselves are not linear."""
    numbers: NDArray[np.float64] = state.sums.ravel().copy()
    return numbers
