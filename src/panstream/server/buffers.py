"""Memory for bodies, used again and again: to get it from the system costs more than to receive a body into it."""

from __future__ import annotations

import threading

__all__ = ["BUFFERS", "Buffers"]

_STEP = 1 << 17
_LARGEST = 1 << 22  # larger ones go back to the system
_KEPT = 1 << 25  # bytes that are kept for the next bodies, at most


class Buffers:
    """Buffers by size. Whoever gives one back has overwritten it. For any thread."""

    def __init__(self) -> None:
        self._free: dict[int, list[bytearray]] = {}
        self._kept = 0
        self._lock = threading.Lock()

    def take(self, size: int) -> bytearray:
        """Return zeros: ``size`` bytes or more."""
        capacity = -(-size // _STEP) * _STEP
        with self._lock:
            if found := self._free.get(capacity):
                self._kept -= capacity
                return found.pop()
        return bytearray(capacity)

    def give_back(self, data: bytearray) -> None:
        """Keep a buffer for the next body."""
        capacity = len(data)
        if 0 < capacity <= _LARGEST and capacity % _STEP == 0:
            with self._lock:
                if self._kept + capacity <= _KEPT:
                    self._kept += capacity
                    self._free.setdefault(capacity, []).append(data)


BUFFERS = Buffers()
