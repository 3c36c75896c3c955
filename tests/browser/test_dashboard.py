"""The dashboard in a real browser, on a real server."""

from __future__ import annotations

import itertools
import re
import signal
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Open, photograph, resize
from tests.browser.serving import Serving, serving

pytestmark = pytest.mark.slow
PAGES = ("overview", "question/visits", "question/visits%20by%20region", "budget", "intrusions", "intruder")


def card(page: Page, name: str) -> Any:
    return page.get_by_role("region", name=name, exact=True)


def live(page: Page) -> None:
    expect(page.locator("#status")).to_have_text("Live")


def figure(page: Page, name: str) -> float:
    return float(re.sub(r"[^\d.]", "", card(page, name).locator(".figure").inner_text()) or "nan")


def test_rows_that_come_in_show_without_reloading(server: Serving, visit: Open) -> None:
    page = visit(server, "/#/question/visits")
    live(page)
    expect(page.locator(".plot .line").first).to_be_visible()
    page.evaluate("() => { window.sameDocument = true; }")
    expect(card(page, "visits").locator(".figure")).to_have_text(re.compile(r"^(19|20),\d{3}$"))
    server.send(30_000, first=20_000)
    # Noise of one answer is some dozens, far less than 30,000 more rows.
    expect(card(page, "visits").locator(".figure")).to_have_text(re.compile(r"^(49|50),\d{3}$"))
    assert page.evaluate("window.sameDocument")
    expect(page.locator("#spoken")).to_contain_text("New answer")
    photograph(page, "question")
    page.goto(f"{server.address}/#/question/visits%20by%20region")
    regions = card(page, "visits by region")
    expect(regions.locator(".group")).to_have_count(4)
    regions.get_by_role("button", name="south").click()
    expect(regions.get_by_role("button", name="south")).to_have_attribute("aria-pressed", "true")
    expect(regions.get_by_role("heading", name="south")).to_be_visible()
    photograph(page, "groups")


def test_release_until_the_budget_is_exhausted(server: Serving, visit: Open) -> None:
    """Each answer is asked for, with what it costs and what is left; the last one differently; all by keyboard."""
    page = visit(server, "/#/question/waiting%20time")
    live(page)
    asked = card(page, "waiting time")
    expect(asked).to_contain_text("No answer yet")
    asked.get_by_role("button", name="Answer now").click()
    dialog = page.get_by_role("dialog", name="Answer “waiting time” now?")
    expect(dialog).to_contain_text("one of the 2 answers that ε = 1 per event pays for")
    expect(dialog).to_contain_text("1 answer will be left")
    photograph(page, "asking")
    dialog.get_by_role("button", name="Use one answer").click()
    expect(dialog).to_be_hidden()
    expect(asked).to_contain_text("1 of 2 answers published")
    assert 0 <= figure(page, "waiting time") <= 120
    expect(asked).to_contain_text("95%:")
    asked.get_by_role("button", name="Answer now").press("Enter")
    expect(dialog).to_contain_text("This is the last one. No further answers can be requested for this question")
    expect(dialog.get_by_role("button", name="Cancel")).to_be_focused()
    photograph(page, "asking-last")
    page.keyboard.press("Shift+Tab")
    expect(dialog.get_by_role("button", name="Use the last answer")).to_be_focused()
    page.keyboard.press("Enter")
    expect(asked).to_contain_text("All 2 answers have been published. No further answers")
    expect(asked.get_by_role("button", name="Answer now")).to_be_hidden()
    expect(asked.locator(".left")).to_be_focused()
    photograph(page, "exhausted")


@pytest.mark.parametrize("way", ["Escape", "Enter twice", "Cancel"])
def test_an_answer_is_not_used_up_by_one_click(server: Serving, visit: Open, way: str) -> None:
    page = visit(server, "/#/question/visitors")
    live(page)
    before = server.ask("GET", "/v1/queries")["queries"][0]["releases"]
    opener = card(page, "visitors").get_by_role("button", name="Answer now")
    opener.press("Enter")
    dialog = page.get_by_role("dialog", name="Answer “visitors” now?")
    expect(dialog).to_be_visible()
    if way == "Cancel":
        dialog.get_by_role("button", name="Cancel").click()
    else:
        page.keyboard.press(way.split()[0])
    expect(dialog).to_be_hidden()
    expect(opener).to_be_focused()
    assert server.ask("GET", "/v1/queries")["queries"][0]["releases"] == before


