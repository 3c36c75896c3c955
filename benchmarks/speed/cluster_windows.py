"""Windows and ticks on two workers against one process on one processor.

    python -m benchmarks.speed.cluster --windows [ROWS]

Jobs take turns, ratios are taken turn by turn, and their median counts; the first turn compiles and is left out. CPU
time is that of all processes together. ``ROWS`` are 32 million by default, of a day, up to 20 minutes out of order.

Then a model with the measured times: tasks are read in parallel, and applied one after the other. Its formula is
compared with a simulation of the same, task by task, with reading times that vary by a fifth.
"""

from __future__ import annotations

import heapq
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from panstream.primitives.memory.process_hardening import ENVIRONMENT

ROUNDS = int(os.environ.get("PANSTREAM_BENCH_ROUNDS", "4"))
FILES = 8
HOURS = 24
TARGET = 1.6
TASK_ROWS = 1 << 21
COLUMNS = {"user": "string", "at": "timestamp", "value": "double", "region": "string"}
STREAM = {"name": "s", "user": "user", "time": "at", "columns": COLUMNS, "lateness": "5 minutes"}
DISTINCT = "SELECT COUNT(DISTINCT user) FROM s"


def query(sql: str, *, groups: int = 0, **settings: Any) -> dict[str, Any]:
    settings = {"name": "q", "epsilon": 1.0, "sql": sql, **settings}
    if groups:
        settings["sql"] = sql.replace("SELECT", "SELECT region,") + " GROUP BY region"
        settings["groups"] = {"region": [f"r{number}" for number in range(groups)]}
    return settings


HOURLY = {"every": "1 hour", "horizon": 1000}
QUERIES = {
    "distinct by hour": [query(DISTINCT, window="1 hour", memory=1 << 17)],
    "COUNT and SUM every hour": [
        query("SELECT COUNT(*) FROM s", **HOURLY),
        query("SELECT SUM(value) FROM s", **HOURLY, lower=0, upper=10) | {"name": "sum"},
    ],
    "distinct by hour, 8 groups": [query(DISTINCT, groups=8, window="1 hour", memory=1 << 14)],
    "COUNT every hour, 100 groups": [query("SELECT COUNT(*) FROM s", groups=100, **HOURLY)],
}


