"""The page for people who are not engineers says what the claims say, in full, and needs nothing else."""

import math
import re
from datetime import UTC, datetime
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import pytest

from panstream.engine.config.config import Config, load_config, read_config
from panstream.engine.planner.accuracy import error_at
from panstream.engine.planner.person_period import planned_person_total
from panstream.engine.planner.query_plan import plan_all
from panstream.engine.reporting.explain import explain, format_error
from panstream.engine.reporting.person_sentences import person_sentences
from panstream.engine.reporting.privacy_statement import statement
from panstream.errors import ConfigError
from panstream.privacy.person_loss import PersonShare, PersonTotal, WindowLoss
from panstream.privacy.rounding import rounded_up

ROOT = Path(__file__).parents[3]
CLINIC = ROOT / "examples" / "clinic.toml"


def page_of(config: Config) -> str:
    return statement(config, source="panstream.toml", digest="ab" * 32, now=datetime(2026, 3, 9, tzinfo=UTC))


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
        "Who is responsible, and why this is done",
        "What is stored, and for how long",
        "Who has to be trusted",
        "Small groups",
        "Signature",
        "What a thief would see",
        "What is published, and how exact it is",
        "The numbers",
        "What is not protected",
        "What this rests on",
    ):
        assert f"<h2>{title}</h2>" in page
    for plan in explain(config).plans:
        assert plan.config.name in text
        assert plan.config.sql in text
        assert all(fact in text for fact in plan.claim.public)
    used = explain(config).warnings(["files"])
    assert used and all(warning in text for warning in [*used, *explain(config).strict_windows()])
    assert not [warning for warning in explain(config).warnings() if warning not in used and warning in text]
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
    assert text.count(together) == 4
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
    assert "not depend on earlier answers" not in text  # rows may, and so may the moment of a break-in
    pure = words(page_of(small(names)))
    assert "δ" not in pure and "but for a chance" not in pure and "depend on earlier" not in pure


OPERATOR = {
    "controller": "Example Ltd, 1 High Street",
    "contact": "privacy@example.org",
    "purpose": "planning of <staff>",
    "why_epsilon": "A guess of 1% stays below 3%.",
    "retention": "Deleted after two years.",
}


def with_statement(**fields: object) -> Config:
    query = {"name": "q", "sql": "SELECT COUNT(DISTINCT who) FROM s", "epsilon": 1.0, "window": "1 day"}
    stream = {"name": "s", "columns": {"who": "string", "n": "int"}, "user": "who"}
    return read_config({"stream": stream, "query": [query], "statement": fields})


def test_the_operator_fills_in_what_the_program_cannot_know() -> None:
    empty = page_of(with_statement())
    assert empty.count("to be filled in by the operator") == len(OPERATOR) + 3  # and name, date and signature
    text = words(page_of(with_statement(**OPERATOR)))
    assert all(value in text for value in OPERATOR.values())
    assert text.count("to be filled in by the operator") == 3
    one_missing = words(page_of(with_statement(**{**OPERATOR, "why_epsilon": ""})))
    assert one_missing.count("to be filled in by the operator") == 4


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"controler": "x"}, "did you mean 'controller'"),
        ({"contact": 3}, "contact must be a string"),
        ({"inputs": ["fax"]}, "inputs must be among calls, files"),
        ({"inputs": "files"}, "inputs must be a list"),
    ],
)
def test_a_statement_section_that_is_wrong_is_refused(fields: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        with_statement(**fields)


def test_only_what_is_used_is_listed() -> None:
    undeclared = words(page_of(with_statement()))
    assert "does not say how rows arrive" in undeclared and "kafka:" in undeclared
    text = words(page_of(with_statement(inputs=["files"])))
    assert "Rows arrive by: files." in text and "how far every file was read" in text
    assert "kafka" not in text and "redis" not in text
    assert " who " in text and " n " not in text, "a column that no question reads"


def in_short(config: Config) -> str:
    (section,) = re.findall(r"<h2>In short</h2>(.*?)</section>", page_of(config), re.DOTALL)
    return unescape(re.sub(r"<[^>]*>", " ", section)).strip()


def test_it_begins_with_the_number_of_one_person() -> None:
    config = with_statement()
    total = planned_person_total(config, plan_all(config))
    factor = rounded_up(math.exp(total.epsilon))
    first = in_short(config).partition(".  ")[0]
    assert first.startswith("Whatever one user did in any 30 days: someone who copies the machine's memory once")
    assert f"by a factor of at most {factor} (from 50% sure to" in first
    sure = re.search(r"to ([0-9.]+)% at most", first)
    posterior = 100 / (1 + math.exp(-total.epsilon))
    assert sure is not None and posterior <= float(sure[1]) < posterior + 0.1001


def test_a_question_without_a_bound_is_what_it_begins_with() -> None:
    both = [
        {"name": "people", "sql": "SELECT COUNT(DISTINCT who) FROM s", "epsilon": 0.5},
        {"name": "rows", "sql": "SELECT COUNT(*) FROM s", "epsilon": 1.0},
    ]
    data = {"stream": {"name": "s", "columns": {"who": "string"}, "user": "who"}, "query": both}
    text = in_short(read_config(data))
    assert text.startswith("Not bounded: what all answers together show about one user in any 30 days has no limit")
    assert "“rows” protects single rows, and nothing limits how many of them one user can have" in text
    assert "every answer to “people” can improve her odds of a right guess about it by a factor of at most 1.65" in text


def test_a_delta_is_a_chance_in_the_number_of_one_person() -> None:
    total = PersonTotal(
        period=2_592_000.0,
        shares=(PersonShare(name="q", loss=WindowLoss(joint=2.0, answers=2.0, unused=2.0, delta=1e-6)),),
    )
    (sentence,) = person_sentences(total, deeds="whatever one user did", person="one user", copied="the memory once")
    assert "at most 8.17 (from 50% sure to 89.1% at most, but for one chance in 95,000)" in sentence


def test_errors_are_those_of_the_declared_size() -> None:
    query = {"name": "q", "sql": "SELECT COUNT(DISTINCT who) FROM s", "epsilon": 1.0, "expected": 20_000}
    config = read_config({"stream": {"name": "s", "columns": {"who": "string"}, "user": "who"}, "query": [query]})
    (plan,) = plan_all(config)
    text = words(page_of(config))
    assert f"± {format_error(error_at(plan, 20_000))} at the declared size, 20,000" in text
    assert "200,000" not in text


def test_small_groups_and_what_noise_does_to_them() -> None:
    query = {"name": "q", "sql": "SELECT who, COUNT(*) FROM s GROUP BY who", "epsilon": 1.0}
    data = {"stream": {"name": "s", "columns": {"who": "string"}}, "query": [{**query, "groups": {"who": ["a", "b"]}}]}
    text = words(page_of(read_config(data)))
    assert "A group smaller than the error cannot be told from an empty one." in text
    assert "in each of 2 groups" in text
