"""What ``panstream web`` proposes for a site of some size."""

import tomllib
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from scipy.stats import binom

from benchmarks.accuracy.web_profiles import SAMPLE, day_config, measure, truths, views_of
from panstream.engine.config.config import load_config, read_config
from panstream.engine.config.website import Source
from panstream.engine.planner.event_total import event_loss
from panstream.engine.planner.person_period import planned_person_total
from panstream.engine.planner.query_plan import plan_all
from panstream.engine.presets._counter_queries import share_beyond, with_counters
from panstream.engine.presets._website_queries import DAY, website_queries
from panstream.engine.presets.website import Proposal, propose_queries
from panstream.engine.presets.website_spec import WebsiteSpec
from panstream.engine.presets.website_text import to_text, to_toml
from panstream.engine.reporting.privacy_statement import statement
from panstream.engine.rows.row_batch import RowSchema
from panstream.engine.runtime.engine import Engine
from panstream.engine.runtime.ingest import ingest
from panstream.engine.runtime.selector import Selector
from panstream.engine.sources.formats.beacons import parse_beacons
from panstream.errors import ConfigError, InvalidParameter

MACHINES = {
    "machines": ["https://a.example:8443", "https://b.example:8443"],
    "names": ["a", "b"],
    "certificate": "front.pem",
    "key": "front.key",
    "authority": "authority.pem",
}
LOG = """\
10.0.0.1 - - [10/Oct/2024:13:55:36 +0000] "GET /blog/a HTTP/1.1" 200 9 "https://www.search.example/q" "Firefox"
10.0.0.1 - - [10/Oct/2024:13:55:37 +0000] "GET /blog/b HTTP/1.1" 200 9 "https://example.org/blog/a" "Firefox"
10.0.0.1 - - [10/Oct/2024:13:55:38 +0000] "GET / HTTP/1.1" 304 0 "-" "iPhone Mobile"
10.0.0.2 - - [10/Oct/2024:13:55:39 +0000] "GET /style.css HTTP/1.1" 200 9 "-" "Firefox"
10.0.0.3 - - [10/Oct/2024:13:55:40 +0000] "GET / HTTP/1.1" 200 9 "-" "Googlebot/2.1"
10.0.0.4 - - [10/Oct/2024:13:55:41 +0000] "GET / HTTP/1.1" 500 9 "-" "Firefox"
10.0.0.5 - - [10/Oct/2024:13:55:42 +0000] "GET /shop/x?utm_campaign=may HTTP/1.1" 200 9
"""


@pytest.fixture(scope="module")
def small() -> Proposal:
    return propose_queries(WebsiteSpec(site="www.Example.org"))


@pytest.mark.slow
def test_daily_visitors_of_a_small_site_are_within_a_quarter(small: Proposal) -> None:
    daily = next(each for each in small.asked if each.question.name == "visitors per day")
    assert small.site.site == "example.org"
    assert daily.error <= 0.25 * 1_000


def test_every_question_is_asked_or_left_out_by_name(small: Proposal) -> None:
    names = [each.question.name for each in small.asked] + [name for name, _ in small.left_out]
    assert sorted(names) == sorted(question.name for question in website_queries())
    assert "countries" in dict(small.left_out)
    assert all(each.useful for each in small.asked)


def test_the_text_tells_errors_units_and_losses(small: Proposal) -> None:
    text = to_text(small)
    for expected in (
        "1,000/day",
        "100,000/day",
        "visitor's week",
        "2e-07",
        "not bounded",
        "Nothing is stored in browsers.",
        "one visitor, any 30 days, the questions about visitors, one intrusion: epsilon 3.99",
        "one page view, the other questions together: epsilon ",
        "left out",
        "not a person",
    ):
        assert expected in text


def test_the_file_is_the_configuration(small: Proposal, tmp_path: Path) -> None:
    (tmp_path / "site.toml").write_text(to_toml(small))
    assert tomllib.loads((tmp_path / "site.toml").read_text()) == small.config()
    loaded = load_config(tmp_path / "site.toml")
    assert loaded.web is not None
    assert loaded.web.origins[0] == "https://example.org"
    assert [query.name for query in loaded.queries] == [each.question.name for each in small.asked]


@pytest.mark.parametrize("source", ["beacon", "log"])
def test_duckdb_sees_nothing_of_visitors(source: Source) -> None:
    """Its allocator keeps residue of what it is given."""
    with Selector(read_config(propose_queries(WebsiteSpec(site="example.org", source=source)).config())) as select:
        assert select._evaluator._duck.columns == ()


