"""The topics of NIST SP 800-226, "Guidelines for Evaluating Differential Privacy Guarantees"."""

from __future__ import annotations

from panstream.engine.reporting.checklists.checklist import Checklist
from panstream.engine.reporting.checklists.facts import Facts, joined, stated
from panstream.engine.reporting.statement_limits import trusted_parties

_GUARANTEE = "The guarantee: epsilon and the unit of privacy"
_ALGORITHMS = "Algorithms, correctness, utility and bias"
_DEPLOYMENT = "Trust, security and side channels"
_COLLECTION = "Data collection exposure"
_SOURCES = (
    "J. P. Near, D. Darais, N. Lefkovitz, G. S. Howarth: Guidelines for Evaluating Differential Privacy Guarantees, "
    "NIST Special Publication 800-226, March 2025, doi:10.6028/NIST.SP.800-226.",
    "The publication asks to examine every part of its pyramid: epsilon and the unit of privacy at the top, what can "
    "undermine them (algorithms, security) below, the collection of data at the base. The headings here follow that "
    "order. Their wording, and that no topic is missing, is to be checked against the text.",
)


def nist_checklist(facts: Facts) -> Checklist:
    """Fill in the topics of the publication.

    Args:
        facts: Texts about the configuration.
    """
    operator = facts.config.statement
    fill = facts.filled
    by_operator = facts.by_operator
    return Checklist(
        title="Answers to the topics of NIST SP 800-226",
        sources=_SOURCES,
        fields=(
            fill(_GUARANTEE, "Privacy parameters", facts.parameters()),
            fill(_GUARANTEE, "What they mean for one person", facts.person()),
            fill(_GUARANTEE, "Variant of differential privacy", facts.variants(), program=True),
            fill(_GUARANTEE, "Unit of privacy and neighbouring inputs", facts.unit()),
            by_operator(_GUARANTEE, "Why this epsilon is acceptable", operator.why_epsilon, stated("why_epsilon")),
            fill(
                _GUARANTEE,
                "Composition",
                "Losses of all questions and windows are added up in an append-only ledger before anything is "
                "published; a question that would exceed a declared budget is refused. " + facts.total_text(),
                program=True,
            ),
            fill(_ALGORITHMS, "Queries", facts.questions()),
            fill(_ALGORITHMS, "Mechanisms and noise", facts.mechanisms(), program=True),
            fill(_ALGORITHMS, "Proofs", facts.proofs(), program=True),
            facts.audited(_ALGORITHMS, "Tests of the implementation on this machine"),
            fill(_ALGORITHMS, "Utility", facts.errors()),
            fill(_ALGORITHMS, "Bias against small groups", facts.small_groups(), program=True),
            by_operator(
                _ALGORITHMS,
                "Systemic and human bias",
                "",
                "who is missing from the data, and who acts on the answers: the configuration does not show it",
            ),
            fill(_DEPLOYMENT, "Trust model", joined(trusted_parties(facts.config, facts.plans))),
            fill(_DEPLOYMENT, "Copies of the state", facts.intrusions()),
            fill(_DEPLOYMENT, "What is treated as public", facts.public()),
            fill(_DEPLOYMENT, "Side channels", facts.side_channels(), program=True),
            fill(_DEPLOYMENT, "Stored data", facts.storage()),
            by_operator(
                _DEPLOYMENT,
                "Access control",
                "",
                "who may log in to the machine, who has tokens and the operator's key, who hears of a break-in",
            ),
            fill(_COLLECTION, "What is collected", facts.columns()),
            by_operator(_COLLECTION, "Purpose", operator.purpose, stated("purpose")),
            by_operator(_COLLECTION, "Controller", operator.controller, stated("controller")),
            by_operator(_COLLECTION, "Retention of answers", operator.retention, stated("retention")),
            by_operator(
                _COLLECTION,
                "Rows outside this program",
                "",
                "copies at senders, in files, brokers, backups and logs, and how long they are stored there",
            ),
        ),
    )
