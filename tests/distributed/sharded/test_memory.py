"""Unguessable ids through a cluster: what a scan of scheduler, workers, front end and all their directories finds.

They are counted as users and as names, so beginnings and the hashes of names are looked for too.

20,000 ids by default; PANSTREAM_FULL=1 for 100,000.
"""

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import httpx
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from panstream.primitives.hashing.keys import key_words
from panstream.testing.memory import make_needles, scan
from tests.distributed.sharded.processes import processes
from tests.waiting import PATIENCE

IDS = 100_000 if os.environ.get("PANSTREAM_FULL") == "1" else 20_000
CONFIG = f"""
[stream]
name = "s"
user = "id"
[stream.columns]
id = "string"
page = "string"
[[query]]
name = "all"
sql = "SELECT COUNT(DISTINCT id) FROM s"
epsilon = 1.0
expected = {IDS}
[[query]]
name = "names"
sql = "SELECT page, COUNT(*) FROM s GROUP BY page"
epsilon = 1.0
delta = 1e-6
max_item_bytes = 32
memory = 1_000_000
[[query]]
name = "rows"
sql = "SELECT COUNT(*) FROM s"
epsilon = 1.0
[store]
directory = "state"
"""


TIMED_CONFIG = CONFIG.replace(
    """[stream.columns]
""",
    """time = "at"
[stream.columns]
at = "timestamp"
""",
)
for ticks in ('window = "1 hour"', 'window = "2 hours"', 'every = "1 hour"\nhorizon = 100'):
    TIMED_CONFIG = TIMED_CONFIG.replace("epsilon = 1.0\n", f"epsilon = 1\n{ticks}\n", 1)
TIMED_CONFIG = TIMED_CONFIG.replace('directory = "state"', 'directory = "timed-state"')


def run_command(folder: Path, config: str, lake: str, address: str) -> subprocess.CompletedProcess[str]:
    """Run a configuration on files of a lake."""
    (folder / f"{lake}.toml").write_text(config)
    command = [sys.executable, "-m", "panstream.cli", "run", f"{lake}.toml", lake, "--cluster", address]
    done = subprocess.run(
        [*command, "--workers", "2", "--json"],
        cwd=folder,
        capture_output=True,
        text=True,
        env={**os.environ, "DASK_DISTRIBUTED__COMM__TIMEOUTS__TCP": "30s"},
    )
    assert done.returncode == 0, done.stderr
    assert '"all"' in done.stdout
    return done


@contextmanager
def front_end(folder: Path, address: str) -> Iterator[tuple[int, str]]:
    """Serve on the cluster, in a directory of its own."""
    folder.mkdir()
    (folder / "panstream.toml").write_text(CONFIG)
    command = [
        sys.executable,
        "-m",
        "panstream.cli.scannable",
        "serve",
        "panstream.toml",
        "--port",
        "0",
        "--cluster",
        address,
    ]
    with (folder / "errors").open("w") as errors:
        running = subprocess.Popen([*command, "--workers", "2"], cwd=folder, stdout=subprocess.PIPE, stderr=errors)
        try:
            assert running.stdout
            said = running.stdout.readline().decode()
            assert said.startswith("serving"), (folder / "errors").read_text()
            yield running.pid, said.split()[-1]
        finally:
            running.terminate()
            running.communicate(timeout=PATIENCE)


def traces_of(names: Sequence[str]) -> list[str | bytes]:
    """Return beginnings of names, and the hashes that find equal names, and the cells of names and beginnings."""
    from panstream.primitives.kernels.algorithms.name_counts import hash_of_name
    from panstream.primitives.kernels.algorithms.prefix_tables import hash_names

    begun = [name[:20] for name in names]
    words: list[int] = []
    for some in (names, begun):
        data = np.frombuffer("".join(some).encode(), np.uint8)
        offsets = np.arange(len(some) + 1) * len(some[0])
        hashes = np.empty(len(some), np.uint64)
        hash_names(offsets, data, 32, 4, 1, key_words(0, "names")[0], hashes)
        words += hashes.tolist()
        if some is names:
            words += [int(hash_of_name(data, start, stop)) for start, stop in pairwise(offsets.tolist())]
    return [*begun, *(word.to_bytes(8, "little") for word in words)]


def post(address: str, ids: Sequence[str]) -> None:
    headers = {"Content-Type": "application/x-ndjson"}
    for start in range(0, len(ids), IDS // 20):
        lines = "".join(f'{{"id": "{each}", "page": "{each}"}}\n' for each in ids[start : start + IDS // 20])
        sent = httpx.post(f"{address}/v1/streams/s/events", content=lines, headers=headers, timeout=PATIENCE)
        assert sent.status_code == 200, sent.text


@pytest.mark.slow
@pytest.mark.usefixtures("warm_scanner")
def test_ids_are_nowhere_after_the_job(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    lake.mkdir()
    served = tmp_path / "served"
    with processes(tmp_path) as cluster:  # the target's processes exist before the needles do
        cluster.start_cluster()
        needles = make_needles(IDS)
        decoys = make_needles(1000)
        for number in range(4):
            part = list(needles[number : IDS // 2 : 4])
            pq.write_table(
                pa.table({"id": part, "page": part}), lake / f"part-{number}.parquet", row_group_size=IDS // 20
            )
        timed = tmp_path / "timed"
        timed.mkdir()
        for number in range(4):
            table = pq.read_table(lake / f"part-{number}.parquet")
            seconds = np.linspace(number * 3600, (number + 1) * 3600, table.num_rows).astype(np.int64)
            table = table.append_column("at", pa.array(seconds, pa.timestamp("s")))
            pq.write_table(table, timed / f"part-{number}.parquet", row_group_size=IDS // 20)
        done = [run_command(tmp_path, CONFIG, "lake", cluster.address)]
        done.append(run_command(tmp_path, TIMED_CONFIG, "timed", cluster.address))
        with front_end(served, cluster.address) as (front, address):
            post(address, needles[IDS // 2 :])
            for query in ("all", "names"):
                answer = httpx.post(f"{address}/v1/queries/{query}/release", timeout=PATIENCE)
                assert answer.status_code == 200, answer.text
            traces = [*needles, *traces_of(needles[::20])]
            places = [tmp_path / "state", tmp_path / "timed-state", served, cluster.log, *tmp_path.glob("scratch-*")]
            for name, pid in {**cluster.pids, "front": front}.items():
                report = scan(pid, traces, decoys=decoys, control=None, files=places)
                assert report.valid, report
                assert report.scanned_bytes > 50_000_000, "the process was not looked at"
                assert report.found_needles == 0, f"{name}: {report}"
                places = []  # the files once
        assert not any(needle in run.stderr for run in done for needle in needles[:1000])
