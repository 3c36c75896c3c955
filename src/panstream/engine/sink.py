"""Published answers in a database: one row each, exactly once, copied from the log in the store.

An answer is in the log before anybody else hears of it. Whatever happens to this process or to the database, what is
missing there is copied at the next turn, and what is there stays as it is: rows are told apart by query, group and
number. Rows of people never come near.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

from panstream.engine.engine import Engine
from panstream.engine.names import listed_names
from panstream.engine.sink_config import SinkState
from panstream.errors import MissingExtra, SinkError
from panstream.store.releases import Release, ReleaseLog

_PAUSE = 1.0  # seconds between two looks at the log
_WHOLE = ("stream", "query", "group_key", "number")  # what tells answers apart
_COLUMNS = {
    "stream": "TEXT",
    "query": "TEXT",
    "group_key": "TEXT",
    "number": "BIGINT",
    "time": "TIME",
    "period_from": "TIME",
    "period_until": "TIME",
    **dict.fromkeys(("value", "low", "high", "level", "standard_error", "epsilon", "delta"), "DOUBLE PRECISION"),
    "unit": "TEXT",
    "statement": "TEXT",
    "too_uncertain": "BOOLEAN",
    "claim": "TEXT",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Dialect:
    """What differs between databases: how to connect, their errors, the mark of a parameter, the type of times."""

    connect: Callable[[], Any]
    error: type[Exception]
    mark: str
    time: str


def _dialect(url: str) -> _Dialect:
    kind, _, path = url.partition(":")
    if kind == "sqlite":
        open_file = partial(sqlite3.connect, path, isolation_level=None)
        return _Dialect(connect=open_file, error=sqlite3.Error, mark="?", time="TEXT")
    if kind == "duckdb":
        import duckdb

        return _Dialect(connect=partial(duckdb.connect, path), error=duckdb.Error, mark="?", time="TIMESTAMP")
    try:
        import psycopg
    except ImportError:
        raise MissingExtra("writing to PostgreSQL", "postgres") from None
    driver: Any = psycopg
    connect = partial(driver.connect, url, autocommit=True, connect_timeout=10)
    return _Dialect(connect=connect, error=driver.Error, mark="%s", time="TIMESTAMPTZ")


class _Sink:
    """Copies what is published for as long as it is entered, in a thread of its own, and a last time at the end.

    A database that cannot be written to holds up nothing: ``tell`` hears of it once, and it is tried again. Leaving
    raises SinkError if answers are still missing there then. One that has other answers of the same names is refused
    at the start.
    """

    def __init__(self, engine: Engine, tell: Callable[[str], None]) -> None:
        config = engine.config
        assert config.sink is not None
        assert config.directory is not None
        self._stream, self._table, self._tell = config.stream.name, config.sink.table, tell
        self._series = [name for plan in engine.plans for name in plan.series]
        self._dialect = _dialect(config.sink.url)
        self._log = ReleaseLog(config.directory / "releases.sqlite")
        self._done: dict[str, int] = {}
        self._copied: int | None = None  # the log's version that is there
        self._state = engine.sink = SinkState()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sink", daemon=True)

    def __enter__(self) -> Self:
        try:
            self._turn()
        except BaseException:
            self._log.close()
            raise
        self._thread.start()
        return self

    def __exit__(self, kind: object, *rest: object) -> None:
        self._stop.set()
        self._thread.join()
        with contextlib.closing(self._log):
            problem = self._turn()
        if problem is not None and kind is None:
            raise SinkError(f"{problem}; the answers are in the store, and will be copied at the next start")

    def _run(self) -> None:
        while not self._stop.wait(_PAUSE):
            try:
                self._turn()
            except SinkError as error:
                self._state.up = False
                self._tell(str(error))
                return

    def _turn(self) -> str | None:
        """Copy what is missing; return what is wrong if the database cannot be written to."""
        version = self._log.version()
        if version == self._copied:
            return None
        try:
            with contextlib.closing(self._dialect.connect()) as database:
                self._copy(database)
        except self._dialect.error as error:
            problem = f"[sink] cannot be written to: {str(error).partition(chr(10))[0]}"
        else:
            self._copied, self._state.up, self._state.copied = version, True, time.time()
            return None
        if self._state.up:
            self._tell(f"{problem}; it will be tried again")
        self._state.up = False
        return problem

    def _copy(self, database: Any) -> None:
        types = {name: self._dialect.time if kind == "TIME" else kind for name, kind in _COLUMNS.items()}
        columns = ", ".join(f"{name} {kind}{' NOT NULL' if name in _WHOLE else ''}" for name, kind in types.items())
        database.execute(f"CREATE TABLE IF NOT EXISTS {self._table} ({columns}, PRIMARY KEY ({', '.join(_WHOLE)}))")
        marks = ", ".join([self._dialect.mark] * len(_COLUMNS))
        add = f"INSERT INTO {self._table} ({', '.join(_COLUMNS)}) VALUES ({marks}) ON CONFLICT DO NOTHING"
        found: dict[str, int] = {}
        database.execute("BEGIN")
        for series in self._series:
            found[series] = last = self._done[series] if series in self._done else self._last(database, series)
            for release in self._log.history(series, after=last):
                for row in self._rows(release):
                    database.execute(add, row)
                found[series] = release.number
        database.execute("COMMIT")
        self._done = found

    def _last(self, database: Any, series: str) -> int:
        """Return the number of the last answer of a series that is there, and that it is the log's."""
        newest = self._log.last(series)
        query, group = _key(newest) if newest is not None else (series, "{}")
        where = " AND ".join(f"{name} = {self._dialect.mark}" for name in _WHOLE[:3])
        rows = database.execute(
            f"SELECT number, value, low FROM {self._table} WHERE {where} ORDER BY number DESC LIMIT 1",
            (self._stream, query, group),
        ).fetchall()
        if not rows:
            return 0
        number = int(rows[0][0])
        same = next((each for each in self._log.history(series, after=number - 1)), None)
        if same is None or [same.record["value"], same.record["interval"][0]] != list(rows[0][1:]):
            raise SinkError(
                f"[sink] table {self._table} has answers of {series!r} that are not of this store: name another table"
            )
        return number

    def _rows(self, release: Release) -> Iterator[tuple[Any, ...]]:
        """Yield a release as rows; that of the release itself stands for all of its names, and so comes last."""
        for each in (*listed_names(release), release):
            record, claim = each.record, each.record["claim"]
            period = record.get("window", [None, record.get("until")])
            figures = (record["value"], *record["interval"], record["level"], record["standard_error"])
            yield (
                *(self._stream, *_key(each), each.number, each.time, *period, *figures),
                *(float(record["epsilon"]), claim["delta"], claim["unit"], record.get("statement")),
                *(record.get("too_uncertain", False), json.dumps(claim, sort_keys=True)),
            )


def _key(release: Release) -> tuple[str, str]:
    group = release.record.get("group", {})
    name = release.query.partition(" [")[0] if group else release.query
    return name, json.dumps(group, sort_keys=True, ensure_ascii=False)


def sink_of(engine: Engine, tell: Callable[[str], None]) -> contextlib.AbstractContextManager[Any]:
    """Return the sink of an engine, or one that does nothing where none is configured."""
    return contextlib.nullcontext() if engine.config.sink is None else _Sink(engine, tell)