def test_two_machines_are_asked_what_they_can_answer() -> None:
    proposal = propose_queries(WebsiteSpec(site="example.org", machines=MACHINES))
    asked = {each.question.name for each in proposal.asked}
    assert {"visitors per day", "page views per day", "devices"} <= asked
    assert "pages" in dict(proposal.left_out)
    assert proposal.person_total().bounded.epsilon <= 4.0
    one = {each.question.name: each for each in propose_queries(WebsiteSpec(site="example.org")).asked}
    for each in proposal.asked:
        if each.question.name == "visitors per day":
            assert each.error < 0.5 * one["visitors per day"].error, "no noise in states"
    assert read_config(proposal.config()).two_party is not None


def test_what_is_listed_is_counted_in_groups() -> None:
    site = WebsiteSpec(site="example.org", visitors=10_000, sections=("blog", "/shop/"), countries=("de",))
    keys = {each.question.name: each.keys for each in propose_queries(site).asked}
    assert keys["sections"]["groups"] == {"section": ["/blog", "/shop"]}
    assert keys["countries"]["groups"] == {"country": ["DE"]}


@pytest.mark.parametrize(
    "values",
    [
        {"site": "a b"},
        {"site": "x.org", "visitors": 0},
        {"site": "x.org", "person": -1.0},
        {"site": "x.org", "page_view": 0.0},
    ],
)
def test_nonsense_is_refused(values: dict[str, object]) -> None:
    with pytest.raises((InvalidParameter, ConfigError), match="must be"):
        WebsiteSpec(**values)  # type: ignore[arg-type]


def test_a_log_is_counted_as_it_reads(tmp_path: Path) -> None:
    """Without noise: views, visits and errors of seven lines, counted by hand."""
    site = WebsiteSpec(site="example.org", visitors=10_000, source="log", sections=("blog", "shop"), campaigns=("may",))
    config = propose_queries(site).config()
    config["store"] = {}
    config["stream"]["max_ahead"] = "any"
    wanted = {"page views per day", "sections", "campaigns", "devices", "errors per hour"}
    config["query"] = [query for query in config["query"] if query["name"] in wanted]
    del config["stream"]["budget"]
    (tmp_path / "access.log").write_text(LOG)
    with Engine(read_config(config), zero_noise=True) as engine:
        ingest(engine, [str(tmp_path / "access.log")])
        engine.finish()
        found = {release.query: release.record["value"] for release in engine.log.latest(None, limit=100)}
    assert found == {
        "page views per day": 4,
        "sections [section=/blog]": 2,
        "sections [section=/shop]": 1,
        "campaigns [campaign=may]": 1,
        "devices [device=desktop]": pytest.approx(1, abs=1e-3),
        "devices [device=mobile]": pytest.approx(1, abs=1e-3),
        "devices [device=tablet]": pytest.approx(0, abs=1e-3),
        "devices [device=other]": pytest.approx(1, abs=1e-3),
        "errors per hour": 1,
    }


@pytest.mark.parametrize("visitors", [1_000, 10_000, 100_000])
@pytest.mark.parametrize("source", ["beacon", "log"])
def test_one_visitor_has_one_number_to_the_questions_about_visitors(visitors: int, source: Source) -> None:
    proposal = propose_queries(WebsiteSpec(site="example.org", visitors=visitors, source=source))
    config = read_config(proposal.config())
    total = planned_person_total(config, plan_all(config))
    assert {share.name for share in total.bounded.shares} == {
        each.question.name for each in proposal.asked if each.question.per_visitor
    }
    assert {share.name for share in total.unbounded} == set(config.stream.person.allow_unbounded)
    assert 3.9 <= total.bounded.epsilon <= 4.0 and total.bounded.stated_delta == 0.0
    assert all(share.bounded_by == "shape" for share in total.bounded.shares)


def test_one_page_view_has_one_number_to_the_other_questions() -> None:
    for page_view in (1.0, 3.0):
        proposal = propose_queries(WebsiteSpec(site="example.org", visitors=10_000, page_view=page_view))
        epsilon, delta = proposal.page_view_loss()
        assert 0.9 * page_view < epsilon <= page_view and 0 < delta <= 1e-6
        readers = [each.question.name for each in proposal.asked if "event = 'view'" in each.question.sql]
        rest = {each.question.name for each in proposal.asked} - set(readers)
        assert rest == {"events", "load time", "errors per hour"}, "whose rows are no page views"


