"""Reading the next micro-batch while the engine works on the last: decoders run without Python's lock."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Generator

from panstream.engine.rows import MicroBatch

__all__ = ["read_ahead"]


def read_ahead(batches: Generator[MicroBatch | None, None, None]) -> Generator[MicroBatch | None, None, None]:
    """Yield ``batches`` as they are, read by a thread that keeps one ready and works on the next.

    So two more than otherwise are in memory. Closing the iterator ends the thread and overwrites what it had read.
    """
    ready: queue.Queue[MicroBatch | BaseException | None] = queue.Queue(maxsize=1)
    left = threading.Event()

    def read() -> None:
        try:
            with contextlib.closing(batches):
                for batch in batches:
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
        while (found := ready.get()) is not None:
            if isinstance(found, BaseException):
                raise found
            yield found
    finally:
        left.set()
        while thread.is_alive() or not ready.empty():
            _drop(ready)
            thread.join(0.001)


def _drop(ready: queue.Queue[MicroBatch | BaseException | None]) -> None:
    """Make room for a thread that waits to put its last batch."""
    try:
        found = ready.get_nowait()
    except queue.Empty:
        return
    if isinstance(found, MicroBatch):
        found.wipe()
