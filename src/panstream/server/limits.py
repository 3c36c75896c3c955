"""How much one token may ask for. Kept by the token's name, never by address, and only in memory."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from panstream.server.refusals import Refusal

__all__ = ["Gate", "Limits", "Use"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Every limit of a server. Sizes are bytes, times are seconds."""

    body: int = 16 << 20  # of one body as sent
    unpacked: int = 64 << 20  # of one body decompressed
    rows: int = 1_000_000  # of one body
    memory: int = 256 << 20  # of all bodies at a time
    rate: float = 2_000.0  # requests a second of one token; bursts of twice as many
    at_once: int = 64  # requests of one token under way
    connections: int = 512  # of all together
    head: int = 16 << 10  # of one request's head
    head_time: float = 10.0
    body_time: float = 30.0
    producers: int = 1_000  # of one token, open at a time


@dataclass(slots=True)
class Use:
    """What one token uses at the moment."""

    allowance: float
    at: float
    under_way: int = 0


@dataclass(slots=True)
class Gate:
    """Counts what every token uses."""

    limits: Limits
    clock: Callable[[], float] = time.monotonic
    _uses: dict[str, Use] = field(default_factory=dict)
    _memory: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @contextmanager
    def request(self, name: str) -> Iterator[None]:
        """Hold one of the token's places for the time of a request."""
        use = self.enter(name)
        try:
            yield
        finally:
            self.leave(use)

    def enter(self, name: str) -> Use:
        """Take one of the token's places, or refuse; ``leave`` gives it back."""
        burst, now = 2.0 * self.limits.rate, self.clock()
        use = self._uses.get(name) or self._uses.setdefault(name, Use(burst, now))
        use.allowance = min(burst, use.allowance + (now - use.at) * self.limits.rate)
        use.at = now
        if use.allowance < 1.0 or use.under_way >= self.limits.at_once:
            raise Refusal("rate_limited", retry_after=1)
        use.allowance -= 1.0
        use.under_way += 1
        return use

    @staticmethod
    def leave(use: Use) -> None:
        """Give a place back."""
        use.under_way -= 1

    def reserve(self, size: int) -> None:
        """Set memory aside for a body, or refuse; from any thread."""
        with self._lock:
            full = self._memory + size > self.limits.memory
            self._memory += 0 if full else size
        if full:
            raise Refusal("unavailable", "too many events are waiting; try again", retry_after=1)

    def give_back(self, size: int) -> None:
        """Free what was reserved."""
        with self._lock:
            self._memory -= size
