"""The page of a site: figures and lists as published, a link that shares them, and the page for its visitors."""

from __future__ import annotations

import math
import re
import subprocess
import sys
import threading
import urllib.error
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from playwright.sync_api import Page, Route, expect

from panstream.algorithms.continual.noise_sum_tails import half_width_of_sum
from panstream.engine.presets._website_queries import DEVICES
from panstream.engine.presets.website import propose_queries
from panstream.engine.presets.website_spec import WebsiteSpec
from panstream.engine.presets.website_text import to_toml
from tests.browser.conftest import Open, photograph, resize
from tests.browser.serving import Serving, serving
from tests.browser.test_dashboard import live
from tests.browser.test_overview import CLIPPED, number

pytestmark = pytest.mark.slow
DEMO = Path(__file__).parents[2] / "examples" / "site_demo.py"
ZONE = "Europe/Berlin"
SITE = WebsiteSpec(site="example.org", visitors=20_000, sections=("/blog", "/docs"), time_zone=ZONE)


def token(folder: Path, name: str, *options: str) -> str:
    command = [
        sys.executable,
        "-m",
        "panstream.cli",
        "token",
        str(folder / "tokens"),
        name,
        "--scope",
        "read",
        *options,
    ]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with two days of simulated visitors, and a token file."""
    made = tmp_path_factory.mktemp("site")
    (made / "panstream.toml").write_text(to_toml(propose_queries(SITE)))
    days = [sys.executable, str(DEMO), "panstream.toml", "--days", "2", "--visitors", "5000"]
    subprocess.run(days, cwd=made, check=True, capture_output=True)
    return made


@pytest.fixture(scope="module")
def reader(folder: Path) -> str:
    return token(folder, "reader")


@pytest.fixture(scope="module")
def site(folder: Path, reader: str) -> Iterator[Serving]:
    text = (folder / "panstream.toml").read_text()
    with serving(folder, "--tokens", str(folder / "tokens"), config=text) as running:
        pause = threading.Event()
        for _ in range(1200):  # names are read from the released tables beside the server's other work
            if len(releases(running, reader, "pages")) == len(releases(running, reader, "page views per day")):
                break
            pause.wait(0.1)
        yield running


def opened(site: Serving, visit: Open, reader: str, **settings: Any) -> Page:
    """Open the page by a shared link."""
    page = visit(site, f"/#/?token={reader}", **settings)
    live(page)
    expect(page.locator("h1")).to_have_text("example.org")
    return page


def card(page: Page, words: str) -> Any:
    return page.locator(".site .tile").filter(has=page.get_by_role("link", name=words, exact=True))


def releases(site: Serving, reader: str, series: str) -> list[dict[str, Any]]:
    found = site.ask("GET", "/v1/releases?limit=10000", Authorization=f"Bearer {reader}")["releases"]
    return [each for each in found if each["series"] == series]


def published(site: Serving, reader: str, series: str) -> dict[str, Any]:
    return releases(site, reader, series)[-1]


def test_a_shared_link_shows_the_figures_as_published(site: Serving, visit: Open, reader: str) -> None:
    page = opened(site, visit, reader)
    assert reader not in page.url, "the token is taken out of the address"
    for words, name in (
        ("Page views in an hour", "page views per hour"),
        ("Visitors in a day", "visitors per day"),
    ):
        last = published(site, reader, name)
        value, low_end, high_end = (max(0.0, each) for each in (last["value"], *last["interval"]))
        assert number(card(page, words).locator(".figure").inner_text()) == pytest.approx(value, abs=0.51)
        low, high = card(page, words).locator(".range").inner_text().removeprefix("95%: ").split(" to ")
        assert [number(low), number(high)] == [math.floor(low_end), math.ceil(high_end)]
    for length in ("week", "month"):  # one of them may have ended within the two days
        if not releases(site, reader, f"visitors per {length}"):
            expect(card(page, f"Visitors in a {length}")).to_contain_text(re.compile("first answer: [0-9]"))
    expect(page.locator(".site > .person")).to_contain_text("Not bounded: what all answers show about one visitor")
    expect(page.locator(".site")).not_to_contain_text("Protects")
    assert re.search(r"[▲▼≈]", card(page, "Visitors in a day").locator(".change").inner_text())
    items = published(site, reader, "pages")["items"]
    rows = card(page, "Top pages").locator(".ranked li")
    for item, row in zip(items, rows.all(), strict=False):
        assert row.locator(".key").inner_text() == item["name"]
        assert number(row.locator("b").inner_text()) == pytest.approx(item["count"], abs=0.51)
        ends = [number(end) for end in row.locator("small").inner_text().split(" to ")]
        assert ends == [math.floor(item["interval"][0]), math.ceil(item["interval"][1])]
    assert card(page, "Devices").locator(".ranked li").count() == 4
    page.reload()
    live(page)  # the tab has stored the token


def bounds(text: str) -> list[float]:
    return [number(end) for end in text.removeprefix("95%: ").split(" to ")]


def shown_sum(page: Page, words: str, parts: list[dict[str, Any]]) -> None:
    """Expect the sum of published answers, with the interval of their noise together."""
    value = sum(each["unclipped"] for each in parts)
    half = half_width_of_sum(0.95, [each["standard_error"] for each in parts])
    shown = card(page, words)
    assert number(shown.locator(".figure").inner_text()) == pytest.approx(max(value, 0.0), abs=0.51)
    ends = [math.floor(max(0.0, value - half)), math.ceil(max(0.0, value + half))]
    assert bounds(shown.locator(".range").inner_text()) == ends


def test_what_adds_up_is_summed_over_the_chosen_days(site: Serving, visit: Open, reader: str) -> None:
    page = opened(site, visit, reader)
    days = releases(site, reader, "page views per day")
    expect(card(page, "Page views")).to_contain_text("answers for 2 of 7 days")
    shown_sum(page, "Page views", days)
    end = days[-1]["window"][1]
    shown_sum(page, "Errors", [hour for hour in releases(site, reader, "errors per hour") if hour["window"][1] <= end])
    page.get_by_text("Day", exact=True).click()
    expect(card(page, "Page views").locator(".change")).to_contain_text("the day before")
    shown_sum(page, "Page views", days[-1:])
    page.get_by_text("Dates", exact=True).click()
    first_day = datetime.fromisoformat(days[0]["window"][0]).astimezone(ZoneInfo(ZONE)).date().isoformat()
    page.get_by_label("First day").fill(first_day)
    page.get_by_label("Last day").fill(first_day)
    expect(card(page, "Visitors in a day").locator(".chip")).to_contain_text(f"{int(first_day[8:])} ")
    expect(card(page, "Visitors in a day").locator(".chip")).to_have_text(
        card(page, "Page views").locator(".chip").inner_text()
    )
    shown_sum(page, "Page views", days[:1])
    page.get_by_label("All sections").select_option("/blog")
    expect(card(page, "Page views").locator(".chip")).to_contain_text("/blog")
    series = [f"page views by section and device [section=/blog, device={device}]" for device in DEVICES]
    shown_sum(page, "Page views", [releases(site, reader, one)[0] for one in series])
    page.reload()
    live(page)
    shown_sum(page, "Page views", [releases(site, reader, one)[0] for one in series])


def test_counts_are_shown_from_0_up(site: Serving, visit: Open, reader: str) -> None:
    """Noise may publish less; a card says what was published when it is pointed at, and so does the question's page."""

    def below(route: Route) -> None:
        answer = route.fetch()
        found = answer.json()
        for each in found["releases"]:
            if each["query"] == "page views per hour":
                each |= {"value": -5.0, "interval": [-12.0, -1.0]}
        route.fulfill(response=answer, json=found)

    page = visit(site, "/privacy")
    page.route("**/v1/releases?*", below)
    page.goto(f"{site.address}/#/?token={reader}")
    live(page)
    shown = card(page, "Page views in an hour")
    expect(shown.locator(".figure")).to_have_text("0")
    expect(shown.locator(".figure")).to_have_attribute("title", "published as −5")
    expect(shown.locator(".range")).to_have_text("95%: 0 to 0")
    expect(page.locator(".site > .small")).to_contain_text("Counts are shown from 0 up")
    page.goto(f"{site.address}/#/question/page%20views%20per%20hour")
    expect(page.locator("main")).to_contain_text("−5")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_nothing_is_cut_off(site: Serving, visit: Open, reader: str, theme: Any) -> None:
    page = opened(site, visit, reader, color_scheme=theme)
    for width in (1280, 390):
        resize(page, width)
        expect(card(page, "Top pages").locator(".ranked li").first).to_be_visible()
        cut = [text for text in page.evaluate(CLIPPED) if "panstream token" not in text]  # which scrolls
        assert cut == []
        assert "undefined" not in page.locator("main").inner_text()
        photograph(page, f"site-{width}-{theme}")


