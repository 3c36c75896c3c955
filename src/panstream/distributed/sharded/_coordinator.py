"""The engine of a cluster: an ordinary engine whose sharded states are with the shards.

Shards commit first, the coordinator afterwards. If it ends in between, shards are ahead of it: the rows are sent
again, and each shard leaves out what it has. For that a micro-batch is cut where a slot of the clock ends and at the
positions of the shards, since a shard applies a piece as a whole or not at all. A position is a row number of a file;
within a batch of a live source, whose rows are not numbered, it is the time of the next row.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.algorithms.continual_users.ones_counter import SetBitCounter
from panstream.core.estimate import Estimate
from panstream.distributed.sharded._backend import ClusterBackend
from panstream.distributed.sharded._batch_positions import first_unapplied_row, origins_of, row_positions
from panstream.distributed.sharded._resharding import reshard, write_shard_count
from panstream.distributed.sharded._shard import Origin, position_of, query_of
from panstream.distributed.sharded._task_engine import REMEMBERED, TaskEngine, serialized
from panstream.distributed.sharded._tick_names import is_recorded
from panstream.distributed.sharded._transport import ShardTransport
from panstream.distributed.sharded.explain import divided_algorithms
from panstream.engine.config.config import Config
from panstream.engine.planner.person_division import divide_person_budget
from panstream.engine.planner.query_plan import plan_all
from panstream.engine.rows.row_batch import BatchResult, RowBatch
from panstream.engine.runtime.batch_preparation import prepare_batch
from panstream.engine.runtime.engine import Engine
from panstream.engine.runtime.row_routing import RowRoute
from panstream.engine.runtime.running_query import DrawnAnswer
from panstream.engine.runtime.state_backend import state_name
from panstream.errors import ConfigError, NotSupported
from panstream.primitives.noise import NoiseSource


class ClusterEngine(TaskEngine):
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
        self._unforgotten: list[str] = []  # recorded partitions that shards still remember
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
            applied = self._checkpoint.applied_batches
            self._unforgotten = [name for name in self._shard_backend.absorbed if is_recorded(name, applied, applied)]
            self._forget_recorded(at_least=1)
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

    @serialized
    def forget_producers(self, producer_keys: Collection[str]) -> None:
        """Forget the positions of producers, here and on the shards."""
        super().forget_producers(producer_keys)
        self._shard_backend.forget(producer_keys)

    @serialized
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
                self._open_counters(piece, times)
                self._commit_before_rows()
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

    def _open_counters(self, piece: RowBatch, times: NDArray[np.float64]) -> None:
        """Open the windows of a piece whose bits are counted: their number is read before the rows reach them."""
        marks = self._stream_clock.watermarks(times)
        for query in self._queries.values():
            if query.windowed and isinstance(query.plan.algorithm, SetBitCounter) and query.window_rule is not None:
                for segment in RowRoute.of(query.window_rule, marks if piece.times is None else times, marks).segments:
                    query.open_windows(segment.windows if segment.step is not None else (), segment.reached)

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

    @serialized
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
        if self._shard_backend.has_new_counters:
            self.commit()
        if self._shard_backend.has_unsent_batches:
            self._shard_backend.flush()

    @serialized
    def step(self, *, durable: Callable[[], None] | None = None) -> None:
        """End a step of a live stream: one message to every shard, whether or not rows came or anything is stored."""
        previous_step = self._shard_backend.step
        super().step(durable=durable)
        if self._shard_backend.has_new_counters:
            self.commit()
        if self._shard_backend.step == previous_step:
            self._shard_backend.flush()

    advance = serialized(Engine.advance)
    finish = serialized(Engine.finish)
    release = serialized(Engine.release)
    announce_intrusion = serialized(Engine.announce_intrusion)

    @serialized
    def commit(self, **options: Any) -> None:
        """Commit on all shards, then here, and publish."""
        super().commit(**options)
        if self._shard_backend.ahead:
            self._shard_backend.caught_up(self._reached())
        self._forget_recorded(at_least=REMEMBERED)
