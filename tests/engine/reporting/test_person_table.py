"""The table of a person's budget: every question, what was moved or dropped and why; the same in JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from panstream.cli.app import app

CONFIG = """
[stream]
name = "visits"
user = "visitor"

[stream.columns]
visitor = "string"
page = "string"

[stream.budget]
person = 4.0

[[query]]
name = "visitors"
sql = "SELECT COUNT(DISTINCT visitor) FROM visits"
window = "1 day"
expected = 10_000

[[query]]
name = "page views of the whole site together"
sql = "SELECT COUNT(*) FROM visits"
window = ["1 hour", "1 day", "7 days"]
contributions = [4, 8, 12]
expected = [1_200, 30_000, 200_000]

[[query]]
name = "rare"
sql = "SELECT COUNT(*) FROM visits WHERE page = 'rare'"
window = "1 hour"
contributions = 2
expected = 5
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "panstream.toml"
    path.write_text(CONFIG)
    return path


@pytest.mark.parametrize("command", ["check", "explain"])
def test_the_table_names_every_question_and_every_reason(file: Path, command: str) -> None:
    result = CliRunner().invoke(app, [command, str(file)])
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    first = next(index for index, line in enumerate(lines) if "any 30 days, all queries, one intrusion" in line)
    table = lines[first:]
    assert lines[first].endswith("; declared limit 4")
    assert any(line.startswith("visitors ") and " 1 day " in line and "any: counted once" in line for line in table)
    assert any(line.startswith("page views of the whole sit… ") and "8 as declared" in line for line in table)
    text = " ".join(" ".join(table).split())
    assert "not in shorter windows: a 95% error of 300 in windows of 1 hour needs" in text
    assert "rare: dropped: a 95% error of 1.25 in windows of 1 hour needs" in text
    assert all(len(line) <= 100 for line in table[: 12 if command == "check" else 9])


def test_json_has_the_same(file: Path) -> None:
    result = CliRunner().invoke(app, ["explain", "--json", str(file)])
    person = json.loads(result.output)["person"]
    assert 3.96 <= person["epsilon"] <= person["limit"] == 4.0
    visitors, views = person["shares"]
    assert (visitors["window"], visitors["windows"], visitors["bounded_by"]) == (86400.0, 31, "shape")
    assert (views["contributions"], views["bounded_by"], views["rho"]) == (8, "declared", 0.0)
    assert 0 < views["error_95"] < 7_500
    assert [(choice["name"], choice["dropped"]) for choice in person["choices"]] == [
        ("visitors", False),
        ("page views of the whole site together", False),
        ("rare", True),
    ]
