"""The page "What an intruder sees": its odds are those of the library's own mathematics, and stay within e^±epsilon."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from panstream.algorithms.distinct.bitmap import Bitmap
from panstream.privacy.joint_loss import symmetric_loss
from tests.browser.conftest import Open
from tests.browser.serving import Serving

pytestmark = pytest.mark.slow
MODEL = "import('/dashboard/model.js')"


@pytest.fixture
def page(server: Serving, visit: Open) -> Page:
    return visit(server, "/#/intruder")


def test_laws_are_the_library_s(page: Page) -> None:
    laws = page.evaluate(f"{MODEL}.then((m) => [m.BUCKETS, m.LEVELS, [...m.SPLITS.keys()].map(m.law)])")
    buckets, levels, found = laws
    for each in found:
        claim = Bitmap(epsilon=each["epsilon"], buckets=buckets, levels=levels).claim()
        assert each["state"] == pytest.approx(claim.parts["state"], rel=1e-6)
        assert each["p1"] == pytest.approx(1 / (1 + math.exp(-each["state"])))
        assert symmetric_loss(each["state"], each["kappa"]) == pytest.approx(each["epsilon"], rel=1e-9)


def brute_force(bit: int, published: int, when: str, shared: tuple[bool, bool], rules: dict[str, Any]) -> float:
    """Return P(bit, published | came) / P(bit, published | did not), summing over both bits of the cell by hand."""
    p0 = rules["p0"]
    p1 = rules["p1"]
    kappa = rules["kappa"]

    def view(came: tuple[bool, bool]) -> float:
        first = p1 if came[0] or shared[0] else p0
        seen = first if bit else 1 - first
        later = [(1 - p1, 0), (p1, 1)] if came[1] or shared[1] else [(1.0, bit)]
        return seen * sum(weight * math.exp(-kappa * abs(published - own)) for weight, own in later)

    return view((when != "afternoon", when != "morning")) / view((False, False))


def test_odds_against_brute_force_and_bound(page: Page) -> None:
    """One cell alone on its level: the memory's bit and every published number that matters."""
    cases = list(
        product((0.25, 1, 4), (0, 1), range(-40, 42, 3), ("morning", "afternoon", "both"), (False, True), (False, True))
    )
    answers = page.evaluate(
        f"""(cases) => {MODEL}.then((m) => cases.map(([epsilon, bit, out, when, morning, afternoon]) => {{
          const seen = new Uint8Array(m.CELLS); seen[0] = bit;
          const others = {{ morning: new Set(morning ? [0] : []), afternoon: new Set(afternoon ? [0] : []) }};
          const published = Array(m.LEVELS).fill(out);
          const found = m.factors({{ cell: 0, when, others, seen, published, rules: m.law(epsilon) }});
          return [found.memory, found.both, m.law(epsilon)];
        }}))""",
        cases,
    )
    worst: dict[float, float] = {}
    for (epsilon, bit, out, when, *shared), (memory, both, rules) in zip(cases, answers, strict=True):
        assert both == pytest.approx(brute_force(bit, out, when, tuple(shared), rules), rel=1e-9)
        assert abs(math.log(memory)) <= rules["state"] + 1e-9
        assert abs(math.log(both)) <= epsilon + 1e-9
        worst[epsilon] = max(worst.get(epsilon, 0.0), abs(math.log(both)))
    for epsilon, state, kappa, p1 in {
        (e, r["state"], r["kappa"], r["p1"]) for (e, *_), (_, _, r) in zip(cases, answers, strict=True)
    }:
        # "Came" against "never came"; the whole epsilon is reached by "came later" against "came earlier".
        largest = state - math.log(1 - p1 + p1 * math.exp(-kappa))
        assert worst[epsilon] == pytest.approx(largest, rel=1e-6), "the worst case is among the cases"


def test_shown_odds_stay_within_the_bound_for_any_id(page: Page) -> None:
    """A crowd, all settings, many ids typed in: the page itself must show odds within the bounds it draws."""
    expect(page.get_by_role("heading", name="What she learns")).to_be_visible()
    for epsilon, when, came in product(("0.25", "1", "4"), ("morning", "afternoon", "both"), ("yes", "no")):
        page.get_by_label("Privacy").select_option(epsilon)
        page.get_by_label("The visit in question").select_option(when)
        page.get_by_label("In truth").select_option(came)
        for who in ("", "maria@example.org", "visitor 3", "<b>&\u202e" + "x" * 150):
            page.get_by_label("Anyone’s id").fill(who)
            shown = page.locator(".verdict").evaluate(
                "(node) => [Number(node.dataset.memory), Number(node.dataset.both)]"
            )
            assert max(map(abs, shown)) <= float(epsilon) + 1e-9
    assert page.evaluate("document.querySelectorAll('.verdict b b').length") == 0, "what is typed stays text"


def test_names_of_strangers_are_shown_as_they_are_written(page: Page) -> None:
    shown = page.evaluate(
        """(name) => import('/dashboard/dom.js').then(({ h, say, show }) => {
          const [made, said, held] = [h("p", { title: name, id: name }, name), h("p"), h("p")];
          say(said, name);
          show(held, name, h("b", null, "x"));
          return [made.textContent, made.title, said.textContent, held.textContent, made.id];
        })""",
        "<b>ü\u202e\x1b\U000e0041\n",
    )
    escaped = "<b>ü\\u202e\\x1b\\U000e0041\n"
    assert shown == [escaped, escaped, escaped, f"{escaped}x", "<b>ü\u202e\x1b\U000e0041\n"]


def test_hash_spreads_ids_as_the_library_s_does(page: Page) -> None:
    counts = page.evaluate(
        f"""{MODEL}.then((m) => {{ const levels = Array(m.LEVELS).fill(0);
          for (let i = 0; i < 40960; i++) levels[Math.floor(m.cellOf("person " + i) / m.BUCKETS)]++;
          return levels; }})"""
    )
    for level, count in enumerate(counts):
        share = 0.5 ** min(level + 1, len(counts) - 1)
        assert abs(count - 40960 * share) < 6 * math.sqrt(40960 * share) + 6


def test_it_asks_the_server_for_nothing(page: Page, server: Serving) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url) if request.method != "GET" else None)
    page.get_by_label("Anyone’s id").fill("somebody secret")
    page.get_by_role("button", name="Draw the day again").click()
    expect(page.locator(".verdict")).to_contain_text("somebody secret")
    assert asked == []
    assert "somebody secret" not in page.url
