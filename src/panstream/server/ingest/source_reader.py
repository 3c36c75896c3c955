"""Growing files, standard input, Redis, MQTT and Kafka as sources of a served stream.

The positions in the inputs are part of the engine's checkpoint. A batch is therefore applied without waiting for its
commit: if the step fails, the input is read again from the positions of the reopened engine. A batch is
acknowledged, after which Redis deletes it, only when a commit has followed it.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
from collections import deque
from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import TypeVar, cast

from panstream.engine.config.config import Config
from panstream.engine.rows.row_batch import RowBatch
from panstream.engine.runtime.engine import Engine
from panstream.engine.runtime.ingest import open_configured_source
from panstream.engine.runtime.selector import Selector
from panstream.engine.sources import EventSource
from panstream.errors import ConnectionLost, InvalidParameter, PanstreamError
from panstream.primitives.escaping import printable
from panstream.server.errors import HttpError
from panstream.server.ingest.engine_thread import EngineThread

_T = TypeVar("_T")
_RETRY_DELAY = 1.0  # seconds before an engine or a broker that was unavailable is tried again


class SourceReader:
    """Reads one source into a worker's engine.

    A broker that cannot be reached is tried again until the reader is stopped; meanwhile ``up`` is False.

    Args:
        config: The stream's configuration.
        inputs: Files, or "-" for standard input, or one address.
        worker: Runs the engine.
        failed: Called from another thread, after ``error`` was set, if the source cannot be read.
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
        # What came from a pipe or, acknowledged, over MQTT cannot be read again.
        self._read_once = "-" in inputs or any(text.startswith(("mqtt://", "mqtts://")) for text in inputs)
        self._open: Callable[[], EventSource] = partial(
            open_configured_source, config, inputs, follow="-" not in inputs, format=format
        )
        self._source = self._open()
        self.name = self._source.name
        self.up = True
        self._worker = worker
        self._failed = failed
        self._select = Selector(config)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="source", daemon=True)
        self._unacknowledged = deque[tuple[object, object]]()  # tokens, each with the last commit before its batch
        self.error: PanstreamError | None = None

    def start(self) -> None:
        """Start the thread that reads; call it from the event loop."""
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    async def stop(self) -> None:
        """Stop reading; what was applied is part of the engine's last commit."""
        self._stopped.set()
        self._source.close()
        await asyncio.to_thread(self._thread.join)
        self._select.__exit__(None, None, None)

    # In the thread that reads.

    def _run(self) -> None:
        try:
            while self._read_until_lost():
                self._source = self._open()
        except PanstreamError as error:
            self.error = error
        except Exception as error:  # its text may contain a row
            self.error = PanstreamError(f"{self.name or 'a followed file'} could not be read ({type(error).__name__})")
        if self.error is not None:
            self._failed()

    def _read_until_lost(self) -> bool:
        """Read like ``_read``; if the connection to a broker is lost, wait a moment, and read again."""
        try:
            return self._read()
        except ConnectionLost as error:
            if self.up and not self._stopped.is_set():
                self.up = False
                print(
                    f"panstream: {printable(f'{self.name}: {error}')}; trying again until it is back", file=sys.stderr
                )
            return not self._stopped.wait(_RETRY_DELAY)

    def _read(self) -> bool:
        """Read until stopped, or to the end of standard input; True if the source has to be read again."""
        self._unacknowledged.clear()
        start = self._call(lambda engine: (engine, engine.positions(), engine.positions_ahead()))
        if start is None:
            return False
        engine, positions, ahead = start
        self._source.resume(positions, ahead)
        with contextlib.closing(cast("Generator[RowBatch | None, None, None]", self._source.batches())) as batches:
            for batch in batches:
                self._note_up()
                if batch is not None and not self._take(batch, engine):
                    return not self._stopped.is_set()
                self._acknowledge(engine)
                if self._stopped.is_set():
                    return False
                if self._is_behind(engine):
                    return True
        return False

    def _note_up(self) -> None:
        if not self.up:
            self.up = True
            print(f"panstream: {printable(str(self.name))} is back", file=sys.stderr)

    def _is_behind(self, engine: Engine) -> bool:
        """Return whether the engine was reopened, and may lack rows of a source that can be read again."""
        return not self._read_once and self._worker.engine is not engine

    def _take(self, batch: RowBatch, engine: Engine) -> bool:
        """Apply a batch; False if it has to be read again."""

        def apply(now: Engine) -> bool:
            if self._is_behind(engine):
                return False
            last_commit = now.committed
            try:
                now.apply(self._select(batch), commit=False)
            finally:
                self._select.wipe()
            if batch.token is not None:
                self._unacknowledged.append((batch.token, None if now.durable else last_commit))
            return True

        try:
            return bool(self._call(apply))
        finally:
            batch.wipe()

    def _acknowledge(self, engine: Engine) -> None:
        """Acknowledge the batches that a later commit has stored."""
        while self._unacknowledged and not self._is_behind(engine):
            token, last_commit = self._unacknowledged[0]
            if last_commit is engine.committed:
                return
            self._source.acknowledge(token)
            self._unacknowledged.popleft()

    def _call(self, work: Callable[[Engine], _T]) -> _T | None:
        """Return ``work(engine)``, retried while the engine is unavailable; None if stopped before."""
        assert self._loop is not None
        while not self._stopped.is_set():
            try:
                result: _T = asyncio.run_coroutine_threadsafe(self._worker.call(work), self._loop).result()
                return result
            except HttpError as refusal:
                if refusal.code != "unavailable":
                    what = self.name or "a followed file"
                    raise PanstreamError(f"rows of {what} could not be taken: {refusal}") from None
            self._stopped.wait(_RETRY_DELAY)
        return None


def open_readers(
    config: Config, inputs: Sequence[str], worker: EngineThread, failed: Callable[[], None], format: str | None
) -> tuple[SourceReader, ...]:
    """Return one reader for all files, and one for each address.

    Raises:
        InvalidParameter: Two addresses name the same stream or topic, by which positions are stored.
    """
    addresses = [text for text in inputs if "://" in text]
    files = [text for text in inputs if "://" not in text]
    readers = [SourceReader(config, [address], worker, failed, None if files else format) for address in addresses]
    names = [reader.name for reader in readers]
    if repeated := [name for name in names if names.count(name) > 1]:
        raise InvalidParameter(f"two inputs are called {repeated[0]}; positions are stored under that name")
    if files:
        readers.append(SourceReader(config, files, worker, failed, format))
    return tuple(readers)
