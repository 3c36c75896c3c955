"""CPU seconds from nothing to a first answer, beside DuckDB's: cold, with nothing compiled, and warm.

    python -m benchmarks.speed.start
    python -m benchmarks.speed.start --runs 3

CPU time of the process and its children (user and system), the least of the runs, since other work on the machine only
adds to it; the commands take turns. Cold runs have an empty NUMBA_CACHE_DIR. In the last column the package has no
bytecode and writes none (PYTHONDONTWRITEBYTECODE=1), as in a clone that nothing was run in: pip compiles what it
installs.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

_SOURCE = Path(__file__).parents[2] / "src"
_ROWS = "host,n\n" + "".join(f"h{number % 500},{number}\n" for number in range(20_000))
_SQL = "SELECT COUNT(DISTINCT host) FROM 'rows.csv'"
_QUESTION = ("query", _SQL, "--user=host", "--epsilon=1", "--no-ledger")
_CALL = "import panstream; panstream.query('rows.csv', {!r}, epsilon=1, user='host', ledger=False)"
_COMMANDS = {
    "DuckDB in Python": ("-c", f'import duckdb; duckdb.sql("{_SQL}").fetchall()'),
    "import panstream; panstream.query": ("-c", "import panstream; panstream.query"),
    "panstream.query(...)": ("-c", _CALL.format(_SQL)),
    "panstream query": ("-m", "panstream.cli", *_QUESTION),
    "panstream query --no-hardening": ("-m", "panstream.cli", *_QUESTION, "--no-hardening"),
}


def _cpu_seconds(arguments: tuple[str, ...], folder: Path, **variables: str) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment |= {"PYTHONPATH": str(_SOURCE), **variables}
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
        copy = folder / "copy"
        shutil.copytree(_SOURCE / "panstream", copy / "panstream", ignore=shutil.ignore_patterns("__pycache__"))
        states = {  # NUMBA_CACHE_DIR is empty in the first run of each
            "warm": {"NUMBA_CACHE_DIR": str(folder / "warm")},
            "no bytecode": {
                "NUMBA_CACHE_DIR": str(folder / "warm"),
                "PYTHONPATH": str(copy),
                "PYTHONDONTWRITEBYTECODE": "1",
            },
        }
        cold = {
            label: _cpu_seconds(arguments, folder, NUMBA_CACHE_DIR=str(folder / label.replace(" ", "-")))
            for label, arguments in _COMMANDS.items()
        }
        least: dict[tuple[str, str], float] = {}
        for run in range(runs + 1):
            for label, arguments in _COMMANDS.items():
                for state, variables in states.items():
                    seconds = _cpu_seconds(arguments, folder, **variables)
                    if run:
                        least[label, state] = min(seconds, least.get((label, state), seconds))
        print(f"{'CPU seconds (and times DuckDB)':36}{'cold':>16}{'warm':>16}{'no bytecode':>16}")
        peer = next(iter(_COMMANDS))
        for label in _COMMANDS:
            shown = ((cold[label], cold[peer]), *((least[label, state], least[peer, state]) for state in states))
            print(f"{label:36}" + "".join(f"{f'{own:.2f} ({own / other:.1f} x)':>16}" for own, other in shown))


if __name__ == "__main__":
    main()
