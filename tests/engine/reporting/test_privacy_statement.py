"""The page for people who are not engineers says what the claims say, in full, and needs nothing else."""

import math
import re
from datetime import date
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import pytest

from panstream.engine.config.config import Config, load_config, read_config
from panstream.engine.reporting.explain import explain
from panstream.engine.reporting.privacy_statement import statement

ROOT = Path(__file__).parents[3]
CLINIC = ROOT / "examples" / "clinic.toml"


def page_of(config: Config) -> str:
    return statement(config, source="panstream.toml", digest="ab" * 32, today=date(2026, 3, 9))


def words(page: str) -> str:
    return unescape(re.sub(r"<[^>]*>", " ", page.partition("</head>")[2]))


def small(query: dict[str, object], **stream: object) -> Config:
    columns = {"who": "string", "at": "timestamp", "n": "int", "unused": "double"}
    first = {"name": "q", "sql": "SELECT COUNT(*) FROM s WHERE n > 3", "epsilon": 1.0}
    return read_config({"stream": {"name": "s", "columns": columns, **stream}, "query": [first | query]})


def test_every_section_question_and_proof_is_there() -> None:
    config = load_config(CLINIC)
    page = page_of(config)
    text = words(page)
    for title in (
        "What is collected",
        "What is kept",
        "What a thief would see",
        "What is published, and how often",
        "The numbers",
        "What is not protected",
        "What this rests on",
    ):
        assert f"<h2>{title}</h2>" in page
    for plan in explain(config).plans:
        assert plan.config.name in text
        assert plan.config.sql in text
        assert all(fact in text for fact in plan.claim.public)
    assert all(warning in text for warning in explain(config).to_json()["warnings"])
    assert "9 March 2026" in text and "ab" * 32 in text
    proofs = re.findall(r"docs/[a-z/-]+\.md", text)
    assert proofs and all((ROOT / proof).is_file() for proof in proofs)


def test_chances_enclose_what_epsilon_allows() -> None:
    for epsilon in (0.01, 0.5, 1.0, 3.0, 30.0, 800.0):
        text = words(page_of(small({"epsilon": epsilon})))
        (claimed,) = [plan.claim.epsilon for plan in explain(small({"epsilon": epsilon})).plans]
        found = re.findall(r"([\d.]+)%\sto\s([\d.]+)%", text)
        for (low, high), prior in zip(found, (0.5, 0.01, 0.5, 0.01), strict=True):  # the question, and the total
            factor = math.exp(min(claimed, 700.0))
            worst = prior / (prior + (1 - prior) * factor)
            best = prior / (prior + (1 - prior) / factor)
            assert 100 * worst - 0.1 <= float(low) <= 100 * worst + 1e-9
            assert 100 * best - 1e-9 <= float(high) <= 100 * best + 0.1 + 1e-9


def test_it_fetches_nothing_and_takes_no_markup_from_the_configuration() -> None:
    config = small({"name": "<script>alert(1)</script>\u202e", "sql": "SELECT COUNT(*) FROM s WHERE n < 3 AND n > 1"})
    page = page_of(config)
    seen: list[tuple[str, list[str]]] = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            seen.append((tag, [name for name, _ in attrs]))

    Reader().feed(page)
    assert not {tag for tag, _ in seen} & {"script", "link", "img", "iframe", "a"}
    assert not {name for _, names in seen for name in names} & {"src", "href", "style", "onload"}
    assert "url(" not in page and "@import" not in page
    assert "<script>alert(1)</script>\\u202e" in words(page)
    assert "\u202e" not in page


