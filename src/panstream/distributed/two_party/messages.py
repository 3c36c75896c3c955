"""Messages between the front end and the two machines: a header of public facts, then arrays of public sizes."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.algorithms.secret_shared.party import Task
from panstream.algorithms.secret_shared.running_sums import find_rule
from panstream.errors import MachineError
from panstream.primitives.memory.scratch import wipe

_MOST_HEADER = 1 << 24


def pack(header: dict[str, Any], arrays: Sequence[NDArray[Any]] = ()) -> bytearray:
    """Return a message in memory of its own, which whoever sends it overwrites."""
    text = json.dumps(header, separators=(",", ":")).encode()
    flat = [np.ascontiguousarray(array).reshape(-1).view(np.uint8) for array in arrays]
    out = bytearray(4 + len(text) + sum(array.size for array in flat))
    struct.pack_into("<I", out, 0, len(text))
    out[4 : 4 + len(text)] = text
    at = 4 + len(text)
    for array in flat:
        out[at : at + array.size] = array.data
        at += array.size
    return out


def unpack(data: bytearray) -> tuple[dict[str, Any], NDArray[np.uint8]]:
    """Return the header, and the bytes behind it where they lie; whoever owns the message overwrites it."""
    try:
        (length,) = struct.unpack_from("<I", data)
        if length > _MOST_HEADER or 4 + length > len(data):
            raise ValueError
        header = json.loads(bytes(data[4 : 4 + length]))
        if not isinstance(header, dict):
            raise ValueError
    except (struct.error, ValueError):
        raise MachineError("a message cannot be read: is the other side of the same release?") from None
    return header, np.frombuffer(data, np.uint8, offset=4 + length)


def overwrite(message: bytearray) -> None:
    """Fill a message with zeros."""
    if message:
        wipe(np.frombuffer(message, np.uint8))


def told(task: Task, kinds: dict[str, str]) -> dict[str, Any]:
    """Return a task as JSON values; ``kinds`` names the rule of every state that starts."""
    return {
        "kind": task.kind,
        "started": {name: [kinds[name], rule.parameters()] for name, rule in task.started.items()},
        "dropped": list(task.dropped),
        "answered": list(task.answered),
    }


def task_of(values: Any) -> Task:
    """Return the task that :func:`told` described."""
    try:
        started = {str(name): find_rule(kind, parameters) for name, (kind, parameters) in values["started"].items()}
        if values["kind"] not in ("rows", "answers", "idle"):
            raise ValueError
        return Task(kind=values["kind"], started=started, dropped=values["dropped"], answered=values["answered"])
    except (KeyError, TypeError, ValueError, AttributeError):
        raise MachineError("a step cannot be read: is the front end of the same release?") from None
