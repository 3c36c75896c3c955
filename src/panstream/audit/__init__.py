"""Audit: try every claim against the intruder it was made for, and every known mistake against the audit itself.

::

    from panstream.audit import audit, cases, case_of, register_case
    findings = audit(cases())                       # what panstream ships, and the controls
    register_case(case_of(MyAlgorithm(...), streams, window=(-1, 2)))

Three layers: exact (:mod:`panstream.audit.exact`), Monte-Carlo (:mod:`panstream.audit.montecarlo`), and attacks, which
are trials whose event is an intruder's guess.
"""

from panstream.audit.case import Case, Finding, Measured, Trial
from panstream.audit.exact import Enumeration, LinearProgram, Scenario, case_of, gaussian_loss, linear_case
from panstream.audit.member import member_odds
from panstream.audit.montecarlo import learn_event, lower_bound
from panstream.audit.report import to_html, to_json, to_markdown
from panstream.audit.runner import FAILURE, audit, cases, examine, forget_case, register_case, select

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
