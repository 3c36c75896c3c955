"""kill -9 while workers read windows and ticks: 6 kills by default, PANSTREAM_CLUSTER_KILLS for more."""

import os
from pathlib import Path

import pytest

from tests.distributed.sharded.ordered_kills import kill_while_reading, kill_while_reading_kafka


@pytest.mark.slow
def test_kill_nine_while_reading(tmp_path: Path) -> None:
    kills = int(os.environ.get("PANSTREAM_CLUSTER_KILLS", "6"))
    done = kill_while_reading(tmp_path, kills)
    assert done.total() == kills


@pytest.mark.slow
def test_kill_nine_while_workers_read_partitions_of_kafka(tmp_path: Path) -> None:
    kills = int(os.environ.get("PANSTREAM_CLUSTER_KILLS", "4"))
    done = kill_while_reading_kafka(tmp_path, kills)
    assert done.total() == kills
