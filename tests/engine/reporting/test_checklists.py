"""Checklists of others, filled in from a configuration."""

import html
import json
import tomllib
from datetime import UTC, datetime
from pathlib import Path

import pytest

from panstream.engine.config.config import Config, load_config, read_config
from panstream.engine.presets.website import propose_queries
from panstream.engine.presets.website_spec import WebsiteSpec
from panstream.engine.reporting.checklists.checklist import Checklist
from panstream.engine.reporting.checklists.purposes import CHECKLISTS, checklist
from panstream.errors import ConfigError

CLINIC = Path(__file__).parents[3] / "examples" / "clinic.toml"
NOW = datetime(2026, 3, 9, tzinfo=UTC)
# Fields of the registry's template, tests/good_deployments/template.yaml, without those of single sources.
REGISTRY_KEYS = """
url_slug
basic: name data_curators description intended_use data_product_type data_product_region data_product_sector
basic: publication_date
dp_variant: variant_name data_domain unprotected_quantities
privacy_loss: privacy_unit privacy_unit_details privacy_parameters privacy_parameters_details
deployment_model: model_name model_name_details trust_assumptions actors release_type data_source_type access_type
implementation: preprocessing_and_hyperparameter_tuning mechanisms composition post_processing justification utility
implementation: additional_information
administrative: evidence_sources status registry_authors
"""


def configurations() -> dict[str, Config]:
    site = propose_queries(WebsiteSpec(site="example.org")).config()
    without = {name: section for name, section in tomllib.loads(CLINIC.read_text()).items() if name != "statement"}
    return {
        "clinic": load_config(CLINIC),
        "web": read_config(site),
        "clinic without [statement]": read_config(without),
    }


CASES = [
    (purpose, name)
    for purpose in CHECKLISTS
    for name in ("clinic", "web", "clinic without [statement]")
    if purpose != "cnil" or name == "web"
]


def filled(purpose: str, name: str) -> tuple[Checklist, Config]:
    config = configurations()[name]
    return checklist(purpose, config, digest="ab" * 32, now=NOW), config


@pytest.mark.parametrize(("purpose", "name"), CASES)
def test_every_field_is_filled_or_listed(purpose: str, name: str) -> None:
    done, config = filled(purpose, name)
    page = html.unescape(done.to_html(config, source="x.toml", digest="ab" * 32, now=NOW))
    listed = page.partition("What only the operator can fill in")[2].partition("</section>")[0]
    assert len({field.name for field in done.fields}) == len(done.fields)
    for field in done.fields:
        assert f">{field.name}</td>" in page
        if field.is_filled:
            assert field.answer in page
            assert f"<li>{field.name}:" not in listed
        else:
            assert field.origin in ("operator", "evidence"), f"{field.name} could be filled by the program"
            assert field.hint
            assert f"<li>{field.name}: {field.hint}</li>" in listed


@pytest.mark.parametrize("purpose", CHECKLISTS)
def test_every_checklist_names_its_sources_and_is_no_legal_advice(purpose: str) -> None:
    done, config = filled(purpose, "web")
    page = done.to_html(config, source="x.toml", digest="ab" * 32, now=NOW)
    assert done.sources
    assert "Not legal advice" in page
    assert all(html.escape(source, quote=True) in page or source in html.unescape(page) for source in done.sources)


def test_what_the_operator_states_is_in_the_checklist() -> None:
    with_words, _ = filled("dpia", "clinic")
    without, _ = filled("dpia", "clinic without [statement]")
    assert {field.name for field in without.open_fields} - {field.name for field in with_words.open_fields} >= {
        "Controller",
        "Purposes",
        "Why this loss is acceptable",
    }


def test_the_conditions_for_audience_measurement_need_a_site() -> None:
    with pytest.raises(ConfigError, match="panstream web"):
        filled("cnil", "clinic")


def test_the_registrys_record_has_every_field_of_its_template_and_no_other() -> None:
    expected = set()
    for line in REGISTRY_KEYS.split("\n"):
        section, colon, names = line.partition(": ")
        if colon:
            expected |= {f"deployment.{section}.{name}" for name in names.split()}
        elif section:
            expected.add(section)
    done, _ = filled("registry", "web")
    assert {field.key for field in done.fields if field.key} == expected


def test_the_registrys_record_is_yaml_whose_scalars_are_json() -> None:
    done, _ = filled("registry", "web")
    lines = done.to_yaml().splitlines()
    values = {}
    for line in lines:
        name, _, rest = line.strip().partition(": ")
        if rest:
            values[name] = json.loads(rest.removesuffix("  # to be filled in by the operator"))
    assert values["epsilon"] == "not bounded" or values["epsilon"] > 0
    assert "deployment:" in lines
    assert values["status"] == "Draft"
    assert sum("to be filled in" in line for line in lines) == len([field for field in done.open_fields if field.key])
