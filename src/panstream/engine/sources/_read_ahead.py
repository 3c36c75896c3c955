"""Read the next batch in a thread while the last one is processed: decoders run without the GIL."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Generator
from typing import Protocol, TypeVar

from panstream.primitives.memory.scratch import clear_registers


class _Wipeable(Protocol):
    def wipe(self) -> None: ...


T = TypeVar("T", bound=_Wipeable)

_JOIN_TIMEOUT = 3.0  # seconds to wait for the thread at the end; its input may block it


def read_ahead(batches: Generator[T | None, None, None]) -> Generator[T, None, None]:
    """Yield ``batches`` unchanged, read by a thread that has one ready and reads the next.

    So two more batches than otherwise are in memory. Closing the iterator ends the thread and overwrites what it has
    read. A thread that is blocked by its input, such as a FIFO without a writer, is abandoned, so that a signal can end
    the command; it overwrites its batch if it ever continues.
    """
    ready: queue.Queue[T | BaseException | None] = queue.Queue(maxsize=1)
    abandoned = threading.Event()

    def read() -> None:
        try:
            with contextlib.closing(batches):
                for batch in batches:
                    clear_registers()  # the other thread wipes the batch, but not this thread's registers
                    if batch is not None:
                        hand_over(batch)
                    batch = None  # hold no reference to what the engine wipes
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
        if abandoned.is_set():  # the caller may have left before the put, and will not take it
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
    """Empty the queue, so that a thread that is blocked in put can end."""
    try:
        batch = ready.get_nowait()
    except queue.Empty:
        return
    if batch is not None and not isinstance(batch, BaseException):
        batch.wipe()
