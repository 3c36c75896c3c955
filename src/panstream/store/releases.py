"""The public log of what was published: SQLite, append-only, one row per (query, number)."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self

from panstream.errors import StoreDamaged, StoreError, translated

__all__ = ["Release", "ReleaseLog"]

_SCHEMA = """
CREATE TABLE IF NOT EXISTS releases (
    query TEXT NOT NULL,
    number INTEGER NOT NULL,
    time TEXT NOT NULL,
    record TEXT NOT NULL,
    PRIMARY KEY (query, number)
) WITHOUT ROWID
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """One published answer: ``record`` is ``Estimate.to_json()`` as it was published."""

    query: str
    number: int
    time: str
    record: dict[str, Any]


class ReleaseLog:
    """What was published, for everyone to read. Publishing the same release again is fine; another value is refused.

    >>> log = ReleaseLog(":memory:")
    >>> log.publish(Release(query="visitors", number=1, time="2026-03-01T00:00Z", record={"value": 7.0}))
    True
    >>> log.publish(Release(query="visitors", number=1, time="2026-03-01T00:00Z", record={"value": 7.0}))
    False
    >>> log.last("visitors").record
    {'value': 7.0}
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._connection = translated(
            lambda: sqlite3.connect(path, isolation_level=None, check_same_thread=False),
            sqlite3.Error,
            lambda error: StoreError(f"the release log cannot be opened: {error}"),
        )
        try:
            for statement in ("PRAGMA journal_mode=WAL", "PRAGMA synchronous=FULL", _SCHEMA):
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
        """Close the file."""
        self._connection.close()

    def publish(self, release: Release) -> bool:
        """Append a release; False if it was there already. Raise StoreError if it was there with another value."""
        return translated(
            lambda: self._append(release),
            sqlite3.Error,
            lambda error: StoreError(
                f"the release log cannot be written: {error}; the answer is stored and will be published at the next "
                "start"
            ),
        )

    def _append(self, release: Release) -> bool:
        record = json.dumps(release.record, sort_keys=True)
        row = (release.query, release.number, release.time, record)
        added = self._connection.execute("INSERT OR IGNORE INTO releases VALUES (?, ?, ?, ?)", row).rowcount == 1
        if not added:
            stored = self._connection.execute(
                "SELECT record FROM releases WHERE query = ? AND number = ?", row[:2]
            ).fetchone()
            if stored[0] != record:
                raise StoreError(
                    f"release {release.number} of {release.query!r} was published with another value: a release must "
                    "never be drawn twice"
                )
        return added

    def last(self, query: str) -> Release | None:
        """Return the latest release of a query."""
        rows = list(self._select("WHERE query = ? ORDER BY number DESC LIMIT 1", (query,)))
        return rows[0] if rows else None

    def history(self, query: str | None = None, after: int = 0) -> Iterator[Release]:
        """Yield releases in order, of one query or of all."""
        if query is None:
            return self._select("WHERE number > ? ORDER BY time, query, number", (after,))
        return self._select("WHERE query = ? AND number > ? ORDER BY number", (query, after))

    def latest(
        self, queries: Sequence[str] | None = None, *, since: str | None = None, limit: int = 1_000
    ) -> list[Release]:
        """Return the last ``limit`` releases, oldest first, of some queries or of all, published at ``since`` or
        later.
        """
        conditions, values = ["time >= ?"], [since or ""]
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
