"""How much one token may ask for. Kept by the token's name, and only in memory."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from panstream.server.refusals import Refusal

__all__ = ["Gate", "Limits", "Use"]


_FIRST_SECONDS = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Every limit of a server. Sizes are bytes, times are seconds."""

    body: int = 16 << 20  # of one body as sent
    unpacked: int = 64 << 20  # of one body decompressed
    rows: int = 1_000_000  # of one body
    memory: int = 256 << 20  # of all bodies at a time; of one token, half of what others leave
    rate: float = 2_000.0  # requests a second of one token; bursts of twice as many
    at_once: int = 64  # requests of one token under way
    connections: int = 512  # of all together
    address_connections: int = 256  # from one address, or IPv6 network of 64 bits
    handshake_time: float = 5.0
    head: int = 16 << 10  # of one request's head
    head_time: float = 10.0
    body_time: float = 30.0
    body_rate: float = 32_768.0  # bytes a second of a body, after its first seconds
    producers: int = 1_000  # of one token, open at a time

    def patience(self, received: int) -> float:
        """Return how long a body may take of which so many bytes have come.

        >>> Limits().patience(0), Limits().patience(327_680), Limits().patience(16 << 20)
        (5.0, 15.0, 30.0)
        """
        return min(self.body_time, _FIRST_SECONDS + received / self.body_rate)


@dataclass(slots=True)
class Use:
    """What one token uses at the moment."""

    allowance: float
    at: float
    under_way: int = 0
    memory: int = 0


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
        burst, now, use = 2.0 * self.limits.rate, self.clock(), self._use(name)
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

    def reserve(self, size: int, name: str = "") -> None:
        """Set memory aside for a body of a token, or refuse; from any thread.

        A token may hold half of what the others leave: so there is always some for the next one.
        """
        with self._lock:
            use = self._use(name)
            others = self._memory - use.memory
            full = size > 0 and 2 * (use.memory + size) > self.limits.memory - others
            if not full:
                self._memory += size
                use.memory += size
        if full:
            raise Refusal(
                "rate_limited", "as many events as may wait under this token are waiting; try again", retry_after=1
            )

    def give_back(self, size: int, name: str = "") -> None:
        """Free what was reserved."""
        with self._lock:
            self._memory -= size
            self._use(name).memory -= size

    def _use(self, name: str) -> Use:
        return self._uses.get(name) or self._uses.setdefault(name, Use(2.0 * self.limits.rate, self.clock()))
