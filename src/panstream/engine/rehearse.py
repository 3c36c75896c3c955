"""A dry run over the rows of files: which of them would be left out, and why. No state, no store, nothing is charged."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from panstream.engine.config import Config
from panstream.engine.plan import needed_columns, plan_all
from panstream.engine.rows import BadRow, Rows, RowSchema
from panstream.engine.run import feed_of
from panstream.engine.running import RunningQuery
from panstream.engine.select import Selector

__all__ = ["bad_rows"]

_NO_TIME = "the time is missing or cannot be read"


def bad_rows(config: Config, inputs: Sequence[str], *, format: str | None = None) -> Iterator[BadRow]:
    """Yield the rows that would be left out, in the order of the input; for whoever owns them, and nobody else."""
    config = replace(config, stream=replace(config.stream, on_bad_row="skip"))
    queries = [RunningQuery(plan) for plan in plan_all(config)]  # never started, so there is no state
    source = feed_of(config, inputs, format=format)
    try:
        with Selector(config) as select:
            for batch in source.batches():
                if batch is None:
                    continue
                try:
                    found = _found(config, queries, select, batch)
                finally:
                    select.wipe()
                    batch.wipe()
                yield from found
    finally:
        source.close()


def _found(config: Config, queries: Sequence[RunningQuery], select: Selector, batch: Rows) -> list[BadRow]:
    schema = RowSchema.of(config.stream, needed_columns(config))
    found, rows = batch.bad_rows(schema), select(batch)

    def report(bad: NDArray[np.bool_], reason: str) -> None:
        found.extend(BadRow(row=number, reason=reason) for number in batch.numbers(bad & ~rows.bad))

    if rows.times is not None:
        report(~np.isfinite(rows.times), _NO_TIME)
        ahead = config.stream.ahead
        report(rows.times > (np.inf if ahead is None else time.time() + ahead), "the time is in the future")
    for query in queries:
        name = query.plan.config.name
        bad = query.unusable(rows, rows.queries[name])
        report(bad, f"query {name!r} cannot use its user, value or weight as declared")
    return sorted(found, key=lambda bad: bad.row)
