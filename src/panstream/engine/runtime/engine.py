"""The engine: micro-batches in, private answers out, one copy of the state.

Order of a step: check everything, draw what is due, update every state, commit states + seen batches + ledger + drawn
releases in one go, then publish; names when they are read. After a crash releases are published again, never redrawn.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from functools import cache, partial
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from panstream.engine.config.config import Config
from panstream.engine.config.sink import SinkState
from panstream.engine.planner.public_facts import INTAKES, LIVE, Intake, step_length, with_public_facts
from panstream.engine.planner.query_plan import QueryPlan, plan_all
from panstream.engine.rows.row_batch import BatchResult, RowBatch
from panstream.engine.runtime.batch_preparation import prepare_batch
from panstream.engine.runtime.checkpoint import EngineCheckpoint, open_log, open_store
from panstream.engine.runtime.clocks import StreamClock, follow_clock, guard_clock
from panstream.engine.runtime.exposure import Exposure
from panstream.engine.runtime.intrusions import NOT_KNOWN, CopyTime, RefreshOutcome
from panstream.engine.runtime.name_decoder import NameDecoder
from panstream.engine.runtime.producers import Producers
from panstream.engine.runtime.release_record import release_record, release_timestamp
from panstream.engine.runtime.running_query import DrawnAnswer, RunningQuery
from panstream.engine.runtime.state_backend import LocalBackend, Slot, StateBackend
from panstream.engine.storage.release_log import Release
from panstream.errors import StoreError
from panstream.primitives.noise import NoiseSource
from panstream.privacy.ledger import Ledger

Mask = NDArray[np.bool_]

_DAY = 86_400


class Engine:
    """Runs the queries of a configuration. Not thread-safe: one owner, as the state has one copy.

    ``clock`` tells the time of arrival in seconds; if it is further ahead of ``elapsed`` than ``[stream]
    max_clock_jump``, nothing is drawn by it until it comes back, or the engine is opened with ``accept_time``.
    ``publish`` is called with every answer when it is durable and in the log. Rows whose event time is further ahead of
    the clock than ``[stream] max_ahead`` are bad rows, and move nothing: a row from the future would close everybody's
    windows. ``rng`` and ``zero_noise`` are for tests; every claim then says that there is no privacy. ``backend`` is
    where states live.
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
        self.config = config
        self.plans: tuple[QueryPlan, ...] = plan_all(config, zero_noise=zero_noise)
        if rng is not None and not rng.is_secure:
            self.plans = tuple(
                replace(plan, claim=plan.claim.without_privacy("drawn from a test source")) for plan in self.plans
            )
        self._publish = publish
        self._declared = False
        self.by_clock = False  # whether rows are to be applied without committing, and ``step`` called on the clock
        self.step_length = step_length(config, self.plans)
        self.committed = object()  # another one after every commit
        self.sink: SinkState | None = None  # how copying answers to a database goes, where it is configured
        self._backend: StateBackend = LocalBackend(rng) if backend is None else backend
        lateness = config.stream.lateness if config.stream.time is not None else 0.0
        self._clock: Callable[[], float] = clock  # watched from now on, and standing still during a live stream's step
        self._queries = {
            plan.config.name: RunningQuery(plan, self._backend, lateness=lateness, clock=lambda: self._clock())
            for plan in self.plans
        }
        self._stream_clock = StreamClock()
        self._drawn: list[Callable[[], Release]] = []  # records of answers, to be had once the backend has flushed
        self.broken = self._uncommitted = False  # whether a step failed half-way: then it must be opened again
        self._files = contextlib.ExitStack()
        try:
            self._store = open_store(config, operator_key)
            if self._store is not None:
                self._files.enter_context(self._store)
            self.log = self._files.enter_context(open_log(config))
            self.spelling = self._files.enter_context(NameDecoder(self.log, self.plans, publish))
            self._kept = EngineCheckpoint.restore(
                config, self._store, self._queries, self.log, now=release_timestamp(clock())
            )
            last = None if accept_time else self._kept.newest
            self._wall = guard_clock(clock, elapsed, config.stream, self._queries.values(), last=last)
            self._clock = self._wall
            self.exposure = Exposure(self._kept, self._queries, clock)
            self.exposure.correct_starts(int(self._clock()))
            self._after_restore()
            self._publish_facts()
            self._stream_clock.newest = self._kept.newest
            self._drawn = [partial(replace, release) for release in self._kept.unpublished]
            self._follow_clock(start=True)
            self._committed, self._slots = self._clock(), self._checkpoint_parts()
            self.commit()
        except BaseException:
            self.close()
            raise

    def _after_restore(self) -> None:
        """Do what a kind of engine does with what it finds stored, before that is committed again."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Close store and log; the state stays on disk as it was last committed."""
        self._files.close()

    def declare(self, *intakes: Intake) -> None:
        """Say how rows will come in: every claim from now on names what that makes public."""
        self._declared = True
        self._kept.intakes = [intake for intake in INTAKES if intake in {*intakes, *self._kept.intakes}]
        self._publish_facts()
        if LIVE & set(intakes) and self.step_length:
            self.by_clock = True
            self._freeze_clock()

    def _publish_facts(self) -> None:
        self.plans = with_public_facts(
            self.plans, self.config.stream, self._kept.intakes, by_clock=self.step_length > 0
        )
        for plan in self.plans:
            self._queries[plan.config.name].plan = plan

    def _freeze_clock(self) -> None:
        now = self._wall()
        self._clock = lambda: now

    @property
    def ledger(self) -> Ledger:
        """Return what has been spent, on this stream and over all restarts."""
        return self._kept.ledger

    @property
    def intrusions(self) -> tuple[dict[str, Any], ...]:
        """Return the intrusions that were announced: when, when the copy was made, and a verdict for each query."""
        return tuple(self._kept.intrusions)

    def finished(self, name: str) -> bool:
        """Return whether a query has made all its releases."""
        return self._queries[self.config.query(name).name].finished

    def release_count(self, name: str) -> int:
        """Return how many releases a query has made, over all windows and restarts."""
        query = self._queries[self.config.query(name).name]
        return query.prior_releases + query.release_count

    @property
    def jumped(self) -> bool:
        """Return whether the system's clock jumped ahead: then rows are taken in, and nothing is drawn by the clock."""
        return self._wall.jumped

    def is_applied(self, producer: str | None, sequence: int) -> bool:
        """Return whether a batch was applied already."""
        return producer is not None and self.last_sequence(producer) >= sequence

    @property
    def can_join_batches(self) -> bool:
        """Return whether batches of several producers may be joined: not if others keep count of who sent what.

        A cluster does not: a step sends every shard one message, however many producers' batches it takes.
        """
        return isinstance(self._backend, LocalBackend)

    @property
    def durable(self) -> bool:
        """Return whether all that was applied is where the durability promises it to be."""
        return self._store is None or self.config.durability == "none" or not self._uncommitted

    def positions(self) -> dict[str, int]:
        """Return how far every producer was applied."""
        return dict(self._kept.applied_batches)

    @property
    def producers(self) -> Producers:
        """Return who may send batches over the network."""
        return self._kept.producers

    def close_producer(self, token: str, name: str) -> None:
        """Forget a producer: its batches are refused from now on."""
        self.forget_producers([self._kept.producers.close(token, name)])

    def _check_clock(self) -> None:
        now = self._clock()
        self.forget_producers(self._kept.producers.retire(int(now // _DAY)))
        self._follow_clock()
        self.spelling.publish(release_timestamp(now))

    def forget_producers(self, producer_keys: Collection[str]) -> None:
        """Remember no longer how far some producers came."""
        for producer_key in producer_keys:
            self._kept.applied_batches.pop(producer_key, None)

    def last_sequence(self, producer: str) -> int:
        """Return the number of the last batch that was applied of a producer, -1 if there was none."""
        return self._kept.applied_batches.get(producer, -1)

    def apply(self, rows: RowBatch, *, commit: bool = True) -> BatchResult:
        """Take a micro-batch: all of it, or none of it and an error. With durability "batch" it is on disk afterwards.

        With ``commit=False`` it is not, and answers that became due are not published, until ``commit`` is called: so
        several batches can share the cost of one.
        """
        self._require_usable()
        if not self._declared:
            self.declare("calls")
        if self.is_applied(rows.producer, rows.sequence):
            return BatchResult(new=False)
        has_time, times = self._times(rows)
        if not has_time.all():  # a time that cannot be used opens no window either
            rows = replace(rows, times=times)
        marks = None if times is None else self._stream_clock.watermarks(times)
        work, skipped, late = prepare_batch(self._queries, self.config.stream, rows, has_time, times, marks)
        with self._fail_stop():
            self._backend.begin(rows.producer, rows.sequence)
            for query, prepared in work:
                query.apply(prepared, self._drawer(query))
            self._backend.end_batch()
            if times is not None:
                self._stream_clock.reach(times)
            for producer, sequence in rows.origins if rows.producer is None else ((rows.producer, rows.sequence),):
                self._kept.applied_batches[producer] = sequence
            self._kept.dirty = self._uncommitted = True
            if commit:
                self._commit_as_configured()
            if not self.by_clock:  # otherwise whether rows came between two steps would show
                self.exposure.note_applied()
        return BatchResult(new=True, skipped=rows.numbers(skipped), late=rows.numbers(late))

    def _times(self, rows: RowBatch) -> tuple[Mask, NDArray[np.float64] | None]:
        """Return which rows have a time that can be used, and all times, NaN where they cannot be used."""
        if rows.times is None:
            scheduled = any(query.schedule is not None for query in self._queries.values())
            return np.ones(rows.count, bool), np.full(rows.count, self._clock()) if scheduled else None
        has_time: Mask = np.isfinite(rows.times)
        if self.config.stream.max_ahead is not None:
            has_time &= rows.times <= self._clock() + self.config.stream.max_ahead
        return has_time, rows.times if has_time.all() else np.where(has_time, rows.times, np.nan)

    def advance(self) -> None:
        """Draw what is due by the clock of arrival, and commit. Call it now and then when no rows come."""
        with self._fail_stop():
            self._check_clock()
            self._commit_as_configured()

    def step(self, *, durable: Callable[[], None] | None = None) -> None:
        """End a step of a live stream: draw what is due and commit, whether or not rows came."""
        with self._fail_stop():
            self._freeze_clock()
            self._check_clock()
            self._kept.dirty = True
            if self._drawn or (self.config.durability != "none" and self._late):
                self.commit(durable=durable)

    def _follow_clock(self, *, start: bool = False) -> None:
        """Where the time of arrival counts, start the schedules that stand still, or draw what is due by the others.

        The stream's time never goes back, even if the system's clock does: a window that was closed would otherwise be
        opened again, and the next row would draw another answer about it.
        """
        if self.config.stream.time is not None:
            return
        now = self._stream_clock.advance_to(self._clock())
        for query in self._queries.values():
            follow_clock(query, now, self._drawer, start=start)

    def finish(self) -> None:
        """Close open slots and windows and answer what is asked at the end; once per stretch of input."""
        with self._fail_stop():
            if self._kept.dirty:
                for query in self._queries.values():
                    query.finish(self._drawer(query), self._stream_clock.newest)
                self._kept.dirty = False
                self.commit()
            self.publish_names()

    def release(self, name: str) -> list[Release]:
        """Answer a query without schedule now; raises BudgetExhausted when all paid releases were made."""
        drawn = self.draw(name)
        self.publish_names()
        return [self.log.find(release) or release if release.unread else release for release in drawn]

    def draw(self, name: str) -> list[Release]:
        """Answer like `release`, but do not wait for names to be read."""
        self._require_usable()
        query = self._queries[self.config.query(name).name]
        already_drawn = len(self._drawn)
        query.require_on_demand()
        with self._fail_stop():
            query.draw_now(self._drawer(query))
            drawn = self._drawn[already_drawn:]
            self.commit()
        return [make_release() for make_release in drawn]

    def publish_names(self, *, wait: bool = True) -> None:
        """Publish the names that were read; with ``wait``, all of them."""
        if self.spelling.publish(release_timestamp(self._clock()), wait=wait):
            self.commit()

    def announce_intrusion(self, copy: CopyTime = NOT_KNOWN) -> list[RefreshOutcome]:
        """Refresh every state that was copied and can be, record the verdicts, and commit.

        Args:
            copy: When the state was copied.

        Returns:
            What became of each state.

        Raises:
            InvalidParameter: The copy was made in the future; nothing is recorded.
        """
        copy.check_past(self.exposure.clock())
        with self._fail_stop():
            states = self.exposure.announce(copy, live=self.by_clock)
            self.commit()
        return states

    def commit(self, *, durable: Callable[[], None] | None = None) -> None:
        """Make states, seen batches, ledger and drawn releases durable in one go, then publish.

        ``durable`` is called as soon as they are, before the old state is made unreadable.
        """
        self._kept.newest = self._stream_clock.newest
        self._backend.flush()
        if self.by_clock or self._uncommitted:  # empty steps of the clock count like others
            self.exposure.note_applied()
        drawn = [make_release() for make_release in self._drawn]
        if self._store is not None:
            options = {} if durable is None else {"durable": durable}
            self._store.commit(self._kept.parts(self._queries, [*self.spelling.has_pending, *drawn]), **options)
        elif durable is not None:
            durable()
        old_slots = self._slots
        self._slots = self._checkpoint_parts()
        self._backend.drop(old_slots - self._slots)
        self._committed = self._clock()
        self._uncommitted = False
        self.committed = object()
        self._drawn = []
        with self.log.transaction():  # thousands of groups wait for the disk once
            published = [release for release in drawn if not release.unread and self.log.publish(release)]
        for release in published:
            self._publish(release)
        for release in (drawn_release for drawn_release in drawn if drawn_release.unread):
            self.spelling.submit(release)

    def _checkpoint_parts(self) -> set[tuple[str, Slot]]:
        return {(name, slot) for name, query in self._queries.items() for slot in query.monitors}

    def _commit_as_configured(self) -> None:
        if self._drawn or (self._uncommitted and self.config.durability != "none" and self._late):
            self.commit()

    @property
    def _late(self) -> bool:
        """Return whether a commit is due; while time stands still, at every step."""
        at_once = self.config.durability == "batch" or self.jumped
        # The clock may have been set back since: then a commit is due as well.
        return at_once or abs(self._clock() - self._committed) >= self.config.interval

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
        """Give up if a step is left half done, be it by Ctrl-C."""
        self._require_usable()
        try:
            yield
        except BaseException:
            self.broken = True  # what is on disk is the last whole state
            raise
