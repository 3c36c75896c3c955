"""Processes of our own start without what they do not use."""

import subprocess
import sys
from typing import NoReturn

import pytest

from panstream.cli.main import main

CODE = """
import sys
import gc
from panstream.primitives.fast_import import import_without_gc
import_without_gc("panstream.engine.runtime.ingest", "panstream.no_such_module")
print("panstream.engine.runtime.ingest" in sys.modules, gc.isenabled(), gc.get_freeze_count() > 100_000)
from panstream.primitives.noise import Coin, NoiseSource
with NoiseSource() as step:
    step.bernoulli(Coin.at_most(0.5), 100)
print("numba.np.arraymath" in sys.modules, "scipy" in sys.modules)
import scipy.linalg
import_without_gc()
print(scipy.linalg.det([[2.0]]), "scipy" in sys.modules)
"""


@pytest.mark.slow
def test_kernels_run_without_scipy_which_can_be_imported_afterwards() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True"] * 4 + ["False", "2.0", "True"]


@pytest.mark.slow
def test_a_kernel_needs_no_linear_algebra_and_other_numba_code_has_it() -> None:
    code = (
        "import sys, numpy as np; from panstream.primitives.kernels.simd_byte_search import count_byte; "
        "count_byte(np.zeros(64, np.uint8), 0, 64); print('scipy.linalg' in sys.modules); "
        "import numba; print(numba.njit(lambda a: np.dot(a, a))(np.eye(2)).sum())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "2.0"]


@pytest.mark.slow
def test_a_process_that_used_duckdb_ends_without_a_report_of_leaks() -> None:
    code = (
        "from panstream.primitives.fast_import import import_without_gc; import_without_gc('panstream.cli.app'); "
        "import duckdb; duckdb.connect().close()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == ""


@pytest.mark.parametrize(("command", "quickly"), [("run", True), ("holder", True), ("audit", False)])
def test_commands_with_an_engine_load_it_at_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str, quickly: bool
) -> None:
    def loaded(*modules: str) -> NoReturn:
        raise SystemExit("loaded")

    monkeypatch.setattr(sys.modules[main.__module__], "import_without_gc", loaded)
    monkeypatch.setattr("sys.argv", ["panstream", command, "--no-such-option", "--no-hardening"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert (ended.value.code == "loaded") == quickly
