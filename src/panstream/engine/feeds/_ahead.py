"""Reading the next piece of input while the last is worked on: decoders run without Python's lock."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Generator
from typing import Protocol, TypeVar

from panstream.scratch import clear_registers


class _Wipeable(Protocol):
    """Something with data about people in it."""

    def wipe(self) -> None:
        """Overwrite the data."""


T = TypeVar("T", bound=_Wipeable)


def read_ahead(
    batches: Generator[T | None, None, None], *, waiting: threading.Event | None = None
) -> Generator[T, None, None]:
    """Yield ``batches`` as they are, read by a thread that keeps one ready and works on the next.

    So two more than otherwise are in memory. Closing the iterator ends the thread and overwrites what it had read.
    ``waiting`` is set while the thread is waited for.
    """
    ready: queue.Queue[T | BaseException | None] = queue.Queue(maxsize=1)
    left = threading.Event()

    def read() -> None:
        try:
            with contextlib.closing(batches):
                for batch in batches:
                    clear_registers()  # the thread that reads is not the one that overwrites
                    if batch is not None:
                        ready.put(batch)
                    batch = None  # what was handed over is the engine's alone
                    if left.is_set():
                        return
            ready.put(None)
        except BaseException as error:
            ready.put(error)

    thread = threading.Thread(target=read, name="panstream reader", daemon=True)
    thread.start()
    try:
        while (found := _next(ready, waiting)) is not None:
            if isinstance(found, BaseException):
                raise found
            yield found
    finally:
        left.set()
        while thread.is_alive() or not ready.empty():
            _drop(ready)
            thread.join(0.001)


def _next(ready: queue.Queue[T | BaseException | None], waiting: threading.Event | None) -> T | BaseException | None:
    if waiting is None or not ready.empty():
        return ready.get()
    waiting.set()
    try:
        return ready.get()
    finally:
        waiting.clear()


def _drop(ready: queue.Queue[T | BaseException | None]) -> None:
    """Make room for a thread that waits to put its last batch."""
    try:
        found = ready.get_nowait()
    except queue.Empty:
        return
    if found is not None and not isinstance(found, BaseException):
        found.wipe()
