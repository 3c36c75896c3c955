"""Processes of our own start without what they do not use."""

import subprocess
import sys
from typing import NoReturn

import pytest

from panstream.cli.main import main

CODE = """
import sys
from panstream._kernels import leave_out_scipy
leave_out_scipy()
from panstream.randomness import Coin, Source
with Source() as step:
    step.bernoulli(Coin.at_most(0.5), 100)
print("numba.np.arraymath" in sys.modules, "scipy" in sys.modules)
import scipy.linalg
leave_out_scipy()
print(scipy.linalg.det([[2.0]]), "scipy" in sys.modules)
"""


def test_kernels_run_without_scipy_which_can_be_imported_afterwards() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "False", "2.0", "True"]


@pytest.mark.parametrize(("command", "left_out"), [("run", True), ("audit", False)])
def test_commands_with_an_engine_leave_it_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str, left_out: bool
) -> None:
    def leave_out() -> NoReturn:
        raise SystemExit("left out")

    monkeypatch.setattr(sys.modules[main.__module__], "leave_out_scipy", leave_out)
    monkeypatch.setattr("sys.argv", ["panstream", command, "--no-such-option", "--no-hardening"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert (ended.value.code == "left out") == left_out
