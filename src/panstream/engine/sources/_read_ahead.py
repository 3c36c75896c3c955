"""Reading the next piece of input while the last is worked on: decoders run without Python's lock."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Generator
from typing import Protocol, TypeVar

from panstream.primitives.memory.scratch import clear_registers


class _Wipeable(Protocol):
    """Something with data about people in it."""

    def wipe(self) -> None:
        """Overwrite the data."""


T = TypeVar("T", bound=_Wipeable)

_JOIN_TIMEOUT = 3.0  # seconds that a caller who leaves waits for the thread, which may be blocked by its input


def read_ahead(batches: Generator[T | None, None, None]) -> Generator[T, None, None]:
    """Yield ``batches`` as they are, read by a thread that keeps one ready and works on the next.

    So two more than otherwise are in memory. Closing the iterator ends the thread and overwrites what it had read. A
    thread that is blocked by its input, such as a FIFO that nobody writes to, is left behind, so that a signal ends the
    command; it overwrites what it has when it goes on.
    """
    ready: queue.Queue[T | BaseException | None] = queue.Queue(maxsize=1)
    abandoned = threading.Event()

    def read() -> None:
        try:
            with contextlib.closing(batches):
                for batch in batches:
                    clear_registers()  # the thread that reads is not the one that overwrites
                    if batch is not None:
                        hand_over(batch)
                    batch = None  # what was handed over is the engine's alone
                    if abandoned.is_set():
                        return
            hand_over(None)
        except BaseException as error:
            hand_over(error)

    def hand_over(result: T | BaseException | None) -> None:
        if not abandoned.is_set():
            ready.put(result)
        elif result is not None and not isinstance(result, BaseException):
            result.wipe()
        if abandoned.is_set():  # the caller may have left before the result was put, and looks no more
            _drop(ready)

    thread = threading.Thread(target=read, name="panstream reader", daemon=True)
    thread.start()
    try:
        while (next_batch := ready.get()) is not None:
            if isinstance(next_batch, BaseException):
                raise next_batch
            yield next_batch
    finally:
        abandoned.set()
        deadline = time.monotonic() + _JOIN_TIMEOUT
        while thread.is_alive() and time.monotonic() < deadline:
            _drop(ready)
            thread.join(0.001)
        _drop(ready)


def _drop(ready: queue.Queue[T | BaseException | None]) -> None:
    """Make room for a thread that waits to put its last batch."""
    try:
        batch = ready.get_nowait()
    except queue.Empty:
        return
    if batch is not None and not isinstance(batch, BaseException):
        batch.wipe()
