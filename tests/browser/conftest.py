"""One browser for all tests of a module; a page collects what goes wrong in it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.browser.serving import Serving, serving
from tests.chromium import launched
from tests.network import unchanged

SCREENSHOTS = Path(__file__).parents[2] / "build" / "screenshots"
PICTURES = os.environ.get("PANSTREAM_PICTURES") == "1"
TIMEOUT = 60_000  # milliseconds: an upper bound for a busy machine, not a wait


@pytest.fixture(autouse=True)
def _network_stays() -> Iterator[None]:
    with unchanged():
        yield


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Not for longer than a module: Playwright's event loop would be in the way of other tests'."""
    expect.set_options(timeout=TIMEOUT)
    with sync_playwright() as playwright:
        found = launched(playwright)
        yield found
        found.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """A server without tokens, on loopback, with 20,000 visitors."""
    with serving(tmp_path_factory.mktemp("served")) as running:
        running.send(20_000)
        yield running


Open = Callable[..., Page]


@pytest.fixture
def visit(browser: Browser) -> Iterator[Open]:
    """Open a page in a fresh profile; at the end, nothing may have been blocked, thrown or asked of another host."""
    contexts = []
    problems = []

    def start(server: Serving, path: str = "/", *, noisy: bool = False, **settings: Any) -> Page:
        context = browser.new_context(viewport={"width": 1200, "height": 900}, **settings)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(TIMEOUT)
        if not noisy:
            page.on("console", lambda said: problems.append(said.text) if said.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("request", lambda sent: None if sent.url.startswith(server.address) else problems.append(sent.url))
        page.goto(server.address + path)
        return page

    yield start
    for context in contexts:
        context.close()
    assert not problems


def resize(page: Page, width: int, height: int = 900) -> None:
    """Give the page another size, and wait until it has been laid out and charts have followed: two frames."""
    page.set_viewport_size({"width": width, "height": height})
    page.wait_for_function("width => innerWidth === width", arg=width)
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


def photograph(page: Page, name: str) -> None:
    """Keep a picture of the whole page for people to look at, if they ask for it: pictures take longer than pages."""
    if not PICTURES:
        return
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    page.evaluate("document.fonts.ready")
    page.screenshot(path=SCREENSHOTS / f"{name}.png", full_page=True)
