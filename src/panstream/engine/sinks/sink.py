"""Published answers in a database or a Kafka topic, copied from the log in the store; in a database, exactly once.

An answer is in the log before anybody else hears of it. Whatever happens to this process or to the database, what is
missing there is copied at the next turn, and what is there stays as it is: rows are told apart by query, group and
number. Rows of people never come near.
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
from panstream.engine.sinks.release_rows import COLUMNS, WHOLE, key_of, rows_of
from panstream.engine.storage.release_log import ReleaseLog
from panstream.errors import SinkError, import_optional

_PAUSE = 1.0  # seconds between two looks at the log


class Destination(Protocol):
    """Where answers go."""

    error: type[Exception]  # what it raises while it cannot be written to

    def copy(self) -> None:
        """Copy what is missing there; raise SinkError if it has other answers of the same names."""


class _DatabaseDestination:
    """A table of answers, in which rows are told apart by what ``WHOLE`` names."""

    def __init__(self, url: str, table: str, stream: str, series: Sequence[str], log: ReleaseLog) -> None:
        self._stream = stream
        self._table = table
        self._series = series
        self._log = log
        self._done: dict[str, int] = {}
        # Of a parameter; the type of times
        self._mark = "?"
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
            self._mark = "%s"
            self._time = "TIMESTAMPTZ"

    def copy(self) -> None:
        """Copy what is missing there."""
        with contextlib.closing(self._connect()) as database:
            self._copy(database)

    def _copy(self, database: Any) -> None:
        types = {name: self._time if kind == "TIME" else kind for name, kind in COLUMNS.items()}
        columns = ", ".join(f"{name} {kind}{' NOT NULL' if name in WHOLE else ''}" for name, kind in types.items())
        database.execute(f"CREATE TABLE IF NOT EXISTS {self._table} ({columns}, PRIMARY KEY ({', '.join(WHOLE)}))")
        marks = ", ".join([self._mark] * len(COLUMNS))
        add = f"INSERT INTO {self._table} ({', '.join(COLUMNS)}) VALUES ({marks}) ON CONFLICT DO NOTHING"
        sent_counts: dict[str, int] = {}
        database.execute("BEGIN")
        for series in self._series:
            sent_counts[series] = last = self._done[series] if series in self._done else self._last(database, series)
            for release in self._log.history(series, after=last):
                for row in rows_of(self._stream, release):
                    database.execute(add, row)
                sent_counts[series] = release.number
        database.execute("COMMIT")
        self._done = sent_counts

    def _last(self, database: Any, series: str) -> int:
        """Return the number of the last answer of a series that is there, and that it is the log's."""
        newest = self._log.last(series)
        query, group = key_of(newest) if newest is not None else (series, "{}")
        where = " AND ".join(f"{name} = {self._mark}" for name in WHOLE[:3])
        rows = database.execute(
            f"SELECT number, unclipped, high FROM {self._table} WHERE {where} ORDER BY number DESC LIMIT 1",
            (self._stream, query, group),
        ).fetchall()
        if not rows:
            return 0
        number = int(rows[0][0])
        same = next((release for release in self._log.history(series, after=number - 1)), None)
        if same is None or [same.record["unclipped"], same.record["interval"][1]] != list(rows[0][1:]):
            raise SinkError(
                f"[sink] table {self._table} has answers of {series!r} that are not of this store: name another table"
            )
        return number


class _SinkThread:
    """Copies what is published for as long as it is entered, in a thread of its own, and a last time at the end.

    A database that cannot be written to holds up nothing: ``tell`` hears of it once, and it is tried again. Leaving
    raises SinkError if answers are still missing there then. One that has other answers of the same names is refused
    at the start.
    """

    def __init__(self, engine: Engine, tell: Callable[[str], None]) -> None:
        config = engine.config
        assert config.sink is not None
        assert config.directory is not None
        self._tell = tell
        series = [name for plan in engine.plans for name in plan.series]
        self._log = ReleaseLog(config.directory / "releases.sqlite")
        try:
            self._place: Destination
            if config.sink.url.startswith("kafka:"):
                from panstream.engine.sinks.kafka import KafkaDestination

                self._place = KafkaDestination(config.sink.url, config.stream.name, series, self._log, config.directory)
            else:
                self._place = _DatabaseDestination(
                    config.sink.url, config.sink.table, config.stream.name, series, self._log
                )
        except BaseException:
            self._log.close()
            raise
        self._copied: int | None = None  # the log's version that is there
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
        """Copy what is missing; return what is wrong if the database cannot be written to."""
        version = self._log.version()
        if version == self._copied:
            return None
        try:
            self._place.copy()
        except self._place.error as error:
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
    """Return the sink of an engine, or one that does nothing where none is configured."""
    return contextlib.nullcontext() if engine.config.sink is None else _SinkThread(engine, tell)
