"""Distinct users of a column of a Spark DataFrame, with a weaker claim than on Dask.

A task sends the driver one bit for every cell that its rows touch. These bits are exact, and Spark may write them to
disk on the way. Only the driver's state starts as noise, so the claim covers what leaves the driver.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from panstream.algorithms.auto import DistinctCount
from panstream.algorithms.distinct.bitmap import Bitmap
from panstream.core.estimate import Estimate
from panstream.core.monitor import Monitor
from panstream.errors import NotSupported, import_optional
from panstream.primitives.memory.scratch import Scratch, wipe
from panstream.primitives.noise import NoiseSource
from panstream.primitives.packed_bits import pack_bits, unpack_bits


def distinct(
    frame: Any, column: str, *, epsilon: float, expected: int | None = None, memory: int = 1 << 19, key: int = 0
) -> Estimate:
    """Count the different values in a column of a Spark DataFrame, nulls excluded.

    Every task sends one row with a packed bit for each cell of the bitmap: at most ``memory`` bytes.
    """
    import_optional("pyspark", "counting on Spark", "spark")
    algorithm = DistinctCount(epsilon, expected=expected, memory=memory, key=key, mergeable=True).algorithm
    if not isinstance(algorithm, Bitmap):
        raise NotSupported("a Spark column is counted with a bitmap")

    monitor: Monitor[Any] = algorithm.start()
    update_from_frame(frame, column, monitor)
    return monitor.release()


def update_from_frame(frame: Any, column: str, monitor: Monitor[Any]) -> None:
    """Update a bitmap with a column of the frame; panstream must be installed on the executors too.

    There are as many tasks as cores, each of which sends its cells once.
    """
    algorithm = monitor.algorithm
    assert isinstance(algorithm, Bitmap)

    def mark_cells(batches: Iterator[Any]) -> Iterator[Any]:
        yield from _mark_cells(algorithm, batches)

    tasks = frame.sparkSession.sparkContext.defaultParallelism
    for row in frame.select(column).coalesce(tasks).mapInArrow(mark_cells, "cells binary").collect():
        _apply_marks(algorithm, monitor, bytes(row["cells"]))


def _mark_cells(algorithm: Bitmap, batches: Iterator[Any]) -> Iterator[Any]:
    """Yield one row: which cells the partition's rows touch."""
    import pyarrow as pa

    touched = np.zeros(algorithm.cells, np.uint8)
    for batch in batches:
        checked = algorithm.batch(batch.column(0).drop_null())
        with Scratch() as scratch:
            algorithm.mark_cells(checked, touched, scratch)
        checked.wipe()
    cells = pack_bits(touched).tobytes()
    touched.fill(0)
    yield pa.RecordBatch.from_arrays([pa.array([cells], pa.binary())], ["cells"])


def _apply_marks(algorithm: Bitmap, monitor: Monitor[Any], cells: bytes) -> None:
    """Redraw every cell that a partition touched: the same distribution as after an update with its rows."""
    marks = unpack_bits(np.frombuffer(cells, np.uint8), algorithm.cells)
    with NoiseSource() as rng:
        algorithm.apply_marked(monitor.state, marks, rng)
    wipe(marks)
