"""100,000 unguessable ids through a cluster: what a scan of scheduler, workers and all their directories finds."""

import os
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cluster.processes import processes
from panstream.testing.memory import make_needles, scan

IDS = 100_000
CONFIG = f"""
[stream]
name = "s"
user = "id"
[stream.columns]
id = "string"
[[query]]
name = "all"
sql = "SELECT COUNT(DISTINCT id) FROM s"
epsilon = 1.0
expected = {IDS}
[[query]]
name = "rows"
sql = "SELECT COUNT(*) FROM s"
epsilon = 1.0
[store]
directory = "state"
"""


@pytest.mark.slow
def test_ids_are_nowhere_after_the_job(tmp_path: Path) -> None:
    import subprocess

    lake = tmp_path / "lake"
    lake.mkdir()
    with processes(tmp_path) as cluster:  # the target's processes exist before the needles do
        cluster.start_cluster()
        needles, decoys = make_needles(IDS), make_needles(1000)
        for number in range(4):
            part = list(needles[number::4])
            pq.write_table(pa.table({"id": part}), lake / f"part-{number}.parquet", row_group_size=5000)
        (tmp_path / "panstream.toml").write_text(CONFIG)
        command = [sys.executable, "-m", "panstream.cli", "run", "panstream.toml", "lake", "--cluster", cluster.address]
        done = subprocess.run(
            [*command, "--workers", "2", "--json"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            env={**os.environ, "DASK_DISTRIBUTED__COMM__TIMEOUTS__TCP": "30s"},
        )
        assert done.returncode == 0, done.stderr
        assert '"all"' in done.stdout
        places = [tmp_path / "state", cluster.log, *tmp_path.glob("scratch-*")]
        for name in ("scheduler", "worker-0", "worker-1"):
            report = scan(cluster.pids[name], needles, decoys=decoys, control=None, files=places)
            assert report.valid, report
            assert report.scanned_bytes > 50_000_000, "the process was not looked at"
            assert report.found_needles == 0, f"{name}: {report}"
        assert not any(needle in done.stderr for needle in needles[:1000])
