"""Bodies that wait together, as one micro-batch: what a step costs is then paid once for all of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate

import numpy as np

from panstream.engine.arrow import pa
from panstream.engine.engine import Applied
from panstream.engine.rows import Rows

__all__ = ["join", "joinable", "split"]

_ROWS = 1 << 18  # of a joined batch, at most
_BYTES = 1 << 26  # of it, at most: far from 2 GiB, which the offsets of words cannot exceed


def joinable(batches: Sequence[Rows]) -> int:
    """Return how many of the batches, from the first one on, can be joined."""
    schema, rows, size, count = batches[0].columns.schema, 0, 0, 0
    for batch in batches:
        rows, size = rows + len(batch), size + int(batch.columns.nbytes)
        if count and (rows > _ROWS or size > _BYTES or not batch.columns.schema.equals(schema)):
            break
        count += 1
    return count


def join(batches: Sequence[Rows]) -> Rows:
    """Return one batch with a copy of the rows of all, to be wiped like any other."""
    columns = [
        pa.concat_arrays([batch.columns.column(place) for batch in batches])
        for place in range(batches[0].columns.num_columns)
    ]
    joined = pa.RecordBatch.from_arrays(columns, schema=batches[0].columns.schema)
    return Rows(columns=joined, codes=np.concatenate([batch.codes for batch in batches]))


def split(applied: Applied, batches: Sequence[Rows]) -> Iterator[Applied]:
    """Yield what became of each of the batches, in the row numbers of their senders.

    >>> rows = pa.RecordBatch.from_pydict({"user": [1, 2, 3]})
    >>> two = [Rows(columns=rows, first_row=1), Rows(columns=rows, first_row=1)]
    >>> [part.skipped for part in split(Applied(new=True, skipped=(0, 2, 4)), two)]
    [(1, 3), (2,)]
    """
    if not applied.skipped and not applied.late:
        yield from [applied] * len(batches)
        return
    skipped, late = np.array(applied.skipped, np.int64), np.array(applied.late, np.int64)
    for batch, stop in zip(batches, accumulate(map(len, batches)), strict=True):
        start = stop - len(batch)
        first = (batch.first_row or 0) - start
        told = [(places[(places >= start) & (places < stop)] + first).tolist() for places in (skipped, late)]
        yield Applied(new=True, skipped=tuple(told[0]), late=tuple(told[1]))
