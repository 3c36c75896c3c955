"""The cohorts of a question that asks RETENTION, on a server whose store has eight weeks of answers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Open, photograph, resize
from tests.browser.serving import Serving, serving
from tests.cli.running import run

pytestmark = pytest.mark.slow
CLIPPED_LABELS = """picture => [...picture.querySelectorAll("text")].filter((text) => {
  const [box, frame] = [text.getBoundingClientRect(), picture.getBoundingClientRect()];
  return box.left < frame.left - 1 || box.right > frame.right + 1;
}).map((text) => text.textContent)"""
CONFIG = """
[stream]
name = "web"
user = "visitor"
time = "at"

[stream.columns]
visitor = "int"
at = "timestamp"

[[query]]
name = "returning visitors"
sql = "SELECT RETENTION(visitor, 3) FROM web"
window = "7 days"
epsilon = 3.0
expected = 3000
horizon = 60

[store]
directory = "state"
"""
WEB = """
[web]
site = "example.org"
source = "log"
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
    page = visit(weekly, "/#/question/returning%20visitors")
    table = page.get_by_role("region", name="Cohorts", exact=True)
    expect(table.get_by_role("row")).to_have_count(10)  # the head, the shares, and eight windows
    expect(table.get_by_role("rowheader").nth(1)).to_have_text("5 Mar 2026 to 11 Mar 2026")
    row = table.get_by_role("row").nth(2)
    expect(row.locator("td.certain")).to_have_count(2)  # its users, and those who came after one window
    expect(row.locator("td.uncertain")).to_have_count(2)
    expect(table.locator("td.share-4, td.share-5").first).to_be_visible()


def test_the_curve_and_the_weeks(weekly: Serving, visit: Open) -> None:
    """Pictures at every width and in both themes, with their numbers in words and in the table."""
    page = visit(weekly, "/#/question/returning%20visitors")
    curve = page.get_by_role("img", name="Share of users who return")
    number = r"[\d.]+%"
    label = rf"1 later {number}, 95%: {number} to {number}; 2 later .*; 3 later "
    expect(curve).to_have_attribute("aria-label", re.compile(label))
    expect(curve.locator("circle.point")).not_to_have_count(0)
    expect(curve.locator("path.whisker")).to_have_count(3)
    expect(curve.locator("path.band")).to_have_count(1)
    weeks = page.get_by_role("img", name="New and returning users of 8 windows; in the last one")
    expect(weeks.locator("rect.again")).to_have_count(7)  # nothing is known of the week before the first
    expect(weeks.locator("rect.all")).to_have_count(1)
    tops = [float(bar.get_attribute("y") or "nan") for bar in weeks.locator("rect.fresh").all()]
    bottoms = [float(bar.get_attribute("y") or "nan") for bar in weeks.locator("rect.again").all()]
    assert all(top < bottom for top, bottom in zip(tops, bottoms, strict=True))
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        for width in (1280, 390):
            resize(page, width)
            photograph(page, f"cohorts-{width}-{scheme}")
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
            for picture in (curve, weeks):
                assert picture.locator("svg").evaluate("svg => svg.clientWidth <= svg.parentElement.clientWidth")
                assert picture.evaluate(CLIPPED_LABELS) == []


@pytest.fixture
def site(config: Path) -> Iterator[Serving]:
    """The same store behind a page about a site."""
    with serving(config.parent, config=config.read_text() + WEB) as server:
        yield server


def test_a_card_on_the_page_of_a_site(site: Serving, visit: Open) -> None:
    page = visit(site, "/#/site")
    card = page.locator(".site .tile").filter(has=page.get_by_role("link", name="Visitors who come again"))
    expect(card.locator(".figure")).to_have_text(re.compile(r"^[\d.]+%$"))
    expect(card.locator(".range")).to_have_text(re.compile(r"^95%: [\d.]+% to [\d.]+%$"))
    expect(card.locator("path.whisker")).to_have_count(3)
    weeks = page.locator(".site .tile").filter(has=page.get_by_role("link", name="Visitors in a week"))
    expect(weeks.locator(".figure")).to_have_text(re.compile(r"^\d,\d+$"))
    expect(page.locator(".site")).not_to_contain_text("Not asked: Visitors in a week")
    for width in (1280, 390):
        resize(page, width)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert card.locator(".plot").evaluate(CLIPPED_LABELS) == []
        photograph(page, f"site-returning-{width}")
    page.emulate_media(color_scheme="dark")
    photograph(page, "site-returning-390-dark")
    card.get_by_role("link").click()
    expect(page.get_by_role("img", name="Share of users who return")).to_be_visible()