def test_a_token_is_asked_for_and_a_link_is_made(site: Serving, visit: Open, folder: Path, reader: str) -> None:
    page = visit(site, "/", noisy=True)
    expect(page.locator("#token-dialog")).to_be_visible()
    made = token(folder, "public", "--link", site.address)
    assert re.fullmatch(rf"{re.escape(site.address)}/#/\?token=pan_[\w-]+", made)
    with pytest.raises(urllib.error.HTTPError) as caught:
        site.ask("POST", "/v1/queries/pages/release", b"", Authorization=f"Bearer {reader}")
    caught.value.close()
    assert caught.value.code == 403, "what is shared reads, and does nothing else"


def test_the_page_for_visitors_needs_no_token_and_loads_nothing(site: Serving, visit: Open) -> None:
    page = visit(site, "/privacy")
    expect(page.locator("h1")).to_have_text("Privacy statement: example.org")
    text = page.locator("main").inner_text()
    assert "visitors per day" in text
    assert "2.72" in text, "e, rounded up"
    short = page.locator("section").first.locator("p")
    assert short.count() == 5, "five sentences"
    expect(short.first).to_contain_text("Not bounded: what all answers together show about one browser in any 30 days")
    assert all(each.count(". ") == 0 and each.endswith(".") for each in short.all_inner_texts())
    assert "Do Not Track" in text
    assert page.locator("body").evaluate("each => getComputedStyle(each).maxWidth") == "960px", "its style is let in"
