"""What a cluster must show: equality, memory, speed against one process and Dask's own nunique_approx, kills, time of
the tests.

    python -m benchmarks.speed.cluster [ROWS]          equality and speed
    python -m benchmarks.speed.cluster --all [ROWS]    also the drills, by the tests that do them
    python -m benchmarks.speed.cluster --names [ROWS]  names that nobody listed: events a second, and memory per worker
    python -m benchmarks.speed.cluster --windows [ROWS]  windows and ticks: two workers against one process

Speed is that of the string-id job on the same Parquet files: jobs take turns, ratios are taken turn by turn, and their
median counts. One process is `panstream run`, 2 workers are `panstream run --workers 2` with the workers up. The target
is for one process that has one processor, as each worker has. Left alone it reads ahead in a second thread and keeps
two processors busy, which two workers on the same two cannot do better: that ratio is printed too, without a target.

Names are counted until every shard has them; reading them off the tables is the same work wherever the tables were.
With a window the coordinator reads the files and sends names; without one the workers read, and send sums of cells.
"""

from __future__ import annotations

import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from panstream.primitives.memory.process_hardening import ENVIRONMENT

ROUNDS = int(os.environ.get("PANSTREAM_BENCH_ROUNDS", "5"))
COMPARED = 1  # turns with nunique_approx, which takes many times as long
MEMORY = 1 << 17  # bytes of bitmap, as in many small deployments
TESTS = Path(__file__).parents[2] / "tests"


def show(what: str, figure: str, target: str, good: bool) -> bool:
    """Print one line and return whether it holds."""
    print(f"  {what:<54} {figure:>12}   {target:<14} {'pass' if good else 'FAIL'}", flush=True)
    return good


