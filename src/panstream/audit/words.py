"""Streams, looks and views of tiny instances in words. Their users are made up: nothing real is ever shown here."""

from __future__ import annotations

from typing import Any

import numpy as np

from panstream.testing.enumerate import Step, World

__all__ = ["told_look", "told_streams", "told_view"]

_LONGEST = 160


def told_streams(streams: tuple[World, World]) -> str:
    """Return two neighbouring streams, the one under which the view is likelier first."""
    return " against ".join("[" + " ".join(_step(step) for step in stream) + "]" for stream in streams)


def told_look(look: int | None) -> str:
    """Return when the state was copied."""
    return "outputs only" if look is None else f"state copied after step {look}"


def told_view(view: tuple[Any, ...]) -> str:
    """Return what is seen, shortened."""
    text = ", ".join(_seen(part) for part in view)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def _step(step: Step) -> str:
    given = [value for _, value in step.arguments]
    if step.verb == "update":
        return "+".join("·" if value == () else _short(value) for value in given)
    return step.verb if not given else f"{step.verb}{_short(given[0])}"


def _short(value: Any) -> str:
    text = str(list(value) if isinstance(value, tuple) else value).replace(" ", "")
    return text if len(text) <= 24 else text[:23] + "…"


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
        elif field[0] not in ("released",):
            shown.append(f"{field[0]} {field[1]}")
    return "state " + " ".join(shown)
