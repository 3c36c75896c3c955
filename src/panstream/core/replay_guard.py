"""Copies of one state share its releases: a release of this process is not made again from a copy.

Every state has an id, drawn from the operating system when it starts, and a count of its publications. Both are public:
an id is independent of the data and of all noise, and the count depends on calls only. A copy whose count is behind
that of its id would draw a second answer for which only one was paid, so it is rejected.

Copies in other processes or on other machines are not detected: the user must keep them from releasing.
"""

from __future__ import annotations

import threading
from collections import OrderedDict

from panstream.errors import BudgetExhausted

ID_BYTES = 16
MAX_REMEMBERED = 1 << 16  # states, the least recently released are dropped first: a bound of a few megabytes

_published: OrderedDict[bytes, int] = OrderedDict()
_lock = threading.Lock()
_RETIRED = 1 << 62  # more than any state publishes


def record_publication(state: bytes, published: int) -> None:
    """Count one more publication of a state with ``published`` ones; raise BudgetExhausted if a copy is ahead."""
    with _lock:
        _require_latest(state, published)
        _remember(state, published + 1)


def undo_publication(state: bytes, published: int) -> None:
    """Undo `record_publication`: the call failed, and nothing was drawn."""
    with _lock:
        if _published.get(state) == published + 1:
            _remember(state, published)


def require_not_replayed(*states: tuple[bytes, int]) -> None:
    """Raise BudgetExhausted if a copy of one of these (state, count) has published or was merged since."""
    with _lock:
        for state, published in states:
            _require_latest(state, published)


def retire(*states: bytes) -> None:
    """Prevent all copies of these states from publishing: they were merged into another one."""
    with _lock:
        for state in states:
            _remember(state, _RETIRED)


def _require_latest(state: bytes, published: int) -> None:
    if _published.get(state, 0) > published:
        raise BudgetExhausted(
            "another copy of this state was released or merged since this one was written, and copies share their "
            "releases: use the newest copy, or read what was published"
        )


def _remember(state: bytes, published: int) -> None:
    _published[state] = published
    _published.move_to_end(state)
    while len(_published) > MAX_REMEMBERED:
        _published.popitem(last=False)
