"""The overview and the page of a question, on days of several questions: what is shown, and where it stands."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator
from itertools import product
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest
from playwright.sync_api import Page, expect
from scipy import stats

from tests.browser.conftest import Open, photograph, resize
from tests.browser.serving import Serving, serving
from tests.browser.shop import DAYS, NAMES, PAGES, config, fill, fill_names
from tests.browser.test_dashboard import card, live
from tests.statistical import ALPHA

pytestmark = pytest.mark.slow
QUESTIONS = 12


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with serving(tmp_path_factory.mktemp("shop"), config=config()) as running:
        fill(running)
        yield running


def question(name: str, period: str = "all") -> str:
    return f"/#/question/{quote(name)}?period={period}"


def published(server: Serving, name: str) -> list[dict[str, Any]]:
    return list(server.ask("GET", f"/v1/releases?limit=10000&query={quote(name)}")["releases"])


def number(text: str) -> float:
    return float(re.sub(r"[^\d.\-]", "", text.replace("−", "-")))


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_all_questions_fit_one_screen(shop: Serving, visit: Open, theme: Any) -> None:
    page = visit(shop, color_scheme=theme)
    for width, height in ((1280, 800), (390, 844)):
        resize(page, width, height)
        live(page)
        tiles = page.locator(".tile")
        expect(tiles).to_have_count(QUESTIONS)
        ends = tiles.evaluate_all("all => all.map((each) => each.getBoundingClientRect().bottom)")
        assert max(ends) <= height, "a reader sees all questions without scrolling"
        assert page.evaluate(CLIPPED) == []
        photograph(page, f"shop-overview-{theme}-{width}")


# Text that its own box or the screen cuts off, or that is shortened with an ellipsis.
CLIPPED = """() => [...document.querySelectorAll("main *, header *")]
  .filter((node) => [...node.childNodes].some((child) => child.nodeType === 3 && child.textContent.trim()))
  .filter((node) => node.checkVisibility() && !node.closest(".unseen, .scroll, [aria-hidden], dialog:not([open])"))
  .filter((node) => {
    const box = node.getBoundingClientRect();
    const cut = getComputedStyle(node).overflowX !== "visible" && node.scrollWidth > node.clientWidth;
    return cut || box.left < -0.5 || box.right > innerWidth + 0.5;
  }).map((node) => node.textContent)"""


def test_every_tile_has_the_last_answer_and_its_interval(shop: Serving, visit: Open) -> None:
    page = visit(shop)
    live(page)
    for name in ("visitors a day", "page views in all", "revenue a day", "average wait"):
        last = published(shop, name)[-1]
        tile = page.locator(".tile").filter(has=page.get_by_role("link", name=name, exact=True))
        assert number(tile.locator(".figure").inner_text()) == pytest.approx(last["value"], rel=5e-3)
        low, high = tile.locator(".range").inner_text().removeprefix("95%: ").split(" to ")
        assert [number(low), number(high)] == pytest.approx(last["interval"], rel=1e-2)
    devices = page.locator(".tile").filter(has=page.get_by_role("link", name="views by device"))
    assert devices.locator("dt").all_inner_texts() == ["phone", "laptop", "tablet"], "groups by name, largest first"
    unsure = page.locator(".tile").filter(has=page.get_by_role("link", name="visitors so far"))
    expect(unsure).to_contain_text(re.compile(r"Too uncertain to say\s*95%: "))


def test_period_chooses_what_is_shown_and_stays_in_the_address(shop: Serving, visit: Open) -> None:
    page = visit(shop)
    live(page)
    page.get_by_text("Week", exact=True).click()
    expect(page).to_have_url(re.compile(r"period=week"))
    page.get_by_role("link", name="visitors a day").click()
    shown = card(page, "visitors a day")
    expect(page.get_by_label("Week")).to_be_checked()
    expect(shown.locator("svg circle.point:not([visibility])")).to_have_count(7)
    expect(shown.locator(".earlier")).to_be_visible()
    expect(shown).to_contain_text("the week before")
    shown.get_by_text("History as a table").click()
    expect(shown.locator("tbody tr")).to_have_count(7)
    page.reload()
    live(page)
    expect(page.get_by_label("Week")).to_be_checked()
    page.get_by_label("Week").press("ArrowRight")
    page.keyboard.press("ArrowRight")
    expect(page.get_by_label("All")).to_be_checked()
    expect(shown.locator("svg circle.point:not([visibility])")).to_have_count(DAYS)
    page.get_by_role("link", name="All questions").click()
    expect(page.locator(".tile")).to_have_count(QUESTIONS)


def test_windows_are_compared_with_the_same_day_a_week_before(shop: Serving, visit: Open) -> None:
    page = visit(shop, question("page views a day", "week"))
    live(page)
    days = published(shop, "page views a day")
    now = days[-1]
    before = days[-8]
    said = card(page, "page views a day").locator(".changes .trend")
    change = 100 * (now["value"] / before["value"] - 1)
    ends = [now["interval"][end] / before["interval"][1 - end] - 1 for end in (0, 1)]
    found = re.match(r"[▲▼≈]\s+(Up|Down|No clear change)([\d.]*)%? ?.*\((\d+)%: (.*)% to (.*)%\)$", _flat(said))
    assert found, _flat(said)
    assert found[3] == "90", "two intervals of 95% hold together with 90%"
    assert [number(found[4]), number(found[5])] == pytest.approx([100 * end for end in ends], abs=0.2)
    assert found[1] == ("Up" if ends[0] > 0 else "Down" if ends[1] < 0 else "No clear change")
    if found[2]:
        assert number(found[2]) == pytest.approx(abs(change), abs=0.2)
    assert "a week earlier" in _flat(said)


def _flat(said: Any) -> str:
    return re.sub(r"(Up|Down) ", r"\1", " ".join(said.inner_text().split()))


def test_a_total_that_goes_on_is_told_per_time(shop: Serving, visit: Open) -> None:
    page = visit(shop, question("page views in all", "day"))
    live(page)
    totals = {each["end"]: each for each in published(shop, "page views in all")}
    last = max(totals)
    before = f"2026-03-{int(last[8:10]) - 1:02}{last[10:]}"
    said = card(page, "page views in all").locator(".rate").inner_text()
    per_hour = (totals[last]["value"] - totals[before]["value"]) / 24
    assert number(said.split(" per hour")[0]) == pytest.approx(per_hour, rel=1e-2)
    low, high = (totals[last]["interval"][end] / 24 - totals[before]["interval"][1 - end] / 24 for end in (0, 1))
    found = re.search(r"\(90%: (\S+) to (\S+)\)", said)
    assert found and [number(found[1]), number(found[2])] == pytest.approx([low, high], rel=1e-2)


def test_comparisons_cover_the_truth(shop: Serving, visit: Open) -> None:
    """Two answers at 90%, three at 85%, whatever the noise: here Laplace's, each interval failing one time in 20."""
    page = visit(shop)
    runs = 4_000
    draw = np.random.default_rng()
    kinds = {"window": 2, "level": 2, "growth": 3}
    for kind, used in kinds.items():
        truth = draw.uniform(100, 200, (runs, 3)).cumsum(1) if kind == "growth" else draw.uniform(100, 200, (runs, 3))
        noisy = truth + draw.laplace(0, 5, truth.shape)
        found = page.evaluate(COMPARED, [kind, noisy.tolist(), 5 * np.log(20)])
        change = truth[:, 2] - truth[:, 1]
        if kind == "growth":
            change = (change - (truth[:, 1] - truth[:, 0])) / 86400
        missed = sum(not low <= real <= high for (low, high), real in zip(found["ends"], change, strict=True))
        assert found["level"] == pytest.approx(1 - 0.05 * used)
        assert stats.binom.sf(missed - 1, runs, 0.05 * used) > ALPHA, f"{kind}: {missed} of {runs} missed"


