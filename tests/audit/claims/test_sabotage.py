"""One broken line at a time: the audit fails the claim of each. Three run always, all of them in the slow suite."""

from dataclasses import replace

import pytest

from panstream.audit import audit_case
from tests.audit.claims.sabotages import SABOTAGES

pytestmark = pytest.mark.slow

ALWAYS = ("noise scale halved", "p1 one percent larger", "level count off by one (tree)")


def test_there_are_twenty() -> None:
    assert len(SABOTAGES) >= 20


@pytest.mark.parametrize("name", [n if n in ALWAYS else pytest.param(n, marks=pytest.mark.slow) for n in SABOTAGES])
def test_sabotage_is_caught(name: str) -> None:
    case = SABOTAGES[name]()
    finding = audit_case(replace(case, sampled=case.exact is None), failure=1e-6)
    assert finding.verdict == "fails", finding
    assert max(finding.exact or 0.0, finding.lower_bound or 0.0) > finding.claimed * 1.0005
