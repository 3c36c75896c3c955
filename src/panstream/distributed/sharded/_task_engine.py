"""The part of a cluster's engine that applies what workers read: partitions in any order, and tasks in order."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, TypeVar

from panstream.algorithms.continual.tree_base import TreeBatch
from panstream.distributed.sharded._backend import ClusterBackend
from panstream.distributed.sharded._ordered_reading import Section, ticks_on_shards
from panstream.distributed.sharded._tick_names import tick_of
from panstream.distributed.sharded._worker_reading import Totals
from panstream.engine.runtime.engine import Engine
from panstream.primitives.memory.scratch import wipe

REMEMBERED = 256  # partitions that shards remember after they were recorded
P = ParamSpec("P")
T = TypeVar("T")


def serialized(method: Callable[P, T]) -> Callable[P, T]:
    """Decorate a method of an engine to hold its lock: one step at a time, from any thread."""

    @functools.wraps(method)
    def locked(*arguments: P.args, **options: P.kwargs) -> T:
        with arguments[0]._lock:  # type: ignore[attr-defined]
            return method(*arguments, **options)

    return locked


class TaskEngine(Engine):
    """An engine that records what workers read; `ClusterEngine` opens it."""

    _shard_backend: ClusterBackend
    task_progress: tuple[int, int]
    _lock: threading.RLock
    _unforgotten: list[str]

    def partition_is_applied(self, producer: str) -> bool:
        """Return whether a partition that workers read was recorded."""
        return super().is_applied(producer, 0)

    def partitions_in_progress(self) -> set[str]:
        """Return the partitions that some shards had when the stream was opened."""
        return self._shard_backend.absorbed

    @serialized
    def record_partitions(self, producers: Sequence[str], totals: Totals) -> None:
        """Record partitions that every shard has applied, and apply their totals to the coordinator's states."""
        self._require_usable()
        if all(self.partition_is_applied(producer) for producer in producers):
            return
        with self._fail_stop():
            for name, total, events in totals:
                query = self._queries[name]
                for group in range(0 if query.finished else len(query.plan.groups)):
                    query.monitors[0, group].apply(TreeBatch(total[group].copy(), int(events[group])))
                wipe(total)
                wipe(events)
            self._checkpoint.applied_batches |= dict.fromkeys(producers, 0)
            self._checkpoint.dirty = self._uncommitted = True
            self.exposure.note_applied()
        self._unforgotten += producers
        if len(self._unforgotten) >= REMEMBERED:
            self.commit()

    @property
    def stream_time(self) -> float | None:
        """Return the newest time of all rows that were applied."""
        return self._stream_clock.newest

    @property
    def clock_time(self) -> float:
        """Return the time by which rows are too far ahead of the clock."""
        return self._clock()

    def gauges(self) -> list[tuple[str, str, float]]:
        """Return figures of the cluster: processes, failures and the progress of files, and none that rows change."""
        transport = self._shard_backend.transport
        done, count = self.task_progress
        figures = [
            ("panstream_shards", "Shards that the state is divided among.", float(transport.shards)),
            ("panstream_workers", "Workers that are connected; 0: unknown.", float(transport.worker_count)),
            (
                "panstream_cluster_waiting",
                "1 while a worker or shard does not answer, and rows wait.",
                float(transport.is_waiting),
            ),
            ("panstream_tasks", "Tasks into which the files of this run are divided.", float(count)),
            ("panstream_tasks_done", "Tasks of this run that are applied.", float(done)),
        ]
        if self.closed_until is not None:
            until = "Up to when the windows and ticks of all queries are over, in seconds since 1970."
            figures.append(("panstream_closed_until_seconds", until, self.closed_until))
        return figures

    @property
    def closed_until(self) -> float | None:
        """Return until when the windows and ticks of every query are over; None before the first row."""
        schedules = [query.schedule for query in self._queries.values() if query.schedule is not None]
        return min((known.grid.start(known.step) for known in schedules if known.step is not None), default=None)

    @property
    def open_steps(self) -> dict[str, int | None]:
        """Return the open step of every query with a schedule, None before its first one."""
        return {name: query.schedule.step for name, query in self._queries.items() if query.schedule is not None}

    @property
    def last_steps(self) -> dict[str, int | None]:
        """Return from which step queries with a schedule, but no windows, answer no more; None before a row."""
        ends: dict[str, int | None] = {}
        for name, query in self._queries.items():
            if query.schedule is not None and not query.windowed:
                step = query.schedule.step
                ends[name] = None if step is None else step + max(0, query.plan.releases - query.release_count)
        return ends

    @property
    def task_in_progress(self) -> dict[str, Any] | None:
        """Return the names of the partitions that are being applied in order, and how many sections were applied.

        ``now`` and ``steps`` are the clock and the open steps when they were begun, by which they are read again.
        """
        return self._checkpoint.reading

    @serialized
    def begin_task(self, names: Sequence[str], now: float) -> None:
        """Commit which partitions come next, so that they come first, with the same clock, after a crash."""
        with self._fail_stop():
            if self._checkpoint.reading is None:
                begun = {"names": [*names], "now": now, "sections": 0, "steps": self.open_steps}
                self._checkpoint.reading = begun
            self.commit()

    @serialized
    def draw_before(self, section: Section) -> None:
        """Draw and commit the answers from states of the shards that are due before a section reaches them."""
        with self._fail_stop():
            self._apply_segments(section, ticking=True)
            self._commit_before_rows()

    @serialized
    def apply_section(self, section: Section) -> None:
        """Apply a section that every shard has: draw what is due in it, and add its sums to the states held here."""
        reading = self._checkpoint.reading
        assert reading is not None
        with self._fail_stop():
            self._apply_segments(section, ticking=False)
            self._checkpoint.reading = {**reading, "sections": reading["sections"] + 1}
            self._checkpoint.dirty = self._uncommitted = True

    def _apply_segments(self, section: Section, *, ticking: bool) -> None:
        self._shard_backend.forget_gathered()  # the shards may have a section more
        for name, segments in section.items():
            query = self._queries[name]
            for segment in segments if ticks_on_shards(query) == ticking else ():
                query.apply(segment.to_prepared(windowed=query.windowed), self._drawer(query))

    @serialized
    def finish_task(self, newest: float | None) -> None:
        """Record the partitions that were begun; the next commit makes this durable.

        A tick of a live source is recorded by its position, in place of its parts, and ends a step: it is durable when
        this returns. Both are one call, since a commit in between would lose the position, and the tick would be read
        again.

        Args:
            newest: The stream's time after them.
        """
        reading = self._checkpoint.reading
        assert reading is not None
        names = reading["names"]
        tick = tick_of(names[0])
        with self._fail_stop():
            if newest is not None:
                self._stream_clock.advance_to(newest)
            applied = dict.fromkeys(names, 0) if tick is None else {tick.producer: tick.position}
            self._checkpoint.applied_batches |= applied
            self._checkpoint.reading = None
            self._checkpoint.dirty = self._uncommitted = True
            self.exposure.note_applied()
        self._unforgotten += names
        if tick is not None:
            self.step()
            self.commit()

    def _commit_before_rows(self) -> None:
        """Commit what a crash must not repeat once shards have later rows: drawn answers, and numbers of bits."""
        if self._drawn or self._shard_backend.has_new_counters:
            self.commit()

    def _forget_recorded(self, *, at_least: int) -> None:
        """Let shards forget partitions that this engine has recorded durably, and will not read again."""
        if len(self._unforgotten) >= at_least and not self._uncommitted:
            names = self._unforgotten
            self._unforgotten = []
            self._shard_backend.forget_partitions(names)