COMPARED = """async ([kind, runs, half]) => {
  const { comparison } = await import("/dashboard/periods.js");
  const day = (n) => `2026-01-0${n}T00:00:00Z`;
  const query = { window: kind === "window" ? 86400 : null };
  let level = 0;
  const ends = runs.map((values) => {
    const releases = values.map((value, i) => ({
      number: i + 1, value, level: 0.95, interval: [value - half, value + half], time: day(i + 2),
      ...(kind === "window" ? { window: [day(i + 1), day(i + 2)] } : { end: day(i + 2) }),
    }));
    const found = comparison(query, kind === "growth", releases, "day", Date.parse(day(4)) / 1000);
    level = found.level;
    return [found.change.low, found.change.high];
  });
  return { level, ends };
}"""


def test_labels_of_axes_are_whole_and_never_the_same_twice(shop: Serving, visit: Open) -> None:
    page = visit(shop)
    live(page)
    for name, width in product(("page views in all", "page views by hour", "average wait"), (1280, 390)):
        resize(page, width)
        for period in ("hour", "day", "week", "all"):
            page.goto(shop.address + question(name, period))
            expect(card(page, name)).to_be_visible()
            for axis in page.evaluate(LABELS):
                texts = [text for text, *_ in axis]
                assert len(set(texts)) == len(texts), f"{name}, {period}: {texts}"
                for text, left, right, low, high in axis:
                    assert left >= -0.5 and right <= high + 0.5 and low >= 0, f"{name}, {period}: {text} is cut"
                for one, other in zip(axis, axis[1:], strict=False):
                    assert one[2] <= other[1] or one[1] == other[1] or one[3] != other[3], f"{one} and {other} overlap"
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
            points, shown = page.evaluate(MARKED)
            assert points <= 40 and (shown or not points), "a dot per answer only while they can be told apart"


