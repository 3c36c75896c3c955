"""The counter in a real browser: what it stores, what it sends, and that no number is used twice."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page

from tests.browser.conftest import TIMEOUT
from tests.browser.serving import Serving, serving
from tests.browser.test_beacons import AGENT, pages
from tests.window_vectors import WINDOWS

pytestmark = pytest.mark.slow
DAY = 86_400
NOON = 1_767_268_800_000  # 1 January 2026, 12:00: day 20454, week 2922, month 681
TODAY = 20_454
CAPS = {("view", DAY): 8, ("entry", DAY): 1, ("view", 7 * DAY): 12, ("view", 30 * DAY): 18, ("event", DAY): 2}
SHORT = 2  # seconds of a window that a test can wait for
CONFIG = """
[web]
site = "127.0.0.1"
origins = ["{origin}"]
counter = true
[stream]
name = "web"
user = "visitor"
[stream.columns]
visitor = "int"
event = "string"
sender_counts = "string"
"""
QUESTION = """
[[query]]
name = "{kind} {window}"
sql = "SELECT COUNT(*) FROM web WHERE event <> ''"
epsilon = 200.0
window = {window}
contributions = {most}
bounded_by = "sender"
counter = "{kind}"
"""
PAGE_VIEWS = """
[[query]]
name = "page views per day"
sql = "SELECT COUNT(*) FROM web WHERE event = 'view'"
epsilon = 200.0
window = "1 day"
contributions = 8
bounded_by = "sender"
counter = "view"
"""
PAGE = """<!doctype html><title>shop</title><link rel="icon" href="data:,">
<script defer src="{server}/panstream.js"{more}></script>"""
STORED = """async () => {
  const names = (await indexedDB.databases()).map((one) => one.name);
  const others = names.filter((name) => name != "panstream");
  const other = [document.cookie, localStorage.length, sessionStorage.length, others];
  if (!names.includes("panstream")) return [null, ...other];
  const stored = await new Promise((done, fail) => {
    const asked = indexedDB.open("panstream");
    asked.onsuccess = () => done(asked.result);
    asked.onerror = fail;
  });
  const all = await new Promise((done, fail) => {
    const asked = stored.transaction("counts").objectStore("counts").getAll();
    asked.onsuccess = () => done(asked.result);
    asked.onerror = fail;
  });
  stored.close();
  return [all.join("|"), ...other];
}"""


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Serving, str, dict[str, str]]]:
    """A server whose script counts, the origin of the site, and where to put its page."""
    with pages() as (known, page):
        caps = {**CAPS, ("row", SHORT): 3}
        asked = [QUESTION.format(kind=kind, window=window, most=most) for (kind, window), most in caps.items()]
        with serving(
            tmp_path_factory.mktemp("site"), config="".join([CONFIG.format(origin=known), *asked, PAGE_VIEWS])
        ) as running:
            page["page"] = PAGE.format(server=running.address, more="")
            yield running, known, page


class Visitor:
    """A browser profile with a fixed clock, and the entries of what it sent."""

    def __init__(self, context: BrowserContext) -> None:
        self.context = context
        self.bodies: list[dict[str, Any]] = []

    def tab(self, address: str, *, now: int | None = NOON, script: str = "") -> Page:
        page = self.context.new_page()
        page.set_default_timeout(TIMEOUT)
        page.on("request", lambda sent: self._note(sent.url, sent.post_data))
        if now is not None:
            page.add_init_script(f"window.now = {now}; Date.now = () => window.now;")
        page.add_init_script(script)
        with page.expect_request(lambda sent: '"load"' in (sent.post_data or "")):
            page.goto(address)
        return page

    def _note(self, url: str, body: str | None) -> None:
        if "/v1/beacon" in url and body:
            self.bodies.append(json.loads(body))

    @property
    def entries(self) -> list[str]:
        """Entries of all beacons, without those of short windows, whose number the test does not know."""
        kept = [body.get("sender_counts", "").split() for body in self.bodies]
        return [entry for entries in kept for entry in entries if f":{SHORT}:" not in entry]


@pytest.fixture
def visitor(browser: Browser) -> Iterator[Callable[[], Visitor]]:
    contexts = []

    def start() -> Visitor:
        contexts.append(browser.new_context(user_agent=AGENT))
        return Visitor(contexts[-1])

    yield start
    for context in contexts:
        context.close()


def stored(page: Page) -> str:
    """Return all that the browser stores for the site; nothing but the counts may be there."""
    text, *other = page.evaluate(STORED)
    assert other == ["", 0, 0, []]
    return re.sub(rf"(^|;){SHORT} \d+ (r\d)?", "", text or "").strip(";")


def act(page: Page, event: str = "signup") -> None:
    with page.expect_request(lambda sent: f'"{event}"' in (sent.post_data or "")):
        page.evaluate("(event) => { panstream(event) }", event)


def test_reloads_count_on(shop: tuple[Serving, str, dict[str, str]], visitor: Callable[[], Visitor]) -> None:
    _, known, _ = shop
    one = visitor()
    page = one.tab(f"{known}/private/page?utm_campaign=secret")
    assert stored(page) == "86400 20454 e1v1;604800 2922 v1;2592000 681 v1"
    for _ in range(9):
        with page.expect_request(lambda sent: '"load"' in (sent.post_data or "")):
            page.reload()
    text = stored(page)
    assert text == "86400 20454 e1v8;604800 2922 v10;2592000 681 v10"
    assert len(text) < 100
    assert Counter(entry for entry in one.entries if entry.startswith("view:86400")) == Counter(
        f"view:86400:{TODAY}:{number}" for number in range(1, 9)
    )
    assert [entry for entry in one.entries if entry.startswith("entry")] == [f"entry:86400:{TODAY}:1"]
    assert sum(body["event"] == "view" for body in one.bodies) == 10  # those beyond the cap are sent without it


def test_tabs_at_once_use_no_number_twice(
    shop: tuple[Serving, str, dict[str, str]], visitor: Callable[[], Visitor]
) -> None:
    _, known, _ = shop
    one = visitor()
    tabs = [one.tab(f"{known}/") for _ in range(3)]
    for page in tabs:  # all of them begin before the first has ended
        page.evaluate("() => { for (let i = 0; i < 20; i++) panstream('view') }")
    for page in tabs:
        act(page)
    entries = Counter(one.entries)
    assert set(entries.values()) == {1}
    assert {entry for entry in entries if entry.startswith("view:2592000")} == {
        f"view:2592000:681:{number}" for number in range(1, 19)
    }
    assert stored(tabs[0]) == "86400 20454 e1v8n2;604800 2922 v12;2592000 681 v18"


def test_a_clock_that_steps_uses_no_number_twice(
    shop: tuple[Serving, str, dict[str, str]], visitor: Callable[[], Visitor]
) -> None:
    _, known, _ = shop
    one = visitor()
    page = one.tab(f"{known}/")
    for days in (0, 1, 0, -1, 1, 2, 0, -300, 2, 2):
        page.evaluate(f"window.now = {NOON} + {days} * {DAY * 1000}")
        act(page)
    entries = [entry for entry in one.entries if entry.startswith("event")]
    assert entries == [
        f"event:{DAY}:{TODAY + day}:{number}" for day, number in ((0, 1), (1, 1), (1, 2), (2, 1), (2, 2))
    ]
    assert stored(page) == "86400 20456 n2;604800 2922 v1;2592000 681 v1"


def test_windows_are_those_of_the_server(
    shop: tuple[Serving, str, dict[str, str]], visitor: Callable[[], Visitor]
) -> None:
    _, known, _ = shop
    for milliseconds, length, number in WINDOWS:
        if length not in (DAY, 7 * DAY, 30 * DAY):
            continue
        one = visitor()
        one.tab(f"{known}/", now=milliseconds)
        assert f"view:{length}:{number}:1" in one.entries
        one.context.close()


def test_cleared_storage_begins_again(
    shop: tuple[Serving, str, dict[str, str]], visitor: Callable[[], Visitor]
) -> None:
    _, known, _ = shop
    one = visitor()
    page = one.tab(f"{known}/")
    one.context.new_cdp_session(page).send("Storage.clearDataForOrigin", {"origin": known, "storageTypes": "all"})
    assert stored(page) == ""
    with page.expect_request(lambda sent: '"load"' in (sent.post_data or "")):
        page.reload()
    assert stored(page) == "86400 20454 e1v1;604800 2922 v1;2592000 681 v1"
    assert one.entries.count(f"view:{DAY}:{TODAY}:1") == 2


def test_private_mode_stores_nothing_that_stays(
    shop: tuple[Serving, str, dict[str, str]], visitor: Callable[[], Visitor]
) -> None:
    """A context of the browser is a private window: what it stores is gone with it."""
    _, known, _ = shop
    for _ in range(2):
        one = visitor()
        page = one.tab(f"{known}/")
        assert stored(page) == "86400 20454 e1v1;604800 2922 v1;2592000 681 v1"
        one.context.close()


@pytest.mark.parametrize(
    "script",
    [
        "Object.defineProperty(window, 'indexedDB', { get() { throw new DOMException('no', 'SecurityError') } })",
        "Object.defineProperty(window, 'indexedDB', { value: undefined })",
        "IDBFactory.prototype.open = () => { const asked = {}; setTimeout(() => asked.onerror()); return asked }",
        "IDBDatabase.prototype.transaction = () => { throw new DOMException('closed', 'InvalidStateError') }",
    ],
)
def test_without_storage_rows_carry_no_number(
    shop: tuple[Serving, str, dict[str, str]], visitor: Callable[[], Visitor], script: str
) -> None:
    _, known, _ = shop
    one = visitor()
    page = one.tab(f"{known}/", script=script)
    act(page)
    assert [body["event"] for body in one.bodies] == ["view", "load", "signup"]
    assert all("sender_counts" not in body for body in one.bodies)


def test_a_page_of_an_opaque_origin_has_no_storage(
    shop: tuple[Serving, str, dict[str, str]], visitor: Callable[[], Visitor]
) -> None:
    """A sandboxed frame: the browser itself refuses it any storage."""
    _, known, page_of = shop
    one = visitor()
    page = one.tab(f"{known}/")
    before = len(one.bodies)
    with page.expect_request(lambda sent: '"load"' in (sent.post_data or "")):
        page.evaluate(
            """(html) => { const frame = document.createElement("iframe"); frame.sandbox = "allow-scripts";
            frame.srcdoc = html; document.body.append(frame) }""",
            page_of["page"],
        )
    assert len(one.bodies) > before
    assert all("sender_counts" not in body for body in one.bodies[before:])


def test_visitors_can_switch_it_off_and_sites_can_leave_it_out(
    shop: tuple[Serving, str, dict[str, str]], visitor: Callable[[], Visitor]
) -> None:
    server, known, page_of = shop
    one = visitor()
    page = one.tab(f"{known}/")
    page.evaluate("panstream.counter(false)")
    act(page)
    assert "sender_counts" not in one.bodies[-1]
    assert stored(page) == "off;86400 20454 e1v1;604800 2922 v1;2592000 681 v1"
    page.evaluate("panstream.counter(true)")
    act(page)
    assert f"event:{DAY}:{TODAY}:1" in one.entries
    two = visitor()
    page_of["page"] = PAGE.format(server=server.address, more=' data-counter="off"')
    try:
        page = two.tab(f"{known}/")
    finally:
        page_of["page"] = PAGE.format(server=server.address, more="")
    assert stored(page) == ""
    assert two.entries == []


def test_the_server_counts_at_most_what_was_declared(
    shop: tuple[Serving, str, dict[str, str]], visitor: Callable[[], Visitor]
) -> None:
    """Many more rows than the cap in every window, by the true clock, until a window is answered in full."""
    server, known, _ = shop
    one = visitor()
    page = one.tab(f"{known}/", now=None)
    name = f"row {SHORT}"
    values: list[int] = []
    for _ in range(300):
        for _ in range(6):
            act(page)
        releases = server.ask("GET", f"/v1/releases?query={name.replace(' ', '%20')}")["releases"]
        values = [round(release["value"]) for release in releases]
        if 3 in values:
            break
    assert max(values) == 3


def test_the_dashboard_says_how_many_rows_of_a_visitor_count(
    shop: tuple[Serving, str, dict[str, str]], visitor: Callable[[], Visitor]
) -> None:
    server, _, _ = shop
    page = visitor().context.new_page()
    page.set_default_timeout(TIMEOUT)
    page.goto(f"{server.address}/#/site")
    card = page.locator("li.tile", has_text="Page views")
    card.get_by_text("At most 8 of one visitor count in each day.").wait_for()


def test_the_page_for_visitors_says_what_is_stored(
    shop: tuple[Serving, str, dict[str, str]], visitor: Callable[[], Visitor]
) -> None:
    server, _, _ = shop
    page = visitor().context.new_page()
    page.goto(f"{server.address}/privacy")
    text = page.locator("body").inner_text()
    assert "Your browser’s tools show them under IndexedDB, “panstream”" in text
    assert "nothing is stored in your browser" not in text
