"""Without matplotlib the examples say which command installs it."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
SCRIPT = """
import sys
sys.modules["matplotlib"] = None
from pathlib import Path
from shared.band_plot import draw
draw(Path("x.png"), [])
"""


@pytest.mark.slow
def test_a_missing_plotting_library_is_named() -> None:
    result = subprocess.run([sys.executable, "-c", SCRIPT], cwd=EXAMPLES, capture_output=True, text=True, check=False)
    assert result.returncode != 0
    assert "-m pip install 'matplotlib" in result.stderr
