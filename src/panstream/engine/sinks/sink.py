"""Copy published answers from the release log to a database, exactly once, or to a Kafka topic.

An answer is in the log before it is published anywhere else. After a failure of this process or of the database, the
missing answers are copied on the next attempt, and existing ones stay as they are: stream, query, group and number
identify an answer. Only published answers are read here, never rows of the input.
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol, Self

from panstream.engine.config.sink import SinkState
from panstream.engine.runtime.engine import Engine
from panstream.engine.sinks.release_rows import COLUMNS, KEY_COLUMNS, key_of, rows_of
from panstream.engine.storage.release_log import ReleaseLog
from panstream.errors import SinkError, import_optional

_PAUSE = 1.0  # seconds between two checks of the log for new answers


class Destination(Protocol):
    """A database table or a topic that answers are copied to."""

    error: type[Exception]  # raised by ``copy`` while it cannot be written to

    def copy(self) -> None:
        """Copy the missing answers; raise SinkError if it has other answers with the same keys."""


class _DatabaseDestination:
    """A database table of answers, with the primary key ``KEY_COLUMNS``."""

    def __init__(self, url: str, table: str, stream: str, series: Sequence[str], log: ReleaseLog) -> None:
        self._stream = stream
        self._table = table
        self._series = series
        self._log = log
        self._copied: dict[str, int] = {}  # by series, the number of the last copied answer
        self._placeholder = "?"  # for a parameter of a statement
        self._time = "TIMESTAMP"
        self._connect: Callable[[], Any]
        self.error: type[Exception]
        kind, _, path = url.partition(":")
        if kind == "sqlite":
            self._connect = partial(sqlite3.connect, path, isolation_level=None)
            self.error = sqlite3.Error
            self._time = "TEXT"
        elif kind == "duckdb":
            import duckdb

            self._connect = partial(duckdb.connect, path)
            self.error = duckdb.Error
        else:
            driver = import_optional("psycopg", "writing to PostgreSQL", "postgres")
            self._connect = partial(driver.connect, url, autocommit=True, connect_timeout=10)
            self.error = driver.Error
            self._placeholder = "%s"
            self._time = "TIMESTAMPTZ"

    def copy(self) -> None:
        """Copy the missing answers in one transaction."""
        with contextlib.closing(self._connect()) as database:
            self._copy(database)

    def _copy(self, database: Any) -> None:
        types = {name: self._time if kind == "TIME" else kind for name, kind in COLUMNS.items()}
        columns = ", ".join(
            f"{name} {kind}{' NOT NULL' if name in KEY_COLUMNS else ''}" for name, kind in types.items()
        )
        database.execute(
            f"CREATE TABLE IF NOT EXISTS {self._table} ({columns}, PRIMARY KEY ({', '.join(KEY_COLUMNS)}))"
        )
        values = ", ".join([self._placeholder] * len(COLUMNS))
        insert = f"INSERT INTO {self._table} ({', '.join(COLUMNS)}) VALUES ({values}) ON CONFLICT DO NOTHING"
        copied: dict[str, int] = {}
        database.execute("BEGIN")
        for series in self._series:
            copied[series] = self._copied[series] if series in self._copied else self._last(database, series)
            for release in self._log.history(series, after=copied[series]):
                for row in rows_of(self._stream, release):
                    database.execute(insert, row)
                copied[series] = release.number
        database.execute("COMMIT")
        self._copied = copied

    def _last(self, database: Any, series: str) -> int:
        """Return the number of a series' last answer in the table; raise SinkError if it differs from the log's."""
        newest = self._log.last(series)
        query, group = key_of(newest) if newest is not None else (series, "{}")
        where = " AND ".join(f"{name} = {self._placeholder}" for name in KEY_COLUMNS[:3])
        rows = database.execute(
            f"SELECT number, unclipped, high FROM {self._table} WHERE {where} ORDER BY number DESC LIMIT 1",
            (self._stream, query, group),
        ).fetchall()
        if not rows:
            return 0
        number = int(rows[0][0])
        same = next(self._log.history(series, after=number - 1), None)
        if same is None or [same.record["unclipped"], same.record["interval"][1]] != list(rows[0][1:]):
            raise SinkError(
                f"[sink] table {self._table} has answers of {series!r} that are not of this store: name another table"
            )
        return number


class _SinkThread:
    """Copy new answers in a background thread while the context is open, and once more at its end.

    A database that cannot be written to does not stop the engine: ``tell`` is called once with the reason, and copying
    is retried. Leaving the context raises SinkError if answers are still missing, and so does entering it if the
    database has other answers with the same keys.
    """

    def __init__(self, engine: Engine, tell: Callable[[str], None]) -> None:
        config = engine.config
        assert config.sink is not None
        assert config.directory is not None
        self._tell = tell
        series = [name for plan in engine.plans for name in plan.series]
        self._log = ReleaseLog(config.directory / "releases.sqlite")
        try:
            self._destination: Destination
            if config.sink.url.startswith("kafka:"):
                from panstream.engine.sinks.kafka import KafkaDestination

                self._destination = KafkaDestination(
                    config.sink.url, config.stream.name, series, self._log, config.directory
                )
            else:
                self._destination = _DatabaseDestination(
                    config.sink.url, config.sink.table, config.stream.name, series, self._log
                )
        except BaseException:
            self._log.close()
            raise
        self._copied: int | None = None  # the version of the log that was copied
        self._state = engine.sink = SinkState()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sink", daemon=True)

    def __enter__(self) -> Self:
        try:
            self._copy_once()
        except BaseException:
            self._log.close()
            raise
        self._thread.start()
        return self

    def __exit__(self, kind: object, *rest: object) -> None:
        self._stop.set()
        self._thread.join()
        with contextlib.closing(self._log):
            problem = self._copy_once()
        if problem is not None and kind is None:
            raise SinkError(f"{problem}; the answers are in the store, and will be copied at the next start")

    def _run(self) -> None:
        while not self._stop.wait(_PAUSE):
            try:
                self._copy_once()
            except SinkError as error:
                self._state.up = False
                self._tell(str(error))
                return

    def _copy_once(self) -> str | None:
        """Copy the missing answers; return the problem if the database cannot be written to."""
        version = self._log.version()
        if version == self._copied:
            return None
        try:
            self._destination.copy()
        except self._destination.error as error:
            problem = f"[sink] cannot be written to: {str(error).partition(chr(10))[0]}"
        else:
            self._copied = version
            self._state.up = True
            self._state.copied = time.time()
            return None
        if self._state.up:
            self._tell(f"{problem}; it will be tried again")
        self._state.up = False
        return problem


def open_sink(engine: Engine, tell: Callable[[str], None]) -> contextlib.AbstractContextManager[Any]:
    """Return the context in which an engine's answers are copied; it does nothing if no sink is configured."""
    return contextlib.nullcontext() if engine.config.sink is None else _SinkThread(engine, tell)
