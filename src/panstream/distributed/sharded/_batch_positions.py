"""Positions within the batches of producers, at which a shard may be ahead of the coordinator after a crash."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

import numpy as np

from panstream.distributed.sharded._shard import Origin
from panstream.engine.rows.row_batch import RowBatch


def origins_of(piece: RowBatch, time: float | None) -> list[Origin]:
    """Return the batches of a piece; ``time`` is that of the next row, if its batch is continued in another piece."""
    if piece.producer is None:
        return [(producer, sequence, None) for producer, sequence in piece.origins]
    return [(piece.producer, piece.sequence, time)]


def row_positions(rows: RowBatch, *, numbered: bool) -> Sequence[int] | None:
    """Return the producer's position after each row; None if only whole batches have one.

    Args:
        rows: The batch.
        numbered: Whether positions are row numbers, as in files.
    """
    if rows.sequences:
        return rows.sequences
    if numbered and rows.first_row is not None and rows.sequence == rows.first_row + rows.count - 1:
        return range(rows.first_row, rows.first_row + rows.count)
    return None


def first_unapplied_row(origin: Origin, rows: RowBatch, positions: Sequence[int] | None) -> int:
    """Return the first row of a batch after a position; 0 if the position is not within the batch.

    The row at which a slot ended is the first with its time: an earlier one would have ended the slot.
    """
    _, sequence, time = origin
    if positions is not None:
        return bisect_right(positions, sequence)
    if time is None or rows.times is None or sequence != rows.sequence:
        return 0
    rows_at_time = np.flatnonzero(rows.times == time)
    return int(rows_at_time[0]) if rows_at_time.size else 0
