"""CPU seconds and peak memory of ``panstream synth fit``: for Adult, and for a million rows like it.

    python -m benchmarks.speed.synth_fit
    PANSTREAM_DATA=<directory with adult_pgm.csv.gz> python -m benchmarks.speed.synth_fit --rows 1000000 --method tree
    python -m benchmarks.speed.synth_fit --rows 100000 1000000 --columns 15 --method adaptive

With --columns, the table has that many columns of 2 to 9 categories, cuts of three hidden normal factors.

Without the data, the sample in examples/data is used. Rows are drawn from the table with replacement where more are
asked for. CPU time is that of the process (user and system), so other work on the machine hardly changes it.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import random
import re
import subprocess
import sys
import tempfile
from pathlib import Path

_EXAMPLES = Path(__file__).parents[2] / "examples" / "data"


def _table() -> tuple[list[str], Path]:
    """Return the lines of the table, and its domain file."""
    folder = os.environ.get("PANSTREAM_DATA")
    data = Path(folder or "") / "adult_pgm.csv.gz"
    if folder is None or not data.exists():
        data = _EXAMPLES / "adult.csv.gz"
        domain = _EXAMPLES / "adult-domain.toml"
    else:
        domain = Path(folder) / "adult_pgm-domain.json"
    return gzip.decompress(data.read_bytes()).decode().splitlines(keepends=True), domain


def _simulated(columns: int, rows: int, folder: Path) -> tuple[list[str], Path]:
    """Return the lines of a table of dependent columns, and its domain file."""
    import numpy as np

    draws = np.random.default_rng(1)
    hidden = draws.normal(size=(rows, 3))
    sizes = [(2, 4, 6, 9, 3)[column % 5] for column in range(columns)]
    values = []
    for size in sizes:
        value = hidden @ (draws.normal(0, 0.7, 3) * (draws.random(3) < 0.6)) + draws.normal(0, 0.7, rows)
        values.append(np.digitize(value, np.linspace(-1.2, 1.2, size - 1)))
    names = [f"x{column}" for column in range(columns)]
    domain = folder / "domain.json"
    domain.write_text(json.dumps(dict(zip(names, sizes, strict=True))))
    lines = [",".join(map(str, row)) + "\n" for row in np.stack(values, axis=1).tolist()]
    return [",".join(names) + "\n", *lines], domain


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="*", default=[0], help="numbers of rows; 0 for those of the table")
    parser.add_argument("--method", nargs="*", default=["tree", "adaptive", "pairs"])
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--columns", type=int, help="of a simulated table")
    asked = parser.parse_args()
    if asked.columns is None:
        (header, *lines), domain = _table()
    print(f"{'rows':>10}  {'method':8}{'CPU s':>8}{'MB':>8}   expected before it starts (elapsed)")
    for count in asked.rows:
        with tempfile.TemporaryDirectory() as name:
            if asked.columns is not None:
                (header, *chosen), domain = _simulated(asked.columns, count or 100_000, Path(name))
            else:
                chosen = random.Random(1).choices(lines, k=count) if count else lines
            table = Path(name) / "table.csv"
            table.write_text(header + "".join(chosen))
            for method in asked.method:
                fit = ["synth", "fit", str(table), "--domain", str(domain), "--epsilon", str(asked.epsilon)]
                fit += ["--method", method, "--no-ledger", "--out", str(Path(name) / "model.json")]
                process = subprocess.Popen(
                    [sys.executable, "-m", "panstream.cli", *fit], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
                )
                assert process.stderr is not None
                said = process.stderr.read().decode()
                _, status, usage = os.wait4(process.pid, 0)
                if status:
                    sys.exit(said)
                expected = re.search(r"categories: (.*)", said)
                print(
                    f"{len(chosen):10,}  {method:8}{usage.ru_utime + usage.ru_stime:8.1f}{usage.ru_maxrss / 1024:8.0f}"
                    f"   {'-' if expected is None else expected.group(1)}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
