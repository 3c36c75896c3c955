"""Phrases that readers stumbled over stay away from every text that a person reads."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXTS = [
    *(path for path in ROOT.glob("*.md") if path.name != "CHANGELOG.md"),
    *(ROOT / "docs").rglob("*.md"),
    ROOT / "mkdocs.yml",
    *(ROOT / "src").rglob("*.py"),
    *(ROOT / "examples").rglob("*.py"),
]
INSTEAD = {
    r"is there already": "already exists",
    r"none that is known": "unknown",
    r"(configuration|\.toml|name\}) is sound": "is valid",
    r"[Mm]ade of     ": "split",
    r"[Rr]ows (that|may|add and) take away": "deletions and negative weights",
    r"Several holders": "Multiple data owners",
    r"[Rr]un on so many": "Number of processes",
    r"[Aa]t most so many": "at most this many",
    r"betray": "exposes, reveals",
    r"one JSON object a (query|line)": "per query, per line",
    r"fixes all draws": "Random seed",
    r"[Tt]urned down": "rejected",
    r"whom a row belongs to": "identifies the person each row is about",
    r"[Rr]ead nothing anew": "do not re-read the file",
    r"what belongs into": "what belongs in",
    r"(next to|almost|nearly|practically) nothing\s+about": "what is protected, and that repeated rows add up",
    r"^## (Do|Understand|Move)$": "Guides, Concepts, Migrate",
}


@pytest.mark.parametrize("phrase", INSTEAD)
def test_phrases_that_readers_stumble_over_stay_away(phrase: str) -> None:
    found = re.compile(phrase, re.MULTILINE)
    places = [str(path.relative_to(ROOT)) for path in TEXTS if found.search(path.read_text("utf-8"))]
    assert not places, f"say instead: {INSTEAD[phrase]}"
