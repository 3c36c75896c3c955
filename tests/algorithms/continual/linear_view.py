"""The linear program behind every joint loss of this room, and streams to try it on."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog

from panstream.testing.enumeration import Step, refresh, tick, update
from panstream.testing.linear_views import LinearView, linear_views, ticks


@dataclass(frozen=True)
class Worst:
    """The largest loss over all looks and neighbours, and whether every cheapest move was a whole number."""

    loss: float
    look: int | None
    whole: bool


def several_steps(slots: int, updates: int = 1, nothing: Any = 0) -> list[Step]:
    """Slots of several steps: empty updates, then the tick."""
    return [step for _ in range(slots) for step in (*[update([nothing])] * updates, tick())]


def one_step(slots: int) -> list[Step]:
    return [ticks([0])] * slots


def with_event(world: Sequence[Step], at: int, event: Any = 1) -> list[Step]:
    """The same stream with an event in step ``at``."""
    changed = ticks([event]) if world[at].verb == "tick_many" else update([event])
    return [*world[:at], changed, *world[at + 1 :]]


def neighbours(world: Sequence[Step], event: Any = 1) -> list[list[Step]]:
    """One event, in any step that takes one."""
    return [with_event(world, at, event) for at, step in enumerate(world) if step.verb in ("update", "tick_many")]


def with_refreshes(world: Sequence[Step], every: int) -> list[Step]:
    """An announced look after every ``every`` steps."""
    return [
        step for at, before in enumerate(world, 1) for step in ([before, refresh()] if at % every == 0 else [before])
    ]


def cheapest_move(view: LinearView, shift: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
    """Return min sum kappa·|z| subject to matrix·z = shift, and z; inf if nothing fits."""
    draws = view.kappas.size
    if not np.any(shift):
        return 0.0, np.zeros(draws)
    if draws == 0:
        return math.inf, np.zeros(0)
    # A number that is shown again says nothing new, so looks at different moments often ask for the same move.
    equations = {row.tobytes() for row in np.column_stack([view.matrix, shift])}
    return _solved(b"".join(sorted(equations)), view.kappas.tobytes())


@lru_cache(maxsize=4096)
def _solved(equations: bytes, costs: bytes) -> tuple[float, NDArray[np.float64]]:
    kappas = np.frombuffer(costs)
    draws = kappas.size
    rows = np.frombuffer(equations).reshape(-1, draws + 1)
    matrix = rows[:, :-1]
    shift = rows[:, -1]
    found = linprog(
        np.concatenate([kappas, kappas]),
        A_eq=np.hstack([matrix, -matrix]),
        b_eq=shift,
        bounds=(0, None),
        method="highs-ds",
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    )
    if found.status == 2:
        return math.inf, np.zeros(draws)
    assert found.status == 0, found.message
    return float(found.fun), found.x[:draws] - found.x[draws:]


def joint_loss(algorithm: Any, world: Sequence[Step], streams: Sequence[Sequence[Step]], **options: Any) -> Worst:
    """Return the exact loss of all outputs and one look anywhere (or none), over all given neighbours."""
    worst = 0.0
    where = None
    whole = True
    for view in linear_views(algorithm, world, streams, **options):
        for shift in np.unique(view.shifts, axis=0):
            loss, move = cheapest_move(view, shift)
            whole = whole and bool(np.abs(move - np.rint(move)).max(initial=0.0) < 1e-7)
            if loss > worst:
                worst = loss
                where = view.look
    return Worst(worst, where, whole)
