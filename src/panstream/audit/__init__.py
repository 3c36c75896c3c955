"""Audit: try every claim against the intruder it was made for, and every known mistake against the audit itself.

::

    from panstream.audit import audit, cases, case_of, register_case
    findings = audit(cases())                       # what panstream ships, and the controls
    register_case(case_of(MyAlgorithm(...), streams, window=(-1, 2)))

Three layers: exact (`panstream.audit.claims.exact`), Monte-Carlo (`panstream.audit.claims.monte_carlo`), and
attacks, which are trials whose event is an intruder's guess.
"""

from panstream.audit.claims.case import Case, Finding, Measured, Trial
from panstream.audit.claims.exact import Enumeration, LinearProgram, Scenario, case_of, gaussian_loss, linear_case
from panstream.audit.claims.membership_odds import member_odds
from panstream.audit.claims.monte_carlo import learn_event, lower_bound
from panstream.audit.claims.report import to_html, to_json, to_markdown
from panstream.audit.claims.runner import FAILURE, audit, cases, examine, forget_case, register_case, select

__all__ = [
    "FAILURE",
    "Case",
    "Enumeration",
    "Finding",
    "LinearProgram",
    "Measured",
    "Scenario",
    "Trial",
    "audit",
    "case_of",
    "cases",
    "examine",
    "forget_case",
    "gaussian_loss",
    "learn_event",
    "linear_case",
    "lower_bound",
    "member_odds",
    "register_case",
    "select",
    "to_html",
    "to_json",
    "to_markdown",
]
