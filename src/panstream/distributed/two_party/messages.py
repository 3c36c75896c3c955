"""Messages between the front end and the two machines: a header of public facts, then arrays of public sizes.

The sizes follow from rules that both sides know, so the message does not name them and its reader cuts by the rules.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.algorithms.secret_shared.party import StepTask
from panstream.algorithms.secret_shared.running_sums import rule_from_parameters
from panstream.errors import InvalidBytes, TwoPartyError, translate_errors
from panstream.primitives.container import MAX_MESSAGE_HEADER, MESSAGE, read_container, to_pieces


def pack(header: dict[str, Any], arrays: Sequence[NDArray[Any]] = ()) -> bytearray:
    """Return a message in memory of its own, which whoever sends it overwrites.

    It has no checksum: TLS authenticates it, and shares pass through no more memory than they must.
    """
    text = json.dumps(header, separators=(",", ":"), allow_nan=False).encode()
    body = [np.ascontiguousarray(array).reshape(-1).view(np.uint8).data for array in arrays]
    return bytearray().join(to_pieces(MESSAGE, text, body, checksum=False))


def unpack(data: bytearray) -> tuple[dict[str, Any], NDArray[np.uint8]]:
    """Return the header, and the bytes behind it where they lie; whoever owns the message overwrites it."""
    header, body = translate_errors(
        lambda: read_container(data, MESSAGE, checksum=False, max_header=MAX_MESSAGE_HEADER),
        InvalidBytes,
        lambda error: TwoPartyError(f"a message cannot be read ({error}): is the other side of the same release?"),
    )
    return header, np.frombuffer(body, np.uint8)


def task_to_json(task: StepTask, kinds: dict[str, str]) -> dict[str, Any]:
    """Return a task as JSON values; ``kinds`` names the rule of every state that starts."""
    return {
        "kind": task.kind,
        "started": {name: [kinds[name], rule.parameters()] for name, rule in task.started.items()},
        "dropped": list(task.dropped),
        "answered": list(task.answered),
    }


def task_from_json(values: Any) -> StepTask:
    """Return the task that `task_to_json` described."""
    try:
        started = {
            str(name): rule_from_parameters(kind, parameters) for name, (kind, parameters) in values["started"].items()
        }
        if values["kind"] not in ("rows", "answers", "idle"):
            raise ValueError
        return StepTask(kind=values["kind"], started=started, dropped=values["dropped"], answered=values["answered"])
    except (KeyError, TypeError, ValueError, AttributeError):
        raise TwoPartyError("a step cannot be read: is the front end of the same release?") from None
