"""What it costs to read a stream, with DuckDB on one thread reading the same columns beside it.

python benchmarks/engine_sources.py [CSV rows in millions] [Parquet rows in millions] [directory for the data]

Figures are millions of rows per second of elapsed time; the ratio to DuckDB is given for elapsed time and for CPU time
(Parquet is decoded by a second thread), each the median of runs that took turns. "reader" is the source alone; "with
WHERE" adds the mask and the selection of ids, everything the engine does before an algorithm sees them, and is compared
with DuckDB's ``approx_count_distinct`` with the same WHERE. The last lines are the highest memory of a process that
does nothing else.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
from verdicts import verdict

from panstream.engine.feeds import FileFeed
from panstream.engine.predicates import Evaluator, Expression
from panstream.engine.rows import RowSchema

KINDS = {"ip": "string", "visitor": "int", "symptom": "string", "age": "int", "amount": "double"}
REPEATS = 3
TARGET = 0.7
MEMORY_TARGET_MB = 600
WHERE = "symptom = 'YES'"


def make(directory: Path, csv_rows: int, parquet_rows: int) -> dict[str, tuple[Path, int]]:
    """Write the same made-up visits as CSV (strings quoted or not), JSON lines and Parquet, unless they are there."""
    files = {
        "csv": (directory / f"visits-{csv_rows}.csv", csv_rows),
        "csv, quoted": (directory / f"quoted-{csv_rows}.csv", csv_rows),
        "json": (directory / f"visits-{csv_rows // 4}.jsonl", csv_rows // 4),
        "parquet, zstd": (directory / f"visits-zstd-{parquet_rows}.parquet", parquet_rows),
        "parquet, snappy": (directory / f"visits-snappy-{parquet_rows}.parquet", parquet_rows),
    }
    generator = np.random.default_rng(7)
    for form, (path, rows) in files.items():
        if path.exists():
            continue
        writer: Any = None
        for start in range(0, rows, 1_000_000):
            table = visits(generator, min(1_000_000, rows - start))
            if form == "json":
                with path.open("ab") as file:
                    file.write(b"".join(b"%s\n" % line for line in json_lines(table)))
                continue
            if writer is None and form.startswith("parquet"):
                writer = pq.ParquetWriter(path, table.schema, compression=form.split(", ")[1])
            elif writer is None:
                style = "all_valid" if form.endswith("quoted") else "none"
                writer = pacsv.CSVWriter(path, table.schema, write_options=pacsv.WriteOptions(quoting_style=style))
            writer.write_table(table)
        if writer is not None:
            writer.close()
    return files


def visits(generator: np.random.Generator, rows: int) -> pa.Table:
    ids = generator.integers(0, 3_000_000, rows)
    names = pa.compute.binary_join_element_wise(
        "10", pa.array(ids >> 16).cast(pa.string()), pa.array(ids & 65535).cast(pa.string()), "."
    )
    return pa.table(
        {
            "ip": names,
            "visitor": ids,
            "symptom": np.array(["YES", "NO", "MAYBE"])[generator.integers(0, 3, rows)],
            "age": generator.integers(0, 100, rows),
            "amount": np.round(generator.random(rows) * 1000, 2),
        }
    )


def json_lines(table: pa.Table) -> list[bytes]:
    import json

    return [json.dumps(row, separators=(",", ":")).encode() for row in table.to_pylist()]


def read(path: Path, columns: list[str], where: bool) -> int:
    schema = RowSchema(columns={name: KINDS[name] for name in columns}, user=columns[0])
    evaluator = Evaluator([Expression(sql=WHERE)], KINDS, user=columns[0]) if where else None
    rows = 0
    for batch in FileFeed([str(path)], schema).batches():
        if batch is None:
            continue
        if evaluator is not None:
            ids, mask = batch.columns.column(columns[0]), evaluator.evaluate(batch.columns)[0]
            ids.filter(pa.array(mask)) if columns[0] == "ip" else ids.to_numpy().compress(mask)
        rows += len(batch)
        batch.wipe()
    return rows


def compare(name: str, rows: int, ours: Callable[[], Any], theirs: Callable[[], Any], target: float | None) -> bool:
    """Let both run in turn and print the medians."""
    figures: list[tuple[float, ...]] = []
    for _ in range(REPEATS):
        figures.append((*timed(ours), *timed(theirs)))
    our_wall, their_wall = (statistics.median(figure[column] for figure in figures) for column in (0, 2))
    ratio = statistics.median(figure[2] / figure[0] for figure in figures)
    cpu_ratio = statistics.median(figure[3] / figure[1] for figure in figures)
    passed = target is None or max(ratio, cpu_ratio) >= target
    wanted = "-" if target is None else f">= {target}"
    speeds = f"{rows / our_wall / 1e6:>8.2f}{rows / their_wall / 1e6:>8.2f}"
    print(f"{name:<50}{speeds}{ratio:>8.2f}{cpu_ratio:>8.2f}", flush=True)
    if target is not None:
        verdict(f"{name}, times DuckDB (elapsed or CPU)", f"{max(ratio, cpu_ratio):.2f}", wanted, passed)
    return passed


def timed(call: Callable[[], Any]) -> tuple[float, float]:
    wall, cpu = time.perf_counter(), time.process_time()
    call()
    return time.perf_counter() - wall, time.process_time() - cpu


def compare_file(form: str, path: Path, rows: int, connection: duckdb.DuckDBPyConnection) -> bool:
    good = True
    for columns in (["ip", "symptom"], ["visitor", "symptom"], ["ip", "symptom", "age", "amount"]):
        hashes = ", ".join(f"bit_xor(hash({name}))" for name in columns)
        query = f"SELECT {hashes} FROM '{path}'"
        compare(f"{form}: {', '.join(columns)}; reader", rows, *pair(path, columns, False, query, connection), None)
        if len(columns) == 2:
            query = f"SELECT approx_count_distinct({columns[0]}) FROM '{path}' WHERE {WHERE}"
            target = None if form == "json" else TARGET
            calls = pair(path, columns, True, query, connection)
            good &= compare(f"{form}: {', '.join(columns)}; with WHERE", rows, *calls, target)
    return good


def pair(
    path: Path, columns: list[str], where: bool, query: str, connection: duckdb.DuckDBPyConnection
) -> tuple[Callable[[], Any], Callable[[], Any]]:
    return (lambda: read(path, columns, where)), (lambda: connection.execute(query).fetchall())


def memory(path: Path) -> bool:
    """Read a file in a process of its own and report the highest memory."""
    run = subprocess.run([sys.executable, __file__, "--memory", str(path)], capture_output=True, text=True, check=True)
    megabytes = int(run.stdout)
    passed = megabytes < MEMORY_TARGET_MB
    wanted = f"< {MEMORY_TARGET_MB}"
    return verdict(f"memory: {path.name}", f"{megabytes} MB", f"{wanted} MB", passed)


def highest_memory() -> int:
    """Return the peak in megabytes; the system's own record for a child begins with its parent's."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) // 1024


def main() -> None:
    if sys.argv[1:2] == ["--memory"]:
        read(Path(sys.argv[2]), ["ip", "symptom"], True)
        print(highest_memory())
        return
    given = [float(word) for word in sys.argv[1:3]]
    csv_rows, parquet_rows = (int(1e6 * millions) for millions in (given + [2.0, 10.0][len(given) :]))
    connection = duckdb.connect(config={"threads": 1})
    with tempfile.TemporaryDirectory() as temporary:
        files = make(Path(sys.argv[3] if len(sys.argv) > 3 else temporary), csv_rows, parquet_rows)
        print(f"{'million rows a second':<50}{'ours':>8}{'DuckDB':>8}{'ratio':>8}{'CPU':>8}{'target':>9}")
        results = [compare_file(form, path, rows, connection) for form, (path, rows) in files.items()]
        results += [memory(path) for form, (path, _) in files.items() if form in ("csv", "parquet, zstd")]
    sys.exit(0 if all(results) else 1)


if __name__ == "__main__":
    main()
