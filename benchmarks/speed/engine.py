"""The engine against DuckDB on the same files: rows/s and peak memory.

Parquet with 50 million rows and CSV with 10 million (``--quick``: 2 million each), string ids. Ours: COUNT(DISTINCT ip)
with a WHERE, epsilon 1, in the environment of ``panstream run`` (an allocator that overwrites what is freed), state on
disk with durability "batch", all short of starting Python; theirs: approx_count_distinct with the same WHERE, one
thread. Both take turns, each in a process of its own. "ratio" is of elapsed time and is what the target is for; "CPU"
is the same ratio of processor time, which counts both threads of ours and does not depend on who else uses the machine;
"command" is the median of the seconds of all of ``panstream run``. ``--plain`` does without the allocator, ``--memory``
without the store.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.verdicts import verdict
from panstream.cli.hardening import ENVIRONMENT

RATIO = 0.7
MEMORY = 600
RUNS = 3
WHERE = "symptom = 'YES'"
CONFIG = """
[stream]
name = "visits"
user = "ip"
[stream.columns]
ip = "string"
symptom = "string"
[[query]]
name = "visitors"
sql = "SELECT COUNT(DISTINCT ip) FROM visits WHERE {where}"
epsilon = 1.0
expected = 1000000
[store]
{store}
"""


def make(directory: Path, name: str, rows: int) -> Path:
    """Write made-up visits of three million addresses, a third of them with the symptom."""
    import pyarrow as pa
    import pyarrow.compute as compute
    import pyarrow.csv as csv
    import pyarrow.parquet as parquet

    path = directory / name
    if path.exists():
        return path
    rng = np.random.default_rng(1)
    schema = pa.schema([("ip", pa.string()), ("symptom", pa.string()), ("age", pa.int64())])
    bare = csv.WriteOptions(quoting_style="none")
    writer = (
        parquet.ParquetWriter(path, schema)
        if name.endswith("parquet")
        else csv.CSVWriter(path, schema, write_options=bare)
    )
    with writer:
        for start in range(0, rows, 1_000_000):
            size = min(1_000_000, rows - start)
            number = rng.integers(0, 3_000_000, size)
            parts = [pa.array(part).cast(pa.string()) for part in (number >> 16, number & 65535)]
            symptoms = np.array(["YES", "NO", "MAYBE"])[rng.integers(0, 3, size)]
            columns = [
                compute.binary_join_element_wise("10", *parts, "."),
                pa.array(symptoms),
                rng.integers(0, 100, size),
            ]
            writer.write_table(pa.table(columns, schema=schema))
    return path


def ours(path: Path, config: Path) -> dict[str, float]:
    from panstream.engine.config.config import load_config
    from panstream.engine.runtime.engine import Engine
    from panstream.engine.runtime.ingest import ingest

    with Engine(load_config(config)) as engine:
        start = time.perf_counter()
        cpu = time.process_time()
        rows = ingest(engine, [str(path)]).rows
        engine.finish()
        seconds = time.perf_counter() - start
        cpu = time.process_time() - cpu
        last = engine.log.last("visitors")
        return {"speed": rows / seconds, "cpu": rows / cpu, "answer": last.record["value"] if last else 0.0}


def theirs(path: Path) -> dict[str, float]:
    import duckdb

    connection = duckdb.connect(config={"threads": 1})
    reader = "read_parquet" if path.suffix == ".parquet" else "read_csv"
    rows = int(path.stem.rpartition("-")[2])
    start = time.perf_counter()
    cpu = time.process_time()
    query = f"SELECT approx_count_distinct(ip) FROM {reader}(?) WHERE {WHERE}"
    row = connection.execute(query, [str(path)]).fetchone()
    seconds = time.perf_counter() - start
    cpu = time.process_time() - cpu
    assert row is not None
    return {"speed": rows / seconds, "cpu": rows / cpu, "answer": row[0]}


def child(which: str, path: Path, config: Path, environment: dict[str, str]) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.speed.engine", "--child", which, str(path), str(config)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, **environment})
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def whole_command(path: Path, config: Path) -> float:
    """Return the seconds of ``panstream run``."""
    start = time.perf_counter()
    command = [sys.executable, "-m", "panstream.cli", "run", str(config), str(path), "--json"]
    subprocess.run(command, capture_output=True, check=True)
    return time.perf_counter() - start


def highest_memory() -> float:
    """Return the peak in megabytes; the system's own record for a child begins with its parent's."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def compare(path: Path, rows: int, options: argparse.Namespace) -> bool:
    """Let both run in turn, print the medians, and return whether the target is met."""
    environment = {} if options.plain else ENVIRONMENT
    runs = []
    commands = []
    with tempfile.TemporaryDirectory() as directory:
        for number in range(RUNS + 1):
            config = Path(directory) / f"panstream-{number}.toml"
            config.write_text(
                CONFIG.format(where=WHERE, store="" if options.memory else f'directory = "state-{number}"')
            )
            if number == RUNS:
                commands.append(whole_command(path, config))
            else:
                runs.append((child("ours", path, config, environment), child("theirs", path, config, {})))
    mine, other = (statistics.median(run[side]["speed"] for run in runs) for side in (0, 1))
    ratio, cpu = (statistics.median(run[0][what] / run[1][what] for run in runs) for what in ("speed", "cpu"))
    peak = max(run[0]["peak"] for run in runs)
    figures = f"{mine / 1e6:>14.1f}{other / 1e6:>10.1f}{ratio:>8.2f}{cpu:>8.2f}{peak:>9.0f}"
    what = f"{path.suffix[1:]}, {rows / 1e6:g} million rows"
    print(f"{what:<28}{figures}{statistics.median(commands):>9.1f} s", flush=True)
    fast = verdict(f"{what}, rows/s of DuckDB", f"{ratio:.2f}", f">= {RATIO}", ratio >= RATIO)
    return verdict(f"{what}, peak memory", f"{peak:.0f} MB", f"< {MEMORY} MB", peak < MEMORY) and fast


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--plain", action="store_true", help="without the allocator that overwrites what is freed")
    parser.add_argument("--memory", action="store_true", help="without a store")
    parser.add_argument("--rows", type=int, nargs=2, default=None, help="rows of Parquet and of CSV")
    parser.add_argument("--data", type=Path, default=None, help="keep the files in this directory")
    parser.add_argument("--child", nargs=3)
    options = parser.parse_args()
    if options.child:
        which, path, config = options.child
        figures = ours(Path(path), Path(config)) if which == "ours" else theirs(Path(path))
        print(json.dumps({**figures, "peak": highest_memory()}))
        return 0
    sizes = options.rows or ((2_000_000, 2_000_000) if options.quick else (50_000_000, 10_000_000))
    passed = True
    header = f"{'ours Mrows/s':>14}{'DuckDB':>10}{'ratio':>8}{'CPU':>8}{'peak MB':>9}{'command':>11}"
    print(f"{'':<28}{header}")
    with tempfile.TemporaryDirectory() as temporary:
        for ending, rows in zip(("parquet", "csv"), sizes, strict=True):
            path = make(options.data or Path(temporary), f"visits-{rows}.{ending}", rows)
            passed &= compare(path, rows, options)
    return int(not passed and not options.quick)


if __name__ == "__main__":
    sys.exit(main())
