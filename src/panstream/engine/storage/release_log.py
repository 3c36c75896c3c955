"""The public log of releases: SQLite, append-only, one row per (query, number)."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Self, TypeVar

from panstream.errors import StoreDamaged, StoreError, translate_errors

_SCHEMA = """
CREATE TABLE IF NOT EXISTS releases (
    query TEXT NOT NULL,
    number INTEGER NOT NULL,
    time TEXT NOT NULL,
    record TEXT NOT NULL,
    PRIMARY KEY (query, number)
) WITHOUT ROWID
"""
_BLOBS = "CREATE TABLE IF NOT EXISTS {} (query TEXT, number INTEGER, data BLOB, PRIMARY KEY (query, number))"
_T = TypeVar("_T")
TABLES = "tables"  # table of blobs: cells that answer point queries
ALL_CELLS = "prefixes"  # table of blobs: all published cells, for merging lists


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """One published answer.

    Attributes:
        record: ``Estimate.to_json()`` as it was published.
        table: Published cells that answer point queries; empty when read from a log, see ``ReleaseLog.table``.
        prefixes: All published cells of a list of names; empty when read from a log.
        unread: The names are not decoded yet and ``table`` has all cells; it is stored, and published once they are.
    """

    query: str
    number: int
    time: str
    record: dict[str, Any]
    table: bytes = field(default=b"", repr=False, compare=False)
    prefixes: bytes = field(default=b"", repr=False, compare=False)
    unread: bool = field(default=False, repr=False, compare=False)

    @property
    def asked(self) -> str:
        """Return the name of the query, without the group."""
        return self.query.partition(" [")[0] if "group" in self.record else self.query


class ReleaseLog:
    """The log of everything that was published.

    Publishing the same release again has no effect; another value under its number is rejected.

    Args:
        path: The SQLite file, or ":memory:".
        keep_tables: How many releases of a query retain their tables; None for all.
        keep_prefixes: How many retain all their cells.

    >>> log = ReleaseLog(":memory:")
    >>> record = {"value": 7.0, "unclipped": 7.0}
    >>> release = Release(query="visitors", number=1, time="2026-03-01T00:00Z", record=record)
    >>> log.publish(release), log.publish(release)
    (True, False)
    >>> log.last("visitors").record
    {'unclipped': 7.0, 'value': 7.0}
    """

    def __init__(self, path: str | os.PathLike[str], *, keep_tables: int | None = None, keep_prefixes: int = 0) -> None:
        self._keep = {TABLES: keep_tables, ALL_CELLS: keep_prefixes}
        self._connection = translate_errors(
            lambda: sqlite3.connect(path, isolation_level=None, check_same_thread=False),
            sqlite3.Error,
            lambda error: StoreError(f"the release log cannot be opened: {error}"),
        )
        try:
            blobs = (_BLOBS.format(name) for name in self._keep)
            for statement in ("PRAGMA journal_mode=WAL", "PRAGMA synchronous=FULL", _SCHEMA, *blobs):
                self._connection.execute(statement)
        except sqlite3.DatabaseError as error:
            refused = StoreDamaged(f"the release log cannot be used: {error}")
        else:
            return
        self._connection.close()
        raise refused

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the database."""
        self._connection.close()

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """Publish all releases of the block atomically, with one fsync."""
        self._write(lambda: self._connection.execute("BEGIN IMMEDIATE"))
        try:
            yield
        except BaseException:
            if self._connection.in_transaction:
                self._connection.rollback()
            raise
        self._write(self._connection.commit)

    def publish(self, release: Release) -> bool:
        """Append a release; return False if it is in the log already.

        Raises:
            StoreError: The log has another value under its number, or cannot be written.
        """
        return self._write(lambda: self._append(release))

    @staticmethod
    def _write(work: Callable[[], _T]) -> _T:
        return translate_errors(
            work,
            sqlite3.Error,
            lambda error: StoreError(
                f"the release log cannot be written: {error}; the answer is stored and will be published at the next "
                "start"
            ),
        )

    def _append(self, release: Release) -> bool:
        record = json.dumps(release.record, sort_keys=True)
        self._attach(TABLES, release, release.table)  # first, so that a reader never finds an answer without its table
        self._attach(ALL_CELLS, release, release.prefixes)
        row = (release.query, release.number, release.time, record)
        added = self._connection.execute("INSERT OR IGNORE INTO releases VALUES (?, ?, ?, ?)", row).rowcount == 1
        if not added:
            last_row = self._connection.execute(
                "SELECT record FROM releases WHERE query = ? AND number = ?", row[:2]
            ).fetchone()
            if last_row[0] != record:
                raise StoreError(
                    f"release {release.number} of {release.query!r} was published with another value: a release must "
                    "never be drawn twice"
                )
        return added

    def _attach(self, name: str, release: Release, data: bytes) -> None:
        """Store the blob of a release, and delete those of releases that exceed the retention."""
        keep = self._keep[name]
        if data and keep != 0:
            self._connection.execute(
                f"INSERT OR IGNORE INTO {name} VALUES (?, ?, ?)", (release.query, release.number, data)
            )
        if data and keep is not None:
            over = (release.query, release.number - keep)
            self._connection.execute(f"DELETE FROM {name} WHERE query = ? AND number <= ?", over)

    def find(self, release: Release) -> Release | None:
        """Return a release as it was published, None if it is not in the log."""
        return next(self._select("WHERE query = ? AND number = ?", (release.query, release.number)), None)

    def table(self, query: str, number: int, kind: str = TABLES) -> bytes:
        """Return the table of a release, or all its cells; empty if it has none or they are no longer retained."""
        statement = f"SELECT data FROM {kind} WHERE query = ? AND number = ?"
        row = self._connection.execute(statement, (query, number)).fetchone()
        return b"" if row is None else bytes(row[0])

    def with_tables(self, kind: str = TABLES) -> Iterator[Release]:
        """Yield the releases whose table, or all of whose cells, are retained, by query and number."""
        return self._select(f"JOIN {kind} USING (query, number) ORDER BY query, number", ())

    def version(self) -> int:
        """Return a number that changes when another connection has written to the log."""
        return int(self._connection.execute("PRAGMA data_version").fetchone()[0])

    def last(self, query: str) -> Release | None:
        """Return the latest release of a query."""
        return next(self._select("WHERE query = ? ORDER BY number DESC LIMIT 1", (query,)), None)

    def counts(self) -> dict[str, tuple[int, int]]:
        """Return, per query, the count of releases and the number of the latest."""
        rows = self._connection.execute("SELECT query, COUNT(*), MAX(number) FROM releases GROUP BY query")
        return {query: (count, last) for query, count, last in rows}

    def history(self, query: str | None = None, after: int = 0) -> Iterator[Release]:
        """Yield the releases with a number above ``after``, of one query by number or of all by time."""
        if query is None:
            return self._select("WHERE number > ? ORDER BY time, query, number", (after,))
        return self._select("WHERE query = ? AND number > ? ORDER BY number", (query, after))

    def latest(
        self, queries: Sequence[str] | None = None, *, since: str | None = None, limit: int = 1_000
    ) -> list[Release]:
        """Return the last ``limit`` releases, oldest first, of some queries or all, published at ``since`` or later."""
        conditions = ["time >= ?"]
        values = [since or ""]
        if queries is not None:
            conditions.append(f"query IN ({', '.join('?' * len(queries))})")
            values += queries
        where = f"WHERE {' AND '.join(conditions)} ORDER BY time DESC, query DESC, number DESC LIMIT {int(limit)}"
        return list(self._select(where, tuple(values)))[::-1]

    def _select(self, where: str, values: tuple[Any, ...]) -> Iterator[Release]:
        for query, number, time, record in self._connection.execute(
            f"SELECT query, number, time, record FROM releases {where}", values
        ):
            yield Release(query=query, number=number, time=time, record=json.loads(record))