def write(folder: Path, rows: int) -> None:
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as compute
    import pyarrow.parquet as pq

    draw = np.random.default_rng(1)
    for number in range(8):
        ids = pa.array(draw.integers(0, rows, rows // 8)).cast(pa.string())
        words = compute.binary_join_element_wise(pa.scalar("user-"), ids, "")
        pq.write_table(pa.table({"user": words}), folder / f"part-{number}.parquet", row_group_size=1 << 20)


def settings() -> dict[str, object]:
    query = {"name": "n", "sql": "SELECT COUNT(DISTINCT user) FROM s", "epsilon": 1.0, "memory": MEMORY}
    return {"stream": {"name": "s", "user": "user", "columns": {"user": "string"}}, "query": [query]}


def one_process(folder: Path, rows: int) -> float:
    from panstream.engine.config.config import read_config
    from panstream.engine.runtime.engine import Engine
    from panstream.engine.runtime.ingest import ingest

    with Engine(read_config(settings())) as engine:
        ingest(engine, [str(folder)])
        return answer(engine, rows)


def on_one_processor(folder: Path, rows: int) -> float:
    """Threads that are started meanwhile stay on it too."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    try:
        return one_process(folder, rows)
    finally:
        os.sched_setaffinity(0, allowed)


def two_workers(folder: Path, rows: int, client: Any) -> float:
    from panstream.distributed.sharded._coordinator import ClusterEngine
    from panstream.distributed.sharded._dask_transport import DaskTransport
    from panstream.distributed.sharded.session import ingest
    from panstream.engine.config.config import read_config

    link = DaskTransport(lambda: client, 2, borrowed=True)
    with ClusterEngine(read_config(settings()), link, positions=True) as engine:
        ingest(engine, [str(folder)])
        return answer(engine, rows)


def answer(engine: Any, rows: int) -> float:
    """Return the count, which must be about what was put in."""
    engine.finish()
    value: float = engine.log.last("n").record["value"]
    assert 0.8 * rows < value / 0.632 < 1.2 * rows
    return value


def write_names(folder: Path, rows: int) -> None:
    """Write Zipf 1.1 over 100,000 paths of 12 to 40 bytes, a minute apart every million."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    draw = np.random.default_rng(1)
    paths = pa.array([f"/{'abcdefgh'[i % 8] * (i % 29 + 1)}/{i:07d}" for i in range(100_000)])
    weights = 1 / np.arange(1, 100_001) ** 1.1
    for number in range(4):
        some = draw.choice(100_000, rows // 4, p=weights / weights.sum())
        times = pa.array(np.arange(some.size) * 60 // 1_000_000 + number * 3600, pa.timestamp("s"))
        table = pa.table({"page": paths.take(pa.array(some)), "at": times})
        pq.write_table(table, folder / f"part-{number}.parquet", row_group_size=1 << 20)


def names_settings(window: bool) -> dict[str, object]:
    query = {"name": "n", "sql": "SELECT page, COUNT(*) FROM s GROUP BY page", "epsilon": 1.0, "delta": 1e-6}
    stream = {"name": "s", "columns": {"page": "string", "at": "timestamp"}, "time": "at"}
    return {"stream": stream, "query": [query | ({"window": "1 day"} if window else {})]}


def count_names(folder: Path, client: Any, workers: int, window: bool) -> None:
    """Count names on as many workers, or in this process alone."""
    from panstream.distributed.sharded._coordinator import ClusterEngine
    from panstream.distributed.sharded._dask_transport import DaskTransport
    from panstream.distributed.sharded.session import ingest as feed_cluster
    from panstream.engine.config.config import read_config
    from panstream.engine.runtime.engine import Engine
    from panstream.engine.runtime.ingest import ingest

    config = read_config(names_settings(window))
    if not workers:
        with Engine(config) as engine:
            ingest(engine, [str(folder)])
        return
    link = DaskTransport(lambda: client, workers, borrowed=True)
    with ClusterEngine(config, link, positions=True) as engine:
        feed_cluster(engine, [str(folder)])


def measure_names(folder: Path, rows: int) -> int:
    from distributed import Client

    from panstream.distributed.sharded.dask_setup import apply_hardened_config, local_cluster
    from panstream.distributed.sharded.explain import shard_locations
    from panstream.engine.config.config import read_config
    from panstream.engine.planner.query_plan import plan_all

    apply_hardened_config()
    allowed = os.sched_getaffinity(0)
    taken: dict[tuple[int, bool], list[float]] = {}
    work: dict[tuple[int, bool], list[tuple[float, float]]] = {}  # CPU time here, and of the busiest worker
    with local_cluster(2) as cluster, Client(cluster, direct_to_workers=True) as client:
        for turn in range(ROUNDS + 1):
            for workers in (0, 1, 2):
                for window in (False, True):
                    os.sched_setaffinity(0, allowed if workers else {min(allowed)})
                    before = client.run(time.process_time)
                    start = time.perf_counter()
                    own = time.process_time()
                    count_names(folder, client, workers, window)
                    seconds = time.perf_counter() - start
                    own = time.process_time() - own
                    after = client.run(time.process_time)
                    if turn:  # the first turn loads and compiles
                        taken.setdefault((workers, window), []).append(seconds)
                        busiest = max(after[each] - before[each] for each in after)
                        work.setdefault((workers, window), []).append((own, busiest if workers else 0.0))
    plans = plan_all(read_config(names_settings(False)))
    for (workers, window), seconds in taken.items():
        who = f"{workers} worker{'s' * (workers > 1)}" if workers else "one process on one processor"
        cells = shard_locations(plans, max(workers, 1))[0]["cells_per_shard"]
        against = statistics.median(a / b for a, b in zip(taken[0, window], seconds, strict=True))
        own, busiest = (1e9 / rows * statistics.median(each) for each in zip(*work[workers, window], strict=True))
        print(
            f"  {who + (', one window' if window else ''):<46} {rows / statistics.median(seconds) / 1e6:>6.2f} million "
            f"events/s, {against:.2f} x; tables {4 * cells / 1e6:.1f} MB each; CPU {own:.0f} ns an event here, "
            f"{busiest:.0f} ns on the busiest worker",
            flush=True,
        )
    return 0


def main() -> int:
    if "--windows" in sys.argv:
        from benchmarks.speed import cluster_windows

        return cluster_windows.main()
    arguments = [each for each in sys.argv[1:] if not each.startswith("--")]
    rows = int(arguments[0]) if arguments else 32_000_000
    if "PANSTREAM_BENCH_LAKE" in os.environ:
        return (measure_names if "--names" in sys.argv else measure)(Path(os.environ["PANSTREAM_BENCH_LAKE"]), rows)
    if "--names" in sys.argv:
        rows = int(arguments[0]) if arguments else 16_000_000
        with tempfile.TemporaryDirectory() as made:
            write_names(Path(made), rows)
            print(f"names: {rows:,} events in 4 Parquet files, wiped memory, median of {ROUNDS} turns", flush=True)
            environment = {**os.environ, **ENVIRONMENT, "PANSTREAM_BENCH_LAKE": made}
            return subprocess.run(
                [sys.executable, "-m", "benchmarks.speed.cluster", "--names", str(rows)], env=environment
            ).returncode
    failed = 0
    print("equality", flush=True)
    failed += not by_tests(
        "union of shards = one machine; 500 noisy runs alike", "distributed/sharded/test_partitioning.py"
    )
    with tempfile.TemporaryDirectory() as made:
        write(Path(made), rows)
        kinds = (("without the wiping allocator", {"PANSTREAM_BENCH_PLAIN": "1"}), ("with it", ENVIRONMENT))
        for title, more in kinds[: int(os.environ.get("PANSTREAM_BENCH_KINDS", "2"))]:
            print(f"speed {title}: {rows:,} string ids in 8 Parquet files, median of {ROUNDS} turns", flush=True)
            environment = {**os.environ, **more, "PANSTREAM_BENCH_LAKE": made}
            failed += (
                subprocess.run(
                    [sys.executable, "-m", "benchmarks.speed.cluster", str(rows)], env=environment
                ).returncode
                != 0
            )
    if "--all" in sys.argv:
        print("drills", flush=True)
        failed += not by_tests("100,000 unguessable ids: found", "distributed/sharded/test_memory.py", found="0")
        failed += not by_tests("30 kill -9 under load: lost or doubled", "distributed/sharded/test_kills.py", found="0")
        failed += not by_tests("all tests of the cluster", "distributed/sharded", seconds=360)
    return 1 if failed else 0


def by_tests(what: str, tests: str, *, found: str = "equal", seconds: float | None = None) -> bool:
    """Run tests, and show what their passing means, or how long they take."""
    start = time.perf_counter()
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(TESTS / tests)],
        capture_output=True,
        text=True,
        cwd=TESTS.parent,
    )
    took = time.perf_counter() - start
    good = ran.returncode == 0
    if not good:
        print(re.sub(r"^", "    ", ran.stdout[-2000:], flags=re.MULTILINE))
    if seconds is None:
        return show(what, found if good else "tests failed", found, good)
    return show(what, f"{took:.0f} s", f"under {seconds:.0f} s", good and took < seconds)


def measure(folder: Path, rows: int) -> int:
    import dask
    import dask.dataframe as dd
    from distributed import Client

    import panstream.distributed.sharded
    from panstream.distributed.sharded.dask_setup import apply_hardened_config, local_cluster

    apply_hardened_config()
    if "PANSTREAM_BENCH_PLAIN" in os.environ:
        dask.config.set({"distributed.nanny.pre-spawn-environ": {"OMP_NUM_THREADS": "1"}})
    with local_cluster(2) as cluster, Client(cluster, direct_to_workers=True) as client:
        frame = dd.read_parquet(folder)
        jobs: dict[str, Callable[[], object]] = {
            "one process on one processor": lambda: on_one_processor(folder, rows),
            "one process on both": lambda: one_process(folder, rows),
            "2 workers, files": lambda: two_workers(folder, rows, client),
            "2 workers, Dask DataFrame": lambda: panstream.distributed.sharded.distinct(
                frame, "user", epsilon=1.0, memory=MEMORY, client=client
            ),
            "Dask nunique_approx": lambda: frame.user.nunique_approx().compute(),
        }
        taken: dict[str, list[float]] = {name: [] for name in jobs}
        for turn in range(ROUNDS + 1):
            for name, job in jobs.items():
                if name == "Dask nunique_approx" and turn > COMPARED:
                    continue
                start = time.perf_counter()
                job()
                if turn:  # the first turn loads and compiles
                    taken[name].append(time.perf_counter() - start)
    for name, seconds in taken.items():
        print(f"  {name:<54} {rows / statistics.median(seconds) / 1e6:>12.2f}   million rows/s")

    def ratio(slow: str, fast: str) -> float:
        return statistics.median(s / f for s, f in zip(taken[slow], taken[fast], strict=False))

    how = "plain memory" if "PANSTREAM_BENCH_PLAIN" in os.environ else "wiped memory"
    lines = (
        (f"2 workers / one process with one processor, {how}", "one process on one processor", "2 workers, files", 1.3),
        (
            f"2 workers / the same, Dask DataFrame, {how}",
            "one process on one processor",
            "2 workers, Dask DataFrame",
            1.3,
        ),
        (f"2 workers / Dask nunique_approx, {how}", "Dask nunique_approx", "2 workers, Dask DataFrame", 0.8),
    )
    print(f"  {'2 workers / one process on both, files':<54} {ratio('one process on both', '2 workers, files'):>12.2f}")
    found = [(what, ratio(slow, fast), least) for what, slow, fast, least in lines]
    good = [show(what, f"{figure:.2f}", f"at least {least}", figure >= least) for what, figure, least in found]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
