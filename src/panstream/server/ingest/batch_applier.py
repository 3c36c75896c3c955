"""Bodies into the engine: as few steps as they allow, and a body that fails is refused alone.

Bodies that wait together are joined to one micro-batch: what a step costs is then paid once for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate

import numpy as np

from panstream.engine.arrow import pa
from panstream.engine.rows.row_batch import BatchResult, RowBatch
from panstream.engine.runtime.engine import Engine
from panstream.engine.runtime.selector import Selector
from panstream.errors import PanstreamError, ProducerFenced
from panstream.server.errors import HttpError
from panstream.server.ingest.jobs import BatchOutcome, Job, fail_jobs

_ROWS = 1 << 18  # of a joined batch, at most
_BYTES = 1 << 26  # of it, at most: far from 2 GiB, which the offsets of words cannot exceed
_ROUNDS = 4  # bodies of one step that may break the engine before the step is given up

Work = list[tuple[Job, RowBatch]]


class BatchApplier:
    """Applies bodies to an engine. ``engine`` is opened again by ``reopen``, which returns None if it cannot be."""

    def __init__(self, engine: Engine, reopen: Callable[[], Engine | None]) -> None:
        self.engine = engine
        self._reopen = reopen
        self._select = Selector(engine.config)
        self.failed = False  # whether there is no engine to apply to

    def close(self) -> None:
        """Give up what the selection holds."""
        self._select.__exit__(None, None, None)

    def apply(self, jobs: Sequence[Job], previous_jobs: Sequence[Job]) -> None:
        """Apply some bodies, in order; ``previous_jobs`` are those applied since the last commit.

        A body of a producer whose batch before it was not applied is left as it is, without a result or a refusal.
        Whatever is wrong with one of them, the others are applied: if the engine broke half-way through it, all are
        applied again, one by one, to the engine as it was last stored, which is why bodies are kept until then.
        """
        work = _work(jobs)
        while work and not self.failed:
            alike = _mergeable_prefix([batch for _, batch in work])
            part = work[:alike]
            work = work[alike:]
            if len(part) == 1 or not self.engine.can_join_batches or not self._joined(part):
                for job, batch in part:
                    if not self.engine.broken and job.refusal is None:
                        self._apply_one(job, batch)
            if self.engine.broken and self.engine.can_join_batches:
                self._apply_separately([*previous_jobs, *jobs])
                return
            if self.engine.broken:  # a cluster's shards may have some of it already
                self.failed = True
                fail_jobs(previous_jobs)
        if self.failed:
            fail_jobs(jobs)

    def _apply_separately(self, jobs: Sequence[Job]) -> None:
        """Apply what is left of a step to the engine as it was last stored."""
        for _ in range(_ROUNDS):
            self.reopen_engine()
            if self.failed:
                break
            fail_jobs(job for job in jobs if job.rows is None)  # its rows were overwritten
            for job, batch in _work(jobs):
                job.result = None
                self._apply_one(job, batch)
                if self.engine.broken:
                    break
            else:
                fail_jobs(job for job in jobs if job.result is None)  # they follow one whose rows were overwritten
                return
        self.failed = True
        fail_jobs(jobs)

    def reopen_engine(self) -> None:
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
            producer_key = self._place(job)
            sequence = job.sequence
            last = sequence - 1 if producer_key is None else new.get(producer_key, self._last(producer_key))
            if job.refusal is not None or sequence > last + 1:
                continue
            if sequence <= last:
                job.result = BatchOutcome(applied=BatchResult(new=False), rows=len(batch))
            else:
                fresh.append((job, batch))
                new |= {} if producer_key is None else {producer_key: sequence}
        joined: RowBatch | None = None
        try:
            if fresh:
                joined = _join([batch for _, batch in fresh])
                rows = self._select(joined)
                rows.origins = tuple(new.items())
                parts = _split(self.engine.apply(rows, commit=False), [batch for _, batch in fresh])
                for (job, batch), applied in zip(fresh, parts, strict=True):
                    job.result = BatchOutcome(applied=applied, rows=len(batch))
        except Exception:
            return self.engine.broken  # if not, nothing was done
        finally:
            self._select.wipe()
            if joined is not None:
                joined.wipe()
        return True

    def _place(self, job: Job) -> str | None:
        """Return how the engine calls a job's sender, None if it has none; refuses the job if it is not known."""
        try:
            return None if job.sender is None else self.engine.producers.position_key(job.sender)
        except ProducerFenced as error:
            job.refusal = HttpError(error.code, str(error))
        return None

    def _last(self, producer_key: str) -> int:
        """Return the number of the last batch that was applied of a producer, 0 before the first."""
        return max(0, self.engine.last_sequence(producer_key))

    def _apply_one(self, job: Job, batch: RowBatch) -> None:
        try:
            producer_key = self._place(job)
            if job.refusal is None and (producer_key is None or job.sequence <= self._last(producer_key) + 1):
                rows = self._select(batch)
                rows.producer = producer_key
                rows.sequence = job.sequence
                job.result = BatchOutcome(applied=self.engine.apply(rows, commit=False), rows=len(batch))
        except PanstreamError as error:
            job.refusal = HttpError("bad_body", str(error))
        except Exception as error:
            job.refusal = HttpError.after(error, "a batch could not be taken")
        finally:
            self._select.wipe()


def _work(jobs: Sequence[Job]) -> Work:
    return [(job, job.rows) for job in jobs if job.refusal is None and job.rows is not None]


def _mergeable_prefix(batches: Sequence[RowBatch]) -> int:
    """Return how many of the batches, from the first one on, can be joined."""
    schema = batches[0].columns.schema
    rows = 0
    size = 0
    count = 0
    for batch in batches:
        rows = rows + len(batch)
        size = size + int(batch.columns.nbytes)
        if count and (rows > _ROWS or size > _BYTES or not batch.columns.schema.equals(schema)):
            break
        count += 1
    return count


def _join(batches: Sequence[RowBatch]) -> RowBatch:
    """Return one batch with a copy of the rows of all, to be wiped like any other."""
    columns = [
        pa.concat_arrays([batch.columns.column(index) for batch in batches])
        for index in range(batches[0].columns.num_columns)
    ]
    joined = pa.RecordBatch.from_arrays(columns, schema=batches[0].columns.schema)
    return RowBatch(columns=joined, codes=np.concatenate([batch.codes for batch in batches]))


def _split(applied: BatchResult, batches: Sequence[RowBatch]) -> Iterator[BatchResult]:
    """Yield what became of each of the batches, in the row numbers of their senders.

    >>> rows = pa.RecordBatch.from_pydict({"user": [1, 2, 3]})
    >>> two = [RowBatch(columns=rows, first_row=1), RowBatch(columns=rows, first_row=1)]
    >>> [part.skipped.tolist() for part in _split(BatchResult(new=True, skipped=np.array([0, 2, 4])), two)]
    [[1, 3], [2]]
    """
    if not len(applied.skipped) and not len(applied.late):
        yield from [applied] * len(batches)
        return
    for batch, stop in zip(batches, accumulate(map(len, batches)), strict=True):
        start = stop - len(batch)
        first = (batch.first_row or 0) - start
        skipped, late = (
            rows[slice(*np.searchsorted(rows, [start, stop]))] + first for rows in (applied.skipped, applied.late)
        )
        yield BatchResult(new=True, skipped=skipped, late=late)
