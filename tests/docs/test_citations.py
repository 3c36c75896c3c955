"""Papers are cited by authors and year, with sections that exist, and stand in the bibliography."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BIBLIOGRAPHY = ROOT / "docs" / "reference" / "bibliography.md"
# The sections that the papers have, read off their tables of contents.
SECTIONS = {
    "Budaeva et al. 2013": "1.1 1.2 1.3.1 1.3.2 1.3.3 2.1.1 2.1.2 2.2.1 2.2.3 2.2.4 2.3.1 2.3.2 2.3.3 2.4.1 2.4.2 "
    "2.4.3 2.4.4 3.1.1 4.1 4.2 4.3 5.1 5.2.1 5.2.2 5.2.3 6.1 6.2 6.3",
    "Digalakis et al. 2018": "1 2.1.1 2.1.3 2.2.1 2.2.3 3.1 3.2 4.1 4.2 4.3 4.4 5.1 5.2 6 7",
    "Digalakis 2018": "3.2.2 3.3.3 3.4.1 3.4.2 3.5 3.6 3.7.1 3.7.2 3.7.3 3.8 4.1.1 4.1.2 4.2.1 4.2.2 4.2.3 4.3.1 4.3.2 "
    "4.3.3 4.4.1 4.4.2 4.4.3 4.4.4 4.5 4.6 5.1 5.2",
    "Mir et al. 2011": "1.1 2.1 2.2 2.3 2.4 3.1 3.2 3.3 4 5",
}


def texts() -> Iterator[tuple[str, str]]:
    for folder in ("src", "docs", "examples", "benchmarks", "tools"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in (".py", ".md") and path != BIBLIOGRAPHY:
                yield str(path.relative_to(ROOT)), re.sub(r"\s+", " ", path.read_text("utf-8"))


def test_no_paper_is_cited_by_the_number_of_a_file() -> None:
    by_number = re.compile(r"\b00[0-4],? (?:§|section|Algorithm|Theorem|Lemma|Figure)")
    assert [(name, found) for name, text in texts() for found in by_number.findall(text)] == []


@pytest.mark.parametrize("paper", SECTIONS)
def test_cited_sections_exist(paper: str) -> None:
    known = {".".join(each.split(".")[:depth]) for each in SECTIONS[paper].split() for depth in (1, 2, 3)}
    cited = re.compile(rf"(?<!\w ){re.escape(paper)},(?: end of)? §(\d+(?:\.\d+)*)")
    found = [(name, place) for name, text in texts() for place in cited.findall(text)]
    assert found
    assert [each for each in found if each[1] not in known] == []


def test_cited_papers_stand_in_the_bibliography() -> None:
    listed = BIBLIOGRAPHY.read_text("utf-8")
    cited = re.compile(
        r"\b[A-Z][a-z]+(?:, [A-Z][a-z]+)* (?:et al\. )?20(?:0[3-9]|1\d|2[0-3]), (?:§|Algorithm|Theorem|Lemma)"
    )
    found = {re.sub(r", [^,]*$", "", each) for _, text in texts() for each in cited.findall(text)}
    assert found
    assert sorted(each for each in found if each not in listed) == []
