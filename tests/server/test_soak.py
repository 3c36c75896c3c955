"""The short form of ``make soak``: a minute of mixed load with a kill -9 every eight seconds."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

SOAK = Path(__file__).parents[2] / "benchmarks" / "soak.py"


@pytest.mark.slow
def test_a_minute_of_kills() -> None:
    done = subprocess.run(
        [sys.executable, str(SOAK), "--minutes", "1", "--life", "8", "--steady", "12"],
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    kills = re.search(r"^kill -9 +(\d+)$", done.stdout, re.MULTILINE)
    assert kills is not None
    assert int(kills.group(1)) >= 2
    assert re.search(r"^lost or doubled, other problems 0$", done.stdout, re.MULTILINE)
