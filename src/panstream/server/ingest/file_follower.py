"""Growing files and standard input as sources of a served stream.

The positions in the files are part of the engine's checkpoint. A batch is therefore applied without waiting for its
commit: if the step fails, the files are read again from the positions of the reopened engine.
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
_RETRY_DELAY = 1.0  # seconds before an engine that was unavailable is tried again


class FileFollower:
    """Reads files into a worker's engine.

    Args:
        config: The stream's configuration.
        inputs: Files, or "-" for standard input.
        worker: Runs the engine.
        failed: Called from another thread, after ``error`` was set, if a file cannot be read.
        format: The format of the files.
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
        self._source = self._open()
        self._worker = worker
        self._failed = failed
        self._select = Selector(config)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="follow", daemon=True)
        self.error: PanstreamError | None = None

    def start(self) -> None:
        """Start the thread that reads; call it from the event loop."""
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    async def stop(self) -> None:
        """Stop reading; what was applied is part of the engine's last commit."""
        self._stopped.set()
        await asyncio.to_thread(self._thread.join)
        self._select.__exit__(None, None, None)

    # In the thread that reads.

    def _run(self) -> None:
        try:
            while self._read():
                self._source = self._open()
        except PanstreamError as error:
            self.error = error
        except Exception as error:  # its text may contain a row
            self.error = PanstreamError(f"a followed file could not be read ({type(error).__name__})")
        if self.error is not None:
            self._failed()

    def _read(self) -> bool:
        """Read until stopped, or to the end of standard input; True if the files have to be read again."""
        start = self._call(lambda engine: (engine, engine.positions()))
        if start is None:
            return False
        engine, positions = start
        self._source.resume(positions)
        with contextlib.closing(cast("Generator[RowBatch | None, None, None]", self._source.batches())) as batches:
            for batch in batches:
                if batch is not None and not self._take(batch, engine):
                    return not self._stopped.is_set()
                if self._stopped.is_set():
                    return False
                if self._is_behind(engine):
                    return True
        return False

    def _is_behind(self, engine: Engine) -> bool:
        """Return whether the engine was reopened, and may lack rows; standard input cannot be read again."""
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
        """Return ``work(engine)``, retried while the engine is unavailable; None if stopped before."""
        assert self._loop is not None
        while not self._stopped.is_set():
            try:
                result: _T = asyncio.run_coroutine_threadsafe(self._worker.call(work), self._loop).result()
                return result
            except HttpError as refusal:
                if refusal.code != "unavailable":
                    raise PanstreamError(f"rows of a followed file could not be taken: {refusal}") from None
            self._stopped.wait(_RETRY_DELAY)
        return None
