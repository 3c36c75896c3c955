"""The docs site as built: links lead somewhere, nothing is loaded from another host, and it fits on a phone."""

import re
import runpy
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from tests.browser.conftest import TIMEOUT, photograph
from tests.chromium import launched

ROOT = Path(__file__).parents[2]
NARROW = {"width": 390, "height": 844}
WIDE = {"width": 1280, "height": 900}


class Links(HTMLParser):
    """What a page leads to or loads, and the places within it."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.targets: list[tuple[str, str]] = []
        self.places: set[str] = set()
        self.feed(page.read_text("utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("href", "src", "data", "poster", "action") and value:
                self.targets.append((tag, value))
            elif name == "id" and value:
                self.places.add(value)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build it. Strict: a page outside the menu, or a link of Markdown that leads nowhere, fails."""
    place = tmp_path_factory.mktemp("site").resolve()
    call = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(place)]
    environment = {"NO_MKDOCS_2_WARNING": "1", "PATH": str(Path(sys.executable).parent)}
    run = subprocess.run(call, cwd=ROOT, capture_output=True, text=True, env=environment, check=False)
    assert run.returncode == 0, run.stderr[-3000:]
    return place


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        found = launched(playwright)
        yield found
        found.close()


# Code in tables that is in two lines although it is short, or at a place without a space.
BROKEN_CODE = """() => [...document.querySelectorAll("table code")].filter((code) =>
    code.getClientRects().length > 1 && (code.textContent.length <= 28 || !/[ -]/.test(code.textContent)))
    .map((code) => code.textContent)"""


def watched(browser: Browser, problems: list[str], **settings: object) -> Page:
    """Open a page that notes errors, and requests for anything but files."""
    page = browser.new_page(**settings)  # type: ignore[arg-type]
    page.set_default_timeout(TIMEOUT)
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda said: problems.append(said.text) if said.type == "error" else None)
    page.on("request", lambda sent: None if sent.url.startswith(("file:", "data:")) else problems.append(sent.url))
    return page


@pytest.mark.slow
def test_every_page_is_there_and_every_link_leads_somewhere(site: Path) -> None:
    pages = {page: Links(page) for page in site.rglob("*.html")}
    written = {page.relative_to(ROOT / "docs").with_suffix("").as_posix() for page in (ROOT / "docs").rglob("*.md")}
    assert {page.relative_to(site).with_suffix("").as_posix() for page in pages} == {*written, "security"}
    broken = []
    for page, links in pages.items():
        for tag, target in links.targets:
            to = urlsplit(target)
            if to.scheme or to.netloc:
                if tag != "a":  # a reader may follow a link to another host; a page may not load from one
                    broken.append((page.name, target))
                continue
            found = (page.parent / unquote(to.path)).resolve() if to.path else page
            found = found / "index.html" if found.is_dir() else found
            if not found.exists() or (to.fragment and found in pages and to.fragment not in pages[found].places):
                broken.append((page.name, target))
    assert not broken


@pytest.mark.slow
def test_no_page_scrolls_sideways_on_a_phone(site: Path, browser: Browser) -> None:
    problems: list[str] = []
    page = watched(browser, problems, viewport=NARROW, java_script_enabled=False)
    wide = []
    broken = list[str]()
    for each in sorted(site.rglob("*.html")):
        page.goto(each.as_uri())  # until styles and pictures are there: without them widths are others
        if page.evaluate("document.documentElement.scrollWidth") > NARROW["width"]:
            wide.append(each.relative_to(site).as_posix())
        broken += [f"{each.stem}: {code}" for code in page.evaluate(BROKEN_CODE)]
    page.close()
    assert not wide
    assert not broken
    assert not problems


@pytest.mark.slow
def test_search_works_from_a_file(site: Path, browser: Browser) -> None:
    problems: list[str] = []
    page = watched(browser, problems, viewport=WIDE)
    page.goto((site / "index.html").as_uri())
    field = page.locator("input[name=query]")
    field.click()
    page.get_by_text("Type to start searching").wait_for()  # the index is read
    field.press_sequentially("backups")
    page.locator(".md-search-result__item", has_text="Keys, backups").first.wait_for()
    page.close()
    assert not problems


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_fit_their_windows(site: Path, browser: Browser, scheme: str) -> None:
    """Pages with scripts on are no wider than their windows either."""
    problems: list[str] = []
    for viewport in (NARROW, WIDE):
        page = watched(browser, problems, viewport=viewport, color_scheme=scheme)
        for name in ("index", "tutorial/daily-visitors", "reference/api"):
            page.goto((site / f"{name}.html").as_uri())
            assert page.evaluate("document.documentElement.scrollWidth") <= viewport["width"]
            photograph(page, f"docs-{name.rpartition('/')[2]}-{viewport['width']}-{scheme}")
        page.close()
    assert not problems


def test_calculator_is_up_to_date() -> None:
    """Run ``python docs/reference/calculator.py`` after changing a formula."""
    names = runpy.run_path(str(ROOT / "docs" / "reference" / "calculator.py"))
    assert (ROOT / "docs" / "reference" / "calculator.md").read_text() == names["page"]()


def test_every_example_is_shown() -> None:
    """Run ``python docs/reference/examples.py`` after adding one."""
    shown = set(re.findall(r"^## (\w+\.py)$", (ROOT / "docs" / "examples.md").read_text(), re.MULTILINE))
    assert shown == {path.name for path in (ROOT / "examples").glob("*.py")} - {"picture.py"}


@pytest.mark.slow
def test_wide_tables_show_that_they_scroll(site: Path, browser: Browser) -> None:
    """A shadow at the edge behind which there is more, drawn by the style sheet alone; and formulas have their font."""
    problems: list[str] = []
    page = watched(browser, problems, viewport=NARROW)
    page.goto((site / "howto" / "web-analytics.html").as_uri())
    page.locator(".md-typeset__scrollwrap").first.wait_for()
    scrolled = page.locator(".md-typeset__scrollwrap").evaluate_all(
        "all => all.filter(each => each.scrollWidth > each.clientWidth).map(each => getComputedStyle(each))"
        ".map(style => [style.overflowX, style.backgroundAttachment])"
    )
    assert scrolled, "no table is wide: this test has nothing to look at"
    assert all(overflow == "auto" and shadow == "local, local, scroll, scroll" for overflow, shadow in scrolled)
    photograph(page, "docs-table-390")
    page.goto((site / "proofs" / "person-period.html").as_uri())
    assert page.evaluate("document.fonts.load('16px \"STIX Two Math\"').then((fonts) => fonts.length)") == 1
    page.close()
    assert not problems
