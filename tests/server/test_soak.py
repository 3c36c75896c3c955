"""The short form of ``make soak``: mixed load and three kill -9, a few seconds apart."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOAK = "benchmarks.soak.soak"


@pytest.mark.slow
def test_a_few_kills() -> None:
    done = subprocess.run(
        [sys.executable, "-m", SOAK, "--minutes", "0.3", "--kills", "3", "--life", "5", "--steady", "6"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    kills = re.search(r"^kill -9 +(\d+)$", done.stdout, re.MULTILINE)
    assert kills is not None
    assert int(kills.group(1)) >= 3
    assert re.search(r"^lost or doubled, other problems 0$", done.stdout, re.MULTILINE)