def test_a_refusal_is_shown_in_the_server_s_words(server: Serving, visit: Open) -> None:
    """The page still offers a release that another client has used up."""
    page = visit(server, "/#/question/visitors", noisy=True)  # the browser itself notes the 409
    live(page)
    refusal = '{"error": {"code": "budget_exhausted", "message": "all 3 release(s) were made"}}'
    page.route("**/v1/queries/visitors/release", lambda route: route.fulfill(status=409, body=refusal))
    card(page, "visitors").get_by_role("button", name="Answer now").click()
    page.get_by_role("dialog").get_by_role("button", name="Use one answer").click()
    expect(card(page, "visitors").get_by_role("alert")).to_have_text("all 3 release(s) were made")


UNSURE = """
[stream]
name = "clinic"
columns = { user = "string", page = "string", region = "string", wait = "double" }
user = "user"

[[query]]
name = "visitors"
sql = "SELECT COUNT(DISTINCT user) FROM clinic"
epsilon = 0.05
expected = 500
releases = 20

[[query]]
name = "longest wait"
sql = "SELECT MAX(wait) FROM clinic"
epsilon = 1.0
lower = 0
upper = 120
"""


@pytest.mark.parametrize("width", [1280, 390])
def test_answers_that_are_no_plain_numbers(tmp_path: Path, visit: Open, width: int) -> None:
    """A range that says nothing is called too uncertain, the number in the table; an extreme is told in ranks."""
    with serving(tmp_path, config=UNSURE) as own:
        own.send(3_000)
        for name in ("visitors", "longest wait"):
            own.ask("POST", f"/v1/queries/{name.replace(' ', '%20')}/release")
        page = visit(own)
        resize(page, width)
        live(page)
        tile = page.get_by_role("listitem").filter(has_text="visitors")
        expect(tile).to_contain_text(re.compile(r"Too uncertain to say\s*95%: [\d,]+ to ([\d,]+|∞)"))
        photograph(page, f"unsure-{width}")
        tile.get_by_role("link").click()
        expect(card(page, "visitors").locator(".figure")).to_have_text("Too uncertain to say")
        expect(card(page, "visitors").locator(".range")).to_have_text(re.compile(r"^95%: [\d,]+ to ([\d,]+|∞)$"))
        expect(card(page, "visitors")).to_contain_text("What would help: a larger epsilon, fewer releases.")
        card(page, "visitors").get_by_text("History as a table").click()
        shown = card(page, "visitors").locator("tbody td").nth(3)
        expect(shown).to_have_text(re.compile(r"^[\d,.]+$"))
        card(page, "visitors").get_by_role("button", name="Answer now").click()
        expect(page.get_by_role("dialog")).to_contain_text("18 answers will be left")
        photograph(page, f"asking-{width}")
        page.keyboard.press("Escape")
        page.goto(f"{own.address}/#/question/longest%20wait")
        expect(card(page, "longest wait").locator(".figure")).to_have_text(re.compile(r"^At least [\d.]+$"))
        expect(card(page, "longest wait").locator(".range")).to_have_text(
            re.compile(r"^(95%: at most [\d,]+ of about [\d,]+ values lie above [\d.]+|with 95% confidence)$")
        )
        expect(card(page, "longest wait")).to_contain_text("The only answer has been published. No further answers")
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
        photograph(page, f"extreme-{width}")
        page.close()  # before the server is gone


