"""The script of websites: as it is, or with a counter in the browser's storage."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.resources import files

from panstream.primitives.sender_counts import CODES

_SENT = "  const count = (row, post) => post(row);\n"
_NONE = "/* kind, its letter, seconds of a window, most rows */ []"
_EXPORTED = "window.panstream = send;"


def website_script(caps: Mapping[tuple[str, int], int]) -> bytes:
    """Return the script; with ``caps``, by kind and seconds of a window, it numbers what it sends.

    Raises:
        ValueError: If the parts do not fit together.
    """
    script, counter = ((files(__package__) / name).read_text() for name in ("panstream.js", "counter.js"))
    if not caps:
        return script.encode()
    counters = [[kind, CODES[kind], length, most] for (kind, length), most in sorted(caps.items())]
    for before, after in (
        (_SENT, counter.replace(_NONE, json.dumps(counters))),
        (_EXPORTED, "window.panstream = Object.assign(send, { counter });"),
    ):
        if script.count(before) != 1:
            raise ValueError("the parts of the script do not fit together")
        script = script.replace(before, after)
    return script.encode()
