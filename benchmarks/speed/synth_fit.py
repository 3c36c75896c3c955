"""CPU seconds and peak memory of ``panstream synth fit``: for Adult, and for a million rows like it.

    python -m benchmarks.speed.synth_fit
    PANSTREAM_DATA=<directory with adult_pgm.csv.gz> python -m benchmarks.speed.synth_fit --rows 1000000 --method tree

Without the data, the sample in examples/data is used. Rows are drawn from the table with replacement where more are
asked for. CPU time is that of the process (user and system), so other work on the machine hardly changes it.
"""

from __future__ import annotations

import argparse
import gzip
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


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="*", default=[0], help="numbers of rows; 0 for those of the table")
    parser.add_argument("--method", nargs="*", default=["tree", "pairs"])
    parser.add_argument("--epsilon", type=float, default=1.0)
    asked = parser.parse_args()
    (header, *lines), domain = _table()
    print(f"{'rows':>10}  {'method':8}{'CPU s':>8}{'MB':>8}   expected before it starts (elapsed)")
    for count in asked.rows:
        chosen = random.Random(1).choices(lines, k=count) if count else lines
        with tempfile.TemporaryDirectory() as name:
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
