"""Messages between the dealer and the two machines: a header of public facts, then arrays of public sizes.

The sizes follow from rules that both sides know, so a message does not contain them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.algorithms.secret_shared.party import StepTask
from panstream.algorithms.secret_shared.rules import rule_from_parameters
from panstream.errors import InvalidBytes, TwoPartyError, translate_errors
from panstream.primitives.container import MAX_MESSAGE_HEADER, MESSAGE, read_container, to_pieces


def pack(header: dict[str, Any], arrays: Sequence[NDArray[Any]] = ()) -> bytearray:
    """Serialize a message into a new buffer, which the sender wipes.

    There is no checksum: TLS authenticates the message, and computing one would need another copy of the shares.
    """
    text = json.dumps(header, separators=(",", ":"), allow_nan=False).encode()
    body = [np.ascontiguousarray(array).reshape(-1).view(np.uint8).data for array in arrays]
    return bytearray().join(to_pieces(MESSAGE, text, body, checksum=False))


def unpack(data: bytearray) -> tuple[dict[str, Any], NDArray[np.uint8]]:
    """Return the header and a view of the bytes behind it; the owner of ``data`` wipes it.

    Raises:
        TwoPartyError: If ``data`` is no message of this format.
    """
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
