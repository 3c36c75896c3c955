"""Forked workers report what one process would: outcomes, output, crashes, an early end."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]

SHARED = """
import os
import pytest

@pytest.fixture(scope="session")
def process():
    yield os.getpid()

@pytest.fixture(scope="module")
def module(tmp_path_factory):
    folder = tmp_path_factory.mktemp("module")
    yield folder
    (folder.parents[1] / "ended").open("a").write("x")
"""
PASSING = """
import os
import pytest

@pytest.mark.parametrize("number", range(5))
def test_passes(number, process, module, capfd, tmp_path):
    print(number)
    os.system("echo from a command")
    assert capfd.readouterr().out.splitlines() == [str(number), "from a command"]
    assert process == os.getpid()
    assert module.exists() and tmp_path.exists()
"""
FAILING = """
import os
import pytest

def test_fails():
    print("what it printed")
    one = 1
    assert one == 2

@pytest.mark.skip(reason="a reason")
def test_is_skipped(): ...

def test_raises_in_a_fixture(missing): ...
"""
ENDING = """
import os

def test_before(): ...
def test_ends_its_process(): os._exit(3)
def test_after(): ...
"""


def run(folder: Path, *options: str, **files: str) -> tuple[int, str]:
    """Run pytest on the files with two forks; return its exit code and output."""
    (folder / "tests").mkdir()
    for name, content in {"conftest": SHARED, **files}.items():
        (folder / "tests" / f"{name}.py").write_text(content)
    command = [sys.executable, "-m", "pytest", "-p", "tests.forked_workers", "--forks", "2", "-c", "/dev/null", "-rs"]
    folders = [f"--rootdir={folder}", f"--basetemp={folder / 'temporary'}", str(folder / "tests")]
    ended = subprocess.run([*command, *folders, *options], cwd=ROOT, capture_output=True, text=True)
    return ended.returncode, ended.stdout + ended.stderr


def test_outcomes_are_those_of_one_process(tmp_path: Path) -> None:
    status, output = run(tmp_path, test_a=PASSING, test_b=PASSING, test_c=PASSING, test_d=FAILING)
    assert status == 1
    assert re.search("1 failed, 15 passed, 1 skipped, 1 error", output), output
    assert "assert 1 == 2" in output
    assert "what it printed" in output
    assert "a reason" in output
    assert "fixture 'missing' not found" in output
    assert (tmp_path / "temporary/ended").read_text() == "xxx"  # fixtures of modules end, whichever worker has them


def test_a_test_that_ends_its_process_fails_and_the_rest_runs(tmp_path: Path) -> None:
    status, output = run(tmp_path, test_a=ENDING, test_b=PASSING)
    assert status == 1
    assert re.search("1 failed, 7 passed", output), output
    assert "ended with status 3" in output


def test_the_run_ends_at_the_first_failure_if_asked_to(tmp_path: Path) -> None:
    many = "import pytest\n@pytest.mark.parametrize('n', range(1_000))\ndef test_passes(n): ...\n"
    status, output = run(tmp_path, "-x", "-q", test_a=FAILING, test_b=many)
    assert status == 1
    assert "stopping after 1 failures" in output
    assert "1 failed" in output


def test_threads_that_a_fork_would_not_have_are_refused(tmp_path: Path) -> None:
    thread = "import polars\npolars.DataFrame({'a': [1]}).lazy().with_columns(polars.col('a') + 1).collect()\n"
    status, output = run(tmp_path, test_a=thread + PASSING)
    assert status != 0
    assert "modules of tests started threads" in output
