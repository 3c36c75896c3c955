"""The notebooks run from top to bottom, in the folder that they lie in, on what is bundled."""

import base64
import json
import re
import shutil
from pathlib import Path

import pytest

from tests.examples.notebooks import execute, shown_text

EXAMPLES = Path(__file__).parents[2] / "examples"
NOTEBOOKS = sorted((EXAMPLES / "notebooks").glob("*.ipynb"))


def test_there_are_three() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["compare_estimators", "first_answer", "synthetic_table"]


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_runs(path: Path, tmp_path: Path) -> None:
    (tmp_path / "data").symlink_to(EXAMPLES / "data")
    (tmp_path / "notebooks").mkdir()
    shutil.copy(path, tmp_path / "notebooks")
    outputs = execute(tmp_path / "notebooks" / path.name, tmp_path / "notebooks")
    shown = [shown_text(cell) for cell in outputs]
    if path.stem == "first_answer":
        estimate = float(re.findall(r"([\d,]+)\s", shown[0])[0].replace(",", ""))
        assert abs(estimate - 21_587) < 6 * 400  # patients in the bundled file; the standard error is about 330


@pytest.mark.slow
def test_a_plot_shows_itself_without_inline(tmp_path: Path) -> None:
    """An answer shows a table and its plot a picture, in a kernel where nobody has chosen a backend."""
    ask = (
        "import panstream, pyarrow as pa\n"
        "rows = pa.table({'n': list(range(100)) * 20})\n"
        "answer = panstream.query(rows, 'SELECT AVG(n) FROM rows', epsilon=1, lower=0, upper=100)\n"
        "answer"
    )
    table, plot = execute([ask, "answer.plot()"], tmp_path)
    assert any("<table>" in output.get("data", {}).get("text/html", "") for output in table)
    pictures = [output["data"]["image/png"] for output in plot if "image/png" in output.get("data", {})]
    assert len(pictures) == 1 and base64.b64decode(pictures[0]).startswith(b"\x89PNG")


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
