"""Windows and ticks on a Dask cluster, whose workers may change while they are read."""

from pathlib import Path
from typing import Any

import pytest
from distributed import Client

from panstream.distributed.sharded import session
from panstream.distributed.sharded._coordinator import ClusterEngine
from panstream.distributed.sharded._dask_reading import DaskRunner
from panstream.distributed.sharded._dask_transport import DaskTransport
from panstream.distributed.sharded._ordered_feed import feed_in_order
from panstream.distributed.sharded._worker_reading import ReadPlan
from panstream.distributed.sharded.dask_setup import local_cluster
from tests.distributed.sharded.ordered_tasks import NOW, QUERIES, records, run_alone, write_lake
from tests.engine.runtime.streams import config


@pytest.mark.slow
@pytest.mark.parametrize("format", ["parquet", "csv"])
def test_a_worker_that_joins_reads_at_once(tmp_path: Path, format: str) -> None:
    partitions = write_lake(tmp_path / "lake", format=format, files=6)
    stream = config(*QUERIES.values(), time="at", time_zone="Pacific/Auckland", lateness="20 minutes")
    expected, _ = run_alone(stream, tmp_path / "lake")
    with (
        local_cluster(1, processes=False, security=False) as cluster,
        Client(cluster, direct_to_workers=True) as client,
    ):
        transport = DaskTransport(lambda: client, 1, borrowed=True)
        described: list[str] = []
        workers: list[Any] = []

        def tick(rows: int, share: float | None) -> None:
            described.append(session.describe_progress(engine))
            workers.append(transport.worker_count)
            if len(workers) == 2:
                cluster.scale(2)
                client.wait_for_workers(2)

        with ClusterEngine(stream, transport, positions=True, zero_noise=True, clock=lambda: NOW) as engine:
            engine.declare("files")
            plan = ReadPlan(config=engine.config, shards=1, zero_noise=True)
            feed_in_order(engine, DaskRunner(plan, transport), partitions, tick, task_rows=1)
            assert (workers[0], workers[-1]) == (1, 2)
            assert described[-1].startswith(
                f"s, task {len(described)} of {len(described)}, 2 workers, closed until 1970"
            )
            engine.finish()
            assert records(engine) == expected
