"""Files that grow, and standard input, as rows of a served stream: what ``panstream run --follow`` reads, served.

How far a file was read is part of the engine's state. So a batch is applied like any other call, waits for nothing, and
should its step fail, the files are read again from where the engine, opened again, says.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import TypeVar, cast

from panstream.engine.config.config import Config
from panstream.engine.rows.row_batch import RowBatch
from panstream.engine.runtime.engine import Engine
from panstream.engine.runtime.ingest import open_configured_source
from panstream.engine.runtime.selector import Selector
from panstream.engine.sources import EventSource
from panstream.errors import InvalidParameter, PanstreamError
from panstream.server.errors import HttpError
from panstream.server.ingest.engine_thread import EngineThread

_T = TypeVar("_T")
_WAIT = 1.0  # seconds before an engine that could not take rows is tried again


class FileFollower:
    """Reads files into a worker's engine. ``failed`` is called, from another thread, if they cannot be read.

    What was wrong is then in ``error``.
    """

    def __init__(
        self,
        config: Config,
        inputs: Sequence[str],
        worker: EngineThread,
        failed: Callable[[], None],
        format: str | None,
    ) -> None:
        if any("://" in path for path in inputs):
            raise InvalidParameter("only files and standard input can be followed by a server; use panstream run")
        self._piped = "-" in inputs
        self._open: Callable[[], EventSource] = partial(
            open_configured_source, config, inputs, follow=not self._piped, format=format
        )
        self._feed = self._open()
        self._worker = worker
        self._failed = failed
        self._select = Selector(config)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="follow", daemon=True)
        self.error: PanstreamError | None = None

    def start(self) -> None:
        """Begin; call it from the event loop."""
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    async def stop(self) -> None:
        """Take no more rows; what was applied waits for the last commit."""
        self._stopped.set()
        await asyncio.to_thread(self._thread.join)
        self._select.__exit__(None, None, None)

    # The thread that reads.

    def _run(self) -> None:
        try:
            while self._read():
                self._feed = self._open()
        except PanstreamError as error:
            self.error = error
        except Exception as error:  # its text may hold a row
            self.error = PanstreamError(f"a followed file could not be read ({type(error).__name__})")
        if self.error is not None:
            self._failed()

    def _read(self) -> bool:
        """Read until stopped, or to the end, which only a pipe has; True if files are to be read again."""
        start = self._call(lambda engine: (engine, engine.positions()))
        if start is None:
            return False
        engine, positions = start
        self._feed.resume(positions)
        with contextlib.closing(cast("Generator[RowBatch | None, None, None]", self._feed.batches())) as batches:
            for batch in batches:
                if batch is not None and not self._take(batch, engine):
                    return not self._stopped.is_set()
                if self._stopped.is_set():
                    return False
                if self._is_behind(engine):
                    return True
        return False

    def _is_behind(self, engine: Engine) -> bool:
        """Return whether the worker has another engine by now, which may lack rows; a pipe cannot be read again."""
        return not self._piped and self._worker.engine is not engine

    def _take(self, batch: RowBatch, engine: Engine) -> bool:
        """Apply a batch; False if it has to be read again."""

        def apply(now: Engine) -> bool:
            if self._is_behind(engine):
                return False
            try:
                now.apply(self._select(batch), commit=False)
            finally:
                self._select.wipe()
            return True

        try:
            return bool(self._call(apply))
        finally:
            batch.wipe()

    def _call(self, work: Callable[[Engine], _T]) -> _T | None:
        """Have the engine's thread do something, once there is an engine; None if all is stopped before."""
        assert self._loop is not None
        while not self._stopped.is_set():
            try:
                result: _T = asyncio.run_coroutine_threadsafe(self._worker.call(work), self._loop).result()
                return result
            except HttpError as refusal:
                if refusal.code != "unavailable":
                    raise PanstreamError(f"rows of a followed file could not be taken: {refusal}") from None
            self._stopped.wait(_WAIT)
        return None
