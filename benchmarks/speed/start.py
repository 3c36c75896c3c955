"""CPU seconds from nothing to a first answer, beside DuckDB's: cold, with nothing compiled, and warm.

    python -m benchmarks.speed.start
    python -m benchmarks.speed.start --runs 3

CPU time of the process and its children (user and system), the least of the runs, since other work on the machine only
adds to it. Cold runs have an empty NUMBA_CACHE_DIR.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

_ROWS = "host,n\n" + "".join(f"h{number % 500},{number}\n" for number in range(20_000))
_SQL = "SELECT COUNT(DISTINCT host) FROM 'rows.csv'"
_COMMANDS = {
    "DuckDB in Python": ("-c", f'import duckdb; duckdb.sql("{_SQL}").fetchall()'),
    "import panstream; panstream.query": ("-c", "import panstream; panstream.query"),
    "panstream query": ("-m", "panstream.cli", "query", _SQL, "--user=host", "--epsilon=1", "--no-ledger"),
}


def _cpu_seconds(arguments: tuple[str, ...], folder: Path, cache: Path) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(cache)}
    subprocess.run([sys.executable, *arguments], cwd=folder, env=environment, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5, help="warm runs of each command")
    runs = parser.parse_args().runs
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "rows.csv").write_text(_ROWS)
        print(f"{'':36}{'cold':>8}{'warm':>8}  CPU seconds")
        for label, arguments in _COMMANDS.items():
            cache = folder / label.replace(" ", "-")
            cold = _cpu_seconds(arguments, folder, cache)
            warm = min(_cpu_seconds(arguments, folder, cache) for _ in range(runs))
            print(f"{label:36}{cold:8.2f}{warm:8.2f}")


if __name__ == "__main__":
    main()
