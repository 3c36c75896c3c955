"""The engine's own thread: the state has one owner, and batches that wait together share one durable commit.

Bodies are parsed by other threads. Whatever becomes of a body, it is overwritten before its sender hears of it, and
nothing in it can end this thread; should the thread end all the same, everybody who waits is told, and the server
stops.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
import time
from collections.abc import Callable
from typing import Any

from panstream.engine.planner.public_facts import CommitTimer
from panstream.engine.rows.row_batch import RowSchema
from panstream.engine.runtime.engine import Engine
from panstream.errors import PanstreamError
from panstream.server.auth import Limits
from panstream.server.errors import HttpError
from panstream.server.ingest.batch_applier import BatchApplier
from panstream.server.ingest.batch_order import ReorderBuffer
from panstream.server.ingest.jobs import BatchOutcome, Job, ParserPool, Stage, fail_jobs

_PULSE = 1.0  # seconds between looks at the clock
_GROUP = 256  # batches that share a commit at most
_JOINED = 32  # batches that are applied as one at most
_KEPT = 32 << 20  # bytes of bodies that are kept until the commit, should they have to be applied again
_ENDED = "the server's engine failed; what was acknowledged is kept"


class EngineThread:
    """Runs an engine. Everything that touches it goes through here, one after the other.

    ``start`` opens the engine, and opens it again from the store after a step failed half-way. ``ended`` is called on
    the event loop if the engine's thread or a parser's ends before it should. ``limits`` say which batches may wait
    for an earlier one.
    """

    def __init__(
        self, start: Callable[[], Engine], *, ended: Callable[[], None] = lambda: None, limits: Limits | None = None
    ) -> None:
        self._start = start
        self._ended = ended
        engine = self._opened()
        self._applier = BatchApplier(engine, self._reopen)
        self._stored = engine.config.directory is not None
        schema = RowSchema.of(engine.config.stream, engine.config.needed_columns)
        self._parsers = ParserPool(schema, self._parsed, self._fail)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()  # None is the end
        self._ending = False
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._open: set[Job] = set()  # whom nobody has told yet
        self._lock = threading.Lock()
        self.dead = False
        self._held: list[Job] = []  # applied, and not yet durable
        self._order = ReorderBuffer(limits or Limits())
        self._looked = time.monotonic()
        self._pace = CommitTimer(engine.step_length) if engine.by_clock else None

    def _opened(self) -> Engine:
        engine = self._start()
        engine.declare("http")
        return engine

    @property
    def engine(self) -> Engine:
        """Return the engine, for its own thread; and for tests."""
        return self._applier.engine

    @property
    def failed(self) -> bool:
        """Return whether nothing can be taken at the moment."""
        return self.dead or self._applier.failed

    def run(self) -> None:
        """Start the threads; call it from the event loop."""
        self._loop = asyncio.get_running_loop()
        self._parsers.start()
        self._thread.start()

    def begin_stop(self) -> None:
        """Refuse batches that wait for an earlier one, which is not received any more; from any thread."""
        self._jobs.put(Job(call=lambda engine: self._order.stop(), stage=Stage.READY))

    async def stop(self) -> None:
        """Finish what waits, commit, and close the engine."""
        await asyncio.to_thread(self._parsers.stop)
        self._jobs.put(None)
        await asyncio.to_thread(self._thread.join)

    async def take(self, job: Job) -> BatchOutcome:
        """Return what became of a body; it is durable then, as configured. The body is overwritten in any case."""
        future = self._make_future(job)
        self.submit(job)
        outcome: BatchOutcome = await future
        return outcome

    def submit(self, job: Job) -> None:
        """Take a body, and have the event loop call the job's ``tell`` when it is durable."""
        job.stage = Stage.PARSING
        self._enter(job, self._parsers.submit)

    async def call(self, work: Callable[[Engine], Any], *, durable: bool = False) -> Any:
        """Return ``work(engine)``, if asked for once it is durable, together with the batches that wait."""
        job = Job(call=work, durable=durable, stage=Stage.READY)
        future = self._make_future(job)
        self._enter(job, self._jobs.put)
        return await future

    def _make_future(self, job: Job) -> asyncio.Future[Any]:
        """Return a future that the job's answer settles, unless nobody waits for it any more."""
        assert self._loop is not None
        future = self._loop.create_future()

        def tell(result: Any, refusal: BaseException | None) -> None:
            if not future.done():
                future.set_result(result) if refusal is None else future.set_exception(refusal)

        job.on_done = tell
        return future

    def _enter(self, job: Job, put: Callable[[Job], None]) -> None:
        with self._lock:
            self._open.add(job)
            dead = self.dead
        if dead:
            self._reject_waiting([job])
        else:
            put(job)

    def _parsed(self, job: Job) -> None:
        if job.refusal is not None:
            self._answer([job])
        elif self.dead:
            self._reject_waiting([job])
        else:
            self._jobs.put(job)

    # The engine's thread.

    def _run(self) -> None:
        step = self._collect_ready_jobs if self._pace is None else self._collect_until_commit
        try:
            while not self._ending:
                step()
            self._order.stop()
            self._apply([])
            self._guard(self.engine.commit)
            self._guard(self.engine.publish_names)
        except BaseException:
            self._fail()
        finally:
            if self.dead:
                self._part()
            for close in (self._applier.close, self.engine.close):
                with contextlib.suppress(BaseException):  # the thread ends here anyway
                    close()

    def _collect_until_commit(self) -> None:
        """Apply what comes until the step is over, then commit, whatever has come."""
        assert self._pace is not None
        while not self._ending and (wait := self._pace.remaining()) > 0:
            job = self._next(min(wait, self._order.seconds_left))
            bodies, calls = self._waiting(job)
            self._apply(bodies)
            self._do(calls)
        if self._applier.failed:
            self._applier.reopen_engine()
        self._commit(lambda durable: self.engine.step(durable=durable))
        self._pace.next()

    def _collect_ready_jobs(self) -> None:
        """Take what has come and commit it at once, or look at the clock."""
        job = self._next(max(0.0, self._looked + _PULSE - time.monotonic()))
        if self._applier.failed:
            self._applier.reopen_engine()
        calls: list[Job] = []
        self._apply([])
        while job is not None:
            bodies, some = self._waiting(job)
            calls += some
            self._apply(bodies)
            job = self._next(0.0) if len(self._held) < _GROUP else None
        self._do([call for call in calls if call.durable])
        if self._held:
            durable = self.engine.config.durability == "batch"
            self._commit(lambda tell: self.engine.commit(durable=tell) if durable else self.engine.advance())
        self._do([call for call in calls if not call.durable])
        if time.monotonic() - self._looked >= _PULSE:
            self._looked = time.monotonic()
            self._guard(self.engine.advance)

    def _waiting(self, job: Job | None) -> tuple[list[Job], list[Job]]:
        """Return a job and what waits behind it, as far as it is applied as one: bodies and calls."""
        bodies: list[Job] = []
        calls: list[Job] = []
        next_job = job
        while next_job is not None:
            (calls if next_job.body is None else bodies).append(next_job)
            next_job = self._next(0.0) if len(bodies) < _JOINED else None
        return bodies, calls

    def _next(self, wait: float) -> Job | None:
        """Return the next job; None if none comes in time, or there will be no more."""
        if self._ending:
            return None
        try:
            job = self._jobs.get(timeout=wait) if wait > 0 else self._jobs.get_nowait()
        except queue.Empty:
            return None
        self._ending = job is None
        return job

    def _apply(self, jobs: list[Job]) -> None:
        """Apply bodies whose turn it is, which wait for the commit; those that are refused do not wait."""
        while ready := self._order.arrange(jobs, self.engine):
            self._applier.apply(ready, self._held)
            jobs = [job for job in ready if job.refusal is None and job.result is None]  # behind one that was refused
            self._held += [job for job in ready if job.refusal is not None or job.result is not None]
        self._answer([job for job in self._held if job.refusal is not None])
        self._held = [job for job in self._held if job.refusal is None]
        if sum(job.body.reserved for job in self._held if job.body is not None) > _KEPT:
            for job in self._held:
                job.overwrite()
                if job.body is not None:
                    job.body.release_reservation()

    def _commit(self, commit: Callable[[Callable[[], None]], None]) -> None:
        """Make what was applied durable, and say so."""
        jobs = self._held
        self._held = []
        for job in jobs:
            job.overwrite()
        if not self._guard(lambda: commit(lambda: self._notify(jobs))):
            fail_jobs(jobs)
        self._notify(jobs)

    def _do(self, calls: list[Job]) -> None:
        """Answer calls, or have them wait for the commit; what waited has it, if one of them made one."""
        committed_before = self.engine.committed
        for call in calls:
            self._call(call)
            if call.durable and call.refusal is None:
                self._held.append(call)
            else:
                self._answer([call])
        if self._held and (self._applier.failed or self.engine.committed is not committed_before):
            jobs = self._held
            self._held = []
            if self._applier.failed:
                fail_jobs(jobs)
            self._answer(jobs)

    def _call(self, job: Job) -> None:
        if self._applier.failed or job.call is None:
            fail_jobs([job])
            return
        try:
            job.result = job.call(self.engine)
        except (HttpError, PanstreamError) as error:
            job.refusal = error
        except Exception as error:
            job.refusal = HttpError.after(error, "the engine failed")
        if self.engine.broken:
            self._applier.failed = True

    def _guard(self, step: Callable[[], None]) -> bool:
        """Do a step of the engine; False if it failed, after which the engine is opened again."""
        if self._applier.failed:
            return False
        try:
            step()
        except Exception:
            self._applier.failed = True
        self._applier.failed = self._applier.failed or self.engine.broken
        return not self._applier.failed

    def _reopen(self) -> Engine | None:
        if not self._stored:
            raise RuntimeError("the state was in memory alone, and is lost")
        try:
            self.engine.close()
            return self._opened()
        except Exception:
            return None

    # Answers, from any thread.

    def _answer(self, jobs: list[Job]) -> None:
        """Tell whoever waits, once, after the bodies are overwritten."""
        for job in jobs:
            job.overwrite()
        self._notify(jobs)

    def _notify(self, jobs: list[Job]) -> None:
        with self._lock:
            untold = [job for job in jobs if job.stage is not Stage.ANSWERED]
            for job in untold:
                job.stage = Stage.ANSWERED
            self._open.difference_update(untold)

        def tell() -> None:
            for job in untold:
                if job.body is not None:
                    job.body.release_reservation()
                with contextlib.suppress(Exception):  # the others are told all the same
                    job.on_done(job.result if job.refusal is None else None, job.refusal)

        if untold and self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
                self._loop.call_soon_threadsafe(tell)

    def _fail(self) -> None:
        """Take nothing more, have the engine's thread tell everybody, and the server stop."""
        self.dead = True
        self._jobs.put(None)
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._ended)

    def _part(self) -> None:
        """Tell everybody who waits; what a parser still reads is overwritten by its thread."""
        with self._lock:
            open_jobs = list(self._open)
        self._reject_waiting([job for job in open_jobs if job.stage is Stage.READY])
        fail_jobs(open_jobs, _ENDED, None)
        self._notify(open_jobs)

    def _reject_waiting(self, jobs: list[Job]) -> None:
        """Tell senders that the engine is gone, whatever else fails."""
        fail_jobs(jobs, _ENDED, None)
        for job in jobs:
            with contextlib.suppress(Exception):
                job.overwrite()
        self._notify(jobs)