def test_budget_gauge_per_unit(server: Serving, visit: Open) -> None:
    page = visit(server, "/#/budget")
    live(page)
    user = card(page, "Per user")
    expect(user.get_by_role("meter")).to_have_attribute("aria-valuetext", "Not bounded")
    expect(user).to_contain_text("'visits' protects one event, and nothing bounds how many of them one user touches")
    expect(card(page, "Per event").get_by_role("meter")).to_have_attribute("aria-valuetext", "ε 16 of 20 spent")
    expect(card(page, "Per event").get_by_role("row", name="visitors")).to_contain_text("15%")
    expect(card(page, "Per event").get_by_role("row", name="waiting time")).to_contain_text("5%")
    photograph(page, "budget")


def test_announced_intrusion_tells_its_price_first(server: Serving, visit: Open) -> None:
    page = visit(server, "/#/intrusions")
    live(page)
    expect(card(page, "Announced so far")).to_contain_text("No break-ins reported")
    page.get_by_role("button", name="Announce an intrusion").click()
    dialog = page.get_by_role("dialog", name="Announce an intrusion")
    expect(dialog.get_by_role("row", name="visitors")).to_contain_text("not offered")
    expect(dialog.get_by_role("row", name=re.compile("^visits by region"))).to_contain_text("refreshed")
    confirm = dialog.get_by_role("button", name="Announce now")
    expect(confirm).to_be_disabled()
    expect(dialog.get_by_label("I do not know")).to_be_checked()
    photograph(page, "announce")
    resize(page, 390)
    assert dialog.evaluate("node => node.scrollWidth <= node.clientWidth")
    photograph(page, "announce-390")
    resize(page, 1280)
    photograph(page, "announce-1280")
    page.keyboard.press("Escape")
    expect(page.get_by_role("button", name="Announce an intrusion")).to_be_focused()
    assert server.ask("GET", "/v1/intrusions")["announced"] == []
    page.get_by_role("button", name="Announce an intrusion").click()
    dialog.get_by_label("I have read the price").check()
    dialog.get_by_label("At this time").check()
    confirm.click()
    expect(dialog.get_by_role("alert")).to_contain_text("Give the date and time of the copy")
    dialog.get_by_label("Time of the copy").fill("2001-02-03T04:05:06")
    confirm.click()
    expect(page.locator("ol.times > li")).to_have_count(1)
    expect(page.locator("#told")).to_contain_text("Intrusion announced")
    (first,) = server.ask("GET", "/v1/intrusions")["announced"]
    assert first["copied"].startswith("2001-02-0"), "in UTC"
    expect(card(page, "Announced so far")).to_contain_text("visitors: covered: it began later, so it was not copied")
    page.get_by_role("button", name="Announce an intrusion").click()
    dialog.get_by_label("Just now").check()
    dialog.get_by_label("I have read the price").check()
    confirm.click()
    expect(page.locator("ol.times > li")).to_have_count(2)
    expect(card(page, "Announced so far")).to_contain_text("visitors: not covered: it cannot be refreshed")
    assert server.ask("GET", "/v1/intrusions")["announced"][1]["copied"] == "just now"
    photograph(page, "intrusions")


def test_reconnects_after_a_restart(tmp_path: Path, visit: Open) -> None:
    with serving(tmp_path) as own:
        own.send(10_000)
        page = visit(own, "/#/question/visits", noisy=True)  # the browser itself notes refused connections
        live(page)
        expect(card(page, "visits").locator(".figure")).to_have_text(re.compile(r"^(9|10),\d{3}$"))
        own.kill()
        expect(page.locator("#status")).to_have_text("Reconnecting")
        expect(page.get_by_role("alert").first).to_contain_text("stays true")
        assert figure(page, "visits") > 5_000, "what was published stays on the page"
        photograph(page, "reconnecting")
        own.start()
        page.get_by_role("button", name="Try now").click()
        live(page)
        expect(page.locator("#banner")).to_be_hidden()
        own.send(40_000, first=10_000)
        expect(card(page, "visits").locator(".figure")).to_have_text(re.compile(r"^(49|50),\d{3}$"))
        assert own.stop()[0] == 128 + signal.SIGTERM, "a page that listens does not hold up the end"
        expect(page.locator("#status")).to_have_text("Reconnecting")


