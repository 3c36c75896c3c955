"""Object stores and tables of a lake, by others' libraries: ``python -m benchmarks.soak.lakes [FILES KILLS]``.

``make lakes`` runs this in an environment with moto's S3 server, deltalake and pyiceberg. A run over FILES Parquet
files in S3 is killed KILLS times, with SIGKILL, and started again; then tables that deltalake and pyiceberg wrote are
counted as rows are appended and files rewritten. Counts have so large an epsilon that they are exact.
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
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import fs, parquet

ROWS = 2_000  # of a file
CONFIG = """
[stream]
name = "visits"
user = "user"
[stream.columns]
user = "string"
region = "string"
day = "date"
[stream.budget]
event = 1000.0
[[query]]
name = "rows"
sql = "SELECT region, COUNT(*) FROM visits GROUP BY region"
epsilon = 200.0
releases = 3
groups = { region = ["north", "south"] }
[[query]]
name = "days"
sql = "SELECT day, COUNT(*) FROM visits GROUP BY day"
epsilon = 200.0
releases = 3
groups = { day = [2026-11-01, 2026-11-02, 2026-11-03, 2026-11-04] }
[store]
directory = "state"
"""
COMMAND = [sys.executable, "-m", "panstream.cli", "run", "panstream.toml", "--json", "--no-hardening"]


@contextlib.contextmanager
def store(work: Path) -> Iterator[str]:
    """Serve S3 on loopback, and yield its address."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with (work / "moto.log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        for _ in range(300):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


def table_of(draws: np.random.Generator, rows: int) -> tuple[pa.Table, int]:
    """Return rows, and how many are north."""
    north = draws.integers(0, 2, rows).astype(bool)
    users = pa.array(draws.integers(0, 10**6, rows)).cast("string")
    regions = pa.array(["south", "north"]).take(pa.array(north.astype(np.int8)))
    return pa.table({"user": users, "region": regions}), int(north.sum())


def run(work: Path, source: str) -> dict[str, int]:
    """Run to the end; return the counts of every group."""
    done = subprocess.run([*COMMAND, source], cwd=work, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr.strip().splitlines()[-1])
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    groups = [answer for answer in answers if "group" in answer]
    return {next(iter(answer["group"].values())): round(answer["value"]) for answer in groups}


