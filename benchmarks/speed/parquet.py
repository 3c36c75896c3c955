"""What a row of Parquet costs: CPU time of one process, with pyarrow alone and another version of the engine beside it.

    python -m benchmarks.speed.parquet [--rows MILLIONS] [--rounds N] [--against SOURCES] [--plain]

Each figure is the lowest of all rounds, in nanoseconds of CPU time per row. The query is COUNT(DISTINCT id), with and
without a WHERE on a column of three words; the ids are strings of 7 to 11 bytes or integers. "pyarrow" decodes the same
columns in batches and does nothing else, in the best of these configurations: batches of 200,000, 65,536 or 32,768
rows; a buffer, none, or a memory map; strings with offsets of 32 or 64 bits. ``--against`` names the ``src`` folder of
another version, for example of ``git worktree add ../before e9a04bc0^``, which still had a Parquet reader of its own.
All run in turns in the environment of a hardened process, or with ``--plain`` in the usual one.
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

WORDS = ("YES", "NO", "MAYBE")
WHERE = "word = 'YES'"
CODECS = ("snappy", "zstd", "none")
IDS = {"name": "string", "number": "int"}
BATCHES = (200_000, 65_536, 32_768)
READS = ({"buffer_size": 1 << 18}, {"buffer_size": 0}, {"memory_map": True})


def make(directory: Path, rows: int) -> None:
    """Write ids of three million people, in row groups of a million rows."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as compute
    from pyarrow import parquet

    rng = np.random.default_rng(7)
    for codec in CODECS:
        writer: Any = None
        for start in range(0, rows, 1_000_000):
            number = rng.integers(0, 3_000_000, min(1_000_000, rows - start))
            parts = [pa.array(part).cast(pa.string()) for part in (number >> 16, number & 65535)]
            name = compute.binary_join_element_wise("10", *parts, ".")
            words = np.array(WORDS)[rng.integers(0, 3, number.size)]
            table = pa.table({"name": name, "number": number, "word": words})
            writer = writer or parquet.ParquetWriter(directory / f"{codec}.parquet", table.schema, compression=codec)
            writer.write_table(table)
        writer.close()


def ingest_file(path: Path, column: str, where: bool) -> float:
    """Return the seconds of CPU time for one query."""
    from panstream.engine.config.config import load_config
    from panstream.engine.runtime import ingest as module
    from panstream.engine.runtime.engine import Engine

    config = path.parent / f"{column}.toml"
    condition = f"WHERE {WHERE}" if where else ""
    config.write_text(f"""
        [stream]
        name = "s"
        user = "{column}"
        columns = {{ {column} = "{IDS[column]}", word = "string" }}
        [[query]]
        name = "people"
        sql = "SELECT COUNT(DISTINCT {column}) FROM s {condition}"
        epsilon = 1.0
        expected = 1000000
    """)
    ingest = getattr(module, "ingest", None) or module.feed  # type: ignore[attr-defined]  # its name in older versions
    with Engine(load_config(config)) as engine:
        start = time.process_time()
        ingest(engine, [str(path)])
        engine.finish()
        return time.process_time() - start


def decode(path: Path, column: str, where: bool) -> float:
    """Return the seconds of CPU time of the fastest configuration of pyarrow."""
    from pyarrow import parquet

    columns = [column, "word"] if where else [column]
    seconds = []
    for batch_rows in BATCHES:
        for settings in READS:
            for wide in (False, True) if column == "name" else (False,):
                start = time.process_time()
                for names in ([column], columns[1:]) if wide else (columns,):
                    options = {**settings, **_wide_strings(path)} if wide and names == [column] else settings
                    file = parquet.ParquetFile(path, pre_buffer=False, read_dictionary=["word"], **options)
                    batches = file.iter_batches(batch_rows, columns=names, use_threads=False) if names else ()
                    for _ in batches:
                        pass
                seconds.append(time.process_time() - start)
    return min(seconds)


def _wide_strings(path: Path) -> dict[str, Any]:
    import pyarrow as pa

    from panstream.engine.sources.formats.parquet.column_decoder import read_metadata
    from panstream.primitives.inputs.parquet_footer import footer_bytes

    with path.open("rb", buffering=0) as file:
        metadata = read_metadata(footer_bytes(file), with_arrow_schema=False)
    return {"metadata": metadata, "binary_type": pa.large_binary()}


def serve() -> None:
    """Measure what standard input names, until it ends."""
    import gc

    import panstream.engine.runtime.engine
    import panstream.engine.runtime.ingest  # noqa: F401

    gc.freeze()  # as a command does: modules are never garbage
    for line in sys.stdin:
        what, path, column, where = line.rstrip("\n").split("\t")
        call = decode if what == "pyarrow" else ingest_file
        print(call(Path(path), column, bool(where)), flush=True)


def start_process(sources: str | None, environment: dict[str, str]) -> subprocess.Popen[str]:
    more = {} if sources is None else {"PYTHONPATH": str(Path(sources).resolve())}
    command = [sys.executable, "-P", str(Path(__file__).resolve()), "--serve"]
    return subprocess.Popen(
        command, env={**os.environ, **environment, **more}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def measure(process: subprocess.Popen[str], *words: object) -> float:
    assert process.stdin is not None
    assert process.stdout is not None
    print(*words, sep="\t", file=process.stdin, flush=True)
    return float(process.stdout.readline())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=float, default=4.0, help="millions of rows")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--against", metavar="SOURCES", help="src folder of another version")
    parser.add_argument("--plain", action="store_true", help="not hardened")
    parser.add_argument("--codec", choices=CODECS, action="append")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve()
        return
    from panstream.primitives.memory.process_hardening import ENVIRONMENT

    environment = {} if options.plain else ENVIRONMENT
    sources = {"this": None, "pyarrow": None} | ({} if options.against is None else {"other": options.against})
    processes = {name: start_process(source, environment) for name, source in sources.items()}
    rows = int(options.rows * 1e6)
    with tempfile.TemporaryDirectory() as directory:
        make(Path(directory), rows)
        for codec in options.codec or CODECS:
            for column in IDS:
                for where in (True, False):
                    seconds: dict[str, list[float]] = {name: [] for name in processes}
                    for turn in range(options.rounds + 1):
                        for name, process in processes.items():
                            path = Path(directory) / f"{codec}.parquet"
                            taken = measure(process, name, path, column, "where" if where else "")
                            seconds[name] += [taken] if turn else []  # the first round compiles kernels
                    per_row = {name: min(times) / rows * 1e9 for name, times in seconds.items()}
                    line = ", ".join(f"{name} {figure:.1f} ns" for name, figure in per_row.items())
                    if "other" in per_row:
                        line += f"; {per_row['this'] / per_row['other']:.2f} times the other's"
                    what = f"{codec}: {IDS[column]} ids, {'WHERE' if where else 'all rows'}"
                    print(f"{what}: {line}; load {os.getloadavg()[0]:.1f}", flush=True)
    for process in processes.values():
        process.terminate()


if __name__ == "__main__":
    main()
