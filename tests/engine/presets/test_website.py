"""What ``panstream web`` proposes for a site of some size."""

import tomllib
from pathlib import Path

import pytest

from panstream.engine.config.config import load_config, read_config
from panstream.engine.config.website import Source
from panstream.engine.presets._website_queries import website_queries
from panstream.engine.presets.website import Proposal, WebsiteSpec, propose_queries, to_text, to_toml
from panstream.engine.runtime.engine import Engine
from panstream.engine.runtime.ingest import ingest
from panstream.engine.runtime.selector import Selector
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
    assert "visitors per hour" in dict(small.left_out)
    assert all(each.useful for each in small.asked)


def test_the_text_tells_errors_units_and_losses(small: Proposal) -> None:
    text = to_text(small)
    for expected in (
        "1,000/day",
        "100,000/day",
        "visitor's day",
        "1, 1e-06",
        "not bounded",
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
    assert read_config(proposal.config()).two_party is not None


def test_what_is_listed_is_counted_in_groups() -> None:
    site = WebsiteSpec(site="example.org", sections=("blog", "/shop/"), countries=("de",))
    keys = {each.question.name: each.keys for each in propose_queries(site).asked}
    assert keys["sections"]["groups"] == {"section": ["/blog", "/shop"]}
    assert keys["countries"]["groups"] == {"country": ["DE"]}


@pytest.mark.parametrize(
    "values", [{"site": "a b"}, {"site": "x.org", "visitors": 0}, {"site": "x.org", "epsilon": -1.0}]
)
def test_nonsense_is_refused(values: dict[str, object]) -> None:
    with pytest.raises((InvalidParameter, ConfigError), match="must be"):
        WebsiteSpec(**values)  # type: ignore[arg-type]


def test_a_log_is_counted_as_it_reads(tmp_path: Path) -> None:
    """Without noise: views, visits and errors of seven lines, counted by hand."""
    site = WebsiteSpec(site="example.org", source="log", sections=("blog", "shop"), campaigns=("may",))
    config = propose_queries(site).config()
    config["store"] = {}
    config["stream"]["max_ahead"] = "any"
    wanted = {"page views per day", "sections", "campaigns", "devices", "errors per hour"}
    config["query"] = [query for query in config["query"] if query["name"] in wanted]
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
        "devices [device=desktop]": 1,
        "devices [device=mobile]": 1,
        "devices [device=tablet]": 0,
        "devices [device=other]": 1,
        "errors per hour": 1,
    }
