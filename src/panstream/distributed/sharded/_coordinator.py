"""The engine of a cluster: an ordinary engine whose sharded states are with the shards.

Shards commit first, the coordinator afterwards. If it ends in between, shards are ahead of it: the rows are sent
again, and each shard leaves out what it has. For that a micro-batch is cut where a slot of the clock ends and at the
positions of the shards, since a shard applies a piece as a whole or not at all. A position is a row number of a file;
within a batch of a live source, whose rows are not numbered, it is the time of the next row.
"""

from __future__ import annotations

import functools
import math
import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any, ParamSpec, TypeVar

import numpy as np

from panstream.algorithms.continual.tree_base import TreeBatch
from panstream.core.estimate import Estimate
from panstream.distributed.sharded._backend import ClusterBackend
from panstream.distributed.sharded._batch_positions import first_unapplied_row, origins_of, row_positions
from panstream.distributed.sharded._ordered_reading import Section, ticks_on_shards
from panstream.distributed.sharded._resharding import reshard, write_shard_count
from panstream.distributed.sharded._shard import Origin, position_of, query_of
from panstream.distributed.sharded._transport import ShardTransport
from panstream.distributed.sharded._worker_reading import Totals
from panstream.distributed.sharded.explain import divided_algorithms
from panstream.engine.config.config import Config
from panstream.engine.planner.person_division import divide_person_budget
from panstream.engine.planner.query_plan import plan_all
from panstream.engine.rows.row_batch import BatchResult, RowBatch
from panstream.engine.runtime.batch_preparation import prepare_batch
from panstream.engine.runtime.engine import Engine
from panstream.engine.runtime.running_query import DrawnAnswer
from panstream.engine.runtime.state_backend import state_name
from panstream.errors import ConfigError, NotSupported
from panstream.primitives.memory.scratch import wipe
from panstream.primitives.noise import NoiseSource

P = ParamSpec("P")
T = TypeVar("T")


def _serialized(method: Callable[P, T]) -> Callable[P, T]:
    """Decorate a method of an engine to hold its lock: one step at a time, from any thread."""

    @functools.wraps(method)
    def locked(*arguments: P.args, **options: P.kwargs) -> T:
        with arguments[0]._lock:  # type: ignore[attr-defined]
            return method(*arguments, **options)

    return locked


