"""Checking a micro-batch against every query, before any state is touched."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from panstream.engine.config.config import StreamConfig
from panstream.engine.rows.row_batch import RowBatch
from panstream.engine.runtime.running_query import PreparedBatch, RunningQuery
from panstream.errors import BadRowError

Mask = NDArray[np.bool_]


def prepare_batch(
    queries: Mapping[str, RunningQuery],
    stream: StreamConfig,
    rows: RowBatch,
    has_time: Mask,
    times: NDArray[np.float64] | None,
    marks: NDArray[np.float64] | None,
) -> tuple[list[tuple[RunningQuery, PreparedBatch]], Mask, Mask]:
    """Return the checked work of every query, and which rows are left out and which are late.

    Args:
        queries: The running queries by name.
        stream: The stream's configuration.
        rows: The micro-batch.
        has_time: Which rows have a time that can be used.
        times: The times of the rows, None where nothing depends on them.
        marks: The stream's time at every row.

    Raises:
        BadRowError: A row cannot be used, and ``on_bad_row`` is "stop".
    """
    has_time = has_time & ~rows.bad  # from here on: the times of bad rows have moved the clock like anybody's
    skipped = ~has_time
    late = np.zeros(rows.count, bool)
    work: list[tuple[RunningQuery, PreparedBatch]] = []
    try:
        for name, query in queries.items():
            if query.plan.config.of_unusable:
                continue
            chosen = rows.queries[name]
            bad = query.unusable(rows, chosen)
            skipped |= bad
            if times is not None and marks is not None:
                late |= query.late(marks if rows.times is None else times, marks)
            work += [(query, prepared) for prepared in query.prepare(rows, chosen, has_time & ~bad, marks)]
        for query in queries.values():
            work += [(query, prepared) for prepared in query.prepare_usability(rows, skipped)]
        if stream.on_bad_row == "stop" and skipped.any():
            first = int(rows.numbers(skipped)[0])
            raise BadRowError(
                f'row {first} cannot be used, and on_bad_row is "stop"; nothing of its batch was taken in',
                row=first,
            )
    except BaseException:
        for _, prepared in work:
            prepared.wipe()
        raise
    return work, skipped, late
