"""Two workers against one process on the string-id job, and against Dask's own nunique_approx, on the same Parquet.

    python benchmarks/cluster.py [ROWS]

One process and the workers run without the wiping allocator in the first table (as Dask itself does), and with it in the second.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from panstream.hardened import ENVIRONMENT

ROUNDS = int(os.environ.get("PANSTREAM_BENCH_ROUNDS", "3"))

MEMORY = 1 << 20  # bytes of bitmap, as in many small deployments


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


def settings(rows: int) -> dict[str, object]:
    query = {"name": "n", "sql": "SELECT COUNT(DISTINCT user) FROM s", "epsilon": 1.0, "memory": MEMORY}
    return {"stream": {"name": "s", "user": "user", "columns": {"user": "string"}}, "query": [query]}


def one_process(folder: Path, rows: int) -> float:
    from panstream.engine.config import read_config
    from panstream.engine.engine import Engine
    from panstream.engine.run import feed

    start = time.perf_counter()
    with Engine(read_config(settings(rows))) as engine:
        feed(engine, [str(folder)])
        engine.finish()
        assert 0.8 * rows < engine.log.last("n").record["value"] / 0.632 < 1.2 * rows  # type: ignore[union-attr]
    return time.perf_counter() - start


def main() -> None:
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 8_000_000
    folder = Path(os.environ["PANSTREAM_BENCH_LAKE"]) if "PANSTREAM_BENCH_LAKE" in os.environ else None
    if folder is not None:
        return measure(folder, rows)
    with tempfile.TemporaryDirectory() as made:
        write(Path(made), rows)
        kinds = (("without the wiping allocator", {}), ("with the wiping allocator", ENVIRONMENT))
        for title, more in kinds[: int(os.environ.get("PANSTREAM_BENCH_KINDS", "2"))]:
            print(f"{title}: {rows:,} string ids in 8 Parquet files, 2 workers, best of {ROUNDS}", flush=True)
            plain = {} if more else {"PANSTREAM_BENCH_PLAIN": "1"}
            environment = {**os.environ, **more, **plain, "PANSTREAM_BENCH_LAKE": made}
            subprocess.run([sys.executable, __file__, str(rows)], env=environment, check=True)
    return None


def measure(folder: Path, rows: int) -> None:
    import dask
    import dask.dataframe as dd
    from distributed import Client

    import panstream.cluster
    from panstream.cluster.hygiene import local_cluster, quieten

    quieten()
    if "PANSTREAM_BENCH_PLAIN" in os.environ:
        dask.config.set({"distributed.nanny.pre-spawn-environ": {"OMP_NUM_THREADS": "1"}})
    with local_cluster(2) as cluster, Client(cluster, direct_to_workers=True) as client:
        frame = dd.read_parquet(folder)
        jobs = {
            "one process": lambda: one_process(folder, rows),
            "2 workers": lambda: panstream.cluster.distinct(frame, "user", epsilon=1.0, memory=MEMORY, client=client),
            "Dask nunique_approx": lambda: frame.user.nunique_approx().compute(),
        }
        best = dict.fromkeys(jobs, float("inf"))
        for turn in range(ROUNDS + 1):
            for name, job in jobs.items():
                start = time.perf_counter()
                job()
                if turn:  # the first turn loads and compiles
                    best[name] = min(best[name], time.perf_counter() - start)
    for name, seconds in best.items():
        print(f"  {name:<20} {rows / seconds / 1e6:8.2f} million rows/s")
    print(f"  2 workers / one process      {best['one process'] / best['2 workers']:.2f} (at least 1.3)")
    print(
        f"  2 workers / nunique_approx   {best['Dask nunique_approx'] / best['2 workers']:.2f} (at least 0.8)",
        flush=True,
    )


if __name__ == "__main__":
    main()