# Dots and lines, both of one moment: the picture is drawn anew with every answer.
MARKED = """() => [".plot circle.point:not([visibility])", ".plot .line"].map(
  (each) => document.querySelectorAll(each).length)"""

# Per axis: every label's text, its left and right edge, its top and the width of the picture.
LABELS = """() => [...document.querySelectorAll(".plot svg")].filter((svg) => svg.checkVisibility()).flatMap((svg) => {
  const frame = svg.getBoundingClientRect();
  const all = [...svg.querySelectorAll("text")].map((node) => {
    const box = node.getBoundingClientRect();
    return [node.textContent, box.left - frame.left, box.right - frame.left, box.top - frame.top, frame.width,
      node.getAttribute("text-anchor")];
  });
  return ["middle", "end"].map((anchor) => all.filter((each) => each[5] === anchor).map((each) => each.slice(0, 5)));
})"""


def test_marks_of_any_axis_are_unique_and_inside(shop: Serving, visit: Open) -> None:
    """Ranges of every size, from thousandths to billions and from seconds to decades."""
    draw = np.random.default_rng(3)
    values = [(low, low + 10.0 ** draw.uniform(-3, 9)) for low in draw.uniform(-1e3, 1e6, 300)]
    times = [(begin, begin + 10.0 ** draw.uniform(0.5, 9.2)) for begin in draw.uniform(0, 2e9, 300)]
    found = visit(shop).evaluate(MARKS, [values, times])
    for (low, high), marks in zip([*values, *times], found, strict=True):
        labels = [each["label"] for each in marks]
        assert len(set(labels)) == len(labels), (low, high, labels)
        assert all(low - 1e-6 * (high - low) <= each["at"] <= high + 1e-6 * (high - low) for each in marks)
    assert all(len(marks) >= 2 for marks in found[: len(values)])


MARKS = """async ([values, times]) => {
  const { timeTicks, valueTicks } = await import("/dashboard/ticks.js");
  return [...values.map(([low, high]) => valueTicks(low, high, 5)),
    ...times.map(([from, to]) => timeTicks(from, to, (label) => (label.length * 8 * (to - from)) / 600))];
}"""


