"""Taking turns: what waits is taken from one token after the other, so that nobody waits for all that another one sends."""

from __future__ import annotations

import threading
from collections import deque

from panstream.server.jobs import Job

__all__ = ["Turns"]


class Turns:
    """A queue with a line for every token. Within a line, first come, first served. For any thread."""

    def __init__(self) -> None:
        self._lines: dict[str, deque[Job]] = {}  # whose turn it is stands first
        self._ended = False
        self._changed = threading.Condition()

    def put(self, job: Job) -> None:
        """Put a body at the end of its token's line."""
        assert job.body is not None
        with self._changed:
            self._lines.setdefault(job.body.token, deque()).append(job)
            self._changed.notify()

    def end(self) -> None:
        """Have ``get`` return None once nothing waits."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def get(self) -> Job | None:
        """Return the next body; wait until there is one. None at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._lines or self._ended)
            if not self._lines:
                return None
            token, line = next(iter(self._lines.items()))
            job = line.popleft()
            del self._lines[token]
            if line:
                self._lines[token] = line  # behind the others
            return job

    def qsize(self) -> int:
        """Return how many wait."""
        with self._changed:
            return sum(map(len, self._lines.values()))
