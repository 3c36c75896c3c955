"""What a Spark task computes and what the driver makes of it, without Spark; ``make spark`` runs it with Spark."""

import pyarrow as pa

from panstream.algorithms.distinct.bitmap import Bitmap
from panstream.distributed.sharded import spark
from panstream.primitives.noise import NoiseSource
from tests.zero_noise import ZeroNoiseSource


def test_partitions_make_up_the_state_of_all_rows() -> None:
    algorithm = Bitmap(epsilon=1.0, buckets=256, levels=8)
    parts = [[f"user {i}" for i in range(start, start + 300)] + [None] for start in (0, 150, 600)]
    with ZeroNoiseSource() as source:
        whole = algorithm.initial_state(source)
        for part in parts:
            algorithm.update(whole, algorithm.batch([id for id in part if id is not None]), source)
    monitor = algorithm.start()
    monitor.state.bits[:] = 0
    quiet = Bitmap(epsilon=float("inf"), buckets=256, levels=8)
    for part in parts:
        batches = iter([pa.RecordBatch.from_arrays([pa.array(half)], ["id"]) for half in (part[:100], part[100:])])
        (row,) = spark._mark_cells(algorithm, batches)
        spark._apply_marks(quiet, monitor, row.column(0)[0].as_py())
    assert (monitor.state.bits == whole.bits).all()
    assert NoiseSource.is_secure
