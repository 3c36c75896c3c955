"""The Spark sink on a real, local Spark: killed in the middle of batches, and against a sink that does nothing.

    make spark      (or, with pyspark and Java: python -m benchmarks.soak.spark [drills | kills [N [ROWS]] | speed])

Drills: the driver is killed once some parts of a batch are counted, and started again with the same partitions, with
others, and, as a control, with others and without the division by contents; then the same with staged parts, which
stay in Spark's partitions. Kills: Python workers are killed at random, and the driver at every tenth time, until all
rows are counted, by parts divided by contents and by staged ones. Counts have so large an epsilon that they are exact.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet

HERE = Path(__file__).resolve()
PANSTREAM = os.environ.get("PANSTREAM", str(HERE.parents[2] / ".venv" / "bin" / "panstream"))
REGIONS = [f"region {number}" for number in range(8)]
CONFIG = """
[stream]
name = "visits"
user = "user"
[stream.columns]
user = "string"
region = "string"
[stream.budget]
event = 1000.0
[[query]]
name = "rows"
sql = "SELECT region, COUNT(*) FROM visits GROUP BY region"
epsilon = 200.0
releases = 1
groups = { region = REGIONS }
[[query]]
name = "people"
sql = "SELECT COUNT(DISTINCT user) FROM visits"
epsilon = 1.0
expected = 1000000
[store]
directory = "state"
"""


def make_files(directory: Path, files: int, rows: int) -> list[int]:
    """Write Parquet files; return how many rows every region has."""
    directory.mkdir()
    draws = np.random.default_rng(40)
    counts = np.zeros(len(REGIONS), np.int64)
    for number in range(files):
        regions = draws.integers(0, len(REGIONS), rows)
        counts += np.bincount(regions, minlength=len(REGIONS))
        users = pa.array(draws.integers(0, 10**6, rows)).cast("string")
        table = pa.table({"user": users, "region": pa.array(REGIONS).take(pa.array(regions))})
        parquet.write_table(table, directory / f"part-{number:04}.parquet", row_group_size=max(1, rows // 5))
    return counts.tolist()


@contextlib.contextmanager
def server(work: Path) -> Any:
    """Serve the stream on loopback, and yield its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (work / "panstream.toml").write_text(CONFIG.replace("REGIONS", json.dumps(REGIONS)))
    with (work / "server.log").open("w") as log:
        command = [PANSTREAM, "serve", str(work / "panstream.toml"), "--port", str(port)]
        process = subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, "PYTHONPATH": ""})
    address = f"http://127.0.0.1:{port}"
    try:
        for _ in range(600):
            with contextlib.suppress(OSError):
                call(address, "/v1/queries")
                break
            time.sleep(0.2)
        yield address
    finally:
        process.terminate()
        process.wait()


def call(address: str, path: str, method: str = "GET") -> Any:
    request = urllib.request.Request(address + path, method=method, data=b"" if method == "POST" else None)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def counted(address: str) -> list[int]:
    releases = call(address, "/v1/queries/rows/release", "POST")["releases"]
    return [round(release["value"]) for release in releases]


