"""The times in what a task reads, before it is read: what later tasks need to know."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from panstream.distributed.sharded._ordered_reading import TimeSpan
from panstream.distributed.sharded._worker_reading import Partition, PartitionReader, ReadPlan
from panstream.engine.rows.row_batch import RowBatch, RowSchema
from panstream.engine.runtime.batch_preparation import usable_times
from panstream.engine.runtime.clocks import StreamClock
from panstream.engine.runtime.selector import event_times


def newest_time(plan: ReadPlan, batches: Sequence[RowBatch], now: float) -> float | None:
    """Return the newest time of rows as a task will find it; the rows stay as they are."""
    reader = plan.reader()
    clock = StreamClock()
    with reader.lock:
        for batch in batches:
            try:
                rows = reader.select(batch)
                _, times = usable_times(rows, reader.config.stream, reader.queries.values(), lambda: now, None)
                assert times is not None
                clock.reach(clock.watermarks(times))
            finally:
                reader.select.wipe()
    return clock.newest


def read_time_span(plan: ReadPlan, partition: Partition, limit: float) -> TimeSpan:
    """Return the oldest and newest times of a partition's rows, up to ``limit``.

    Only the time column is read. What a row lacks in other columns may make its time unknown: so the result is a
    forecast, which is compared with what a task read before it counts.
    """
    reader = plan.reader()
    oldest = math.inf
    newest = -math.inf
    with reader.lock:
        for times in _times(reader, partition):
            usable = times[np.isfinite(times) & (times <= limit)]
            if usable.size:
                oldest = min(oldest, float(usable.min()))
                newest = max(newest, float(usable.max()))
    return oldest, newest


def _times(reader: PartitionReader, partition: Partition) -> Iterator[NDArray[np.float64]]:
    stream = reader.config.stream
    assert stream.time is not None
    for batch in reader.batches(partition, schema=RowSchema.of(stream, [stream.time])):
        times = event_times(batch.columns, stream)
        assert times is not None
        yield times
        batch.wipe()
