"""Applies bodies to the engine, merged into as few micro-batches as possible; a body that fails is refused by itself.

Merged bodies share the fixed cost of an engine step.
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

_MAX_ROWS = 1 << 18  # of a merged batch
_MAX_BYTES = 1 << 26  # of a merged batch: far below 2 GiB, the limit of 32-bit string offsets
_MAX_REOPENS = 4  # bodies of one step that may break the engine before the whole step is refused

Work = list[tuple[Job, RowBatch]]


class BatchApplier:
    """Applies bodies to an engine.

    Args:
        engine: The engine.
        reopen: Reopens it from its last commit; returns None if it cannot be.
    """

    def __init__(self, engine: Engine, reopen: Callable[[], Engine | None]) -> None:
        self.engine = engine
        self._reopen = reopen
        self._select = Selector(engine.config)
        self.failed = False  # whether there is no usable engine

    def close(self) -> None:
        """Wipe and close the row selector."""
        self._select.__exit__(None, None, None)

    def apply(self, jobs: Sequence[Job], previous_jobs: Sequence[Job]) -> None:
        """Apply bodies in order; ``previous_jobs`` are those applied since the last commit.

        A body whose predecessor was not applied gets neither a result nor a refusal. An error in one body does not
        affect the others: if it broke the engine half-way, all are applied again, one by one, to the engine as of its
        last commit, which is why bodies are held until the next one.
        """
        work = _work(jobs)
        while work and not self.failed:
            alike = _mergeable_prefix([batch for _, batch in work])
            part = work[:alike]
            work = work[alike:]
            if len(part) == 1 or not self.engine.can_join_batches or not self._apply_merged(part):
                for job, batch in part:
                    if not self.engine.broken and job.refusal is None:
                        self._apply_one(job, batch)
            if self.engine.broken and self.engine.can_join_batches:
                self._apply_separately([*previous_jobs, *jobs])
                return
            if self.engine.broken:  # shards of a cluster may have some of it already: it cannot be undone
                self.failed = True
                fail_jobs(previous_jobs)
        if self.failed:
            fail_jobs(jobs)

    def _apply_separately(self, jobs: Sequence[Job]) -> None:
        """Apply the bodies of a step one by one to the engine as of its last commit."""
        for _ in range(_MAX_REOPENS):
            self.reopen_engine()
            if self.failed:
                break
            fail_jobs(job for job in jobs if job.rows is None)  # their rows are wiped
            for job, batch in _work(jobs):
                job.result = None
                self._apply_one(job, batch)
                if self.engine.broken:
                    break
            else:
                fail_jobs(job for job in jobs if job.result is None)  # they follow one whose rows are wiped
                return
        self.failed = True
        fail_jobs(jobs)

    def reopen_engine(self) -> None:
        """Replace the engine by one reopened from its last commit; ``failed`` tells whether there is none."""
        engine = self._reopen()
        self.failed = engine is None
        if engine is not None:
            self.engine = engine

    def _apply_merged(self, work: Work) -> bool:
        """Apply batches as one; False, with nothing applied, if the engine refuses some of the rows."""
        new: dict[str, int] = {}
        fresh: Work = []
        for job, batch in work:
            producer_key = self._producer_key(job)
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

    def _producer_key(self, job: Job) -> str | None:
        """Return the engine's key of a job's producer, None if it has none; refuse the job if it is fenced off."""
        try:
            return None if job.sender is None else self.engine.producers.position_key(job.sender)
        except ProducerFenced as error:
            job.refusal = HttpError(error.code, str(error))
        return None

    def _last(self, producer_key: str) -> int:
        """Return the sequence number of a producer's last applied batch, 0 before the first."""
        return max(0, self.engine.last_sequence(producer_key))

    def _apply_one(self, job: Job, batch: RowBatch) -> None:
        try:
            producer_key = self._producer_key(job)
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
    """Return the number of batches, from the first one on, that can be merged."""
    schema = batches[0].columns.schema
    rows = 0
    size = 0
    count = 0
    for batch in batches:
        rows += len(batch)
        size += int(batch.columns.nbytes)
        if count and (rows > _MAX_ROWS or size > _MAX_BYTES or not batch.columns.schema.equals(schema)):
            break
        count += 1
    return count


def _join(batches: Sequence[RowBatch]) -> RowBatch:
    """Return one batch with copies of all rows, which the caller wipes."""
    columns = [
        pa.concat_arrays([batch.columns.column(index) for batch in batches])
        for index in range(batches[0].columns.num_columns)
    ]
    joined = pa.RecordBatch.from_arrays(columns, schema=batches[0].columns.schema)
    return RowBatch(columns=joined, codes=np.concatenate([batch.codes for batch in batches]))


def _split(applied: BatchResult, batches: Sequence[RowBatch]) -> Iterator[BatchResult]:
    """Yield the result of each batch from that of the merged one, with row numbers as their senders count.

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