@pytest.mark.parametrize(
    ("query", "stream", "said"),
    [
        ({}, {}, "the limit is for a single row, so k rows can lose k times as much"),
        ({}, {}, "not read: no question needs it"),
        ({"contributions": 5}, {"user": "who"}, "Someone with more than 5 rows"),
        ({"contributions": 5}, {"user": "who"}, "one person (one who), with 5 rows at most"),
        ({"sql": "SELECT COUNT(DISTINCT who) FROM s"}, {"user": "who"}, "one person (one who)"),
        (
            {"sql": "SELECT COUNT(DISTINCT who) FROM s", "window": "1 day"},
            {"user": "who", "time": "at"},
            "one person (one who) within 1 day",
        ),
        (
            {"sql": "SELECT COUNT(DISTINCT who) FROM s", "announced": 1},
            {"user": "who"},
            "1, if reported before another row is counted, and 1 unnoticed after the last report",
        ),
        (
            {"sql": "SELECT COUNT(DISTINCT who) FROM s", "announced": 1},
            {"user": "who"},
            "A break-in that is reported after further rows were counted, in “q”",
        ),
        ({}, {}, "any number, if reported, and 1 unnoticed after the last report"),
        ({}, {"budget": {"event": 2.0}}, "The declared budget of all questions for one row is ε = 2"),
    ],
)
def test_it_says_what_the_claim_says(query: dict[str, object], stream: dict[str, object], said: str) -> None:
    assert said in words(page_of(small(query, **stream)))


def test_what_files_cost_on_top_is_told() -> None:
    said = "the share of rows that could not be used is published once, too: ε = 0.05 on top of each total above."
    assert said in words(page_of(small({})))
    assert "could not be used" not in words(page_of(small({}, unusable_epsilon=0)))


def test_it_says_where_the_state_is(tmp_path: Path) -> None:
    def stored(**store: str) -> str:
        data = {
            "stream": {"name": "s", "columns": {"n": "int"}},
            "store": store,
            "query": [{"name": "q", "sql": "SELECT COUNT(*) FROM s", "epsilon": 1.0}],
        }
        return words(page_of(read_config(data, base=tmp_path)))

    assert "names no directory" in stored()
    assert "its disk, or both at the same time" in stored(directory="state")
    assert "memory (not its disk)" in stored(directory="state", durability="interval")
    assert str(tmp_path) not in stored(directory="state")


@pytest.mark.parametrize(
    ("cells", "together"),
    [
        ("exact", "both together are the exact state"),
        ("noisy", "both together are a noisy state, of which one copy is covered and a second is not"),
    ],
)
def test_two_machines_have_a_page_that_says_what_both_show(cells: str, together: str, tmp_path: Path) -> None:
    config = read_config(
        {
            "stream": {"name": "s", "columns": {"who": "int"}, "user": "who", "machines": ["https://a", "https://b"]},
            "two_party": {
                "names": ["a", "b"],
                "certificate": "f.pem",
                "key": "f.key",
                "authority": "authority.pem",
                "cells": cells,
            },
            "store": {"directory": str(tmp_path)},
            "query": [{"name": "q", "sql": "SELECT COUNT(DISTINCT who) FROM s", "epsilon": 1.0}],
        }
    )
    text = words(page_of(config))
    assert text.count(together) == 3
    assert "SharedDistinct: docs/proofs/two-machines.md" in text
    assert "What the proofs assume: AES-256-CTR, X25519, TLS 1.3" in text
    for sentence in ("A second copy that nobody noticed", "Repeated looks at the memory", "A noisy state for each"):
        assert sentence not in text


def test_a_delta_is_told_with_the_chance_that_the_bounds_hold() -> None:
    names = {"sql": "SELECT who, COUNT(*) FROM s GROUP BY who ORDER BY COUNT(*) DESC LIMIT 5", "max_item_bytes": 8}
    config = small({**names, "delta": 1e-6})
    (plan,) = explain(config).plans
    text = words(page_of(config)).replace("\N{NO-BREAK SPACE}", " ")
    chance = plan.loss_exceeds()
    assert 1e-5 < chance < 4e-5
    reported = re.search(r"hold with a probability of 1 - ([0-9.e-]+), over the noise", text)
    assert reported is not None and chance <= float(reported[1]) < 1.01 * chance
    twice = re.search(r"twice the ε with 1 - ([0-9.e-]+)\.", text)
    assert twice is not None and float(twice[1]) < 1e-10
    assert "only with the probability that is given below" in text
    assert f"but for a chance of at most {reported[1]}" in text
    assert text.count("δ = 1e-06") == 3  # of the question, of the total, and in words
    assert text.count("depend on earlier answers") == 3  # in words, in the claim's note, and where the proofs are
    pure = words(page_of(small(names)))
    assert "δ" not in pure and "but for a chance" not in pure and "depend on earlier" not in pure
