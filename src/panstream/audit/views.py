"""What an intruder and the public see of a real run, real bytes of the snapshot and every output, and the same in words.

The users of the streams are made up: nothing real is ever shown here.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np

from panstream import codec
from panstream.algorithm import Monitor
from panstream.errors import NotSupported
from panstream.estimate import Estimate
from panstream.testing.enumerate import Step, World

__all__ = ["run", "stolen", "told", "told_view"]

_LONGEST = 160


def stolen(monitor: Monitor[Any]) -> Any:
    """Return the state as it is read back from the bytes of a stolen snapshot."""
    algorithm = monitor.algorithm
    try:
        layout = algorithm.layout()
    except NotSupported:  # literal forms that keep real numbers: their memory is copied instead
        return copy.deepcopy(monitor.state)
    return codec.decode(monitor.to_bytes(), algorithm.state_type, layout)


def run(monitor: Monitor[Any], world: Sequence[Step], look: int | None) -> list[tuple[str, Any]]:
    """Do the steps of a stream; return ("state", snapshot) and ("output", result) in the order in which they are seen."""
    seen: list[tuple[str, Any]] = [("state", stolen(monitor))] if look == 0 else []
    for position, step in enumerate(world, start=1):
        if step.verb == "update":
            step.call(monitor.update)
        elif step.verb == "refresh":
            seen.append(("state", stolen(monitor)))
            monitor.refresh()
        elif step.verb in ("release", "tick", "ticks"):
            seen.append(("output", getattr(monitor, step.verb)(*step.given().values())))
        else:  # a step of the algorithm's own, such as a merge
            with monitor._step() as source:
                result = getattr(monitor.algorithm, step.verb)(monitor.state, *step.given().values(), source)
            if isinstance(result, Estimate):
                seen.append(("output", result))
        if position == look:
            seen.append(("state", stolen(monitor)))
    return seen


def told(streams: tuple[World, World], look: int | None) -> str:
    """Return two neighbouring streams, the one under which the view is likelier first, and when the state was copied."""
    both = " against ".join("[" + " ".join(_step(step) for step in stream) + "]" for stream in streams)
    return f"{both}; " + ("outputs only" if look is None else f"state copied after step {look}")


def told_view(view: tuple[Any, ...]) -> str:
    """Return what is seen, shortened."""
    return _short(", ".join(_seen(part) for part in view), _LONGEST)


def _step(step: Step) -> str:
    given = list(step.given().values())
    if step.verb == "update":
        return "+".join("·" if value == [] else _value(value) for value in given)
    return step.verb if not given else f"{step.verb}{_value(given[0])}"


def _value(value: Any) -> str:
    return _short(str(value).replace(" ", ""), 24)


def _short(text: str, longest: int) -> str:
    return text if len(text) <= longest else text[: longest - 1] + "…"


def _seen(part: Any) -> str:
    if part and part[0] == "release":
        return f"output {list(part[1]) if part[1] else round(part[2], 4)}"
    shown = []
    for field in part:
        if len(field) == 3:
            name, shape, raw = field
            count = int(np.prod(shape))
            if count:
                size = len(raw) // count
                numbers = np.frombuffer(raw, f"i{size}") if size in (2, 4, 8) else np.frombuffer(raw, np.uint8)
                shown.append(f"{name} {numbers.tolist()}")
        elif field[0] != "released":
            shown.append(f"{field[0]} {field[1]}")
    return "state " + " ".join(shown)
