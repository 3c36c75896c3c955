"""Apply micro-batches to the states of all queries and publish private answers.

Order of a step: validate the batch for every query, draw the releases that are due, update the states, commit states,
applied batches, ledger and drawn releases in one write, then publish. Lists of names are published once they are
decoded. After a crash, committed releases are published again and never redrawn: a second draw would spend privacy
loss that no ledger entry pays for.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from functools import cache, partial
from typing import Any, Self

from panstream.engine.config.config import Config
from panstream.engine.config.sink import SinkState
from panstream.engine.config.statement import Intake
from panstream.engine.planner.person_division import divide_person_budget
from panstream.engine.planner.public_facts import INTAKES, LIVE, step_length, with_public_facts
from panstream.engine.planner.query_plan import QueryPlan, plan_all
from panstream.engine.rows.row_batch import BatchResult, RowBatch
from panstream.engine.runtime.batch_preparation import UsableTimes, prepare_batch, usable_times
from panstream.engine.runtime.checkpoint import EngineCheckpoint, open_log, open_store
from panstream.engine.runtime.clocks import StreamClock, follow_clock, guard_clock, reopen_windows
from panstream.engine.runtime.exposure import Exposure
from panstream.engine.runtime.intrusions import NOT_KNOWN, CopyTime, RefreshOutcome
from panstream.engine.runtime.name_decoder import NameDecoder
from panstream.engine.runtime.producers import Producers
from panstream.engine.runtime.release_record import release_record, release_timestamp
from panstream.engine.runtime.running_query import DrawnAnswer, RunningQuery
from panstream.engine.runtime.shard_figures import WithoutShards
from panstream.engine.runtime.state_backend import LocalBackend, Slot, StateBackend
from panstream.engine.storage.release_log import Release
from panstream.errors import StoreError
from panstream.primitives.noise import NoiseSource
from panstream.privacy.ledger import Ledger
from panstream.privacy.person_history import worst_total
from panstream.privacy.person_loss import PersonTotal

_DAY = 86_400


class Engine(WithoutShards):
    """Run the queries of a configuration. Not thread-safe: one thread owns the engine and its only copy of the state.

    Args:
        config: Stream, queries and store.
        clock: Returns the arrival time in seconds since 1970.
        elapsed: Returns seconds since boot. While ``clock`` is ahead of it by more than ``[stream] max_clock_jump``,
            no release is drawn by arrival time.
        accept_time: Trust ``clock`` at the start, however far it is ahead of the last commit.
        operator_key: Key that seals the store, 32 bytes.
        publish: Called with every release once it is durable and in the log.
        rng: Noise for tests; every claim then says that there is no privacy.
        zero_noise: No noise at all, for tests; the claims say so.
        backend: Holds the states; in this process by default.

    A row whose event time is ahead of the clock by more than ``[stream] max_ahead`` is a bad row and does not advance
    the watermark: otherwise one row could close the windows of all users.
    """

    def __init__(
        self,
        config: Config,
        *,
        clock: Callable[[], float] = time.time,
        elapsed: Callable[[], float] | None = None,
        accept_time: bool = False,
        operator_key: bytes | None = None,
        publish: Callable[[Release], None] = lambda release: None,
        rng: NoiseSource | None = None,
        zero_noise: bool = False,
        backend: StateBackend | None = None,
    ) -> None:
        self.config = config = divide_person_budget(config)
        self.plans: tuple[QueryPlan, ...] = plan_all(config, zero_noise=zero_noise)
        if rng is not None and not rng.is_secure:
            self.plans = tuple(
                replace(plan, claim=plan.claim.without_privacy("drawn from a test source")) for plan in self.plans
            )
        self._declared = False
        self.by_clock = False  # live input: apply rows without committing, and call ``step`` at fixed intervals
        self.step_length = step_length(config, self.plans)
        self.committed = object()  # replaced by every commit, so that readers can compare identities
        self.committed_time: float | None = None  # the stream's time at the last commit
        self.sink: SinkState | None = None  # state of the copy to a database, if one is configured
        self._backend: StateBackend = LocalBackend(rng) if backend is None else backend
        lateness = config.stream.lateness if config.stream.time is not None else 0.0
        self._clock: Callable[[], float] = clock  # replaced below by the guarded clock; frozen during a live step
        self._queries = {
            plan.config.name: RunningQuery(plan, self._backend, lateness=lateness, clock=lambda: self._clock())
            for plan in self.plans
        }
        self._stream_clock = StreamClock()
        self._drawn: list[Callable[[], Release]] = []  # build the releases; callable once the backend has flushed
        self._stored_slots: set[tuple[str, Slot]] = set()
        self.broken = self._uncommitted = False  # broken: a step failed part-way and the engine must be reopened
        self._files = contextlib.ExitStack()
        try:
            self._store = open_store(config, operator_key)
            if self._store is not None:
                self._files.enter_context(self._store)
            self.log = self._files.enter_context(open_log(config))
            self.names = self._files.enter_context(NameDecoder(self.log, self.plans, publish))
            self._checkpoint = EngineCheckpoint.restore(config, self._store, self._queries, self.log, moment=clock())
            last = None if accept_time else self._checkpoint.newest
            self._clock = self._wall = guard_clock(clock, elapsed, config.stream, self._queries.values(), last=last)
            self.exposure = Exposure(self._checkpoint, self._queries, clock)
            self.exposure.correct_starts(int(self._clock()))
            self._after_restore()
            self._publish_facts()
            self._stream_clock.newest = self._checkpoint.newest
            self._drawn = [partial(replace, release) for release in self._checkpoint.unpublished]
            self._follow_clock(start=True)
            if config.stream.time is None and self._checkpoint.dirty:
                reopen_windows(self._queries.values())
            self.commit()
        except BaseException:
            self.close()
            raise

    def _after_restore(self) -> None:
        """Reconcile the restored checkpoint with other stores, before it is committed again; for subclasses."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Close store and log; the last commit stays on disk."""
        self._files.close()

    def declare(self, *intakes: Intake) -> None:
        """Declare how rows will arrive (``intakes``); every later claim lists what that makes public."""
        self._declared = True
        self._checkpoint.intakes = [intake for intake in INTAKES if intake in {*intakes, *self._checkpoint.intakes}]
        self._publish_facts()
        if LIVE & set(intakes) and self.step_length:
            self.by_clock = True
            self._freeze_clock()

    def _publish_facts(self) -> None:
        self.plans = with_public_facts(
            self.plans, self.config.stream, self._checkpoint.intakes, by_clock=self.step_length > 0
        )
        for plan in self.plans:
            self._queries[plan.config.name].plan = plan

    def _freeze_clock(self) -> None:
        now = self._wall()
        self._clock = lambda: now

    @property
    def ledger(self) -> Ledger:
        """Return all charges to this stream, over all restarts."""
        return self._checkpoint.ledger

    @property
    def person_total(self) -> PersonTotal:
        """Return what one person can have lost in the worst period, to all queries and one intrusion."""
        budget = self.config.stream.person
        return worst_total(self._checkpoint.asked, budget.period, budget.epsilon, budget.delta, len(self.intrusions))

    @property
    def intrusions(self) -> tuple[dict[str, Any], ...]:
        """Return the announced intrusions: time, time of the copy, and a verdict for each query."""
        return tuple(self._checkpoint.intrusions)

    def running_query(self, name: str) -> RunningQuery:
        """Return the state and schedule of the query called ``name``."""
        return self._queries[self.config.query(name).name]

    def release_count(self, name: str) -> int:
        """Return how many releases the query called ``name`` has made, over all windows and restarts."""
        query = self.running_query(name)
        return query.prior_releases + query.release_count

    @property
    def jumped(self) -> bool:
        """Return whether the system clock jumped ahead; rows are still applied then, but no release is drawn by it."""
        return self._wall.jumped

    def is_applied(self, producer: str | None, sequence: int) -> bool:
        """Return whether the batch ``sequence`` of ``producer``, or a later one, was applied already."""
        return producer is not None and self.last_sequence(producer) >= sequence

    @property
    def can_join_batches(self) -> bool:
        """Return whether batches of several producers may be applied as one: not if remote states record producers."""
        return isinstance(self._backend, LocalBackend)

    @property
    def durable(self) -> bool:
        """Return whether every applied batch is as durable as ``[store] durability`` promises."""
        return self._store is None or self.config.durability == "none" or not self._uncommitted

    def positions(self) -> dict[str, int]:
        """Return the last applied batch number of every producer and file."""
        return dict(self._checkpoint.applied_batches)

    @property
    def producers(self) -> Producers:
        """Return the producers that may send batches over the network."""
        return self._checkpoint.producers

    def close_producer(self, token: str, name: str) -> None:
        """Close the producer ``name`` of a ``token`` and forget its position; later batches of it are rejected."""
        self.forget_producers([self._checkpoint.producers.close(token, name)])

    def _check_clock(self) -> None:
        now = self._clock()
        self.forget_producers(self._checkpoint.producers.retire(int(now // _DAY)))
        self._follow_clock()
        self.names.publish(release_timestamp(now))

    def forget_producers(self, producer_keys: Collection[str]) -> None:
        """Delete the positions of the producers with these ``producer_keys``."""
        for producer_key in producer_keys:
            self._checkpoint.applied_batches.pop(producer_key, None)

    def last_sequence(self, producer: str) -> int:
        """Return the number of the last applied batch of ``producer``, -1 before the first."""
        return self._checkpoint.applied_batches.get(producer, -1)

    def apply(self, rows: RowBatch, *, commit: bool = True) -> BatchResult:
        """Apply a micro-batch (``rows``) completely, or raise and apply nothing.

        Without ``commit`` the batch is not durable, and due releases are not published, until ``commit()`` is called:
        several batches can share one write. The row numbers in the result are for the sender only.
        """
        self._require_usable()
        if not self._declared:
            self.declare("calls")
        if self.is_applied(rows.producer, rows.sequence):
            return BatchResult(new=False)
        if rows.times is None and not self.by_clock:
            with self._fail_stop():
                self._follow_clock()
        has_time, times = self._times(rows)
        if not has_time.all():  # an unusable time must not open a window
            rows = replace(rows, times=times)
        marks = None if times is None else self._stream_clock.watermarks(times)
        work, skipped, late = prepare_batch(self._queries, self.config.stream, rows, has_time, times, marks)
        with self._fail_stop():
            self._backend.begin(rows.producer, rows.sequence)
            for query, prepared in work:
                query.apply(prepared, self._drawer(query))
            self._backend.end_batch()
            if marks is not None:
                self._stream_clock.reach(marks)
            for producer, sequence in rows.origins if rows.producer is None else ((rows.producer, rows.sequence),):
                self._checkpoint.applied_batches[producer] = sequence
            self._checkpoint.dirty = self._uncommitted = True
            if commit:
                self._commit_as_configured()
            if not self.by_clock:  # else the recorded time would reveal whether rows came between two steps
                self.exposure.note_applied()
        return BatchResult(new=True, skipped=rows.numbers(skipped), late=rows.numbers(late))

    def _times(self, rows: RowBatch) -> UsableTimes:
        queries = self._queries.values()
        return usable_times(rows, self.config.stream, queries, self._clock, self._stream_clock.newest)

    def advance(self) -> None:
        """Draw the releases that are due by arrival time, and commit. Call it regularly while no rows come."""
        with self._fail_stop():
            self._check_clock()
            self._commit_as_configured()

    def step(self, *, durable: Callable[[], None] | None = None) -> None:
        """End a step of a live stream: draw due releases and commit, rows or not; for ``durable`` see `commit`."""
        with self._fail_stop():
            self._freeze_clock()
            self._check_clock()
            self._checkpoint.dirty = True
            if self._drawn or (self.config.durability != "none" and self._late):
                self.commit(durable=durable)

    def _follow_clock(self, *, start: bool = False) -> None:
        # The stream's time is monotonic even if the system clock is set back: otherwise a closed window would reopen
        # and the next row would draw a second release about it.
        if self.config.stream.time is not None:
            return
        now = self._stream_clock.advance_to(self._clock())
        follow_clock(self._queries.values(), now, self._drawer, start=start, closed=self._commit_closed)

    def _commit_closed(self) -> None:
        # A copy during a commit must not show a window and the next one: docs/proofs/person-period.md, Lemma 1.
        if self.config.durability == "batch" and self.can_join_batches and self._stored_slots - self._open_slots():
            self.commit()

    def finish(self) -> None:
        """Close open slots and windows and draw the answers due at the end of the input; no-op without new input."""
        with self._fail_stop():
            if self._checkpoint.dirty:
                for query in self._queries.values():
                    query.finish(self._drawer(query), self._stream_clock.newest)
                self._checkpoint.dirty = False
                self.commit()
            self.publish_names()

    def release(self, name: str) -> list[Release]:
        """Answer the query called ``name``, which has no schedule, now and wait for its names to be decoded.

        Raises:
            BudgetExhausted: All paid releases were made.
            NotSupported: The query answers by its schedule.
        """
        drawn = self.draw(name)
        self.publish_names()
        return [self.log.find(release) or release if release.unread else release for release in drawn]

    def draw(self, name: str) -> list[Release]:
        """Answer the query called ``name`` like `release`, but do not wait for names to be decoded."""
        self._require_usable()
        query = self.running_query(name)
        already_drawn = len(self._drawn)
        query.require_on_demand()
        with self._fail_stop():
            query.draw_now(self._drawer(query))
            drawn = self._drawn[already_drawn:]
            self.commit()
        return [make_release() for make_release in drawn]

    def publish_names(self, *, wait: bool = True) -> None:
        """Publish the lists of names decoded so far; with ``wait``, all of them."""
        if self.names.publish(release_timestamp(self._clock()), wait=wait):
            self.commit()

    def announce_intrusion(self, copy: CopyTime = NOT_KNOWN) -> list[RefreshOutcome]:
        """Refresh the copied states, record and return the verdicts, and commit; refuse a future time of ``copy``."""
        copy.check_past(self.exposure.clock())
        with self._fail_stop():
            states = self.exposure.announce(copy, live=self.by_clock)
            self.commit()
        return states

    def commit(self, *, durable: Callable[[], None] | None = None) -> None:
        """Commit states, applied batches, ledger and drawn releases in one write, then publish the releases.

        Args:
            durable: Called as soon as the commit is durable, before the previous state is erased.
        """
        self._checkpoint.newest = self.committed_time = self._stream_clock.newest
        self._backend.flush()
        if self.by_clock or self._uncommitted:  # an empty live step is recorded like any other
            self.exposure.note_applied()
        drawn = [make_release() for make_release in self._drawn]
        if self._store is not None:
            options = {} if durable is None else {"durable": durable}
            self._store.commit(self._checkpoint.parts(self._queries, [*self.names.pending, *drawn]), **options)
        elif durable is not None:
            durable()
        self._backend.drop(self._stored_slots - self._open_slots())
        self._stored_slots = self._open_slots()
        self._committed = self._clock()
        self._uncommitted = False
        self.committed = object()
        self._drawn = []
        # Releases are in the checkpoint by now, so a crash from here on publishes the same values again.
        self.names.accept(drawn)

    def _open_slots(self) -> set[tuple[str, Slot]]:
        return {(name, slot) for name, query in self._queries.items() for slot in query.monitors}

    def _commit_as_configured(self) -> None:
        if self._drawn or (self._uncommitted and self.config.durability != "none" and self._late):
            self.commit()

    @property
    def _late(self) -> bool:
        if self.config.durability == "batch" or self.jumped:  # a stopped clock never reaches the interval
            return True
        # abs: a clock that was set back must not postpone the commit.
        return abs(self._clock() - self._committed) >= self.config.interval

    def _drawer(self, query: RunningQuery) -> Callable[[DrawnAnswer], None]:
        stamp = release_timestamp(self._clock())
        return lambda drawn: self._drawn.append(
            cache(partial(release_record, query.plan, drawn, stamp, query.coverage))
        )

    def _require_usable(self) -> None:
        if self.broken:
            raise StoreError("a step failed half-way, so the state in memory was discarded: start again from the store")

    @contextlib.contextmanager
    def _fail_stop(self) -> Iterator[None]:
        """Mark the engine broken if the step raises, Ctrl-C included: memory may be ahead of the last commit."""
        self._require_usable()
        try:
            yield
        except BaseException:
            self.broken = True  # the store still has the last complete state
            raise
