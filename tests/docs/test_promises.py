"""The table of all capabilities of the papers: what it names exists, and what is missing is said."""

import ast
import importlib
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from panstream.cli.app import app

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "explanation" / "what-the-papers-promise.md"
_MAX_PARTLY = 2


def _rows() -> list[list[str]]:
    table = PAGE.read_text("utf-8").partition("## Every capability, row by row")[2]
    lines = [line for line in table.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


ROWS = _rows()


def _resolve(path: str) -> Any:
    """Return what a dotted path names: the longest module in it, then attributes."""
    parts = path.split(".")
    for length in range(len(parts), 0, -1):
        try:
            found: Any = importlib.import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        for name in parts[length:]:
            found = getattr(found, name)
        return found
    raise AssertionError(f"{path} does not exist")


@cache
def _tests_of(file: str) -> frozenset[str]:
    tree = ast.parse((ROOT / file).read_text("utf-8"))
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef))


def test_the_table_has_all_rows_and_says_what_is_missing() -> None:
    assert len(ROWS) == 54
    verdicts = [row[3] for row in ROWS]
    assert all(re.match(r"(as stated|corrected|partly:)", verdict) for verdict in verdicts)
    assert sum(verdict.startswith("partly") for verdict in verdicts) <= _MAX_PARTLY


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[0]}: {row[1]}"[:60])
def test_names_commands_and_tests_exist(row: list[str]) -> None:
    assert len(row) == 5
    names = re.findall(r"`([^`]+)`", row[2])
    assert names
    for name in names:
        if " " not in name:
            _resolve(name)
            continue
        command: Any = _command(app)
        for word in name.split()[1:]:
            command = command.commands[word]
    (test,) = re.findall(r"`([^`]+)`", row[4])
    file, _, function = test.partition("::")
    assert function in _tests_of(file), test


def _command(typer_app: Any) -> Any:
    import typer.main

    return typer.main.get_command(typer_app)
