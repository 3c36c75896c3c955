"""The engine against DuckDB on the same files, one thread each, alternating: rows/s and peak memory.

Parquet with 50 million rows and CSV with 10 million (``--quick``: 2 million each). Ours: COUNT(DISTINCT id) with a WHERE, epsilon 1,
the whole of ``panstream run`` short of starting Python; theirs: approx_count_distinct with the same WHERE. ``--stored`` keeps the state on disk
with durability "batch".
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

RATIO, MEMORY = 0.7, 600
RUNS = 3
CONFIG = """
[stream]
name = "visits"
user = "id"
[stream.columns]
id = "int"
kind = "int"
[[query]]
name = "visitors"
sql = "SELECT COUNT(DISTINCT id) FROM visits WHERE kind < 3"
epsilon = 1.0
expected = 1000000
[store]
{store}
"""


def make(directory: Path, name: str, rows: int) -> Path:
    import pyarrow as pa
    import pyarrow.csv as csv
    import pyarrow.parquet as parquet

    path = directory / name
    rng = np.random.default_rng(1)
    schema = pa.schema([("id", pa.int64()), ("kind", pa.int64())])
    writer = parquet.ParquetWriter(path, schema) if name.endswith("parquet") else csv.CSVWriter(path, schema)
    with writer:
        for start in range(0, rows, 1_000_000):
            size = min(1_000_000, rows - start)
            columns = [rng.integers(0, 2_000_000, size), rng.integers(0, 5, size)]
            writer.write_table(pa.table(columns, schema=schema))
    return path


def ours(path: Path, config: Path) -> dict[str, float]:
    from panstream.engine.config import load_config
    from panstream.engine.engine import Engine
    from panstream.engine.run import feed

    with Engine(load_config(config)) as engine:
        start = time.perf_counter()
        rows = feed(engine, [str(path)]).rows
        engine.finish()
        seconds = time.perf_counter() - start
        last = engine.log.last("visitors")
        return {"speed": rows / seconds, "answer": last.record["value"] if last else 0.0}


def theirs(path: Path) -> dict[str, float]:
    import duckdb

    connection = duckdb.connect(config={"threads": 1})
    reader = "read_parquet" if path.suffix == ".parquet" else "read_csv"
    start = time.perf_counter()
    row = connection.execute(
        f"SELECT approx_count_distinct(id) FILTER (kind < 3), count(*) FROM {reader}(?)", [str(path)]
    ).fetchone()
    seconds = time.perf_counter() - start
    assert row is not None
    return {"speed": row[1] / seconds, "answer": row[0]}


def child(which: str, path: Path, config: Path) -> dict[str, float]:
    command = [sys.executable, __file__, "--child", which, str(path), str(config)]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)  # type: ignore[no-any-return]


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--stored", action="store_true")
    parser.add_argument("--rows", type=int, nargs=2, default=None, help="rows of Parquet and of CSV")
    parser.add_argument("--child", nargs=3)
    options = parser.parse_args()
    if options.child:
        which, path, config = options.child
        figures = ours(Path(path), Path(config)) if which == "ours" else theirs(Path(path))
        figures["peak"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(json.dumps(figures))
        return 0
    sizes = options.rows or ((2_000_000, 2_000_000) if options.quick else (50_000_000, 10_000_000))
    failed = False
    print(f"{'':<34}{'ours Mrows/s':>14}{'DuckDB':>10}{'ratio':>8}{'target':>8}{'peak MB':>9}")
    with tempfile.TemporaryDirectory() as directory:
        for name, rows in zip(("visits.parquet", "visits.csv"), sizes, strict=True):
            path = make(Path(directory), name, rows)
            runs = []
            for number in range(RUNS):
                store = f'directory = "state-{name}-{number}"' if options.stored else ""
                config = Path(directory) / "panstream.toml"
                config.write_text(CONFIG.format(store=store))
                runs.append((child("ours", path, config), child("theirs", path, config)))
            path.unlink()
            mine, other = (statistics.median(run[side]["speed"] for run in runs) for side in (0, 1))
            ratio = statistics.median(run[0]["speed"] / run[1]["speed"] for run in runs)
            peak = max(run[0]["peak"] for run in runs)
            good = ratio >= RATIO and peak < MEMORY
            failed |= not good
            what = f"{path.suffix[1:]}, {rows / 1e6:g} million rows"
            print(
                f"{what:<34}{mine / 1e6:>14.1f}{other / 1e6:>10.1f}{ratio:>8.2f}{RATIO:>8}{peak:>9.0f}  "
                + ("pass" if good else "FAIL")
            )
    return int(failed and not options.quick)


if __name__ == "__main__":
    sys.exit(main())
