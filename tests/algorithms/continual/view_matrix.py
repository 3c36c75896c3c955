"""Streams for the papers' counters, and their exact joint loss by linear program on the shipped code's view matrix."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from panstream.papers.counters.intrusion_transform import PartialSums
from panstream.testing.enumeration import Step, refresh, tick
from panstream.testing.enumeration import update as update_step
from panstream.testing.linear_views import LinearView, linear_views
from panstream.testing.linear_views import ticks as ticks_step
from panstream.testing.sources import ScriptedSource
from tests.algorithms.continual.linear_view import cheapest_move

__all__ = [
    "ScriptedSource",
    "count_memberships",
    "refresh",
    "slots_in_one_step",
    "slots_of_steps",
    "tick",
    "ticks",
    "update",
    "views",
]


def update(*values: int) -> Step:
    return update_step(list(values))


def ticks(*values: int) -> Step:
    return ticks_step(list(values))


def slots_of_steps(slots: int, updates: int) -> list[Step]:
    """Slots of several steps each: updates, then the tick."""
    return [step for _ in range(slots) for step in (*([update(0)] * updates), tick())]


def slots_in_one_step(slots: int) -> list[Step]:
    return [ticks(0)] * slots


@dataclass(frozen=True)
class Views:
    """What is seen with a look after each step, and with none."""

    by_look: dict[int | None, LinearView]

    def loss(self, looks: Iterable[int | None] | None = None) -> float:
        """Return the largest loss over one event anywhere and one look anywhere (or only ``looks``)."""
        chosen = self.by_look.values() if looks is None else [self.by_look[look] for look in looks]
        return max(cheapest_move(view, shift)[0] for view in chosen for shift in np.unique(view.shifts, axis=0))


def views(algorithm: Any, steps: Sequence[Step], *, event: int = 1) -> Views:
    """Drive ``algorithm`` without noise, once for every draw, and once for every place of an ``event``."""
    found = linear_views(algorithm, steps, neighbours(steps, event))
    return Views({view.look: view for view in found})


def neighbours(steps: Sequence[Step], event: int) -> list[list[Step]]:
    """Return the stream with ``event`` added to each value in turn."""
    streams = []
    for at, step in enumerate(steps):
        for position in range(len(step.arguments[0][1]) if step.verb in ("update", "tick_many") else 0):
            values = list(step.arguments[0][1])
            values[position] += event
            changed = update(*values) if step.verb == "update" else ticks(*values)
            streams.append([*steps[:at], changed, *steps[at + 1 :]])
    return streams


def count_memberships(plan: PartialSums, slots: int) -> int:
    """Return in how many sums that close within ``slots`` one slot lies at most, by walking through the plan."""
    closed = np.zeros(slots + 1, np.int64)
    since: dict[int, int] = {}
    for slot in range(1, slots + 1):
        since |= {opening.accumulator: slot for opening in plan.opens(slot)}
        for closing in plan.closes(slot):
            closed[since.pop(closing.accumulator) : slot + 1] += 1
    return int(closed.max())
