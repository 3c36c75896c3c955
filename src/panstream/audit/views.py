"""What an intruder and the public see of a real run: real source, real bytes of the snapshot, every output."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream import codec
from panstream.algorithm import Monitor
from panstream.errors import NotSupported
from panstream.estimate import Estimate
from panstream.testing.enumerate import Step, snapshot
from panstream.testing.linear import Published
from panstream.testing.sources import ScriptedSource

__all__ = ["observed", "seen_as", "stolen", "view_numbers"]

Numbers = NDArray[np.float64]
Seen = list[tuple[str, Any]]


def stolen(monitor: Monitor[Any]) -> Any:
    """Return the state as it is read back from the bytes of a stolen snapshot."""
    algorithm = monitor.algorithm
    try:
        layout = algorithm.layout()
    except NotSupported:  # literal forms that keep real numbers: their memory is copied instead
        return copy.deepcopy(monitor.state)
    return codec.decode(monitor.to_bytes(), algorithm.state_type, layout)


def run(monitor: Monitor[Any], world: Sequence[Step], look: int | None) -> Seen:
    """Do the steps of a stream; return ("state", snapshot) and ("output", result) in the order in which they are seen."""
    seen: Seen = [("state", stolen(monitor))] if look == 0 else []
    for position, step in enumerate(world, start=1):
        given = {name: list(value) if isinstance(value, tuple) else value for name, value in step.arguments}
        if step.verb == "update":
            ids = (given.pop("ids"),) if "ids" in given else ()
            monitor.update(*ids, **given)
        elif step.verb == "refresh":
            seen.append(("state", stolen(monitor)))
            monitor.refresh()
        elif step.verb in ("release", "tick", "ticks"):
            result = getattr(monitor, step.verb)(*given.values())
            seen.append(("output", result))
        else:  # a step of the algorithm's own, such as a merge
            with monitor._step() as source:
                result = getattr(monitor.algorithm, step.verb)(monitor.state, *given.values(), source)
            if isinstance(result, Estimate):
                seen.append(("output", result))
        if position == look:
            seen.append(("state", stolen(monitor)))
    return seen


def observed(algorithm: Any, world: Sequence[Step], look: int | None) -> list[Any]:
    """Return the view of a fresh run, in the enumerator's form but with the released integers only."""
    return [
        snapshot(item) if what == "state" else ("release", item.released)
        for what, item in run(Monitor(algorithm), world, look)
    ]


def seen_as(view: Sequence[Any], window: tuple[int, int]) -> tuple[Any, ...]:
    """Return a view that can be compared: of releases only the integers; those beyond the window count as its end."""
    low, high = window
    return tuple(
        ("release", tuple(min(max(number, low), high) for number in part[1])) if part[0] == "release" else part
        for part in view
    )


def view_numbers(
    algorithm: Any, world: Sequence[Step], look: int | None, published: Published, *, noise: bool = True
) -> Numbers:
    """Return all numbers seen, outputs first and the state last, as :func:`panstream.testing.linear.linear_views` does."""
    monitor = Monitor(algorithm) if noise else Monitor(algorithm, source=ScriptedSource({}))
    shown: list[Numbers] = []
    state: list[Numbers] = [_private(stolen(monitor))] if look == 0 else []
    for position, step in enumerate(world, start=1):
        for what, item in run(monitor, (step,), None):
            shown.append(_private(item) if what == "state" else published(monitor.state, item))
        if position == look:
            state.append(_private(stolen(monitor)))
    return np.concatenate([*shown, *state]) if shown or state else np.zeros(0)


def _private(state: Any) -> Numbers:
    hidden = [
        getattr(state, declared.name)
        for declared in fields(state)
        if codec.role_of(declared) not in ("public", "published")
    ]
    return np.concatenate([np.asarray(field, np.float64).ravel() for field in hidden]) if hidden else np.zeros(0)
