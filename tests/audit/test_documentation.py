"""The table of results in the documentation names every case, with the claim and verdict that the code has now."""

from pathlib import Path

from panstream.audit.registry import shipped
from panstream.audit.report import figure

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "how-we-check.md"


def test_every_case_is_in_the_table() -> None:
    lines = [line.strip("| ").split(" | ") for line in PAGE.read_text().splitlines() if line.count("|") == 6]
    rows = {row[0]: row[1:] for row in lines}
    wanted = {case.name: case for case in shipped().values()}
    assert set(rows) - {"case", "---"} == set(wanted), "run python -m panstream.audit and renew the table"
    for name, case in wanted.items():
        claimed, exact, _, verdict = rows[name]
        assert claimed == figure(case.claimed)
        assert verdict == ("holds" if case.kind == "production" else "caught")
        assert case.exact is None or exact != "–"