def test_offline_is_told_apart(server: Serving, visit: Open) -> None:
    page = visit(server, noisy=True)
    live(page)
    page.evaluate("Object.defineProperty(navigator, 'onLine', {get: () => false, configurable: true})")
    page.route("**/v1/**", lambda route: route.abort())
    page.reload()
    expect(page.locator("#status")).to_have_text("Reconnecting")
    page.context.set_offline(True)
    page.get_by_role("button", name="Try now").click()
    expect(page.locator("#status")).to_have_text("Offline")
    expect(page.get_by_role("alert").first).to_contain_text("This device is offline")


def test_an_empty_stream_explains_itself(tmp_path: Path, visit: Open) -> None:
    quiet = """
[stream]
name = "quiet"
columns = { user = "int" }
user = "user"
[[query]]
name = "visitors"
sql = "SELECT COUNT(DISTINCT user) FROM quiet"
epsilon = 1.0
"""
    with serving(tmp_path, config=quiet) as own:
        page = visit(own)
        live(page)
        expect(page.get_by_role("heading", name="Nothing has been published yet")).to_be_visible()
        photograph(page, "empty")
        page.goto(own.address + "/#/budget")
        expect(card(page, "Per user")).to_contain_text("no limit declared")
        page.close()


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Any:
    from panstream.server.auth import create_token

    folder = tmp_path_factory.mktemp("guarded")
    tokens = {name: create_token(folder / "tokens", name, [name]) for name in ("read", "ingest")}
    with serving(folder, "--tokens", str(folder / "tokens")) as own:
        yield own, tokens


def test_token_is_asked_for_and_kept_in_the_tab(guarded: tuple[Serving, dict[str, str]], visit: Open) -> None:
    own, tokens = guarded
    page = visit(own, noisy=True)  # the browser itself notes the 401
    dialog = page.get_by_role("dialog", name="Access token")
    expect(dialog).to_be_visible()
    photograph(page, "token")
    dialog.get_by_label("Token", exact=True).fill("wrong")
    dialog.get_by_role("button", name="Use token").click()
    expect(dialog.get_by_role("alert")).to_be_visible()
    dialog.get_by_label("Token", exact=True).fill(tokens["read"])
    page.keyboard.press("Enter")
    live(page)
    assert page.evaluate("[Object.keys(localStorage).length, document.cookie, location.search]") == [0, "", ""]
    assert page.evaluate("sessionStorage.getItem('panstream-token')") == tokens["read"]
    page.reload()
    live(page)
    page.goto(own.address + "/#/intrusions")
    page.get_by_role("button", name="Announce an intrusion").click()
    page.get_by_label("I have read the price").check()
    page.get_by_role("button", name="Announce now").click()
    expect(page.get_by_role("dialog").get_by_role("alert")).to_contain_text("scope admin")
    page.get_by_role("button", name="Cancel").click()
    page.get_by_role("button", name="Token").click()
    page.get_by_role("button", name="Forget it").click()
    expect(page.locator("#status")).to_have_text("Token needed")
    assert page.evaluate("sessionStorage.length") == 0


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_page_fits_and_can_be_read(server: Serving, visit: Open, theme: Any) -> None:
    page = visit(server, color_scheme=theme)
    for name, width in itertools.product(PAGES, (1280, 390)):
        page.goto(f"{server.address}/#/{name}")
        resize(page, width, 800)
        live(page)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), f"{name} is wider than the screen"
        assert page.evaluate(CUT) == [], f"{name} shows only a part of something"
        assert page.evaluate(READABLE) == [], f"{name} has text that is hard to read"
        assert page.evaluate(NAMED) == [], f"{name} has controls without a name"
        assert page.evaluate(SMALL) == [], f"{name} has controls too small to touch"
        photograph(page, f"{re.sub('[^a-z]+', '-', name)}-{theme}-{width}")
    assert page.evaluate(LIGHTNESS) == (theme == "light")


