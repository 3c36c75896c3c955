"""Wiping and reuse of the server's buffers, and timely garbage collection.

Objects in reference cycles are freed only by Python's garbage collector. Exceptions of the HTTP parser, which hold the
bytes they complain about, and connections are such objects, so the collector is run soon after one was dropped.
"""

from __future__ import annotations

import asyncio
import gc
import threading

from panstream.primitives.memory.scratch import wipe

_STEP = 1 << 17  # capacities are multiples of it, so that buffers fit each other's bodies
_MAX_POOLED = 1 << 22  # bytes of a buffer; larger ones are freed
_MAX_POOL = 1 << 25  # bytes of all pooled buffers
_DEFAULT_THRESHOLD = gc.get_threshold()
_SERVER_THRESHOLD = (*_DEFAULT_THRESHOLD[:2], 100)  # full collections are rare: they stop the server for long
_DELAY = 0.1  # seconds: at most ten collections a second, however many requests are refused


def wipe_bytearray(data: object) -> None:
    """Wipe a bytearray and set its length to 0."""
    if isinstance(data, bytearray):
        wipe(data)
        data.clear()


class RequestBufferPool:
    """A thread-safe pool of zeroed buffers by size: mapping new memory takes longer than filling it."""

    def __init__(self) -> None:
        self._free: dict[int, list[bytearray]] = {}
        self._pooled_bytes = 0
        self._lock = threading.Lock()

    def take(self, size: int) -> bytearray:
        """Return a zeroed buffer of at least ``size`` bytes."""
        capacity = -(-size // _STEP) * _STEP
        with self._lock:
            if free_buffers := self._free.get(capacity):
                self._pooled_bytes -= capacity
                return free_buffers.pop()
        return bytearray(capacity)

    def give_back(self, data: bytearray) -> None:
        """Wipe a buffer, and pool it unless it is too large or the pool is full."""
        capacity = len(data)
        wipe(data)
        if 0 < capacity <= _MAX_POOLED and capacity % _STEP == 0:
            with self._lock:
                if self._pooled_bytes + capacity <= _MAX_POOL:
                    self._pooled_bytes += capacity
                    self._free.setdefault(capacity, []).append(data)


BUFFERS = RequestBufferPool()


class GcScheduler:
    """Runs the garbage collector on request, with a delay that bounds how often."""

    def __init__(self) -> None:
        self._is_scheduled = False

    @staticmethod
    def start() -> None:
        """Exclude existing objects from collections, which makes them fast. Call it before the first request."""
        gc.collect()
        gc.freeze()
        gc.set_threshold(*_SERVER_THRESHOLD)

    @staticmethod
    def stop() -> None:
        """Restore the collector's defaults, for what the process does after serving."""
        gc.unfreeze()
        gc.set_threshold(*_DEFAULT_THRESHOLD)

    def collect_soon(self, loop: asyncio.AbstractEventLoop) -> None:
        """Schedule a collection within a tenth of a second."""
        if not self._is_scheduled:
            self._is_scheduled = True
            loop.call_later(_DELAY, self._collect)

    def _collect(self) -> None:
        self._is_scheduled = False
        gc.collect()