def job(url: str, source: str, checkpoint: str, mode: str, cores: str, bytes_each: str, files: str) -> None:
    """Run the streaming query to its end; start it again in the same session when a worker of its dies."""
    from pyspark.sql import SparkSession

    from panstream.distributed import spark as panstream_spark

    session = (
        SparkSession.builder.master(f"local[{cores}]")
        .config("spark.ui.enabled", "false")
        .config("spark.log.level", "OFF")
        .config("spark.sql.shuffle.partitions", cores)
        .config("spark.sql.files.maxPartitionBytes", bytes_each)
        .config("spark.sql.files.openCostInBytes", "1")
        .config("spark.driver.memory", "1g")
        .getOrCreate()
    )
    send: Any = panstream_spark.sink(
        url, "visits", parts=4, staged=mode == "staged", on_batch=lambda batch, report: print(batch, flush=True)
    )
    if mode == "plain":
        divide = panstream_spark._send_batch

        def plain(frame: Any, *rest: Any) -> Any:
            kind = type(frame)
            whole = kind.repartition
            kind.repartition = lambda frame, parts, *columns: whole(frame, parts)  # in turn, as they come
            try:
                return divide(frame, *rest)
            finally:
                kind.repartition = whole

        panstream_spark._send_batch = plain
    if mode == "empty":

        def read(batches: Any) -> Any:
            yield pa.RecordBatch.from_pydict({"rows": [sum(batch.num_rows for batch in batches)]})

        def send(frame: Any, batch: int) -> None:
            frame.mapInArrow(read, "rows long").collect()

    frames = session.readStream.schema("user string, region string").option("maxFilesPerTrigger", files)
    start = time.perf_counter()
    while True:
        query = (
            frames.parquet(source)
            .writeStream.foreachBatch(send)
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        try:
            query.awaitTermination()
            break
        except Exception as error:
            if "panstream.errors" in str(error) or mode == "empty":
                raise
    print(f"ended in {time.perf_counter() - start:.2f} s", flush=True)


def start_job(address: str, work: Path, mode: str, cores: int, bytes_each: str, files: int = 2) -> Any:
    command = [
        sys.executable, str(HERE), "job", address, str(work / "in"), str(work / f"checkpoint-{mode}"),
        mode, str(cores), bytes_each, str(files),
    ]  # fmt: skip
    env = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_DIRS": str(work)}
    return subprocess.Popen(
        command, env=env, stdout=subprocess.PIPE, stderr=(work / "job.log").open("a"), text=True, start_new_session=True
    )


def drill(name: str, mode: str, partitions: tuple[tuple[int, str], tuple[int, str]], expect_exact: bool) -> bool:
    """Kill the driver after the first part is counted, start it again; return whether counts are as expected."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory:
        work = Path(directory)
        truth = make_files(work / "in", 4, 100_000)
        with server(work) as address:
            first = start_job(address, work, mode, *partitions[0])
            deadline = time.monotonic() + 200
            lasts: list[int] = []
            while not any(lasts) and time.monotonic() < deadline:
                lasts = [producer["last"] for producer in call(address, "/v1/producers")["producers"]]
                time.sleep(0.002)
            os.killpg(first.pid, signal.SIGKILL)
            first.wait()
            lasts = [producer["last"] for producer in call(address, "/v1/producers")["producers"]]
            second = start_job(address, work, mode, *partitions[1])
            second.communicate(timeout=400)
            found = counted(address)
        good = (second.returncode == 0) and ((found == truth) is expect_exact)
        print(
            f"{name:<58} killed at {lasts}: {sum(found):>9,} of {sum(truth):,} rows, "
            f"{'exact' if found == truth else 'not exact'}   {'pass' if good else 'FAIL'}",
            flush=True,
        )
    return good


def drills() -> bool:
    few = (2, "64m")
    many = (2, "100k")
    return all(
        [
            drill("killed, started again with the same partitions", "sink", (few, few), True),
            drill("killed, started again with other partitions", "sink", (few, (4, "100k")), True),
            drill("staged, started again with the same partitions", "staged", (few, few), True),
            drill("staged, started again with other partitions", "staged", (few, many), True),
            drill("control: as Spark divides them, other partitions", "plain", (few, many), False),
        ]
    )


def workers_of(group: int) -> list[int]:
    """Return the Python workers, children of pyspark.daemon, in a driver's process group or its sessions."""
    found = []
    parents: dict[int, tuple[int, str]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                parents[int(entry.name)] = (int(fields[1]), (entry / "cmdline").read_text())
    for process, (parent, line) in parents.items():
        if "pyspark.daemon" not in line or "pyspark.daemon" not in parents.get(parent, (0, ""))[1]:
            continue
        above = parent
        while above > 1 and above != group:
            above = parents.get(above, (0, ""))[0]
        if above == group:
            found.append(process)
    return found


def kills(count: int, rows: int, mode: str) -> bool:
    """Kill workers and drivers at random, ``count`` times, while ``rows`` rows are sent."""
    draws = random.Random(40)
    files = max(4, rows // 50_000)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory:
        work = Path(directory)
        truth = make_files(work / "in", files, rows // files)
        worker_kills = driver_kills = 0
        begin = time.monotonic()
        with server(work) as address:
            process = start_job(address, work, mode, 2, "64m", 1)
            while process.poll() is None or process.returncode != 0:
                if process.poll() is not None:  # Spark gave up on the query
                    process = start_job(address, work, mode, draws.choice((2, 3)), draws.choice(("64m", "100k")), 1)
                time.sleep(draws.uniform(0.05, 1.0))
                if worker_kills + driver_kills >= count or process.poll() is not None:
                    continue
                if (worker_kills + driver_kills) % 10 == 9:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
                    driver_kills += 1
                    process = start_job(address, work, mode, draws.choice((2, 3)), draws.choice(("64m", "100k")), 1)
                elif workers := workers_of(process.pid):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(draws.choice(workers), signal.SIGKILL)
                        worker_kills += 1
            found = counted(address)
        good = found == truth and worker_kills + driver_kills >= count
        print(
            f"{mode}: {worker_kills} workers and {driver_kills} drivers killed in {time.monotonic() - begin:.0f} s: "
            f"{sum(found):,} of {sum(truth):,} rows, {'exact' if found == truth else 'not exact'} in every region   "
            f"{'pass' if good else 'FAIL'}",
            flush=True,
        )
    return good


def speed(rows: int = 4_000_000) -> bool:
    """Print rows a second through the sink and through a sink that reads the rows and sends nothing."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory:
        work = Path(directory)
        make_files(work / "in", 16, rows // 16)
        rates: dict[str, list[float]] = {"empty": [], "sink": [], "staged": []}
        for turn in range(2):
            for mode in rates:
                run = work / f"{mode}-{turn}"
                run.mkdir()
                (run / "in").symlink_to(work / "in")
                with server(run) as address:
                    process = start_job(address, run, mode, 2, "64m", 4)
                    out, _ = process.communicate(timeout=400)
                rates[mode].append(rows / float(out.rpartition("ended in ")[2].split()[0]))
        for mode, seen in rates.items():
            print(f"{mode:<8} {', '.join(f'{rate / 1000:,.0f}' for rate in seen)} thousand rows a second")
        for mode in ("sink", "staged"):
            print(f"{mode} has {max(rates[mode]) / max(rates['empty']):.2f} of the rate of an empty one (best of two)")
        print(f"load {os.getloadavg()[0]:.1f}")
    return True


def main() -> int:
    what, *rest = sys.argv[1:] or ["all"]
    if what == "job":
        job(*rest)
        return 0
    good = True
    if what in ("all", "drills"):
        good = drills() and good
    if what in ("all", "kills"):
        count, rows = [*map(int, rest), *(20, 2_000_000)[len(rest) :]]
        for mode in ("sink", "staged"):
            good = kills(count // 2, rows // 2, mode) and good
    if what in ("all", "speed"):
        good = speed() and good
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
