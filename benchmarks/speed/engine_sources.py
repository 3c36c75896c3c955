"""What it costs to read a stream, with DuckDB, Polars and DataFusion on one thread reading the same columns beside it.

python -m benchmarks.speed.engine_sources [CSV rows in millions] [Parquet rows in millions] [directory for the data]

Figures are millions of rows per second of CPU time (of all threads: a second one decodes files), medians of
rounds in turns; a ratio is shown with its lowest and highest round. Ours reads, applies WHERE and selects ids: all that
the engine does before an algorithm sees them. The databases count distinct ids with the same WHERE. The last lines are
the highest memory of a process that does nothing else.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from benchmarks.peers.anchors import described, in_turns, ratio
from benchmarks.verdicts import verdict
from panstream.engine.rows.evaluator import Evaluator, Expression
from panstream.engine.rows.row_batch import RowSchema
from panstream.engine.rows.wiping import wipe_array
from panstream.engine.runtime.ingest import ROWS_OF_FILES
from panstream.engine.sources import FileSource

Call = Callable[[], Any]
KINDS = {"ip": "string", "visitor": "int", "symptom": "string", "age": "int", "amount": "double"}
REPEATS = 5
TARGETS = {  # which databases to compare with, the fastest of them, and how much of its speed is wanted
    "csv": (("DataFusion",), 0.8),
    "json": (("DuckDB", "Polars"), 0.5),
    "parquet": (("DuckDB",), 0.8),
}
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
    for batch in FileSource([str(path)], schema, batch_rows=ROWS_OF_FILES).batches():
        if batch is None:
            continue
        if evaluator is not None:
            batch.ids = batch.columns.column(columns[0])
            mask = evaluator.evaluate(batch.columns)[0]
            assert isinstance(mask, np.ndarray)
            wipe_array(batch.some_ids(mask)[0])
        rows += len(batch)
        batch.wipe()
    return rows


def decode(path: Path, columns: list[str]) -> None:
    """Decode columns as ours does, and do nothing with them: what is left of our time is our own."""
    file = pq.ParquetFile(path, buffer_size=1 << 18, pre_buffer=False, read_dictionary=["symptom"])
    for _ in file.iter_batches(ROWS_OF_FILES, columns=columns, use_threads=False):
        pass


def peers(path: Path, form: str, column: str) -> dict[str, Call]:
    """Return the same question to every database that is installed, on one thread."""
    duck = duckdb.connect(config={"threads": 1})
    query = f"SELECT {{}}({column}) FROM {{}} WHERE {WHERE}"
    asked = query.format("approx_count_distinct", f"'{path}'")
    found: dict[str, Call] = {"DuckDB": lambda: duck.execute(asked).fetchall()}
    kind = form.partition(",")[0]
    if kind == "parquet":
        found["pyarrow alone"] = lambda: decode(path, [column, "symptom"])
    with suppress(ImportError):
        found["Polars"] = _polars(path, kind, column)
    with suppress(ImportError):
        from datafusion import SessionConfig, SessionContext

        context = SessionContext(SessionConfig().with_target_partitions(1))
        options = {"file_extension": ".jsonl"} if kind == "json" else {}
        getattr(context, f"register_{kind}")("visits", str(path), **options)
        found["DataFusion"] = lambda: context.sql(query.format("approx_distinct", "visits")).collect()
    return found


def _polars(path: Path, kind: str, column: str) -> Call:
    import polars

    scan = {"csv": polars.scan_csv, "json": polars.scan_ndjson, "parquet": polars.scan_parquet}[kind]
    chosen = polars.col("symptom") == "YES"
    return lambda: scan(path).filter(chosen).select(polars.col(column).approx_n_unique()).collect()  # type: ignore[operator]


def compare_file(form: str, path: Path, rows: int) -> bool:
    """Let ours and every database run in turns, and print medians of CPU time; ratios with their spread."""
    good = True
    names, target = TARGETS[form.partition(",")[0]]
    for column in ("ip", "visitor"):
        databases = peers(path, form, column)
        ours = {"ours": lambda column=column: read(path, [column, "symptom"], True)}
        times = in_turns({**ours, **databases}, REPEATS)
        speeds = {each: rows / statistics.median(seconds) / 1e6 for each, seconds in times.items()}
        print(f"{form}: {column}: " + ", ".join(f"{each} {speed:.2f}" for each, speed in speeds.items()) + " M rows/s")
        best = max((name for name in names if name in databases), key=lambda name: speeds[name])
        found, low, high = ratio(times["ours"], times[best])
        good &= verdict(
            f"{form}: {column}, with WHERE, times {best}",
            f"{found:.2f} ({low:.2f} to {high:.2f})",
            f">= {target:g}",
            found >= target,
        )
    return good


def memory(path: Path) -> bool:
    """Read a file in a process of its own and report the highest memory."""
    run = subprocess.run(
        [sys.executable, "-m", "benchmarks.speed.engine_sources", "--memory", str(path)],
        capture_output=True,
        text=True,
        check=True,
    )
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
    with tempfile.TemporaryDirectory() as temporary:
        files = make(Path(sys.argv[3] if len(sys.argv) > 3 else temporary), csv_rows, parquet_rows)
        print(f"million rows a second on {described()}")
        results = [compare_file(form, path, rows) for form, (path, rows) in files.items()]
        results += [memory(path) for form, (path, _) in files.items() if form in ("csv", "parquet, zstd")]
    sys.exit(0 if all(results) else 1)


if __name__ == "__main__":
    main()
