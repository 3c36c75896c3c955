"""Clicks in a real browser, on a page of another origin, arrive as they are counted."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from tests.browser.conftest import TIMEOUT
from tests.browser.serving import Serving, serving

pytestmark = pytest.mark.slow
AGENT = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/128.0.0.0 Safari/537.36"
EXACT = 200.0  # an epsilon so large that counts are exact
COUNTED = {
    "views": "event = 'view'",
    "entries": "event = 'view' AND entry",
    "loads": "event = 'load' AND value > 0",
    "errors": "event = 'error'",
    "signups": "event = 'signup' AND value = 3",
}
CONFIG = """
[web]
site = "127.0.0.1"
origins = ["{origin}"]
[stream]
name = "web"
user = "visitor"
[stream.columns]
visitor = "int"
entry = "bool"
event = "string"
value = "double"
"""
QUESTION = """
[[query]]
name = "{name}"
sql = "SELECT COUNT(*) FROM web WHERE {condition}"
epsilon = {epsilon}
releases = 1000
"""
PAGE = """<!doctype html><title>shop</title><link rel="icon" href="data:,">
<script defer src="{server}/panstream.js"></script>
<noscript><img src="{server}/v1/beacon.gif?u=/plain"></noscript>
<button id="next" onclick="history.pushState(null, '', '/two')">next</button>
<button id="sign" onclick="panstream('signup', 3)">sign up</button>
<button id="fail" onclick="throw new Error('broken')">fail</button>"""


@contextmanager
def pages() -> Iterator[tuple[str, dict[str, str]]]:
    """Serve one page under every path; yield the origin, and where to put the page."""
    shown = {"page": ""}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = shown["page"].encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *said: Any) -> None:
            pass

    running = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=running.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{running.server_port}", shown
    finally:
        running.shutdown()
        thread.join()
        running.server_close()


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Serving, str, str]]:
    """A server, an origin that it knows, and one that it does not, with the same page."""
    with pages() as (known, page), pages() as (other, copy):
        asked = [QUESTION.format(name=name, condition=sql, epsilon=EXACT) for name, sql in COUNTED.items()]
        with serving(tmp_path_factory.mktemp("site"), config=CONFIG.format(origin=known) + "".join(asked)) as running:
            page["page"] = copy["page"] = PAGE.format(server=running.address)
            yield running, known, other


@pytest.fixture
def browse(browser: Browser) -> Iterator[Callable[..., Page]]:
    contexts = []

    def start(**settings: Any) -> Page:
        context = browser.new_context(user_agent=AGENT, **settings)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(TIMEOUT)
        return page

    yield start
    for context in contexts:
        context.close()


def counts(server: Serving) -> dict[str, int]:
    found = {name: server.ask("POST", f"/v1/queries/{name}/release")["releases"][0]["value"] for name in COUNTED}
    return {name: round(value) for name, value in found.items()}


def settled(server: Serving, before: dict[str, int], wanted: dict[str, int]) -> dict[str, int]:
    """Return what came since, asked again and again until it is as wanted; every question is a step or two later."""
    new: dict[str, int] = {}
    for _ in range(150):
        new = {name: count - before[name] for name, count in counts(server).items()}
        if new == wanted:
            break
    return new


def answered(page: Page, act: Callable[[], Any], *, status: int = 204) -> None:
    with page.expect_response(lambda response: "/v1/beacon" in response.url) as response_info:
        act()
    assert response_info.value.status == status


def test_clicks_arrive_as_counted(shop: tuple[Serving, str, str], browse: Callable[..., Page], tmp_path: Path) -> None:
    server, known, _ = shop
    before = counts(server)
    page = browse()
    seen: list[int] = []
    page.on("response", lambda response: seen.append(response.status) if "/v1/beacon" in response.url else None)
    page.goto(f"{known}/one?utm_campaign=may")
    page.wait_for_function("performance.getEntriesByType('navigation')[0].loadEventEnd > 0")
    for button in ("#next", "#sign", "#fail"):
        answered(page, lambda button=button: page.click(button))
    answered(page, page.go_back)
    wanted = {"views": 3, "entries": 1, "loads": 1, "errors": 1, "signups": 1}
    assert settled(server, before, wanted) == wanted
    assert set(seen) == {204}
    assert page.context.cookies() == []
    assert page.evaluate("[localStorage.length, sessionStorage.length]") == [0, 0]


def test_pages_of_other_origins_are_refused(shop: tuple[Serving, str, str], browse: Callable[..., Page]) -> None:
    server, _, other = shop
    before = counts(server)
    page = browse()
    answered(page, lambda: page.goto(f"{other}/"), status=403)
    answered(page, lambda: page.click("#sign"), status=403)
    assert counts(server) == before


@pytest.mark.parametrize("sign", ["globalPrivacyControl", "doNotTrack"])
def test_whoever_opts_out_sends_nothing(shop: tuple[Serving, str, str], browse: Callable[..., Page], sign: str) -> None:
    _, known, _ = shop
    page = browse()
    sent = []
    page.on("request", lambda request: sent.append(request.url) if "/v1/beacon" in request.url else None)
    page.add_init_script(f"Object.defineProperty(Navigator.prototype, '{sign}', {{ get: () => '1' }})")
    page.goto(f"{known}/")
    page.click("#next")
    page.click("#sign")
    page.wait_for_load_state("networkidle")
    assert sent == []


def test_a_page_without_scripts_is_counted(shop: tuple[Serving, str, str], browse: Callable[..., Page]) -> None:
    server, known, _ = shop
    before = counts(server)
    page = browse(java_script_enabled=False)
    answered(page, lambda: page.goto(f"{known}/plain"), status=200)
    wanted = dict.fromkeys(COUNTED, 0) | {"views": 1, "entries": 1}
    assert settled(server, before, wanted) == wanted
