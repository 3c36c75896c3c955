"""Released tables of names become lists beside the steps: rows are taken in meanwhile.

The tables are durable before they are read, and a list is a function of them alone. So after a crash they are read
again, and nothing is drawn.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Self

from panstream.algorithms.heavy_hitters.estimates import decode_names
from panstream.algorithms.heavy_hitters.released_tables import ReleasedTables
from panstream.engine.planner.open_domain import named_items
from panstream.engine.planner.query_plan import QueryPlan
from panstream.engine.storage.release_log import Release, ReleaseLog

_BEHIND = 10  # steps of priority


class NameDecoder:
    """The answers whose names are still being read, in the order in which they were drawn. Whoever owns ``log`` calls
    everything here: the thread that reads touches nothing but tables.
    """

    def __init__(self, log: ReleaseLog, plans: Iterable[QueryPlan], publish: Callable[[Release], None]) -> None:
        self._log = log
        self._publish = publish
        self._whole = {name for plan in plans if plan.config.parsed.whole_key for name in plan.series}
        self._waiting: list[tuple[Release, Future[Release]]] = []
        self._pool = ThreadPoolExecutor(1, "names", initializer=lower_thread_priority)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        """End the thread; what it has not read is read at the next start."""
        self._pool.shutdown(cancel_futures=True)

    @property
    def has_pending(self) -> list[Release]:
        """Return what must be stored until it is read."""
        return [release for release, _ in self._waiting]

    def submit(self, release: Release) -> None:
        """Have the tables of a release read, unless that was done before a crash."""
        if self._log.find(release) is not None:
            return
        future = self._pool.submit(_read, release, whole=release.query in self._whole)
        self._waiting.append((release, future))

    def of(self, releases: Iterable[Release]) -> list[Future[Release]]:
        """Return those of some releases that are not read yet, as they will be."""
        return [future for wanted in releases for release, future in self._waiting if wanted is release]

    def publish(self, stamp: str, *, wait: bool = False) -> bool:
        """Publish what was read, in order and as of now, since newer answers may be out; with ``wait``, everything.

        Return whether there was something.
        """
        waiting_before = len(self._waiting)
        while self._waiting and (wait or self._waiting[0][1].done()):
            decoded = replace(self._waiting[0][1].result(), time=stamp)
            if self._log.publish(decoded):
                self._publish(decoded)
            del self._waiting[0]
        return len(self._waiting) < waiting_before


def _read(release: Release, *, whole: bool) -> Release:
    """Return a release with its names, ``whole`` numbers or texts, and with a table of counts beside all cells."""
    decoded = decode_names(ReleasedTables.from_bytes(release.table))
    listed = {**release.record, "items": named_items(decoded.items, whole=whole)}
    return replace(release, record=listed, table=decoded.points.to_bytes(), prefixes=release.table, unread=False)


def lower_thread_priority() -> None:
    """Have this thread give way to everybody who needs the processor."""
    if sys.platform == "linux":  # where a thread has a priority of its own
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _BEHIND)
