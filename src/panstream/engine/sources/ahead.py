"""Reading the next piece while the engine works on the last: decoders run without Python's lock."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator

from panstream.engine.rows import wipe_array
from panstream.engine.sources.typed import Piece

__all__ = ["read_ahead"]


def read_ahead(pieces: Iterator[Piece]) -> Iterator[Piece]:
    """Yield ``pieces`` as they are, read by a thread that keeps one ready and works on the next.

    So two more pieces than otherwise are in memory. Closing the iterator ends the thread and overwrites what it had read.
    """
    ready: queue.Queue[Piece | BaseException | None] = queue.Queue(maxsize=1)
    left = threading.Event()

    def read() -> None:
        try:
            for piece in pieces:
                ready.put(piece)
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


def _drop(ready: queue.Queue[Piece | BaseException | None]) -> None:
    """Make room for a thread that waits to put its last piece."""
    try:
        found = ready.get_nowait()
    except queue.Empty:
        return
    if isinstance(found, Piece):
        for column in found.columns.columns:
            wipe_array(column)
