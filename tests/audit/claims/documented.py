"""The table of results in the documentation."""

from functools import lru_cache
from pathlib import Path

PAGE = Path(__file__).parents[3] / "docs" / "explanation" / "how-we-check.md"


@lru_cache(maxsize=1)
def documented() -> dict[str, tuple[str, ...]]:
    """Return (claimed, exact, lower bound, verdict) as printed, by case."""
    rows = [line.strip("| ").split(" | ") for line in PAGE.read_text().splitlines() if line.count("|") == 6]
    return {row[0]: tuple(row[1:]) for row in rows if row[0] not in ("case", "---")}
