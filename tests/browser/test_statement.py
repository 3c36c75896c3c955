"""The page of ``panstream statement`` on wide and narrow screens, light and dark, and on paper."""

import re
from datetime import UTC, datetime
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from panstream.engine.config.config import load_config
from panstream.engine.reporting.privacy_statement import statement
from tests.browser.conftest import SCREENSHOTS, photograph, resize

CLINIC = Path(__file__).parents[2] / "examples" / "clinic.toml"


@pytest.mark.slow
def test_it_fits_screens_and_paper_and_asks_nobody(browser: Browser, tmp_path: Path) -> None:
    file = tmp_path / "statement.html"
    page_text = statement(
        load_config(CLINIC), source="clinic.toml", digest="0" * 64, now=datetime(2026, 3, 9, tzinfo=UTC)
    )
    file.write_text(page_text, encoding="utf-8")
    asked: list[str] = []
    page = browser.new_page()
    page.on("request", lambda sent: asked.append(sent.url))
    page.goto(file.as_uri())
    for width in (1280, 390):
        resize(page, width)
        papers = set()
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            papers.add(page.evaluate("getComputedStyle(document.body).backgroundColor"))
            photograph(page, f"statement-{scheme}-{width}")
        assert len(papers) == 2
    page.emulate_media(media="print", color_scheme="dark")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    printed = page.pdf(path=SCREENSHOTS / "statement.pdf", prefer_css_page_size=True)
    assert re.search(rb"/Count [12]\b", printed)  # one sheet of paper for five questions
    page.close()
    assert asked == [file.as_uri()]