def write(folder: Path, rows: int) -> None:
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as compute
    from pyarrow import parquet

    draw = np.random.default_rng(1)
    each = rows // FILES
    for number in range(FILES):
        span = HOURS * 3600 / FILES
        times = number * span + np.sort(draw.uniform(0, span, each)) - draw.exponential(60, each).clip(0, 1200)
        users = pa.array(draw.integers(0, rows // 8, each)).cast(pa.string())
        regions = pa.array(draw.integers(0, 100, each)).cast(pa.string())
        table = pa.table(
            {
                "user": compute.binary_join_element_wise("user-", users, ""),
                "at": pa.array((times * 1e6).astype(np.int64) + 10**15, pa.timestamp("us")),
                "value": draw.uniform(0, 10, each).round(3),
                "region": compute.binary_join_element_wise("r", regions, ""),
            }
        )
        parquet.write_table(table, folder / f"part-{number}.parquet", row_group_size=1 << 19)


def alone(folder: Path, name: str) -> int:
    """Run a query in this process on one processor; return the number of late rows."""
    from panstream.engine.config.config import read_config
    from panstream.engine.runtime.engine import Engine
    from panstream.engine.runtime.ingest import ingest

    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    try:
        with Engine(read_config({"stream": STREAM, "query": QUERIES[name]})) as engine:
            late = ingest(engine, [str(folder)]).late_count
            engine.finish()
            return late
    finally:
        os.sched_setaffinity(0, allowed)


def on_workers(folder: Path, name: str, client: Any) -> int:
    """Run a query on the workers of a client; return the number of late rows."""
    from panstream.distributed.sharded._coordinator import ClusterEngine
    from panstream.distributed.sharded._dask_transport import DaskTransport
    from panstream.distributed.sharded.session import ingest
    from panstream.engine.config.config import read_config

    link = DaskTransport(lambda: client, 2, borrowed=True)
    config = read_config({"stream": STREAM, "query": QUERIES[name]})
    with ClusterEngine(config, link, positions=True) as engine:
        late = ingest(engine, [str(folder)]).late_count
        engine.finish()
        return late


def processor_times(client: Any) -> tuple[float, float]:
    """Return the CPU seconds of this process, and of all workers."""
    return time.process_time(), sum(client.run(time.process_time).values())


def predict(workers: int, tasks: int, read: float, serial: float) -> float:
    """Return the seconds of a job by the formula: reading is divided, applying is not."""
    return max(tasks * read / workers, tasks * serial) + serial


def simulate(workers: int, tasks: int, read: float, serial: float, *, seed: int = 1) -> float:
    """Return the seconds of a job task by task: two tasks per worker at most, applied in order."""
    order = random.Random(seed)
    free = [0.0] * workers
    applied = [0.0]
    for number in range(tasks):
        handed_out = applied[max(0, number + 1 - 2 * workers)]  # it waits until so many tasks before it were applied
        start = max(heapq.heappop(free), handed_out)
        done = start + read * order.uniform(0.8, 1.2)
        heapq.heappush(free, done)
        applied.append(max(done, applied[-1]) + serial)
    return applied[-1]


def measure(folder: Path, rows: int) -> int:
    from distributed import Client

    from panstream.distributed.sharded.dask_setup import apply_hardened_config, local_cluster

    apply_hardened_config()
    failed = 0
    begun = time.perf_counter()
    with local_cluster(2) as cluster, Client(cluster, direct_to_workers=True) as client:
        started = time.perf_counter() - begun
        for name in QUERIES:
            ratios: list[float] = []
            inclusive: list[float] = []
            own: list[tuple[float, float, float, float]] = []
            for turn in range(ROUNDS + 1):
                before = time.process_time()
                start = time.perf_counter()
                late = alone(folder, name)
                one = time.perf_counter() - start
                one_processor = time.process_time() - before
                here, there = processor_times(client)
                start = time.perf_counter()
                late_on_workers = on_workers(folder, name, client)
                two = time.perf_counter() - start
                coordinator, workers = (
                    after - then for after, then in zip(processor_times(client), (here, there), strict=True)
                )
                assert late == late_on_workers
                if turn:
                    ratios.append(one / two)
                    inclusive.append(one / (two + started))
                    own.append((one_processor, workers, coordinator, one))
            one_processor, workers, coordinator, seconds = (
                statistics.median(figures) for figures in zip(*own, strict=True)
            )
            ratio = statistics.median(ratios)
            failed += ratio < TARGET
            print(
                f"  {name:<30} {ratio:.2f} x by wall time ({statistics.median(inclusive):.2f} with {started:.1f} s of "
                f"start-up), target {TARGET}: {'pass' if ratio >= TARGET else 'FAIL'}; one process "
                f"{rows / seconds / 1e6:.1f} million rows/s; CPU ns per row {one_processor / rows * 1e9:.0f} against "
                f"{workers / rows * 1e9:.0f} on workers + {coordinator / rows * 1e9:.0f} here "
                f"({2 * one_processor / (workers + coordinator):.2f} x by CPU); {late} late; "
                f"load {os.getloadavg()[0]:.1f}",
                flush=True,
            )
            tasks = max(1, rows // TASK_ROWS)
            read = workers / tasks
            serial = coordinator / tasks
            for count in (8, 64):
                many = 40 * count
                said = many * one_processor / tasks / predict(count, many, read, serial)
                seen = many * one_processor / tasks / simulate(count, many, read, serial)
                print(f"    {count} workers: {said:.1f} x by the formula, {seen:.1f} x simulated", flush=True)
    return 1 if failed else 0


def main() -> int:
    arguments = [argument for argument in sys.argv[1:] if not argument.startswith("--")]
    rows = int(float(arguments[0])) if arguments else 32_000_000
    if "PANSTREAM_BENCH_LAKE" in os.environ:
        return measure(Path(os.environ["PANSTREAM_BENCH_LAKE"]), rows)
    with tempfile.TemporaryDirectory() as made:
        write(Path(made), rows)
        print(f"windows: {rows:,} rows in {FILES} Parquet files, wiped memory, median of {ROUNDS} turns", flush=True)
        environment = {**os.environ, **ENVIRONMENT, "PANSTREAM_BENCH_LAKE": made}
        command = [sys.executable, "-m", "benchmarks.speed.cluster", "--windows", str(rows)]
        return subprocess.run(command, env=environment).returncode


if __name__ == "__main__":
    sys.exit(main())
