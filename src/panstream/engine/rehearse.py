"""A dry run over the rows of files: which of them would be left out, and why. No state, no store, nothing is charged."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from panstream.engine.config import Config
from panstream.engine.plan import plan_all
from panstream.engine.rows import BadRow, MicroBatch
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


def _found(config: Config, queries: Sequence[RunningQuery], select: Selector, batch: MicroBatch) -> list[BadRow]:
    found = list(batch.bad_rows)
    rows = select(batch)
    fine = np.ones(rows.count, bool) if rows.bad is None else ~rows.bad
    if rows.times is not None:
        found += batch.report(~np.isfinite(rows.times) & fine, _NO_TIME)
        ahead = config.stream.ahead
        late = rows.times > (np.inf if ahead is None else time.time() + ahead)
        found += batch.report(late & fine, "the time is in the future")
    for query in queries:
        name = query.plan.config.name
        bad = query.unusable(rows, rows.queries[name])
        if bad is not None and bad.any():
            found += batch.report(bad & fine, f"query {name!r} cannot use its user, value or weight as declared")
    return sorted(found, key=lambda bad: bad.row)
