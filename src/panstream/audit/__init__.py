"""Audit: measure the loss of every claim, and check that the audit finds every known mistake (positive controls).

::

    from panstream.audit import audit, cases, case_of, register_case
    findings = audit(cases())                       # the library's algorithms and the positive controls
    register_case(case_of(MyAlgorithm(...), streams, window=(-1, 2)))

Three layers: exact (`panstream.audit.claims.exact`), Monte-Carlo (`panstream.audit.claims.monte_carlo`), and
attacks, which are trials whose event is an attacker's guess.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from panstream.primitives.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from panstream.audit.claims.case import Case as Case
    from panstream.audit.claims.case import ExactLoss as ExactLoss
    from panstream.audit.claims.case import Finding as Finding
    from panstream.audit.claims.case import Trial as Trial
    from panstream.audit.claims.exact import Enumeration as Enumeration
    from panstream.audit.claims.exact import LinearProgram as LinearProgram
    from panstream.audit.claims.exact import Scenario as Scenario
    from panstream.audit.claims.exact import case_of as case_of
    from panstream.audit.claims.exact import gaussian_loss as gaussian_loss
    from panstream.audit.claims.exact import linear_case as linear_case
    from panstream.audit.claims.membership_odds import member_odds as member_odds
    from panstream.audit.claims.monte_carlo import learn_event as learn_event
    from panstream.audit.claims.monte_carlo import lower_bound as lower_bound
    from panstream.audit.claims.report import to_html as to_html
    from panstream.audit.claims.report import to_json as to_json
    from panstream.audit.claims.report import to_markdown as to_markdown
    from panstream.audit.claims.runner import FAILURE as FAILURE
    from panstream.audit.claims.runner import audit as audit
    from panstream.audit.claims.runner import audit_case as audit_case
    from panstream.audit.claims.runner import cases as cases
    from panstream.audit.claims.runner import register_case as register_case
    from panstream.audit.claims.runner import select as select
    from panstream.audit.claims.runner import unregister_case as unregister_case

_MODULES = {
    "Case": "panstream.audit.claims.case",
    "Enumeration": "panstream.audit.claims.exact",
    "FAILURE": "panstream.audit.claims.runner",
    "Finding": "panstream.audit.claims.case",
    "LinearProgram": "panstream.audit.claims.exact",
    "ExactLoss": "panstream.audit.claims.case",
    "Scenario": "panstream.audit.claims.exact",
    "Trial": "panstream.audit.claims.case",
    "audit": "panstream.audit.claims.runner",
    "case_of": "panstream.audit.claims.exact",
    "cases": "panstream.audit.claims.runner",
    "audit_case": "panstream.audit.claims.runner",
    "unregister_case": "panstream.audit.claims.runner",
    "gaussian_loss": "panstream.audit.claims.exact",
    "learn_event": "panstream.audit.claims.monte_carlo",
    "linear_case": "panstream.audit.claims.exact",
    "lower_bound": "panstream.audit.claims.monte_carlo",
    "member_odds": "panstream.audit.claims.membership_odds",
    "register_case": "panstream.audit.claims.runner",
    "select": "panstream.audit.claims.runner",
    "to_html": "panstream.audit.claims.report",
    "to_json": "panstream.audit.claims.report",
    "to_markdown": "panstream.audit.claims.report",
}

__all__ = sorted(_MODULES)

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_exports(__name__, _MODULES)
