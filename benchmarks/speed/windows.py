"""What windows, ticks and groups cost: CPU time per row of one process, from Parquet and from CSV.

    python -m benchmarks.speed.windows [--rows MILLIONS] [--rounds N] [--against SOURCES] [query ...]

``--against`` names the ``src`` folder of another version, for example of ``git worktree add ../before HEAD~1``: both
take turns in processes of their own, on the same files, and the speed is shown as a ratio. Figures are the lowest of
all rounds after a first one, which compiles kernels. Answers are not timed, except those of windows that close
meanwhile.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HOURS = 12
COLUMNS = {"user": "string", "at": "timestamp", "value": "double", "region": "string"}
STREAM = {"name": "s", "user": "user", "time": "at", "columns": COLUMNS, "lateness": "5 minutes"}
COUNT = "SELECT COUNT(*) FROM s"
DISTINCT = "SELECT COUNT(DISTINCT user) FROM s"
BY_REGION = " GROUP BY region"
MEMORY = 1 << 17


def query(sql: str, *, groups: int = 0, **settings: Any) -> dict[str, Any]:
    settings = {"name": "q", "epsilon": 1.0, "sql": sql, **settings}
    if groups:
        settings["sql"] = sql.replace("SELECT", "SELECT region,") + BY_REGION
        settings["groups"] = {"region": [f"r{number}" for number in range(groups)]}
    return settings


HOURLY = {"every": "1 hour", "horizon": 1000}
BOUNDS = {"lower": 0, "upper": 10}
QUERIES = {
    "count by window": [query(COUNT, window="1 hour")],
    "distinct by window": [query(DISTINCT, window="1 hour", memory=MEMORY)],
    "count and sum every hour": [
        query(COUNT, **HOURLY),
        query("SELECT SUM(value) FROM s", **HOURLY, **BOUNDS) | {"name": "sum"},
    ],
    "distinct, 8 groups": [query(DISTINCT, groups=8, window="6 hours", memory=MEMORY // 8)],
    "sum, 100 groups": [query("SELECT SUM(value) FROM s", groups=100, window="6 hours", **BOUNDS)],
    "count, 1,000 groups": [query(COUNT, groups=1000, window="6 hours")],
}


def make(directory: Path, rows: int) -> None:
    """Write rows of half a day, up to 20 minutes out of order, so that some come after the lateness."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as compute
    from pyarrow import csv, parquet

    generator = np.random.default_rng(1)
    times = np.sort(generator.uniform(0, HOURS * 3600, rows)) - generator.exponential(60, rows).clip(0, 1200)
    users = pa.array(generator.integers(0, rows // 8, rows)).cast(pa.string())
    regions = pa.array(generator.integers(0, 1000, rows)).cast(pa.string())
    table = pa.table(
        {
            "user": compute.binary_join_element_wise("user-", users, ""),
            "at": pa.array((times * 1e6).astype(np.int64) + 10**15, pa.timestamp("us")),
            "value": generator.uniform(0, 10, rows).round(3),
            "region": compute.binary_join_element_wise("r", regions, ""),
        }
    )
    parquet.write_table(table, directory / "rows.parquet", row_group_size=1_000_000)
    csv.write_csv(table, directory / "rows.csv")


def cpu_time(name: str, path: str) -> tuple[float, int]:
    """Return the CPU seconds that a run takes, of all its threads, and the number of late rows."""
    from panstream.engine.config.config import read_config
    from panstream.engine.runtime.engine import Engine
    from panstream.engine.runtime.ingest import ingest

    with Engine(read_config({"stream": STREAM, "query": QUERIES[name]})) as engine:
        start = time.process_time()
        late = ingest(engine, [path]).late_count
        return time.process_time() - start, late


def serve() -> None:
    """Time one run per line of the input."""
    for line in sys.stdin:
        name, path = line.rstrip("\n").split("\t")
        print(*cpu_time(name, path), flush=True)


def process(sources: str | None) -> subprocess.Popen[str]:
    environment = {**os.environ, **({} if sources is None else {"PYTHONPATH": str(Path(sources).resolve())})}
    command = [sys.executable, "-P", str(Path(__file__).resolve()), "--serve"]
    return subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def measure(one: subprocess.Popen[str], name: str, path: Path) -> tuple[float, int]:
    assert one.stdin is not None
    assert one.stdout is not None
    print(name, path, sep="\t", file=one.stdin, flush=True)
    seconds, late = one.stdout.readline().split()
    return float(seconds), int(late)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=float, default=4.0, help="millions of rows")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--against", metavar="SOURCES", help="src folder of another version")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("queries", nargs="*", metavar="query", help=", ".join(QUERIES))
    chosen = parser.parse_args()
    if chosen.serve:
        serve()
        return
    rows = int(chosen.rows * 1e6)
    versions = {"this": process(None)} | ({} if chosen.against is None else {"other": process(chosen.against)})
    with tempfile.TemporaryDirectory() as directory:
        make(Path(directory), rows)
        for form in ("parquet", "csv"):
            for name in chosen.queries or QUERIES:
                seconds: dict[str, list[float]] = {version: [] for version in versions}
                late = {}
                for turn in range(chosen.rounds + 1):
                    for version, one in versions.items():
                        taken, late[version] = measure(one, name, Path(directory) / f"rows.{form}")
                        seconds[version] += [taken] if turn else []
                per_row = {version: min(found) / rows * 1e9 for version, found in seconds.items()}
                line = ", ".join(f"{version} {figure:.0f} ns" for version, figure in per_row.items())
                if "other" in per_row:
                    line += f", {per_row['other'] / per_row['this']:.2f} times as fast"
                    assert late["this"] == late["other"]
                print(f"{form}: {name}: {line}; {late['this']} late; load {os.getloadavg()[0]:.1f}", flush=True)
    for one in versions.values():
        one.terminate()


if __name__ == "__main__":
    main()
