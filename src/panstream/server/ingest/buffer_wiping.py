"""Leaving nothing behind: every buffer of the server is overwritten here, and kept for the next body.

Objects that hold each other are not left to chance either. Python frees them only when its collector comes by;
errors of the HTTP parser are of that kind, and hold what the parser stumbled over; so are connections.
"""

from __future__ import annotations

import asyncio
import gc
import threading

from panstream.primitives.memory.scratch import wipe

_STEP = 1 << 17
_LARGEST = 1 << 22  # larger buffers go back to the system
_KEPT = 1 << 25  # bytes that are kept for the next bodies, at most
_USUAL = gc.get_threshold()
_RARELY = (*_USUAL[:2], 100)  # a look at all connections stops everybody; what must not wait is swept
_DELAY = 0.1  # seconds: at most ten collections a second, however many requests are refused


def wipe_bytearray(data: object) -> None:
    """Fill a bytearray with zeros, and empty it."""
    if isinstance(data, bytearray):
        wipe(data)
        data.clear()


class RequestBufferPool:
    """Memory for bodies, by size: to get it from the system costs more than to fill it. For any thread."""

    def __init__(self) -> None:
        self._free: dict[int, list[bytearray]] = {}
        self._kept = 0
        self._lock = threading.Lock()

    def take(self, size: int) -> bytearray:
        """Return zeros: ``size`` bytes or more."""
        capacity = -(-size // _STEP) * _STEP
        with self._lock:
            if free_buffers := self._free.get(capacity):
                self._kept -= capacity
                return free_buffers.pop()
        return bytearray(capacity)

    def give_back(self, data: bytearray) -> None:
        """Overwrite a buffer, and keep it for the next body."""
        capacity = len(data)
        wipe(data)
        if 0 < capacity <= _LARGEST and capacity % _STEP == 0:
            with self._lock:
                if self._kept + capacity <= _KEPT:
                    self._kept += capacity
                    self._free.setdefault(capacity, []).append(data)


BUFFERS = RequestBufferPool()


class GcScheduler:
    """Runs the collector soon after it was asked to."""

    def __init__(self) -> None:
        self._asked = False

    @staticmethod
    def start() -> None:
        """Take note of what is there from the start: it need not be looked at each time. Call it before any request."""
        gc.collect()
        gc.freeze()
        gc.set_threshold(*_RARELY)

    @staticmethod
    def stop() -> None:
        """Have the collector look at everything again: the process may go on to something else."""
        gc.unfreeze()
        gc.set_threshold(*_USUAL)

    def soon(self, loop: asyncio.AbstractEventLoop) -> None:
        """Collect within a tenth of a second."""
        if not self._asked:
            self._asked = True
            loop.call_later(_DELAY, self._sweep)

    def _sweep(self) -> None:
        self._asked = False
        gc.collect()
