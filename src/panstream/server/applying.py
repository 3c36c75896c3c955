"""Bodies into the engine: as few steps as they allow, and a body that fails is refused alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from panstream.engine.engine import Applied, Engine
from panstream.engine.rows import Rows
from panstream.engine.select import Selector
from panstream.errors import PanstreamError, ProducerRefused
from panstream.server.jobs import Job, Taken
from panstream.server.joining import join, joinable, split
from panstream.server.parsing import failure
from panstream.server.refusals import Refusal

__all__ = ["FAILED", "Applier", "refuse"]

FAILED = "the state could not be stored; what was acknowledged is kept, send the rest again"
_ROUNDS = 4  # bodies of one step that may break the engine before the step is given up

Work = list[tuple[Job, Rows]]


class Applier:
    """Applies bodies to an engine. ``engine`` is opened again by ``reopen``, which returns None if it cannot be."""

    def __init__(self, engine: Engine, reopen: Callable[[], Engine | None]) -> None:
        self.engine, self._reopen = engine, reopen
        self._select = Selector(engine.config)
        self.failed = False  # whether there is no engine to apply to

    def close(self) -> None:
        """Give up what the selection holds."""
        self._select.__exit__(None, None, None)

    def apply(self, jobs: Sequence[Job], before: Sequence[Job]) -> None:
        """Apply some bodies, in order; ``before`` are those applied since the last commit.

        Whatever is wrong with one of them, the others are applied: if the engine broke half-way through it, all are
        applied again, one by one, to the engine as it was last stored, which is why bodies are kept until then.
        """
        work = _work(jobs)
        while work and not self.failed:
            alike = joinable([batch for _, batch in work])
            part, work = work[:alike], work[alike:]
            if len(part) == 1 or not self.engine.joins or not self._joined(part):
                for job, batch in part:
                    if not self.engine.broken and job.refusal is None:
                        self._alone(job, batch)
            if self.engine.broken and self.engine.joins:
                self._again([*before, *jobs])
                return
            if self.engine.broken:  # a cluster's shards may have some of it already
                self.failed = True
                refuse(before)
        if self.failed:
            refuse(jobs)

    def _again(self, jobs: Sequence[Job]) -> None:
        """Apply what is left of a step to the engine as it was last stored."""
        for _ in range(_ROUNDS):
            self.open_again()
            if self.failed:
                break
            for job in jobs:
                if job.refusal is None and not isinstance(job.work, Rows):
                    job.refusal = Refusal("unavailable", FAILED, retry_after=1)  # its rows were overwritten
            for job, batch in _work(jobs):
                job.result = None
                self._alone(job, batch)
                if self.engine.broken:
                    break
            else:
                return
        self.failed = True
        refuse(jobs)

    def open_again(self) -> None:
        """Go back to the engine as it was last stored."""
        engine = self._reopen()
        self.failed = engine is None
        if engine is not None:
            self.engine = engine

    def _joined(self, work: Work) -> bool:
        """Apply batches as one; False, with nothing done, if that is refused for what is in some of them."""
        new: dict[str, int] = {}
        fresh: Work = []
        for job, batch in work:
            place, sequence = self._place(job), job.sequence
            if job.refusal is not None:
                continue
            if place is not None and (self.engine.seen(place, sequence) or new.get(place, -1) >= sequence):
                job.result = Taken(applied=Applied(new=False), rows=len(batch))
            else:
                fresh.append((job, batch))
                new |= {} if place is None else {place: sequence}
        joined: Rows | None = None
        try:
            if fresh:
                joined = join([batch for _, batch in fresh])
                rows = replace(self._select(joined), origins=tuple(new.items()))
                parts = split(self.engine.apply(rows, commit=False), [batch for _, batch in fresh])
                for (job, batch), applied in zip(fresh, parts, strict=True):
                    job.result = _taken(batch, applied)
        except Exception:
            return self.engine.broken  # if not, nothing was done
        finally:
            self._select.wipe()
            if joined is not None:
                joined.wipe()
        return True

    def _place(self, job: Job) -> str | None:
        """Return under which name the engine knows a job's sender, None if it has none; refuses the job if it is not known."""
        try:
            return None if job.sender is None else self.engine.place(job.sender, job.sequence)
        except ProducerRefused as error:
            job.refusal = Refusal(error.code, str(error))
        return None

    def _alone(self, job: Job, batch: Rows) -> None:
        try:
            place = self._place(job)
            if job.refusal is None:
                rows = replace(self._select(batch), producer=place, sequence=job.sequence)
                job.result = _taken(batch, self.engine.apply(rows, commit=False))
        except PanstreamError as error:
            job.refusal = Refusal("bad_body", str(error))
        except Exception as error:
            job.refusal = failure(error, "a batch could not be taken")
        finally:
            self._select.wipe()


def refuse(jobs: Sequence[Job]) -> None:
    """Tell senders to send again what is not yet refused."""
    for job in jobs:
        job.refusal = job.refusal or Refusal("unavailable", FAILED, retry_after=1)


def _work(jobs: Sequence[Job]) -> Work:
    return [(job, job.work) for job in jobs if job.refusal is None and isinstance(job.work, Rows)]


def _taken(batch: Rows, applied: Applied) -> Taken:
    return Taken(applied=applied, rows=len(batch))
