"""The notebooks run from top to bottom, in the folder that they lie in, on what is bundled."""

import json
import re
import shutil
from pathlib import Path

import pytest

from tests.examples.notebooks import execute

EXAMPLES = Path(__file__).parents[2] / "examples"
NOTEBOOKS = sorted((EXAMPLES / "notebooks").glob("*.ipynb"))


def test_there_are_three() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["compare_estimators", "first_answer", "synthetic_table"]


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "data").symlink_to(EXAMPLES / "data")
    (tmp_path / "notebooks").mkdir()
    shutil.copy(path, tmp_path / "notebooks")
    monkeypatch.chdir(tmp_path / "notebooks")
    monkeypatch.setenv("MPLBACKEND", "Agg")
    shown = execute(Path(path.name))
    if path.stem == "first_answer":
        estimate = float(re.findall(r"([\d,]+)\s", shown[0])[0].replace(",", ""))
        assert abs(estimate - 21_587) < 6 * 400  # patients in the bundled file; the standard error is about 330


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_is_well_formed(path: Path) -> None:
    """What the format asks for, and no path of whoever ran it."""
    notebook = json.loads(path.read_text("utf-8"))
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    assert len({cell["id"] for cell in notebook["cells"]}) == len(notebook["cells"])
    for cell in notebook["cells"]:
        wanted = {"cell_type", "id", "metadata", "source"}
        assert set(cell) == (wanted if cell["cell_type"] == "markdown" else {*wanted, "execution_count", "outputs"})
    assert "/home/" not in path.read_text("utf-8")
