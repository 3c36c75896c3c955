"""The table of results in the documentation names every case, with the claim and verdict that the code has now.

That its exact losses are those of the code is checked where they are computed, in test_cases.py.
"""

from panstream.audit import cases
from panstream.audit.claims.report import format_loss
from tests.audit.claims.documented import documented


def test_every_case_is_in_the_table() -> None:
    rows = documented()
    wanted = {case.name: case for case in cases()}
    assert list(rows) == list(wanted), "run python -m panstream.audit and renew the table"
    for name, case in wanted.items():
        claimed, exact, bound, verdict = rows[name]
        assert claimed == format_loss(case.claimed)
        assert verdict == ("holds" if case.kind == "production" else "caught")
        assert (case.exact is None) == (exact == "–")
        assert case.sampled == (bound != "–")
