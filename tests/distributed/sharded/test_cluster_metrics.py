"""What a cluster shows to Prometheus: processes, failures and progress, and nothing that rows change."""

from __future__ import annotations

import threading
import urllib.request
from pathlib import Path

import pytest

from panstream.distributed.sharded._coordinator import ClusterEngine
from panstream.distributed.sharded._dask_transport import DaskTransport
from panstream.distributed.sharded._ordered_feed import feed_in_order
from panstream.distributed.sharded._transport import InProcessShardTransport
from panstream.distributed.sharded._worker_reading import ReadPlan
from panstream.errors import ClusterError
from panstream.server.service import metrics, serve_metrics
from tests.distributed.sharded.ordered_tasks import NOW, LocalRunner, write_lake
from tests.distributed.sharded.test_ordered_reading import stream
from tests.ports import free_port


def figures(text: str) -> dict[str, float]:
    lines = (line.rsplit(" ", 1) for line in text.splitlines() if line and not line.startswith("#"))
    return {name: float(value) for name, value in lines if "{" not in name}


def of_lake(folder: Path, contents: int, ask: int | None = None) -> dict[str, float]:
    """Return the figures after a lake was read, from the server's page or from a port of its own."""
    partitions = write_lake(folder, contents=contents)
    transport = InProcessShardTransport(2)
    with ClusterEngine(stream("windowed", "sum"), transport, positions=True, clock=lambda: NOW) as engine:
        engine.declare("files")
        runner = LocalRunner(ReadPlan(config=engine.config, shards=2), transport)
        feed_in_order(engine, runner, partitions, task_rows=1)
        if ask is None:
            return figures(metrics(engine, failed=False).decode())
        stop = serve_metrics(engine, ask)
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{ask}/metrics", timeout=30) as answer:
                return figures(answer.read().decode())
        finally:
            stop()


def test_progress_of_a_cluster_depends_on_times_and_files_alone(tmp_path: Path) -> None:
    one = of_lake(tmp_path / "one", 0)
    other = of_lake(tmp_path / "other", 1)
    assert one == other, "contents differ, times do not"
    assert one["panstream_tasks_done"] == one["panstream_tasks"] > 4
    assert one["panstream_shards"] == 2
    assert one["panstream_cluster_waiting"] == 0
    assert one["panstream_closed_until_seconds"] <= one["panstream_newest_time_seconds"]


def test_a_run_serves_its_progress(tmp_path: Path) -> None:
    found = of_lake(tmp_path / "lake", 0, free_port())
    assert found["panstream_tasks_done"] == found["panstream_tasks"]
    assert not any("answer" in name for name in found)


def test_it_says_when_rows_wait_for_a_worker_and_leaves_no_thread_behind() -> None:
    waiting: list[bool] = []
    threads: list[int] = []

    def connect() -> object:
        waiting.append(transport.is_waiting)
        threads.append(threading.active_count())
        raise OSError

    transport = DaskTransport(connect, 1, timeout=0.3)
    with pytest.raises(ClusterError, match="gave up"):
        transport.open({})
    assert waiting[0] is False
    assert waiting[-1] is True
    assert transport.is_waiting is False
    assert threads[-1] == threads[0]