def test_the_loss_of_a_page_view_is_that_of_all_its_questions() -> None:
    proposal = propose_queries(WebsiteSpec(site="example.org", visitors=10_000))
    plans = [each.plan for each in proposal.asked if each.plan.claim.unit == "event" and each.question.of_views]
    epsilon, delta = event_loss(plans, 1e-6)
    assert (epsilon, delta) == proposal.page_view_loss()
    assert event_loss(plans[:-1], 1e-6)[0] < epsilon, "one question less"
    assert epsilon <= sum(plan.claim.epsilon for plan in plans) * (1 + 1e-12)
    with pytest.raises(InvalidParameter, match="protects one user-window, not one row"):
        event_loss([each.plan for each in proposal.asked if each.question.per_visitor], 1e-6)


def test_device_and_country_follow_from_the_id() -> None:
    """One id is in one group, whatever it does: rows that differ in device or country differ in the id."""
    agents = ["Mozilla/5.0 (iPhone) Mobile", "Mozilla/5.0 (Macintosh)", "Mozilla/5.0 (iPad)", "PlayStation"]
    lines = [
        f"example.org 192.0.2.1\n{agent}\n{language}\n{{}}\n"
        for agent in agents
        for language in ("de-AT", "de-DE", "en-US", "fr")
    ]
    data = bytearray("".join(lines).encode())
    schema = RowSchema(columns={"visitor": "int", "device": "string", "country": "string"}, user="visitor")
    rows = parse_beacons(data, len(data), schema).columns.to_pylist()
    groups: dict[int, set[tuple[str, str]]] = {}
    for row in rows:
        groups.setdefault(row["visitor"], set()).add((row["device"], row["country"]))
    assert len(rows) == 16 and {len(found) for found in groups.values()} == {1}


def test_a_list_of_pages_takes_the_place_of_names() -> None:
    pages = ("/", "/blog/a", "/blog/b", "/shop")
    proposal = propose_queries(WebsiteSpec(site="example.org", visitors=10_000, pages=pages))
    asked = {each.question.name: each for each in proposal.asked}
    assert asked["pages"].keys["groups"] == {"path": list(pages)}
    assert asked["sections"].keys["groups"] == {"section": ["/", "/blog", "/shop"]}
    named = {
        each.question.name: each for each in propose_queries(WebsiteSpec(site="example.org", visitors=10_000)).asked
    }
    assert named["pages"].threshold is not None
    assert asked["pages"].error < named["pages"].threshold / 10


@pytest.fixture(scope="module")
def with_counter() -> Proposal:
    return propose_queries(WebsiteSpec(site="example.org", visitors=10_000, counter=True))


def test_a_counter_gives_one_number_for_all_questions(with_counter: Proposal) -> None:
    config = read_config(with_counter.config())
    total = planned_person_total(config, plan_all(config))
    assert total.is_bounded and 1.9 <= total.epsilon <= 2.0 and total.stated_delta <= 1e-6
    assert all(query.bounded_by == "sender" and query.contributions for query in config.queries)
    assert not config.stream.person.allow_unbounded and config.stream.user is None
    assert config.web is not None and config.web.counter and len(config.web.origins) == 1
    assert len(with_counter.asked) >= 12, "of 15"


def test_what_a_cap_leaves_out_is_printed(with_counter: Proposal) -> None:
    text = to_text(with_counter)
    assert "page views per day: at most 16 page views per visitor and day; about 10% of all are expected" in text
    assert "# counts at most 16 page views per visitor and day" in to_toml(with_counter)
    assert "visitors per day: at most" not in text
    assert "at most" not in to_text(propose_queries(WebsiteSpec(site="example.org", visitors=1_000)))


def test_larger_sites_count_more_page_views_of_a_visitor() -> None:
    """And what is expected to be left out is what is left out of a real log, to within 6 in 100."""
    questions = {question.name: question for question in website_queries()}
    caps = {}
    for visitors in (1_000, 5_000, 20_000, 100_000):
        (counted,) = with_counters([questions["page views per day"]], visitors)
        caps[visitors] = counted.caps[0]
    assert caps == {1_000: 8, 5_000: 12, 20_000: 16, 100_000: 32}
    views = Counter(host for host, _, _ in views_of(SAMPLE))
    mean = views.total() / len(views)
    for cap in (2, 4, 8, 16, 32, 64):
        beyond = sum(max(0, count - cap) for count in views.values()) / views.total()
        expected = share_beyond(replace(questions["page views per day"], daily=mean), DAY, cap)
        assert beyond == pytest.approx(expected, abs=0.06), cap


