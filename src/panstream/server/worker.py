"""The engine's own thread: the state has one owner, and batches that wait together share one durable commit.

Text and compressed bodies are parsed by other threads meanwhile; Arrow costs less to parse than to hand over. While a
crowd's commit is under way the engine belongs to the thread that commits, and this one parses what comes next. Whatever
becomes of a body, it is overwritten here before its sender hears of it.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from panstream.engine.engine import Applied, Engine
from panstream.engine.plan import needed_columns
from panstream.engine.rows import BadRowError, MicroBatch, RowSchema
from panstream.engine.select import Selector
from panstream.errors import PanstreamError
from panstream.server.bodies import Body, parse
from panstream.server.jobs import COMMITTED, NOBODY, Arriving, Job, Taken, Tell, overwrite, teller
from panstream.server.joining import join, joinable, split
from panstream.server.refusals import Refusal

__all__ = ["Worker"]

_PULSE = 1.0  # seconds between looks at the clock
_GROUP = 256  # batches that share a commit at most
_JOINED = 32  # batches that are applied as one at most
_PARSERS = 2
_LINGER = 0.012  # seconds that a commit waits at most for bodies that are arriving, and only
_CROWD = 4  # for a crowd: more than so many times those that are here
_PACE = 0.012  # seconds from one commit to the next while several senders wait: each writes the whole state
_SEVERAL = 4
_FAILED = "the state could not be stored; what was acknowledged is kept, send the rest again"


class Worker:
    """Runs an engine. Everything that touches it goes through here, one after the other.

    ``start`` opens the engine, and opens it again from the store after a step failed half-way.
    """

    def __init__(self, start: Callable[[], Engine], *, producers: int) -> None:
        self._start, self._producers = start, producers
        self.engine = start()
        config = self.engine.config
        self._select = Selector(config)
        self._schema = RowSchema.of(config.stream, needed_columns(config))
        self._parsers = ThreadPoolExecutor(_PARSERS, "parse")
        self._committer = ThreadPoolExecutor(1, "commit")
        self._committing: Future[None] | None = None  # until then the engine is the committer's
        self._loop: asyncio.AbstractEventLoop | None = None
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self.batches = self.rows = 0  # since the start: how many there are is public
        self.failed = False
        self.arriving = Arriving()
        self._linger = 0.0
        self._due = 0.0  # not before then, unless as many batches wait as ever do
        self._crowd = 0.0

    def run(self) -> None:
        """Start the thread; call it from the event loop."""
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    async def stop(self) -> None:
        """Finish what waits, commit, and close the engine."""
        await asyncio.to_thread(self._parsers.shutdown)
        self._jobs.put(None)
        await asyncio.to_thread(self._thread.join)

    async def take(self, body: Body, producer: str | None, sequence: int) -> Taken:
        """Take a body's rows; when this returns they are durable, as configured. The body is overwritten in any case."""
        future = self._future()
        self.take_soon(body, producer, sequence, teller(future))
        taken: Taken = await future
        return taken

    def take_soon(self, body: Body, producer: str | None, sequence: int, tell: Tell) -> None:
        """Take a body that was counted as arriving, and have the event loop call ``tell`` when it is durable."""
        job = Job(None, tell, body, producer, sequence)
        if body.kind == "arrow" and body.encoding == "identity":
            self._jobs.put(job)
        else:
            self._parsers.submit(self._parse_elsewhere, job, body)

    async def call(self, work: Callable[[Engine], Any]) -> Any:
        """Return ``work(engine)``."""
        future = self._future()
        self._jobs.put(Job(work, teller(future)))
        return await future

    def _future(self) -> asyncio.Future[Any]:
        assert self._loop is not None
        return self._loop.create_future()

    def _parse_elsewhere(self, job: Job, body: Body) -> None:
        self._parse(job, body)
        if job.refusal is None:
            self._jobs.put(job)
        else:
            self.arriving.add(-1)
            self._answer([job])

    def _parse(self, job: Job, body: Body) -> None:
        try:
            job.work = parse(body, self._schema, job.producer, job.sequence)
        except Refusal as refusal:
            job.refusal = Refusal(refusal.code, refusal.message, row=refusal.row, retry_after=refusal.retry_after)
        except Exception as error:
            job.refusal = Refusal("internal", f"a body could not be read ({type(error).__name__})")

    def _run(self) -> None:
        last = time.monotonic()
        running = True
        while running:
            first = self._next(max(0.0, last + _PULSE - time.monotonic()))
            if self.failed:
                self._settle()
                self._reopen()
            if first is None:
                running = False
            elif first is not NOBODY:
                running = self._group(first)
            if time.monotonic() - last >= _PULSE:
                last = time.monotonic()
                self._settle()
                self._guard(self.engine.advance)
        self._settle()
        self._guard(self.engine.commit)
        self._committer.shutdown()
        self._select.__exit__(None, None, None)
        self.engine.close()

    def _next(self, wait: float) -> Job | None:
        """Return the next job, ``NOBODY`` if none comes in time, ``None`` at the end."""
        end = time.monotonic() + wait
        try:
            while (job := self._jobs.get(timeout=wait) if wait > 0 else self._jobs.get_nowait()) is COMMITTED:
                wait = end - time.monotonic()
        except queue.Empty:
            return NOBODY
        return job

    def _next_or_committed(self) -> Job | None:
        """Return the next job, or ``NOBODY`` when the commit under way is over; ``None`` at the end."""
        while self._committing is not None and not self._committing.done():
            if (job := self._jobs.get()) is not COMMITTED:
                return job
        return NOBODY

    def _group(self, first: Job) -> bool:
        """Apply batches as they come while more are arriving, then commit them all; False at the end."""
        begin = time.monotonic()
        batches: list[Job] = []
        waiting: list[Job] = []
        calls: list[Job] = []
        job: Job | None = first
        while job is not None and job is not NOBODY and len(batches) + len(waiting) < _GROUP:
            if job.body is None:
                calls.append(job)
            else:
                self.arriving.add(-1)
                if job.work is None:
                    self._parse(job, job.body)
                waiting.append(job)
            job = self._next(0.0)
            if job is NOBODY and len(batches) + len(waiting) < self._crowd:
                job = self._next(self._due - time.monotonic())
            if job is NOBODY:
                job = self._next_or_committed()
            if not isinstance(job, Job) or job is NOBODY or len(waiting) == _JOINED:
                batches += self._apply_all(waiting)
                waiting = []
            if job is NOBODY and self.arriving.count > _CROWD * len(batches):
                job = self._next(begin + self._linger - time.monotonic())
        batches += self._apply_all(waiting)
        if job is not None and job is not NOBODY:
            self._jobs.put(job)
        self._commit(batches)
        if calls:
            self._settle()
        for call in calls:
            self._call(call)
            self._answer([call])
        return job is not None

    def _commit(self, jobs: list[Job]) -> None:
        """Make batches durable together, and say so; of several senders, while the next bodies are parsed."""
        if not jobs:
            return
        self._settle()
        begin = time.monotonic()
        if not self.failed:
            self.engine.forget_producers(self._producers)
        several = len(jobs) >= _SEVERAL
        overwritten = threading.Event()
        if several:
            self._committing = self._committer.submit(self._commit_now, jobs, overwritten)
            self._committing.add_done_callback(lambda _: self._jobs.put(COMMITTED))
        try:
            overwrite(jobs)
        finally:
            overwritten.set()
        if not several:
            self._commit_now(jobs, overwritten)
        self._due = begin + _PACE if several else 0.0
        self._crowd = max(len(jobs), 0.9 * self._crowd)

    def _commit_now(self, jobs: list[Job], overwritten: threading.Event) -> None:
        begin = time.monotonic()

        def durable() -> None:
            overwritten.wait()
            self._answer(jobs)

        if self.engine.config.durability == "batch":
            done = self._guard(lambda: self.engine.commit(durable=durable))
        else:
            done = self._guard(self.engine.advance)
        if not done:
            for job in jobs:
                job.refusal = job.refusal or Refusal("unavailable", _FAILED, retry_after=1)
        durable()
        self._linger = min(_LINGER, time.monotonic() - begin)

    def _settle(self) -> None:
        """Wait for the commit under way, after which the engine is this thread's again."""
        committing, self._committing = self._committing, None
        if committing is not None:
            committing.result()

    def _apply_all(self, jobs: list[Job]) -> list[Job]:
        """Apply the batches of some jobs, in order, as few steps as they allow; return the jobs."""
        if jobs:
            self._settle()
        batches = [(job, job.work) for job in jobs if isinstance(job.work, MicroBatch)]
        while batches:
            alike = joinable([batch for _, batch in batches])
            part, batches = batches[:alike], batches[alike:]
            if self.failed:
                for job, _ in part:
                    job.refusal = Refusal("unavailable", _FAILED, retry_after=1)
            elif len(part) == 1 or not self.engine.joins or not self._apply_joined(part):
                for job, batch in part:
                    self._apply(job, batch)
        return jobs

    def _apply_joined(self, jobs: list[tuple[Job, MicroBatch]]) -> bool:
        """Apply batches as one; False, with nothing done, if that is refused for what is in some of them."""
        new: dict[str, int] = {}
        fresh: list[tuple[Job, MicroBatch]] = []
        for job, batch in jobs:
            producer, sequence = job.producer, job.sequence
            if producer is not None and (self.engine.seen(producer, sequence) or new.get(producer, -1) >= sequence):
                job.result = Taken(applied=Applied(new=False), rows=batch.rows_read, bad=())
            else:
                fresh.append((job, batch))
                new |= {} if producer is None else {producer: sequence}
        joined = join([batch for _, batch in fresh]) if fresh else None
        try:
            if joined is not None:
                rows = replace(self._select(joined), numbers=None, origins=tuple(new.items()))
                parts = split(self.engine.apply(rows, commit=False), [batch for _, batch in fresh])
                for (job, batch), applied in zip(fresh, parts, strict=True):
                    self._note(job, batch, applied)
        except Exception:
            if not self.engine.broken:
                return False
            for job, _ in fresh:
                job.refusal = Refusal("unavailable", _FAILED, retry_after=1)
        finally:
            self._select.wipe()
            if joined is not None:
                joined.wipe()
            self.failed = self.failed or self.engine.broken
        return True

    def _note(self, job: Job, batch: MicroBatch, applied: Applied) -> None:
        job.result = Taken(applied=applied, rows=batch.rows_read, bad=tuple(bad.row for bad in batch.bad_rows))
        if applied.new:
            self.batches += 1
            self.rows += batch.rows_read

    def _apply(self, job: Job, batch: MicroBatch) -> None:
        try:
            if self.failed:
                job.refusal = Refusal("unavailable", _FAILED, retry_after=1)
                return
            self._note(job, batch, self.engine.apply(self._select(batch), commit=False))
        except BadRowError as error:
            job.refusal = Refusal("bad_row", str(error), row=error.row)
        except PanstreamError as error:
            job.refusal = Refusal("bad_body", str(error))
        except Exception as error:
            job.refusal = Refusal("internal", f"a batch could not be taken ({type(error).__name__})")
        finally:
            self._select.wipe()
            self.failed = self.failed or self.engine.broken

    def _call(self, job: Job) -> None:
        if self.failed or not callable(job.work):
            job.refusal = Refusal("unavailable", _FAILED, retry_after=1)
            return
        try:
            job.result = job.work(self.engine)
        except (Refusal, PanstreamError) as error:
            job.refusal = error
        except Exception as error:
            job.refusal = Refusal("internal", f"the engine failed ({type(error).__name__})")
        self.failed = self.failed or self.engine.broken

    def _guard(self, step: Callable[[], None]) -> bool:
        """Do a step of the engine; False if it failed, after which the engine is opened again."""
        if self.failed:
            return False
        try:
            step()
        except Exception:
            self.failed = True
        self.failed = self.failed or self.engine.broken
        return not self.failed

    def _reopen(self) -> None:
        try:
            self.engine.close()
            self.engine = self._start()
        except Exception:
            return
        self.failed = False

    def _answer(self, jobs: list[Job]) -> None:
        """Tell whoever waits, once, after the bodies are overwritten."""
        assert self._loop is not None
        jobs = [job for job in jobs if not job.answered]
        overwrite(jobs)
        for job in jobs:
            job.answered = True

        def tell() -> None:
            for job in jobs:
                if job.body is not None:
                    job.body.give_back()
                job.tell(job.result if job.refusal is None else None, job.refusal)

        if jobs:
            try:
                self._loop.call_soon_threadsafe(tell)
            except RuntimeError:  # the loop is closed: nobody waits
                return
