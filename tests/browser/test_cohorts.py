"""The cohorts of a question that asks RETENTION, on a server whose store has eight weeks of answers."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Open, photograph, resize
from tests.browser.serving import Serving, serving
from tests.cli.running import run

pytestmark = pytest.mark.slow
CONFIG = """
[stream]
name = "web"
user = "visitor"
time = "at"

[stream.columns]
visitor = "int"
at = "timestamp"

[[query]]
name = "returning"
sql = "SELECT RETENTION(visitor, 3) FROM web"
window = "7 days"
epsilon = 3.0
expected = 3000
horizon = 60

[store]
directory = "state"
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "config.toml"
    path.write_text(CONFIG)
    first = datetime(2026, 3, 5, 2)
    lines = [
        f"{visitor},{first + timedelta(days=7 * week)}"
        for week in range(8)
        for visitor in range(1800 * week, 1800 * week + 3000)
    ]
    rows = tmp_path / "rows.csv"
    rows.write_text("\n".join(["visitor,at", *lines]) + "\n")
    run("run", path, rows, "--no-hardening")
    return path


@pytest.fixture
def weekly(config: Path) -> Iterator[Serving]:
    with serving(config.parent, config=config.read_text()) as server:
        yield server


def test_the_table_of_cohorts(weekly: Serving, visit: Open) -> None:
    page = visit(weekly, "/#/question/returning")
    table = page.get_by_role("region", name="Cohorts", exact=True)
    expect(table.get_by_role("row")).to_have_count(10)  # the head, the shares, and eight windows
    expect(table.get_by_role("rowheader").nth(1)).to_have_text("5 Mar 2026 to 11 Mar 2026")
    row = table.get_by_role("row").nth(2)
    expect(row.locator("td.certain")).to_have_count(2)  # its users, and those who came after one window
    expect(row.locator("td.uncertain")).to_have_count(2)
    expect(table.locator("td.share-4, td.share-5").first).to_be_visible()
    photograph(page, "cohorts-1280")
    resize(page, 390)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    photograph(page, "cohorts-390")
    page.emulate_media(color_scheme="dark")
    photograph(page, "cohorts-390-dark")
