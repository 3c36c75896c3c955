"""The configuration in the how-to about a person's budget is valid, and its plan is the one that is printed there."""

from __future__ import annotations

import re
from pathlib import Path

from typer.testing import CliRunner

from panstream.cli.app import app

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "person-budget.md"


def block(kind: str, begin: str) -> str:
    found = re.search(rf"^```{kind}\n({re.escape(begin)}.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    assert found is not None
    return found[1]


def test_the_printed_plan_is_that_of_the_printed_configuration(tmp_path: Path) -> None:
    file = tmp_path / "visits.toml"
    file.write_text(block("toml", "# visits.toml"))
    checked = CliRunner().invoke(app, ["check", str(file)])
    assert checked.exit_code == 0, checked.output
    printed = [line.rstrip() for line in checked.output.splitlines()][1:]
    assert block("text", "one user, any 30 days").splitlines() == printed


def test_its_commands_find_a_smallest_budget(tmp_path: Path) -> None:
    file = tmp_path / "visits.toml"
    file.write_text(block("toml", "# visits.toml"))
    for options in (["--error", "views=100"], ["--longest"]):
        planned = CliRunner().invoke(app, ["plan", "person", str(file), *options])
        assert planned.exit_code == 0, planned.output
        assert "smallest budget: [stream.budget] person = " in planned.output