class ClusterEngine(Engine):
    """An engine with its sharded states on the shards of a transport. Safe for use by several threads.

    Args:
        config: The stream's configuration.
        transport: Reaches the shards; the engine closes it.
        operator_key: Part of the key of all stores.
        positions: Whether a batch's sequence is the number of its last row, as in files: then rows may be sent again
            in other batches after a restart. Otherwise the same sequence must mean the same rows.
        rng: For tests.
        zero_noise: For tests.
        options: Further arguments of `Engine`.
    """

    def __init__(
        self,
        config: Config,
        transport: ShardTransport,
        *,
        operator_key: bytes | None = None,
        positions: bool = False,
        rng: NoiseSource | None = None,
        zero_noise: bool = False,
        **options: Any,
    ) -> None:
        if any(query.bounded_by == "file" for query in config.queries):
            raise ConfigError('bounded_by = "file" needs all rows in one batch, which a cluster divides')
        self.transport = transport
        self.task_progress = (0, 0)  # tasks of workers that are done, and all
        self._positions = positions
        self._lock = threading.RLock()
        # With "interval" only the coordinator's commits wait: a shard stores every step, so that a lost worker costs no
        # rows while the coordinator goes on.
        directory = None if config.durability == "none" else config.directory
        config = divide_person_budget(config)
        plans = plan_all(config, zero_noise=zero_noise)
        sharded = divided_algorithms(plans)
        groups = {plan.config.name: (sharded.get(plan.config.name), len(plan.groups)) for plan in plans}
        try:
            if directory is not None:
                reshard(transport.shards, sharded, directory, operator_key)
            transport.open(sharded, directory, operator_key)
            self._shard_backend = ClusterBackend(transport, groups, rng=rng)
            held = {name for status in self._shard_backend.join() for name in status.states}
            super().__init__(
                config,
                operator_key=operator_key,
                rng=rng,
                zero_noise=zero_noise,
                backend=self._shard_backend,
                **options,
            )
        except BaseException:
            transport.close()
            raise
        try:
            if directory is not None:
                write_shard_count(directory, transport.shards)
            self._drop_stale(held)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close store, log and shards."""
        super().close()
        self.transport.close()

    def _after_restore(self) -> None:
        """Compare the shards' positions with the coordinator's."""
        self._shard_backend.caught_up(self._reached())
        # Shards may have rows that came after the coordinator's last commit.
        unrecorded = any(not self.partition_is_applied(name) for name in self._shard_backend.absorbed)
        is_ahead = self._shard_backend.step > self._shard_backend.stored_step
        if is_ahead or unrecorded or self._checkpoint.reading is not None:
            self.exposure.note_applied()

    def _reached(self) -> dict[str, tuple[int, float]]:
        last_numbers = {producer: (number, math.inf) for producer, number in self._checkpoint.applied_batches.items()}
        begun = self._checkpoint.begun
        return last_numbers if begun is None else {**last_numbers, begun[0]: position_of(begun)}

    @_serialized
    def forget_producers(self, producer_keys: Collection[str]) -> None:
        """Forget the positions of producers, here and on the shards."""
        super().forget_producers(producer_keys)
        self._shard_backend.forget(producer_keys)

    @_serialized
    def apply(self, rows: RowBatch, *, commit: bool = True) -> BatchResult:
        """Apply a micro-batch; with ``commit``, it is durable on every shard when this returns."""
        self._require_usable()
        if self.is_applied(rows.producer, rows.sequence):
            return BatchResult(new=False)
        # All pieces have one arrival time: that of the batch.
        now = self._clock()
        clock = self._clock
        self._clock = lambda: now
        try:
            pieces = self._pieces(rows)
            if rows.origins and (len(pieces) > 1 or any(name in self._shard_backend.ahead for name, _ in rows.origins)):
                raise NotSupported("at the end of a slot and after a crash, every producer's batch is taken by itself")
            done = [self._apply_piece(piece, time, commit) for piece, time in pieces]
        finally:
            self._clock = clock
        return BatchResult(
            new=True,
            skipped=np.concatenate([part.skipped for part in done]),
            late=np.concatenate([part.late for part in done]),
        )

    def _apply_piece(self, piece: RowBatch, time: float | None, commit: bool) -> BatchResult:
        """Draw and commit the answers that are due before a row behind them goes to a shard; then apply the rows.

        ``time`` is that of the batch's next row, where the batch of a live source is continued in another piece.
        """
        begun = self._checkpoint.begun
        origins = origins_of(piece, time)
        if self.is_applied(piece.producer, piece.sequence) or (
            begun is not None
            and origins
            and origins[0][0] == begun[0]
            and position_of(origins[0]) <= position_of(begun)
        ):
            return BatchResult(new=False)
        _, times = self._times(piece)
        if times is not None and piece.count:
            first = self._stream_clock.watermarks(times[:1])
            with self._fail_stop():
                for query in self._queries.values():
                    if query.schedule is not None and np.isfinite(first[0]):
                        over, now = (int(steps[0]) for steps in query.watermark_steps(first))
                        query.advance_to(over, self._drawer(query), now)
                if self._drawn:
                    self.commit()
        self._shard_backend.announce_batch(piece.count, origins)
        # Until its last piece, a batch is not applied as a whole: the checkpoint has its position instead.
        if time is not None:
            piece = replace(piece, producer=None)
            self._checkpoint.begun = origins[0] if origins else None
        elif begun is not None and piece.producer == begun[0]:
            self._checkpoint.begun = None
        try:
            return super().apply(piece, commit=commit)
        except BaseException:
            self._checkpoint.begun = begun
            raise

    def _pieces(self, rows: RowBatch) -> list[tuple[RowBatch, float | None]]:
        """Cut a batch at the ends of slots and the positions of shards; return each piece, and its next row's time.

        The time is None where every row has a position, and for the last piece.
        """
        boundaries: set[int] = set()
        has_time, times = self._times(rows)
        marks = None if times is None else self._stream_clock.watermarks(times)
        if rows.times is not None and rows.count and marks is not None:
            for query in self._queries.values():
                if query.schedule is not None:
                    moved = np.diff(np.stack(query.watermark_steps(marks)), axis=1).any(axis=0)
                    boundaries |= {int(row) + 1 for row in np.flatnonzero(moved)}
        positions = row_positions(rows, numbered=self._positions)
        if rows.producer is not None:
            boundaries |= {first_unapplied_row(origin, rows, positions) for origin in self._positions_of(rows.producer)}
        cuts = sorted(row for row in boundaries if 0 < row < rows.count)
        if cuts and self.config.stream.on_bad_row == "stop":  # no piece is applied if a row of another is bad
            for _, prepared in prepare_batch(self._queries, self.config.stream, rows, has_time, times, marks)[0]:
                prepared.wipe()
        pieces = []
        for start, stop in zip([0, *cuts], [*cuts, rows.count], strict=True):
            last = stop == rows.count
            sequence = rows.sequence if positions is None or last else positions[stop - 1]
            time = None if positions is not None or rows.times is None or last else float(rows.times[stop])
            pieces.append((replace(rows.part(start, stop) if cuts else rows, sequence=sequence), time))
        return pieces

    def _positions_of(self, producer: str) -> set[Origin]:
        """Return the positions of the coordinator and the shards with a producer."""
        begun = self._checkpoint.begun
        begun_producer = {begun} if begun is not None and begun[0] == producer else set()
        return {
            *self._shard_backend.ahead.get(producer, ()),
            *begun_producer,
            (producer, self.last_sequence(producer), None),
        }

    def positions_ahead(self) -> dict[str, set[int]]:
        """Return the positions after the applied ones that some shards had reached when the engine was opened."""
        ahead: dict[str, set[int]] = {}
        begun = self._checkpoint.begun
        for origins in (*self._shard_backend.ahead.values(), () if begun is None else (begun,)):
            for producer, sequence, _ in origins:
                ahead.setdefault(producer, set()).add(sequence)
        return ahead

    def partition_is_applied(self, producer: str) -> bool:
        """Return whether a partition that workers read was recorded."""
        return super().is_applied(producer, 0)

    def partitions_in_progress(self) -> set[str]:
        """Return the partitions that some shards had when the stream was opened."""
        return self._shard_backend.absorbed

    @_serialized
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

    @property
    def stream_time(self) -> float | None:
        """Return the newest time of all rows that were applied."""
        return self._stream_clock.newest

    @property
    def clock_time(self) -> float:
        """Return the time by which rows are too far ahead of the clock."""
        return self._clock()

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

    @_serialized
    def begin_task(self, names: Sequence[str], now: float) -> None:
        """Commit which partitions come next, so that they come first, with the same clock, after a crash."""
        with self._fail_stop():
            if self._checkpoint.reading is None:
                begun = {"names": [*names], "now": now, "sections": 0, "steps": self.open_steps}
                self._checkpoint.reading = begun
            self.commit()

    @_serialized
    def draw_before(self, section: Section) -> None:
        """Draw and commit the answers from states of the shards that are due before a section reaches them."""
        with self._fail_stop():
            self._apply_segments(section, ticking=True)
            if self._drawn:
                self.commit()

    @_serialized
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

    @_serialized
    def finish_task(self, newest: float | None) -> None:
        """Record the partitions that were begun; the next commit makes this durable.

        Args:
            newest: The stream's time after them.
        """
        reading = self._checkpoint.reading
        assert reading is not None
        with self._fail_stop():
            if newest is not None:
                self._stream_clock.advance_to(newest)
            self._checkpoint.applied_batches |= dict.fromkeys(reading["names"], 0)
            self._checkpoint.reading = None
            self._checkpoint.dirty = self._uncommitted = True
            self.exposure.note_applied()

    @_serialized
    def estimate(self, name: str) -> Estimate:
        """Release a query without a schedule; return the estimate itself, which is not logged."""
        query = self._queries[self.config.query(name).name]
        drawn: list[DrawnAnswer] = []
        with self._fail_stop():
            query.draw_now(drawn.append)
        return drawn[0].estimate()

    def _drop_stale(self, held: set[str]) -> None:
        """Drop windows on the shards that ended before the coordinator could say so."""
        over = []
        for name in held:
            query = self._queries.get(query_of(name))
            if query is None or not query.windowed or query.schedule is None or query.schedule.step is None:
                continue
            slot = (int(name.split("/")[0]), int(name.split("/")[1]))
            first_alive = query.schedule.step // query.ticks_per_window
            if slot not in query.monitors and slot[0] < first_alive:
                over.append(state_name(query.plan.config.name, slot))
        if over:
            self._shard_backend.drop_stale(over)

    def _commit_as_configured(self) -> None:
        """Commit, or at least send the queued rows: they are exact until they are applied to noisy cells."""
        super()._commit_as_configured()
        if self._shard_backend.has_unsent_batches:
            self._shard_backend.flush()

    @_serialized
    def step(self, *, durable: Callable[[], None] | None = None) -> None:
        """End a step of a live stream: one message to every shard, whether or not rows came or anything is stored."""
        previous_step = self._shard_backend.step
        super().step(durable=durable)
        if self._shard_backend.step == previous_step:
            self._shard_backend.flush()

    advance = _serialized(Engine.advance)
    finish = _serialized(Engine.finish)
    release = _serialized(Engine.release)
    announce_intrusion = _serialized(Engine.announce_intrusion)

    @_serialized
    def commit(self, **options: Any) -> None:
        """Commit on all shards, then here, and publish."""
        super().commit(**options)
        if self._shard_backend.ahead:
            self._shard_backend.caught_up(self._reached())
