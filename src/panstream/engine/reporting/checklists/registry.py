"""The record of a deployment, as the proposed registry of differential privacy deployments asks for it."""

from __future__ import annotations

import math
import re

from panstream.engine.reporting.checklists.checklist import Checklist, Field
from panstream.engine.reporting.checklists.facts import Facts, joined, stated
from panstream.engine.reporting.statement_limits import trusted_parties

_BASIC = "Basic"
_VARIANT = "Variant of differential privacy"
_LOSS = "Privacy loss"
_MODEL = "Deployment model"
_IMPLEMENTATION = "Implementation"
_ADMINISTRATIVE = "Administrative"
_SOURCES = (
    "Template of the record at github.com/opendp/deployments-registry-data (tests/good_deployments/template.yaml); the "
    "names of its fields are used as they stood there. The registry is proposed to be hosted by NIST, and its schema "
    "still changes: check it before a record is submitted.",
    "P. Nanayakkara, E. Ghazi, S. Vadhan: Practitioners’ Perspectives on a Differential Privacy Deployment "
    "Registry, arXiv:2509.13509.",
    "A record needs at least one source as evidence. panstream statement --yaml writes this record as YAML.",
)


def registry_checklist(facts: Facts) -> Checklist:
    """Fill in the record.

    Args:
        facts: Texts about the configuration.
    """
    config = facts.config
    operator = facts.config.statement
    fill = facts.filled
    by_operator = facts.by_operator
    stream = config.stream.name
    continual = any(plan.claim.releases not in (1, None) or plan.config.window is not None for plan in facts.plans)
    model = "Central" if config.two_party is None else "Distributed"
    return Checklist(
        title="Record for the registry of differential privacy deployments",
        sources=_SOURCES,
        fields=(
            fill(_BASIC, "Slug", re.sub(r"[^a-z0-9]+", "-", stream.lower()).strip("-"), key="url_slug"),
            fill(_BASIC, "Name", f"Statistics of {stream}", key="deployment.basic.name"),
            Field(
                section=_BASIC,
                name="Data curator",
                answer=operator.controller,
                origin="operator",
                hint=stated("controller"),
                key="deployment.basic.data_curators",
                value=[{"data_curator_name": operator.controller, "data_curator_type": ""}],
            ),
            by_operator(_BASIC, "Type of data curator", "", "government, company, ... as the schema lists them"),
            fill(_BASIC, "Description", facts.questions(), key="deployment.basic.description"),
            by_operator(
                _BASIC, "Intended use", operator.purpose, stated("purpose"), key="deployment.basic.intended_use"
            ),
            fill(
                _BASIC,
                "Type of data product",
                "Summary statistics",
                program=True,
                key="deployment.basic.data_product_type",
            ),
            by_operator(_BASIC, "Region", "", "where the people are", key="deployment.basic.data_product_region"),
            by_operator(_BASIC, "Sector", "", "such as health", key="deployment.basic.data_product_sector"),
            by_operator(
                _BASIC,
                "Publication date",
                "",
                "when the first answer was published",
                key="deployment.basic.publication_date",
            ),
            fill(_VARIANT, "Variant", facts.variant_name(), key="deployment.dp_variant.variant_name"),
            fill(_VARIANT, "Data domain", f"Rows of {facts.columns()}", key="deployment.dp_variant.data_domain"),
            fill(
                _VARIANT,
                "Unprotected quantities",
                facts.public(),
                key="deployment.dp_variant.unprotected_quantities",
            ),
            fill(_LOSS, "Privacy unit", facts.unit_name(), key="deployment.privacy_loss.privacy_unit"),
            fill(_LOSS, "Privacy unit, details", facts.unit(), key="deployment.privacy_loss.privacy_unit_details"),
            Field(
                section=_LOSS,
                name="Privacy parameters",
                answer=facts.parameters(),
                key="deployment.privacy_loss.privacy_parameters",
                value={
                    "epsilon": facts.epsilon if math.isfinite(facts.epsilon) else "not bounded",
                    **({"delta": facts.delta} if facts.delta else {}),
                },
            ),
            fill(
                _LOSS,
                "Privacy parameters, details",
                joined([facts.person(), facts.parameters()]),
                key="deployment.privacy_loss.privacy_parameters_details",
            ),
            fill(_MODEL, "Model", model, key="deployment.deployment_model.model_name"),
            fill(
                _MODEL,
                "Model, details",
                "The state is differentially private from the start: one copy of it is covered, too (pan-privacy).",
                program=True,
                key="deployment.deployment_model.model_name_details",
            ),
            fill(
                _MODEL,
                "Trust assumptions",
                joined(trusted_parties(config, facts.plans)),
                key="deployment.deployment_model.trust_assumptions",
            ),
            by_operator(
                _MODEL,
                "Actors",
                "",
                "who sends rows, who runs the machine, who reads answers",
                key="deployment.deployment_model.actors",
            ),
            fill(
                _MODEL,
                "Release type",
                "Many releases" if continual else "One-time release",
                key="deployment.deployment_model.release_type",
            ),
            fill(
                _MODEL,
                "Source of data",
                "Dynamic",
                program=True,
                key="deployment.deployment_model.data_source_type",
            ),
            fill(
                _MODEL,
                "Access",
                "Non-interactive",
                program=True,
                key="deployment.deployment_model.access_type",
            ),
            by_operator(
                _IMPLEMENTATION,
                "Tuning on data",
                "",
                "whether bounds, group lists or epsilon were chosen by looking at the data",
                key="deployment.implementation.preprocessing_and_hyperparameter_tuning",
            ),
            fill(_IMPLEMENTATION, "Mechanisms", facts.mechanisms(), key="deployment.implementation.mechanisms"),
            fill(_IMPLEMENTATION, "Composition", facts.total_text(), key="deployment.implementation.composition"),
            fill(
                _IMPLEMENTATION,
                "Post-processing",
                "Estimates are computed from noisy values, and clipped to what is possible by public bounds.",
                program=True,
                key="deployment.implementation.post_processing",
            ),
            by_operator(
                _IMPLEMENTATION,
                "Justification",
                operator.why_epsilon,
                stated("why_epsilon"),
                key="deployment.implementation.justification",
            ),
            fill(_IMPLEMENTATION, "Utility", facts.errors(), key="deployment.implementation.utility"),
            fill(
                _IMPLEMENTATION,
                "Additional information",
                facts.intrusions(),
                key="deployment.implementation.additional_information",
            ),
            by_operator(
                _ADMINISTRATIVE,
                "Sources",
                "",
                "an address where the deployment is described",
                key="deployment.administrative.evidence_sources",
            ),
            facts.audited(_ADMINISTRATIVE, "Audits on this machine"),
            fill(_ADMINISTRATIVE, "Status", "Draft", program=True, key="deployment.administrative.status"),
            by_operator(
                _ADMINISTRATIVE,
                "Authors of the record",
                operator.contact,
                stated("contact"),
                key="deployment.administrative.registry_authors",
            ),
        ),
    )
