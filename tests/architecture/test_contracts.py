"""The import contracts hold, and a planted violation is caught."""

import ast
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "panstream"

RANDOM_CALLS = {"urandom", "getrandom", "default_rng", "RandomState", "SystemRandom", "token_bytes"}
MAY_DRAW = ("primitives/noise/", "papers/")


def lint(directory: Path) -> subprocess.CompletedProcess[str]:
    """Run import-linter on a copy of the package under its own name."""
    script = "import sys; sys.path.insert(0, 'src'); from importlinter.cli import lint_imports_command as run; run()"
    return subprocess.run(
        [sys.executable, "-c", script, "--no-cache"], cwd=directory, capture_output=True, text=True, check=False
    )


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    shutil.copytree(SOURCE, tmp_path / "src" / "panstream", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / ".importlinter", tmp_path)
    return tmp_path


@pytest.mark.slow
def test_contracts_hold(copied: Path) -> None:
    result = lint(copied)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("privacy/claim.py", "import panstream.algorithms.density.optbern"),  # upwards
        ("algorithms/density/optbern.py", "import panstream.algorithms.continual"),  # to a sibling
        ("algorithms/density/optbern.py", "import random"),  # a random source outside primitives.noise
        ("core/estimate.py", "import time"),  # a clock in the core
        ("primitives/codec.py", "import logging"),
        ("models/networks/domain.py", "import panstream.primitives.mutual_tls"),
        ("audit/product/fork_server.py", "import tests.fault_injection.leaks"),  # which is not in the wheel
    ],
)
def test_a_planted_violation_is_caught(copied: Path, module: str, line: str) -> None:
    path = copied / "src" / "panstream" / module
    path.write_text(path.read_text() + f"\n{line}\n")
    result = lint(copied)
    assert result.returncode != 0
    assert "BROKEN" in result.stdout


def random_draws(tree: ast.AST) -> list[int]:
    """Return the lines that touch numpy.random or the system's entropy: import-linter cannot see inside packages."""
    lines = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in RANDOM_CALLS | {"random"}:
            lines.append(node.lineno)
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("numpy.random"):
            lines.append(node.lineno)
    return lines


@pytest.mark.slow
def test_only_randomness_draws() -> None:
    guilty = [
        f"{path.relative_to(SOURCE)}:{line}"
        for path in SOURCE.rglob("*.py")
        if not path.relative_to(SOURCE).as_posix().startswith(MAY_DRAW)
        for line in random_draws(ast.parse(path.read_text()))
    ]
    assert not guilty


@pytest.mark.slow
def test_no_clock_is_read_in_the_core() -> None:
    """``datetime`` may be recognised as a type of input, but nobody asks it for the time."""
    outside = {"audit", "cli", "distributed", "engine", "server", "testing"}
    transports = {"primitives/certificates.py", "models/federated/flower.py"}  # validity of certificates; replies
    transports |= {"client/client.py"}  # batches by the clock
    core = [
        p
        for p in SOURCE.rglob("*.py")
        if p.relative_to(SOURCE).parts[0] not in outside and p.relative_to(SOURCE).as_posix() not in transports
    ]
    guilty = [
        f"{path.relative_to(SOURCE)}:{node.lineno}"
        for path in core
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and node.attr in {"now", "utcnow", "today", "perf_counter", "monotonic"}
    ]
    assert not guilty


def test_the_draw_finder_finds() -> None:
    for planted in (
        "import numpy as np\nnp.random.rand()",
        "import os\nos.urandom(3)",
        "from numpy.random import rand",
    ):
        assert random_draws(ast.parse(planted))


def test_no_module_is_too_long_for_one_sitting() -> None:
    long = {str(p.relative_to(SOURCE)): n for p in SOURCE.rglob("*.py") if (n := len(p.read_text().splitlines())) > 400}
    assert not long