def kills(work: Path, endpoint: str, files: int, count: int) -> bool:
    """Kill runs over many files of a bucket at random; return whether every row counts once."""
    draws = np.random.default_rng(40)
    chance = random.Random(40)
    filesystem = fs.S3FileSystem(
        endpoint_override=endpoint, scheme="http", region="us-east-1", allow_bucket_creation=True
    )
    filesystem.create_dir("lake")
    truth = dict.fromkeys(("north", "south", *(f"2026-11-0{day}" for day in range(1, 5))), 0)
    for number in range(files):
        table, north = table_of(draws, ROWS)
        day = f"2026-11-0{1 + number % 4}"
        with filesystem.open_output_stream(f"lake/visits/day={day}/part-{number:05}.parquet") as sink:
            parquet.write_table(table, sink)
        for key, rows in (("north", north), ("south", ROWS - north), (day, ROWS)):
            truth[key] += rows
    (work / "panstream.toml").write_text(CONFIG)
    source = f"s3://lake/visits?endpoint={endpoint}"
    start = time.monotonic()
    killed = 0
    while killed < count:
        process = subprocess.Popen(
            [*COMMAND, source, "--leave-open"], cwd=work, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            process.wait(chance.uniform(5.0, 15.0))
            break  # all rows were counted before
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
            killed += 1
    counts = run(work, source)
    good = counts == truth
    outcome = "exact in every region and day" if good else f"{counts} of {truth}"
    seconds = time.monotonic() - start
    print(
        f"{files:,} files in S3, {files * ROWS:,} rows, killed {killed} times in {seconds:.0f} s: {outcome}   "
        f"{'pass' if good else 'FAIL'}",
        flush=True,
    )
    return good


def refuses(work: Path, source: str) -> bool:
    try:
        run(work, source)
    except RuntimeError as error:
        return "rewritten" in str(error) or "deleted rows" in str(error)
    return False


def tables(name: str, work: Path, source: str, append: Callable[[pa.Table], None], rewrite: Callable[[], None]) -> bool:
    """Count a table while rows are appended; after a rewrite it must be refused, and counted by a new stream."""
    draws = np.random.default_rng(41)
    (work / "panstream.toml").write_text(CONFIG)
    total = 0
    good = True
    for rows in (5_000, 7_000):
        table, _ = table_of(draws, rows)
        days = pa.array(["2026-11-01", "2026-11-02"]).take(pa.array(np.arange(rows) % 2)).cast(pa.date32())
        append(table.append_column("day", days))
        total += rows
        counts = run(work, source)
        good = good and counts["north"] + counts["south"] == total == counts["2026-11-01"] + counts["2026-11-02"]
    rewrite()
    refused = refuses(work, source)
    (work / "state").rename(work / "old state")
    counts = run(work, source)
    whole = counts["2026-11-01"] + counts["2026-11-02"] == counts["north"] + counts["south"] == total // 2
    words = {True: "exact", False: "NOT exact"}
    verdict = "pass" if good and refused and whole else "FAIL"
    print(
        f"{name}: appended rows {words[good]}; a rewritten table {'' if refused else 'NOT '}refused; what is left, "
        f"by a new stream, {words[whole]}   {verdict}",
        flush=True,
    )
    return good and refused and whole


def delta(work: Path, endpoint: str) -> bool:
    import deltalake

    options = {"AWS_ENDPOINT_URL": endpoint, "AWS_ALLOW_HTTP": "true", "AWS_REGION": "us-east-1"}
    options |= {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_S3_ALLOW_UNSAFE_RENAME": "true"}

    def append(table: pa.Table) -> None:
        deltalake.write_deltalake(
            "s3://lake/delta", table, mode="append", partition_by=["day"], storage_options=options
        )

    def rewrite() -> None:
        opened = deltalake.DeltaTable("s3://lake/delta", storage_options=options)
        opened.delete("day = '2026-11-02'")
        opened.create_checkpoint()

    return tables("Delta, by deltalake, in S3", work, f"s3://lake/delta?endpoint={endpoint}", append, rewrite)


def iceberg(work: Path) -> bool:
    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.transforms import IdentityTransform

    warehouse = work / "warehouse"
    warehouse.mkdir()
    catalog = SqlCatalog("local", uri=f"sqlite:///{work}/catalog.db", warehouse=f"file://{warehouse}")
    catalog.create_namespace("lake")
    schema = pa.schema([("user", pa.string()), ("region", pa.string()), ("day", pa.date32())])
    table = catalog.create_table("lake.visits", schema=schema)
    with table.update_spec() as spec:
        spec.add_field("day", IdentityTransform(), "day")
    source = table.location().removeprefix("file://")
    return tables(
        "Iceberg, by pyiceberg, on disk", work, source, table.append, lambda: table.delete("day = '2026-11-02'")
    )


def main() -> int:
    files, count = ([int(text) for text in sys.argv[1:]] + [1000, 5])[:2] if len(sys.argv) > 2 else (1000, 5)
    os.environ |= {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_EC2_METADATA_DISABLED": "true"}
    results = []
    with tempfile.TemporaryDirectory() as directory:
        work = Path(directory)
        with store(work) as endpoint:
            for name, drill in {
                "kills": lambda folder: kills(folder, endpoint, files, count),
                "delta": lambda folder: delta(folder, endpoint),
                "iceberg": iceberg,
            }.items():
                folder = work / name
                folder.mkdir()
                results.append(drill(folder))
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
