"""What it costs to read a stream, with DuckDB on one thread reading the same columns beside it.

python benchmarks/engine_sources.py [CSV rows in millions] [Parquet rows in millions] [directory for the data]

Every figure is CPU time of the whole process, in millions of rows per second. "reader" is the source alone; "with WHERE" adds the mask and the
selection of ids, everything the engine does before an algorithm sees them, and is compared with DuckDB's
``approx_count_distinct`` with the same WHERE. The last lines are the highest memory of a process that does nothing else.
"""

from __future__ import annotations

import resource
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

from panstream.engine.predicates import Expression, compile_masks
from panstream.engine.rows import RowSchema
from panstream.engine.sources import FileSource

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
        "parquet": (directory / f"visits-{parquet_rows}.parquet", parquet_rows),
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
            if writer is None and form == "parquet":
                writer = pq.ParquetWriter(path, table.schema)
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
    evaluator = compile_masks([Expression(sql=WHERE)], KINDS, user=columns[0]) if where else None
    rows = 0
    for batch in FileSource([str(path)], schema).batches():
        if batch is None:
            continue
        if evaluator is not None:
            batch.columns.column(columns[0]).filter(pa.array(evaluator.evaluate(batch.columns)[0]))
        rows += len(batch)
        batch.wipe()
    return rows


def seconds(call: Callable[[], Any]) -> float:
    times = []
    for _ in range(REPEATS):
        start = time.process_time()
        call()
        times.append(time.process_time() - start)
    return statistics.median(times)


def line(name: str, ours: float, theirs: float, rows: int, target: float | None) -> bool:
    ratio = theirs / ours
    passed = target is None or ratio >= target
    wanted = "-" if target is None else f">= {target}"
    verdict = "" if target is None else "pass" if passed else "FAIL"
    speeds = f"{rows / ours / 1e6:>9.2f}{rows / theirs / 1e6:>9.2f}"
    print(f"{name:<44}{speeds}{ratio:>8.2f}{wanted:>9}  {verdict}", flush=True)
    return passed


def compare(form: str, path: Path, rows: int, connection: duckdb.DuckDBPyConnection) -> bool:
    good = True
    for columns in (["ip", "symptom"], ["visitor", "symptom"], ["ip", "symptom", "age", "amount"]):
        target = TARGET if len(columns) == 2 and form != "json" else None
        hashes = ", ".join(f"bit_xor(hash({name}))" for name in columns)
        ours = seconds(lambda columns=columns: read(path, columns, False))  # type: ignore[misc]
        theirs = seconds(lambda hashes=hashes: connection.execute(f"SELECT {hashes} FROM '{path}'").fetchall())  # type: ignore[misc]
        line(f"{form}: {', '.join(columns)}; reader", ours, theirs, rows, None)
        if len(columns) > 2:
            continue
        query = f"SELECT approx_count_distinct({columns[0]}) FROM '{path}' WHERE {WHERE}"
        ours = seconds(lambda columns=columns: read(path, columns, True))  # type: ignore[misc]
        theirs = seconds(lambda query=query: connection.execute(query).fetchall())  # type: ignore[misc]
        good &= line(f"{form}: {', '.join(columns)}; with WHERE", ours, theirs, rows, target)
    return good


def memory(path: Path) -> bool:
    """Read a file in a process of its own and report the highest memory."""
    run = subprocess.run([sys.executable, __file__, "--memory", str(path)], capture_output=True, text=True, check=True)
    megabytes = int(run.stdout)
    passed = megabytes < MEMORY_TARGET_MB
    print(
        f"{'memory: ' + path.name:<44}{megabytes:>15} MB{'':>8}{'< ' + str(MEMORY_TARGET_MB):>9}  {'pass' if passed else 'FAIL'}"
    )
    return passed


def main() -> None:
    if sys.argv[1:2] == ["--memory"]:
        read(Path(sys.argv[2]), ["ip", "symptom"], True)
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
        return
    given = [float(word) for word in sys.argv[1:3]]
    csv_rows, parquet_rows = (int(1e6 * millions) for millions in (given + [2.0, 10.0][len(given) :]))
    connection = duckdb.connect(config={"threads": 1})
    with tempfile.TemporaryDirectory() as temporary:
        files = make(Path(sys.argv[3] if len(sys.argv) > 3 else temporary), csv_rows, parquet_rows)
        print(f"{'million rows a second':<44}{'ours':>9}{'DuckDB':>9}{'ratio':>8}{'target':>9}")
        results = [compare(form, path, rows, connection) for form, (path, rows) in files.items()]
        results += [memory(path) for form, (path, _) in files.items() if form in ("csv", "parquet")]
    sys.exit(0 if all(results) else 1)


if __name__ == "__main__":
    main()