# Text whose contrast with the background below it is under 4.5 (3 for large text), as WCAG AA asks.
READABLE = """() => {
  const parse = (text) => (text.match(/[\\d.]+/g) ?? []).map(Number);
  const channel = (v) => ((v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  const light = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
  const below = (node) => {
    for (let at = node; at; at = at.parentElement) {
      const found = parse(getComputedStyle(at).backgroundColor);
      if (found.length === 3 || found[3] === 1) return found;
    }
    return [255, 255, 255];
  };
  const bad = [];
  for (const node of document.querySelectorAll("body *")) {
    const own = [...node.childNodes].some((child) => child.nodeType === 3 && child.textContent.trim());
    const style = getComputedStyle(node);
    const exempt = "svg, .unseen, .skip, :disabled, option, dialog:not([open])";
    if (!own || !node.checkVisibility() || node.closest(exempt)) continue;
    const [a, b] = [light(parse(style.color)), light(below(node))].sort((x, y) => y - x);
    const large = parseFloat(style.fontSize) >= 24;
    const contrast = (a + 0.05) / (b + 0.05);
    if (contrast < (large ? 3 : 4.5)) bad.push(`${node.tagName}.${node.className} ${contrast.toFixed(2)}`);
  }
  return bad;
}"""
# What has to be scrolled by itself, or stands beyond the screen's edge: tabs and lists are whole.
CUT = """() => [...document.querySelectorAll("main *, nav, nav a, .picker label")]
  .filter((node) => node.checkVisibility() && !node.closest(".unseen, .picker input, svg, summary ~ *, .overview h1"))
  .filter((node) => {
    const box = node.getBoundingClientRect(), hides = getComputedStyle(node).overflowY !== "visible";
    return (hides && node.scrollHeight > node.clientHeight + 1) || box.right > innerWidth + 0.5 || box.left < -0.5;
  }).map((node) => node.outerHTML.slice(0, 80))"""
NAMED = """() => [
  ...document.querySelectorAll("button, input, select, a, dialog, nav, [role=img], [role=meter], canvas")]
  .filter((node) => node.checkVisibility() && !node.closest("[aria-hidden]"))
  .filter((node) => !(node.getAttribute("aria-label") || node.getAttribute("aria-labelledby") || node.textContent.trim()
    || node.labels?.length) && !node.closest("[role=img]")).map((node) => node.outerHTML.slice(0, 80))"""
SMALL = """() => [
  ...document.querySelectorAll(
    "button, select, input:not([type=checkbox], [type=range], [type=radio]), .picker label, nav a, summary")]
  .filter((node) => node.checkVisibility()).filter((node) => node.getBoundingClientRect().height < 24)
  .map((node) => node.outerHTML.slice(0, 80))"""
LIGHTNESS = "() => getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)[0] > 128"


def test_theme_can_be_switched_and_is_kept(server: Serving, visit: Open) -> None:
    page = visit(server, color_scheme="light")
    page.get_by_role("button", name="Switch to dark colours").click()
    assert not page.evaluate(LIGHTNESS)
    page.reload()
    expect(page.get_by_role("button", name="Switch to light colours")).to_be_visible()
    assert not page.evaluate(LIGHTNESS)


def test_keyboard_alone_is_enough(server: Serving, visit: Open) -> None:
    page = visit(server)
    live(page)
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to content")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("main")).to_be_focused()
    link = page.get_by_role("navigation").get_by_role("link", name="What an intruder sees")
    link.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("What an intruder sees")
    expect(page.get_by_role("main")).to_be_focused()
    expect(link).to_have_attribute("aria-current", "page")
    page.keyboard.press("Tab")
    expect(page.get_by_label("Anyone’s id")).to_be_focused()
    for landmark in ("banner", "navigation", "main", "contentinfo"):
        expect(page.get_by_role(landmark)).to_have_count(1)


def test_nothing_but_scripts_of_this_server_runs(server: Serving, visit: Open) -> None:
    page = visit(server, noisy=True)
    live(page)
    page.evaluate(
        "() => { const tag = document.createElement('script'); try { tag.textContent = 'window.bad = 1'; "
        "document.body.append(tag); } catch (error) { window.refused = error.name; } }"
    )
    assert page.evaluate("[window.bad ?? 0, window.refused ?? '']") == [0, "TypeError"]
    with pytest.raises(Exception, match="Failed to fetch"):
        page.evaluate("fetch('https://example.org/')")
