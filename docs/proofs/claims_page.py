"""Make the page that maps every claim to its theorem, its enumeration and its audit cases.

``python docs/proofs/claims_page.py`` writes ``claims.md``; a test fails while the page is out of date, or while a claim
lacks one of the three.
"""

from __future__ import annotations

import importlib
import re
from dataclasses import dataclass
from pathlib import Path

from panstream.audit import Case, cases
from panstream.core.catalogue import ALGORITHMS

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PAGE = HERE / "claims.md"


@dataclass(frozen=True)
class Entry:
    """One claim: what it says, where it is proved, what enumerates it, and the audit cases that measure it."""

    claim: str
    page: str
    theorem: str
    enumeration: str
    cases: tuple[str, ...]


# Claims that are not those of one algorithm: what proves them, and the test that enumerates them.
_PERSON = ("One person, ",)
OTHERS = (
    Entry(
        "one person, any period, all queries and one copy",
        "person-period.md",
        "Theorem 1",
        "tests/audit/claims/test_person_periods.py",
        _PERSON,
    ),
    Entry(
        "one person, with a delta",
        "person-period.md",
        "Theorem 4",
        "tests/privacy/test_person_renyi.py",
        ("One person, two windows of ContinualCount, delta", "One person, three windows of ContinualCount, delta"),
    ),
    Entry("several questions about one stream", "totals.md", "Theorem 1", "tests/privacy/test_totals.py", _PERSON),
    Entry(
        "shares on two machines, any number of copies of one at a time",
        "two-machines.md",
        "Theorem",
        "tests/algorithms/secret_shared",
        ("Two machines, ",),
    ),
    Entry(
        "live numbers of users on two machines",
        "two-machines.md",
        "Theorem 2",
        "tests/algorithms/secret_shared/test_counted_bits.py",
        ("Two machines, live counts",),
    ),
    Entry(
        "who came back, on two machines",
        "two-machines.md",
        "Theorem 3",
        "tests/algorithms/secret_shared/test_retention.py",
        ("Two machines, retained windows",),
    ),
    Entry("a network by PrivBayes", "networks.md", "Theorem 1", "tests/models/networks", ("PrivBayes, ",)),
    Entry("a tree network", "networks.md", "Theorem 2", "tests/models/networks", ("TreeNetwork, ",)),
    Entry(
        "a model of chosen pairs",
        "networks.md",
        "Theorem 4",
        "tests/models/networks/test_adaptive_privacy.py",
        ("AdaptiveModel, ",),
    ),
    Entry(
        "categories that nobody listed",
        "networks.md",
        "Categories that nobody listed",
        "tests/models/networks/test_category_names.py",
        ("Categories that nobody listed, ",),
    ),
)


def entries() -> list[Entry]:
    """Return every claim that the product can print."""
    production = [case for case in cases() if case.kind == "production" and case.exact is not None]
    return [
        *(_of_algorithm(name, production) for name in ALGORITHMS),
        *(_with_cases(one, production) for one in OTHERS),
    ]


def _of_algorithm(name: str, production: list[Case]) -> Entry:
    kind = getattr(importlib.import_module(ALGORITHMS[name]), name)
    names = tuple(case.name for case in production if type(case.algorithm) is kind)
    enumeration = "src/panstream/audit/claims/exact.py" if names else ""
    return Entry(name, kind.proof, kind.theorem, enumeration, names)


def _with_cases(entry: Entry, production: list[Case]) -> Entry:
    names = tuple(case.name for case in production if case.name.startswith(entry.cases))
    return Entry(entry.claim, entry.page, entry.theorem, entry.enumeration, names)


def has_theorem(page: str, theorem: str) -> bool:
    """Return whether a page has a heading, or a paragraph in bold, of this name."""
    if not theorem or not (HERE / page).is_file():
        return False
    return bool(re.search(rf"(?m)^(## {theorem}\b|\*\*{theorem}[ .(])", (HERE / page).read_text()))


def page() -> str:
    """Return the page."""
    lines = [
        "# From claim to proof to audit",
        "",
        "Every claim that the product prints, the theorem that proves it, what enumerates it from shipped code, and",
        "the cases of `panstream audit` that measure it. `make test` fails if a claim lacks one of them.",
        "",
        "| claim | theorem | enumerated by | audit cases |",
        "| --- | --- | --- | --- |",
    ]
    for entry in entries():
        shown = "; ".join(entry.cases[:3]) + (f"; {len(entry.cases) - 3} more" if len(entry.cases) > 3 else "")
        where = "the exact layer of the audit" if entry.enumeration.startswith("src") else f"`{entry.enumeration}`"
        lines.append(
            f"| {entry.claim} | [{entry.page.removesuffix('.md')}, {entry.theorem}]({entry.page}) | {where} | {shown} |"
        )
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    PAGE.write_text(page())
    print(f"{PAGE.name} written")