def test_answers_of_a_question_can_be_saved(shop: Serving, visit: Open) -> None:
    page = visit(shop, question("views by device"))
    live(page)
    releases = published(shop, "views by device")
    with page.expect_download() as saved:
        page.get_by_role("button", name="Save CSV").click()
    assert saved.value.suggested_filename == "views-by-device.csv"
    with saved.value.path().open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["query"], float(row["low"])) for row in rows] == [(r["series"], r["interval"][0]) for r in releases]
    with page.expect_download() as saved:
        page.get_by_role("button", name="Save JSON").click()
    assert json.loads(saved.value.path().read_text()) == {"releases": releases}


def sizes(page: Page) -> list[float]:
    return [number(text.split()[0]) for text in page.locator(".group .number").all_inner_texts()]


def test_many_groups_are_sorted_and_found_by_typing(shop: Serving, visit: Open) -> None:
    page = visit(shop, question("views by page"))
    live(page)
    shown = card(page, "views by page")
    expect(shown.locator(".group")).to_have_count(len(PAGES))
    assert sizes(page) == sorted(sizes(page), reverse=True)
    shown.get_by_label("Find a name in views by page").fill("PEAR")
    expect(shown.locator(".group")).to_have_count(1)
    shown.get_by_role("button", name="/shop/pears").click()
    expect(shown.get_by_role("heading", name="/shop/pears")).to_be_visible()
    shown.get_by_label("Find a name").fill("nothing like it")
    expect(shown).to_contain_text("Nothing of this name is listed.")


def test_names_that_nobody_listed(tmp_path_factory: pytest.TempPathFactory, visit: Open) -> None:
    with serving(tmp_path_factory.mktemp("names"), config=NAMES) as own:
        fill_names(own)
        page = visit(own)
        live(page)
        expect(page.locator(".tile dt").first).to_have_text(PAGES[0])
        page.get_by_role("link", name="popular pages").click()
        shown = card(page, "popular pages")
        expect(shown.get_by_role("heading", name="Any name")).to_be_visible()
        expect(shown).to_contain_text(re.compile(r"Names with at least [\d,]+ events are listed \(95%\)"))
        assert sizes(page)[0] == pytest.approx(6400, abs=60)
        shown.get_by_role("button", name=PAGES[1]).click()
        expect(shown.locator(".figure")).to_have_text(re.compile(r"^3,[12]\d\d$"))
        # A line between equal numbers has no height, which Playwright takes for hidden.
        expect(shown.locator(".plot .line")).to_have_attribute("d", re.compile(r"^M[\d.]+,[\d.]+L"))
        for width in (1280, 390):
            resize(page, width)
            assert page.evaluate(CLIPPED) == []
            photograph(page, f"names-{width}")
        page.close()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_question_fits_any_width(shop: Serving, visit: Open, theme: Any) -> None:
    page = visit(shop, color_scheme=theme)
    for name, period in {"visitors a day": "week", "views by page": "week", "page views in all": "day"}.items():
        page.goto(shop.address + question(name, period))
        live(page)
        for width in (1280, 390):
            resize(page, width, 844)
            assert page.evaluate(CLIPPED) == []
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
            photograph(page, f"shop-{name.replace(' ', '-')}-{theme}-{width}")


def test_single_answers_are_read_by_keyboard(shop: Serving, visit: Open) -> None:
    page = visit(shop, question("visitors a day"))
    live(page)
    days = published(shop, "visitors a day")
    page.get_by_role("img", name="History of visitors a day").focus()
    for key, place in (("ArrowLeft", -1), ("ArrowLeft", -2), ("Home", 0)):
        page.keyboard.press(key)
        said = page.locator(".readout").inner_text()
        low = re.search(r"95%: (\S+) to", said)
        assert low and number(low[1]) == pytest.approx(days[place]["interval"][0], rel=1e-2), said
