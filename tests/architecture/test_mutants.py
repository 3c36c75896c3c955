"""The mutation tester knows the code as it is: what it would change exists, and so do the changes it leaves out."""

import ast
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "panstream"
TOOL = ROOT / "tools" / "mutants"
LISTED = tomllib.loads((TOOL / "equivalent.toml").read_text())["mutant"]


def constant(name: str) -> tuple[str, ...]:
    """Return a tuple of names that the tool is set to, without importing it."""
    for node in ast.parse((TOOL / "__main__.py").read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
            return tuple(ast.literal_eval(node.value))
    raise LookupError(name)


@pytest.mark.parametrize("name", [*constant("PACKAGES"), *constant("SHARED")])
def test_what_is_changed_exists(name: str) -> None:
    assert (SOURCE / name).exists()


@pytest.mark.parametrize("file", sorted({one["file"] for one in LISTED}))
def test_changes_that_change_nothing_are_of_lines_that_exist(file: str) -> None:
    lines = {line.strip() for line in (SOURCE / file).read_text().splitlines()}
    assert {one["line"] for one in LISTED if one["file"] == file} <= lines


def test_no_change_is_listed_twice() -> None:
    listed = [(one["file"], one["line"], change) for one in LISTED for change in one["changes"]]
    assert len(listed) == len(set(listed))
