"""Validate a micro-batch for every query, before any state changes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from panstream.engine.config.config import StreamConfig
from panstream.engine.planner.bounded_rows import check_batches
from panstream.engine.rows.row_batch import RowBatch
from panstream.engine.runtime.row_routing import RowRoute, WindowRule
from panstream.engine.runtime.running_query import PreparedBatch, RunningQuery
from panstream.errors import BadRowError

Mask = NDArray[np.bool_]
UsableTimes = tuple[Mask, NDArray[np.float64] | None]


def usable_times(
    rows: RowBatch,
    stream: StreamConfig,
    queries: Iterable[RunningQuery],
    clock: Callable[[], float],
    arrival: float | None,
) -> UsableTimes:
    """Return which rows have a usable time, and all times with NaN for the others; None if no query needs times.

    Rows without times of their own have the stream's time ``arrival``, which has followed the clock.
    """
    if rows.times is None:
        scheduled = any(query.schedule is not None for query in queries)
        now = clock() if arrival is None else arrival
        return np.ones(rows.count, bool), np.full(rows.count, now) if scheduled else None
    has_time: Mask = np.isfinite(rows.times)
    if stream.max_ahead is not None:
        has_time &= rows.times <= clock() + stream.max_ahead
    return has_time, rows.times if has_time.all() else np.where(has_time, rows.times, np.nan)


def prepare_batch(
    queries: Mapping[str, RunningQuery],
    stream: StreamConfig,
    rows: RowBatch,
    has_time: Mask,
    times: NDArray[np.float64] | None,
    marks: NDArray[np.float64] | None,
) -> tuple[list[tuple[RunningQuery, PreparedBatch]], Mask, Mask]:
    """Return the validated part of every query, the mask of skipped rows, and the mask of late rows.

    Args:
        queries: The running queries by name.
        stream: The stream's configuration.
        rows: The micro-batch.
        has_time: Which rows have a usable time.
        times: The times of the rows; None where nothing depends on them.
        marks: The stream's time at every row; None with ``times``.

    Raises:
        BadRowError: A row cannot be used, and ``on_bad_row`` is "stop".
    """
    has_time = has_time & ~rows.bad  # only now: bad rows have advanced the stream's time like all others
    skipped = ~has_time
    late = np.zeros(rows.count, bool)
    routes: dict[WindowRule, RowRoute] = {}
    work: list[tuple[RunningQuery, PreparedBatch]] = []
    try:
        for name, query in queries.items():
            if query.plan.config.of_unusable:
                continue
            check_batches(query.plan.config, query.has_batch + (rows.count > 0))
            chosen = rows.queries[name]
            bad = query.unusable(rows, chosen)
            skipped |= bad
            route = None
            if (rule := query.window_rule) is not None and times is not None and marks is not None:
                if rule not in routes:  # queries with equal windows share one
                    routes[rule] = RowRoute.of(rule, marks if rows.times is None else times, marks)
                route = routes[rule]
                late |= route.late
            work += [(query, prepared) for prepared in query.prepare(rows, chosen, has_time & ~bad, route)]
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
