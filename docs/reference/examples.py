"""Write docs/examples.md: what every file of examples/ is about and what it printed.

Noise is fresh, so numbers differ from run to run.
"""

import ast
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
TARGET = ROOT / "docs" / "examples.md"
LEFT_OUT = {"picture.py"}  # draws the picture of the README
INTRODUCTION = """\
# Examples

Each is one short file in `examples/`, runs on bundled data (`python examples/NAME`), and is run by the tests.
`examples/notebooks/` has three Jupyter notebooks: a first answer (`first_answer.ipynb`), estimators compared
(`compare_estimators.ipynb`), and a synthetic table (`synthetic_table.ipynb`).

Below is what each example printed when this page was written by `python docs/reference/examples.py`; the noise is fresh
every time, so your numbers will differ.
"""


def section(path: Path) -> str:
    """Return what an example says of itself, and what it prints."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "MPLBACKEND": "Agg", "COLUMNS": "110", "TERM": "dumb"}
        run = subprocess.run(
            [sys.executable, str(path)], cwd=folder, env=environment, capture_output=True, text=True, check=True
        )
    printed = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", run.stdout).replace(str(ROOT) + os.sep, "")
    printed = re.sub(r"/tmp/\w+/", "", printed)
    told = ast.get_docstring(ast.parse(path.read_text())) or ""
    return f"## {path.name}\n\n{told}\n\n```text\n{printed.strip(chr(10))}\n```\n"


if __name__ == "__main__":
    paths = sorted(path for path in (ROOT / "examples").glob("*.py") if path.name not in LEFT_OUT)
    TARGET.write_text("\n".join([INTRODUCTION, *map(section, paths)]))
    sys.stdout.write(f"{TARGET.name} written\n")
