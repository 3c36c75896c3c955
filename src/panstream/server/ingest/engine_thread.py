"""The thread that owns the engine: batches that are queued together share one durable commit (group commit).

Other threads parse bodies. A body is wiped before its sender gets a response, whatever the outcome, and nothing in it
can end this thread. Should the thread end by an error all the same, every pending request is refused, and the server
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

_CLOCK_INTERVAL = 1.0  # seconds between checks for answers that are due
_MAX_COMMIT_GROUP = 256  # batches that share a commit
_MAX_MERGED = 32  # batches that are applied as one
_MAX_HELD = 32 << 20  # bytes of bodies that are held until the commit, in case they have to be applied again
_ENDED = "the server's engine failed; everything acknowledged is stored"


class EngineThread:
    """Runs an engine in a thread of its own, which makes all calls of it, one after the other.

    Args:
        start: Opens the engine; called again, to reopen it from the store, after a step failed half-way.
        ended: Called on the event loop if the engine's thread or a parser thread ends by an error.
        limits: Bounds on batches that wait for an earlier one of their producer.
    """

    def __init__(
        self, start: Callable[[], Engine], *, ended: Callable[[], None] = lambda: None, limits: Limits | None = None
    ) -> None:
        self._start = start
        self._ended = ended
        engine = self._open_engine()
        self._applier = BatchApplier(engine, self._reopen)
        self._stored = engine.config.directory is not None
        schema = RowSchema.of(engine.config.stream, engine.config.needed_columns)
        self._parsers = ParserPool(schema, self._on_parsed, self._fail)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()  # None is the end
        self._is_ending = False
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._open: set[Job] = set()  # not answered
        self._lock = threading.Lock()
        self.dead = False
        self._held: list[Job] = []  # applied, and not yet durable
        self._order = ReorderBuffer(limits or Limits())
        self._last_advance = time.monotonic()
        self._timer = CommitTimer(engine.step_length) if engine.by_clock else None

    def _open_engine(self) -> Engine:
        engine = self._start()
        engine.declare("http")
        return engine

    @property
    def engine(self) -> Engine:
        """The engine, for its own thread and for tests."""
        return self._applier.engine

    @property
    def failed(self) -> bool:
        """Whether the engine cannot be used at the moment."""
        return self.dead or self._applier.failed

    def run(self) -> None:
        """Start the threads; call it from the event loop."""
        self._loop = asyncio.get_running_loop()
        self._parsers.start()
        self._thread.start()

    def begin_stop(self) -> None:
        """Refuse batches that wait for an earlier one, which will not be received any more; from any thread."""
        self._jobs.put(Job(call=lambda engine: self._order.stop(), stage=Stage.READY))

    async def stop(self) -> None:
        """Process the queued jobs, commit, and close the engine."""
        await asyncio.to_thread(self._parsers.stop)
        self._jobs.put(None)
        await asyncio.to_thread(self._thread.join)

    async def take(self, job: Job) -> BatchOutcome:
        """Apply a body and return the outcome once it is durable, as configured; the body is wiped in any case."""
        future = self._make_future(job)
        self.submit(job)
        outcome: BatchOutcome = await future
        return outcome

    def submit(self, job: Job) -> None:
        """Apply a body; the event loop calls the job's ``on_done`` once it is durable."""
        job.stage = Stage.PARSING
        self._enter(job, self._parsers.submit)

    async def parse(self, job: Job) -> None:
        """Parse a part of a batch, whose rows stay in the job; refused, or if nobody waits for it, it is wiped."""
        assert self._loop is not None
        future: asyncio.Future[None] = self._loop.create_future()

        def on_done(result: Any, refusal: BaseException | None) -> None:
            if refusal is None and future.done():  # the request was cancelled
                job.overwrite()
                job.release_reservations()
            elif not future.done():
                future.set_result(None) if refusal is None else future.set_exception(refusal)

        job.on_done = on_done
        job.is_part = True
        self.submit(job)
        await future

    async def call(self, work: Callable[[Engine], Any], *, durable: bool = False) -> Any:
        """Return ``work(engine)``; if ``durable``, only after the commit that includes it."""
        job = Job(call=work, durable=durable, stage=Stage.READY)
        future = self._make_future(job)
        self._enter(job, self._jobs.put)
        return await future

    def _make_future(self, job: Job) -> asyncio.Future[Any]:
        """Return a future of the job's result."""
        assert self._loop is not None
        future = self._loop.create_future()

        def on_done(result: Any, refusal: BaseException | None) -> None:
            if not future.done():  # it is, if the request was cancelled
                future.set_result(result) if refusal is None else future.set_exception(refusal)

        job.on_done = on_done
        return future

    def _enter(self, job: Job, put: Callable[[Job], None]) -> None:
        with self._lock:
            self._open.add(job)
            dead = self.dead
        if dead:
            self._reject_all([job])
        else:
            put(job)

    def _on_parsed(self, job: Job) -> None:
        if job.refusal is not None:
            self._answer([job])
        elif self.dead:
            self._reject_all([job])
        elif job.is_part:
            self._notify([job])
        else:
            self._jobs.put(job)

    # The engine's thread.

    def _run(self) -> None:
        step = self._collect_ready_jobs if self._timer is None else self._collect_until_commit
        try:
            while not self._is_ending:
                step()
            self._order.stop()
            self._apply([])
            self._guard(self.engine.commit)
            self._guard(self.engine.publish_names)
        except BaseException:
            self._fail()
        finally:
            if self.dead:
                self._reject_open()
            for close in (self._applier.close, self.engine.close):
                with contextlib.suppress(BaseException):  # the thread ends here anyway
                    close()

    def _collect_until_commit(self) -> None:
        """Apply jobs until the step is over, then commit, also if there were none."""
        assert self._timer is not None
        while not self._is_ending and (wait := self._timer.remaining()) > 0:
            job = self._next(min(wait, self._order.seconds_left))
            bodies, calls = self._waiting(job)
            self._apply(bodies)
            self._do(calls)
        if self._applier.failed:
            self._applier.reopen_engine()
        self._commit(lambda durable: self.engine.step(durable=durable))
        self._timer.next()

    def _collect_ready_jobs(self) -> None:
        """Apply the queued jobs and commit them at once; draw answers that are due if a second has passed."""
        job = self._next(max(0.0, self._last_advance + _CLOCK_INTERVAL - time.monotonic()))
        if self._applier.failed:
            self._applier.reopen_engine()
        calls: list[Job] = []
        self._apply([])
        while job is not None:
            bodies, some = self._waiting(job)
            calls += some
            self._apply(bodies)
            job = self._next(0.0) if len(self._held) < _MAX_COMMIT_GROUP else None
        self._do([call for call in calls if call.durable])
        if self._held:
            durable = self.engine.config.durability == "batch"
            self._commit(lambda notify: self.engine.commit(durable=notify) if durable else self.engine.advance())
        self._do([call for call in calls if not call.durable])
        if time.monotonic() - self._last_advance >= _CLOCK_INTERVAL:
            self._last_advance = time.monotonic()
            self._guard(self.engine.advance)

    def _waiting(self, job: Job | None) -> tuple[list[Job], list[Job]]:
        """Return a job and those queued behind it, up to _MAX_MERGED bodies: bodies and calls."""
        bodies: list[Job] = []
        calls: list[Job] = []
        next_job = job
        while next_job is not None:
            (calls if next_job.body is None else bodies).append(next_job)
            next_job = self._next(0.0) if len(bodies) < _MAX_MERGED else None
        return bodies, calls

    def _next(self, wait: float) -> Job | None:
        """Return the next job; None after ``wait`` seconds without one, or at the end."""
        if self._is_ending:
            return None
        try:
            job = self._jobs.get(timeout=wait) if wait > 0 else self._jobs.get_nowait()
        except queue.Empty:
            return None
        self._is_ending = job is None
        return job

    def _apply(self, jobs: list[Job]) -> None:
        """Apply the bodies that are next in order, and hold them until the commit; answer refused ones at once."""
        while ready := self._order.arrange(jobs, self.engine):
            self._applier.apply(ready, self._held)
            jobs = [job for job in ready if job.refusal is None and job.result is None]  # they follow a refused one
            self._held += [job for job in ready if job.refusal is not None or job.result is not None]
        self._answer([job for job in self._held if job.refusal is not None])
        self._held = [job for job in self._held if job.refusal is None]
        if sum(job.reserved for job in self._held) > _MAX_HELD:
            for job in self._held:
                job.overwrite()
                job.release_reservations()

    def _commit(self, commit: Callable[[Callable[[], None]], None]) -> None:
        """Commit the held jobs and answer them.

        Bodies are wiped before: after the commit they are not needed again, and a copy of memory during it shows none.
        """
        jobs = self._held
        self._held = []
        for job in jobs:
            job.overwrite()
        if not self._guard(lambda: commit(lambda: self._notify(jobs))):
            fail_jobs(jobs)
        self._notify(jobs)

    def _do(self, calls: list[Job]) -> None:
        """Run calls and answer them, or hold durable ones until the commit.

        If one of the calls committed, as a release does, all jobs that were held are durable and answered too.
        """
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
        """Run a step of the engine; False if it failed, after which the engine is reopened."""
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
            return self._open_engine()
        except Exception:
            return None

    # Responses, from any thread.

    def _answer(self, jobs: list[Job]) -> None:
        """Wipe the bodies of jobs, then answer them."""
        for job in jobs:
            job.overwrite()
        self._notify(jobs)

    def _notify(self, jobs: list[Job]) -> None:
        """Answer jobs on the event loop, each once."""
        with self._lock:
            unanswered = [job for job in jobs if job.stage is not Stage.ANSWERED]
            for job in unanswered:
                job.stage = Stage.ANSWERED
            self._open.difference_update(unanswered)

        def call_back() -> None:
            for job in unanswered:
                if not job.is_part or job.refusal is not None:
                    job.release_reservations()
                with contextlib.suppress(Exception):  # the others are answered all the same
                    job.on_done(job.result if job.refusal is None else None, job.refusal)

        if unanswered and self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: no request is pending
                self._loop.call_soon_threadsafe(call_back)

    def _fail(self) -> None:
        """Refuse new jobs, end the engine's thread, which refuses the pending ones, and stop the server."""
        self.dead = True
        self._jobs.put(None)
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._ended)

    def _reject_open(self) -> None:
        """Refuse all pending jobs; the body of one that is being parsed is wiped by the parser's thread."""
        with self._lock:
            open_jobs = list(self._open)
        self._reject_all([job for job in open_jobs if job.stage is Stage.READY])
        fail_jobs(open_jobs, _ENDED, None)
        self._notify(open_jobs)

    def _reject_all(self, jobs: list[Job]) -> None:
        """Refuse jobs because the engine failed, and wipe their bodies."""
        fail_jobs(jobs, _ENDED, None)
        for job in jobs:
            with contextlib.suppress(Exception):
                job.overwrite()
        self._notify(jobs)
