"""Phrases that readers stumbled over, and metaphors, stay away from every text that a person reads."""

import ast
import io
import re
import tokenize
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXTS = [
    *ROOT.glob("*.md"),
    *(ROOT / "docs").rglob("*.md"),
    ROOT / "mkdocs.yml",
    *(ROOT / "src").rglob("*.py"),
    *(ROOT / "examples").rglob("*.py"),
    *(path for path in (ROOT / "packaging").rglob("*") if path.suffix in (".service", ".yml", ".yaml")),
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
    r"\b(blinded|drawn|made|made up|begin|began|begins) anew\b": "re-randomised, drawn again, started over",
    r"\bbe it\b (?!1)": "whether ... or",
    r"(users|\d|\}) come\b[\",.]": "with 1,000 users",
    r"wrong ones (are )?expected": "expect at most 0.05 wrong names",
    r"listed with 95%[\";,)]": "listed with probability 95%",
    r"surely belongs?": "certainly belong",
    r"names came\b": "names occurred",
    r"(topic|stream) is given alone": "must be the only input",
    r"there are names of": "lists were published of",
    r"(add up|adds up) unseen": "not recorded; repeated answers add up",
    r"known mistakes caught": "known mistakes are detected",
    r"no finite price\"": "is not covered",
    r"hang together": "depend on each other",
    r"could be had\b": "we had none",
    r"day and night": "around the clock, or what happens",
    r"charging epsilon=": "epsilon=1 more would bring the total to 3; the limit is 2",
    r"kept as shares": "secret-shared, held as shares",
    r"of the model's\b": "of the model",
}


@pytest.mark.parametrize("phrase", INSTEAD)
def test_phrases_that_readers_stumble_over_stay_away(phrase: str) -> None:
    found = re.compile(phrase, re.MULTILINE)
    places = [str(path.relative_to(ROOT)) for path in TEXTS if found.search(path.read_text("utf-8"))]
    assert not places, f"say instead: {INSTEAD[phrase]}"


# Words with one meaning of their own, used for something else; docs/glossary.md has the terms.
METAPHORS = {
    r"rooms?": "package, capacity, space",
    r"doors?": "public module, connection limiter",
    r"houses?": "owner, code size",
    r"roads?": "ingest path",
    r"guests?": "client connection",
    r"told": "reported, distinguished, message",
    r"kept": "stored, held, retained",
    r"deal(s|t|ing)? out": "partition, assign",
    r"strangers?": "others, attacker",
    r"thief|thieves": "attacker",
    r"loot": "copies",
    r"zygotes?": "fork server",
}
METAPHOR = re.compile(rf"\b({'|'.join(METAPHORS)})\b", re.IGNORECASE)


def prose(path: Path) -> str:
    """Return the docstrings and comments of a module."""
    source = path.read_text("utf-8")
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    nodes = [node for node in ast.walk(ast.parse(source)) if isinstance(node, documented)]
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    comments = [token.string for token in tokens if token.type == tokenize.COMMENT]
    return "\n".join([*(ast.get_docstring(node) or "" for node in nodes), *comments])


def test_pages_have_no_metaphors() -> None:
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    found = {str(page.relative_to(ROOT)): METAPHOR.findall(page.read_text("utf-8")) for page in pages}
    assert not {page: words for page, words in found.items() if words}


def test_docstrings_and_comments_have_no_metaphors() -> None:
    modules = [path for path in (ROOT / "src").rglob("*.py")]
    found = {str(path.relative_to(ROOT)): METAPHOR.findall(prose(path)) for path in modules}
    assert not {path: words for path, words in found.items() if words}
