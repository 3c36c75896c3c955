"""A test whose program is missing is skipped, and the last lines say so; where nothing may be left out, the run
fails.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NEEDY = "tests/packaging/test_packaging.py::test_unit_is_understood_and_tight"


@pytest.mark.slow
@pytest.mark.parametrize(("forbidden", "status", "word"), [("", 0, "NOT RUN"), ("1", 1, "FAILED")])
def test_what_was_skipped_is_said_last(tmp_path: Path, forbidden: str, status: int, word: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", NEEDY],
        cwd=ROOT,
        env={**os.environ, "PATH": str(tmp_path), "PANSTREAM_NO_SKIPS": forbidden},
        capture_output=True,
        text=True,
    )
    assert done.returncode == status, done.stdout
    assert done.stdout.splitlines()[-2:] == [
        f"{word}: 1 tests were skipped",
        "     1 systemd-analyze is not installed (Debian: systemd)",
    ]


def test_a_landing_leaves_nothing_out() -> None:
    assert "export PANSTREAM_NO_SKIPS=1" in (ROOT / ".ci" / "run").read_text()


@pytest.mark.slow
def test_a_test_file_that_cannot_be_imported_is_an_error(tmp_path: Path) -> None:
    """Not one skipped doctest, as pytest has it with ``--doctest-ignore-import-errors``."""
    (tmp_path / "test_broken.py").write_text("import nothing_of_that_name\n")
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "-c",
            str(ROOT / "pyproject.toml"),
            "test_broken.py",
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode not in (0, 5), done.stdout
