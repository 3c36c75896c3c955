"""A data protection impact assessment: the contents that Article 35(7) of the GDPR asks for."""

from __future__ import annotations

from panstream.engine.reporting.checklists.checklist import Checklist
from panstream.engine.reporting.checklists.facts import Facts, joined, stated
from panstream.engine.reporting.statement_limits import trusted_parties

_DESCRIPTION = "(a) Description of the processing and its purposes"
_NECESSITY = "(b) Necessity and proportionality"
_RISKS = "(c) Risks to the people concerned"
_MEASURES = "(d) Measures against the risks"
_PROCEDURE = "Advice, views and review: Article 35(2), (9) and (11)"
_SOURCES = (
    "Regulation (EU) 2016/679 (GDPR), Article 35, paragraphs 2, 7, 9 and 11. Paragraph 7 asks for a systematic "
    "description of the processing and its purposes, an assessment of necessity and proportionality, an assessment of "
    "risks, and the measures envisaged against them.",
    "Authorities publish templates and lists of their own, which ask for more. Whether an assessment is needed at all "
    "is for the controller to decide.",
)


def dpia_checklist(facts: Facts) -> Checklist:
    """Fill in the contents of an assessment.

    Args:
        facts: Texts about the configuration.
    """
    operator = facts.config.statement
    fill = facts.filled
    by_operator = facts.by_operator
    return Checklist(
        title="Draft of a data protection impact assessment",
        sources=_SOURCES,
        fields=(
            by_operator(_DESCRIPTION, "Controller", operator.controller, stated("controller")),
            by_operator(_DESCRIPTION, "Contact", operator.contact, stated("contact")),
            by_operator(_DESCRIPTION, "Purposes", operator.purpose, stated("purpose")),
            by_operator(
                _DESCRIPTION, "Legal basis, and legitimate interest if it is that", "", "Article 6 of the GDPR"
            ),
            fill(_DESCRIPTION, "Data that are read", facts.columns()),
            fill(_DESCRIPTION, "Operations", facts.questions()),
            fill(_DESCRIPTION, "Storage", facts.storage()),
            by_operator(_DESCRIPTION, "Retention of answers", operator.retention, stated("retention")),
            by_operator(_DESCRIPTION, "Recipients of the answers", "", "who reads them, and whether they are public"),
            by_operator(
                _DESCRIPTION, "Processors and transfers to other countries", "", "hosting, senders of e-mail, brokers"
            ),
            fill(
                _NECESSITY,
                "Data minimisation",
                "Columns that no question needs are not read. A row is wiped once its batch is applied; what remains "
                "is noisy from the start.",
                program=True,
            ),
            by_operator(_NECESSITY, "Why these questions are needed", "", "for each question, what it decides"),
            by_operator(_NECESSITY, "Why this loss is acceptable", operator.why_epsilon, stated("why_epsilon")),
            fill(_NECESSITY, "Accuracy of the answers", facts.errors()),
            by_operator(
                _NECESSITY,
                "Rights of the people concerned",
                "",
                "how they are informed; rows cannot be found again in the state, so that access, rectification and "
                "erasure have to happen where rows come from",
            ),
            fill(_RISKS, "What answers and one break-in show about one person", facts.person()),
            fill(_RISKS, "Which break-ins that covers", facts.intrusions()),
            fill(_RISKS, "Unit of protection", facts.unit()),
            fill(_RISKS, "What is not protected", facts.public()),
            fill(_RISKS, "Side channels and rows in flight", facts.side_channels(), program=True),
            by_operator(
                _RISKS,
                "Likelihood and severity for these people",
                "",
                "what a right guess about somebody would cost them",
            ),
            fill(_MEASURES, "Differential privacy of state and answers", facts.variants(), program=True),
            fill(_MEASURES, "Mechanisms", facts.mechanisms(), program=True),
            fill(_MEASURES, "Budget", facts.total_text()),
            fill(_MEASURES, "Who has to be trusted", joined(trusted_parties(facts.config, facts.plans))),
            facts.audited(_MEASURES, "Audits on this machine"),
            by_operator(
                _MEASURES, "Access control and incident response", "", "who may log in, who announces a break-in"
            ),
            by_operator(_PROCEDURE, "Advice of the data protection officer", "", "with date"),
            by_operator(_PROCEDURE, "Views of the people concerned", "", "or why they were not sought"),
            by_operator(_PROCEDURE, "Next review", "", "at the latest when questions, windows or losses change"),
        ),
    )