def test_its_statement_begins_with_that_number(with_counter: Proposal) -> None:
    config = read_config(with_counter.config())
    page = statement(config, source="site.toml", digest="0" * 64, now=datetime(2026, 3, 9, tzinfo=UTC))
    short = page.partition("<h2>In short</h2>")[2]
    assert short.startswith("<ul><li>Whatever one visitor did in any 30 days: someone who copies")
    assert "but for one chance in" in short.partition("</li>")[0]
    assert "Not bounded" not in page


def test_a_counter_is_explained_and_written(with_counter: Proposal) -> None:
    text = to_text(with_counter)
    assert "one visitor, any 30 days, all questions, one intrusion: epsilon 2, delta 1e-06" in text
    assert "needs consent" in text and "10,000/day" in text
    assert tomllib.loads(to_toml(with_counter)) == with_counter.config()


@pytest.mark.parametrize("values", [{"source": "log"}, {"machines": MACHINES}])
def test_a_counter_is_for_beacons_of_one_machine(values: dict[str, Any]) -> None:
    with pytest.raises(InvalidParameter, match="a counter is for beacons"):
        WebsiteSpec(site="example.org", counter=True, **values)


@pytest.mark.slow
@pytest.mark.parametrize(("profile", "runs"), [("default", 12), ("counter", 12)])
def test_intervals_cover_what_is_counted_of_a_real_log(profile: str, runs: int) -> None:
    """Every figure is inside its 95% interval often enough: a false alarm in 1e6 runs of this test."""
    views = views_of(SAMPLE)
    config = day_config(profile, 2_000)
    caps = {query.name: query.contributions for query in config.queries}
    found = measure(views, config, runs)
    assert len(found) > 2
    least = binom.ppf(1e-6 / len(found), runs, 0.95)
    for (query, name), answers in found.items():
        truth = truths(views, caps[query])[query, name]
        assert sum(low <= truth <= high for _, low, high in answers) >= least, (query, name)
    if profile == "counter":
        assert truths(views, caps["page views per day"])["page views per day", ""] < len(views), "a cap leaves out rows"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("row", "options"),
    [
        ("nothing stored", {}),
        ("the same", {"source": "log"}),
        ("`--counter`", {"counter": True}),
        ("`--two-machines`", {"machines": MACHINES}),
    ],
)
def test_the_tutorial_says_from_which_size_visitors_are_counted(row: str, options: dict[str, Any]) -> None:
    """At the size that it names a question is asked, and with one visitor less it is not."""
    text = (Path(__file__).parents[3] / "docs" / "tutorial" / "my-site.md").read_text()
    (line,) = [line for line in text.splitlines() if line.startswith(f"| {row}")]
    sizes = [int(cell) for cell in line.split("|")[2:5]]
    for window, size in zip(("month", "week", "day"), sizes, strict=True):
        name = f"visitors per {window}"
        assert name in asked_at(size, options)
        assert size == 1 or name not in asked_at(size - 1, options)


def asked_at(visitors: int, options: dict[str, Any]) -> set[str]:
    try:
        proposal = propose_queries(WebsiteSpec(site="example.org", visitors=visitors, **options))
    except InvalidParameter:
        return set()
    return {candidate.question.name for candidate in proposal.asked}


def test_who_came_back_on_two_machines() -> None:
    """Epsilon 1 for each of the six weeks that 30 days meet, at a horizon; on one machine it is 11.7."""
    spec = WebsiteSpec(site="example.org", visitors=1_000, retention=True, machines=MACHINES)
    assert spec.retention_loss() == pytest.approx(6.0, abs=0.01)
    proposal = propose_queries(spec)
    (question,) = (candidate for candidate in proposal.asked if candidate.question.name == "returning visitors")
    assert question.question.keys == {"epsilon": 1.0, "horizon": 520}
    assert "who came back takes 6: answers only; cells of four past weeks stay as shares" in to_text(proposal)


def test_who_came_back_raises_the_visitors_number_and_is_refused_below_it() -> None:
    spec = WebsiteSpec(site="example.org", visitors=1_000, retention=True)
    loss = spec.retention_loss()
    assert spec.budget == pytest.approx(4.0 + loss)
    proposal = propose_queries(spec)
    names = [candidate.question.name for candidate in proposal.asked]
    assert "returning visitors" in names
    assert "visitors per week" not in names  # it is one of the answers
    assert proposal.person_total().bounded.epsilon <= spec.budget
    assert "who came back takes" in to_text(proposal)
    with pytest.raises(InvalidParameter, match="person must be above"):
        WebsiteSpec(site="example.org", visitors=1_000, retention=True, person=loss)
    with pytest.raises(InvalidParameter, match="knows no visitors"):
        WebsiteSpec(site="example.org", retention=True, counter=True)
