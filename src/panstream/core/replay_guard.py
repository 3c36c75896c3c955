"""Copies of one state share its releases: what this process has released is not released again from a copy.

Every state has an id, drawn from the operating system when it starts and kept for as long as it lives, and a count of
how often it has published. Both are public: an id is independent of the data and of all noise, and the count depends on
calls only. A copy that is behind what was published under its id would draw a second answer from noise that was paid
for once, so it is refused.

What this cannot see is a copy in another process or on another machine: there the copy is yours to keep from releasing.
"""

from __future__ import annotations

import threading
from collections import OrderedDict

from panstream.errors import BudgetExhausted

ID_BYTES = 16
MOST_REMEMBERED = 1 << 16  # states, the least recently released are forgotten first: a public bound of a few megabytes

_published: OrderedDict[bytes, int] = OrderedDict()
_lock = threading.Lock()
_RETIRED = 1 << 62  # more than any state publishes


def record_publication(state: bytes, published: int) -> None:
    """Count one more publication of a state that has published so often, or raise where a copy of it has already."""
    with _lock:
        _require_latest(state, published)
        _remember(state, published + 1)


def undo_publication(state: bytes, published: int) -> None:
    """Take `record_publication` back: the call was refused, and nothing was drawn."""
    with _lock:
        if _published.get(state) == published + 1:
            _remember(state, published)


def require_not_replayed(*states: tuple[bytes, int]) -> None:
    """Raise where a copy of one of these states, each with its count, has published or was merged since."""
    with _lock:
        for state, published in states:
            _require_latest(state, published)


def retire(*states: bytes) -> None:
    """Let no copy of these states publish any more: they live on in another one."""
    with _lock:
        for state in states:
            _remember(state, _RETIRED)


def _require_latest(state: bytes, published: int) -> None:
    if _published.get(state, 0) > published:
        raise BudgetExhausted(
            "another copy of this state was released or merged since this one was written, and copies share their "
            "releases: go on with the newest copy, or read what was published"
        )


def _remember(state: bytes, published: int) -> None:
    _published[state] = published
    _published.move_to_end(state)
    while len(_published) > MOST_REMEMBERED:
        _published.popitem(last=False)
