"""Runs a notebook in a real Jupyter kernel."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest


def execute(cells: Path | list[str], folder: Path) -> list[list[dict[str, Any]]]:
    """Return the outputs of every code cell of a notebook, or of these sources, run in ``folder``."""
    nbclient = pytest.importorskip("nbclient")
    nbformat = pytest.importorskip("nbformat")
    if isinstance(cells, Path):
        notebook = nbformat.read(cells, as_version=4)
    else:
        notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in cells])
    client = nbclient.NotebookClient(
        notebook, timeout=600, kernel_name="python3", resources={"metadata": {"path": str(folder)}}
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the client's own libraries
        client.execute()
    return [cell["outputs"] for cell in notebook["cells"] if cell["cell_type"] == "code"]


def shown_text(outputs: list[dict[str, Any]]) -> str:
    """Return what a cell shows as text: what it prints, and the value of its last expression."""
    return "".join(output.get("text", "") + output.get("data", {}).get("text/plain", "") for output in outputs)
