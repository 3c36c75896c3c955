"""Every example runs as a user would run it, on what is bundled."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
NO_RUN = {"picture.py"}  # rewrites a file of the documentation


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(path.name for path in EXAMPLES.glob("*.py") if path.name not in NO_RUN))
def test_example_runs(name: str, tmp_path: Path) -> None:
    environment = {**os.environ, "MPLBACKEND": "Agg"}
    environment.pop("PANSTREAM_DATA", None)
    result = subprocess.run(
        [sys.executable, str(EXAMPLES / name)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-2000:]
    assert len(result.stdout.splitlines()) >= 3


def test_examples_are_short() -> None:
    long = {path.name: n for path in EXAMPLES.glob("*.py") if (n := len(path.read_text().splitlines())) > 80}
    assert not long


def test_bundled_data_is_small_and_says_where_it_comes_from() -> None:
    for path in (EXAMPLES / "data").iterdir():
        assert path.stat().st_size < 1_000_000
    notes = "".join(path.read_text() for path in (EXAMPLES / "data").glob("*.md"))
    missing = [p.name for p in (EXAMPLES / "data").iterdir() if p.name not in notes and p.suffix not in {".md", ".py"}]
    assert not missing
