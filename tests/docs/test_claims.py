"""Every claim that the product can print has a theorem, an enumeration from shipped code, and audit cases."""

import importlib
import runpy
from pathlib import Path
from typing import Any

import pytest

from panstream.core.catalogue import ALGORITHMS

PROOFS = Path(__file__).parents[2] / "docs" / "proofs"
ROOT = PROOFS.parents[1]


@pytest.fixture(scope="module")
def index() -> dict[str, Any]:
    return runpy.run_path(str(PROOFS / "claims_page.py"))


def test_every_claim_has_theorem_enumeration_and_audit_case(index: dict[str, Any]) -> None:
    entries = index["entries"]()
    lacking = {
        entry.claim: what
        for entry in entries
        for what, is_there in (
            ("theorem", index["has_theorem"](entry.page, entry.theorem)),
            ("enumeration", bool(entry.enumeration) and (ROOT / entry.enumeration).exists()),
            ("audit case", bool(entry.cases)),
        )
        if not is_there
    }
    assert not lacking
    assert len(entries) > len(ALGORITHMS)


def test_a_claim_without_a_theorem_is_noticed(index: dict[str, Any]) -> None:
    assert not index["has_theorem"]("joint-loss.md", "Theorem 99")
    assert not index["has_theorem"]("none.md", "Theorem 1")
    assert not index["has_theorem"]("joint-loss.md", "")


@pytest.mark.parametrize("name", ALGORITHMS)
def test_docstrings_name_the_theorem(name: str) -> None:
    kind = getattr(importlib.import_module(ALGORITHMS[name]), name)
    privacy = (kind.__doc__ or "").partition("Privacy:\n")[2].partition("\n    Error:")[0]
    assert f"docs/proofs/{kind.proof}, {kind.theorem}" in " ".join(privacy.split())


def test_page_is_up_to_date(index: dict[str, Any]) -> None:
    """Run ``python docs/proofs/claims_page.py`` after changing algorithms or audit cases."""
    assert (PROOFS / "claims.md").read_text() == index["page"]()


@pytest.mark.parametrize(
    "page", [path for path in sorted(PROOFS.glob("*.md")) if path.stem not in ("claims", "index", "machine-checked")]
)
def test_a_proof_begins_with_what_it_proves(page: Path) -> None:
    title, blank, statement = page.read_text().split("\n")[:3]
    assert title.startswith("# ")
    assert not blank
    assert statement.startswith("**What is proved.** ")
