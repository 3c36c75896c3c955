"""Decode released prefix tables into lists of names in a background thread, while rows are applied.

The tables are durable before they are decoded, and a list is a function of its table only. After a crash they are
decoded again and nothing is redrawn.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Self

from panstream.algorithms.heavy_hitters.estimates import decode_names
from panstream.algorithms.heavy_hitters.released_tables import ReleasedTables
from panstream.engine.planner.open_domain import named_items
from panstream.engine.planner.query_plan import QueryPlan
from panstream.engine.storage.release_log import Release, ReleaseLog

_NICENESS = 10


class NameDecoder:
    """Releases whose names are being decoded, in the order in which they were drawn.

    Only the thread that owns ``log`` may call the methods; the decoding thread accesses nothing but tables.
    """

    def __init__(self, log: ReleaseLog, plans: Iterable[QueryPlan], publish: Callable[[Release], None]) -> None:
        self._log = log
        self._publish = publish
        self._integer_keys = {name for plan in plans if plan.config.parsed.integer_key for name in plan.series}
        self._waiting: list[tuple[Release, Future[Release]]] = []
        self._pool = ThreadPoolExecutor(1, "names", initializer=lower_thread_priority)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        """Stop the thread; tables that are not decoded yet are decoded at the next start."""
        self._pool.shutdown(cancel_futures=True)

    @property
    def pending(self) -> list[Release]:
        """Return the releases that must be stored until their names are decoded."""
        return [release for release, _ in self._waiting]

    def accept(self, drawn: Sequence[Release]) -> None:
        """Publish releases that are complete, and queue those whose names are to be decoded."""
        with self._log.transaction():  # one fsync for thousands of groups
            published = [release for release in drawn if not release.unread and self._log.publish(release)]
        for release in published:
            self._publish(release)
        for release in drawn:
            if release.unread:
                self._submit(release)

    def _submit(self, release: Release) -> None:
        """Queue a release for decoding, unless it was decoded and published before a crash."""
        if self._log.find(release) is None:
            future = self._pool.submit(_decode, release, whole=release.query in self._integer_keys)
            self._waiting.append((release, future))

    def futures_of(self, releases: Iterable[Release]) -> list[Future[Release]]:
        """Return the futures of those releases that are not decoded yet."""
        return [future for wanted in releases for release, future in self._waiting if wanted is release]

    def publish(self, stamp: str, *, wait: bool = False) -> bool:
        """Publish decoded lists in order, and return whether there were any.

        Args:
            stamp: Time of publication; not of the draw, since newer answers may be published already.
            wait: Wait until all are decoded.
        """
        waiting_before = len(self._waiting)
        while self._waiting and (wait or self._waiting[0][1].done()):
            decoded = replace(self._waiting[0][1].result(), time=stamp)
            if self._log.publish(decoded):
                self._publish(decoded)
            del self._waiting[0]
        return len(self._waiting) < waiting_before


def _decode(release: Release, *, whole: bool) -> Release:
    """Return a release with its names (integers if ``whole``), its table of point counts, and all prefix cells."""
    decoded = decode_names(ReleasedTables.from_bytes(release.table))
    listed = {**release.record, "items": named_items(decoded.items, whole=whole)}
    return replace(release, record=listed, table=decoded.points.to_bytes(), prefixes=release.table, unread=False)


def lower_thread_priority() -> None:
    """Lower the scheduling priority of the current thread, on Linux, so that decoding does not delay rows."""
    if sys.platform == "linux":  # the only platform where threads have separate priorities
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)
