"""The privacy statement of a configuration, a page for readers who are not engineers: ``panstream statement``.

Every figure comes from ``explain`` or from a claim; this module only adds text. The page loads no other resources.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from panstream import __version__
from panstream.engine.config.config import Config
from panstream.engine.config.statement import Intake
from panstream.engine.planner.accuracy import error_at, expected_errors
from panstream.engine.planner.person_period import person_word, planned_person_total
from panstream.engine.planner.public_facts import INTAKES
from panstream.engine.planner.query_plan import QueryPlan
from panstream.engine.reporting.evidence import evidence_sentence
from panstream.engine.reporting.explain import ConfigExplanation, explain, format_error
from panstream.engine.reporting.person_sentences import odds_factor, person_sentences, short_odds
from panstream.engine.reporting.statement_limits import (
    assumptions_section,
    attacker_section,
    not_protected,
    numbers_section,
    trusted_parties,
)
from panstream.engine.reporting.statement_page import PAGE, code, gap, html_list, html_table, paragraph
from panstream.engine.reporting.statement_words import (
    both_shares,
    but_for,
    copied_places,
    count_of,
    protected_unit,
    quoted_names,
)
from panstream.primitives.durations import format_duration
from panstream.primitives.escaping import html_text

_WEB_INPUTS: dict[str, tuple[Intake, ...]] = {"beacon": ("http",), "log": ("growing files", "files")}


def statement(config: Config, *, source: str, digest: str, now: datetime) -> str:
    """Return the page as HTML.

    Args:
        config: The configuration.
        source: Name of its file.
        digest: SHA-256 of the file, in hexadecimal.
        now: Time of the page, in UTC.
    """
    explanation = explain(config)
    document = explanation.to_json()
    plans = explanation.plans
    sections = [
        ("In short", _in_short(config, plans)),
        ("Who is responsible, and why this is done", _responsible(config)),
        ("What is collected", _collected(config, document)),
        ("What is stored, and for how long", _stored(config, plans, document)),
        ("What a thief would see", attacker_section(config, plans, explanation.step)),
        ("Who has to be trusted", [html_list(trusted_parties(config, plans))]),
        ("What is published, and how exact it is", _published(plans, document)),
        ("Small groups", _small_groups(plans, document)),
        ("The numbers", numbers_section(config, plans)),
        ("What is not protected", not_protected(config, plans, _warnings(explanation))),
        ("What this rests on", assumptions_section(plans, evidence_sentence(config.statement, digest, now))),
        ("Signature", _signature()),
    ]
    body = "".join(f"<section><h2>{title}</h2>{''.join(parts)}</section>" for title, parts in sections)
    footer = (
        f"Made on {now.day} {now:%B %Y} by panstream {__version__} from {source} (SHA-256 {digest}). It says what "
        "the program promises with this configuration, not how the machine is run, and is not legal advice."
    )
    return PAGE.format(stream=html_text(config.stream.name), made=html_text(footer), body=body)


def _warnings(explanation: ConfigExplanation) -> list[str]:
    used = explanation.warnings(_inputs(explanation.config))
    return [*used, *explanation.uncertain(), *explanation.strict_windows()]


def _in_short(config: Config, plans: Sequence[QueryPlan]) -> Iterable[str]:
    total = planned_person_total(config, plans)
    person = person_word(config)
    copied = f"{copied_places(config, plans)} once"
    state_text = "is a set of numbers that carry random noise from the start"
    if config.two_party is not None:
        copied = f"{copied_places(config, plans)} at a time, as often as she likes,"
        state_text = "is divided between two machines, and what either of them holds is random"
    sentences = person_sentences(total, deeds=f"whatever one {person} did", person=f"one {person}", copied=copied)
    ids = "Two browsers, or two addresses, count as two visitors." if config.web is not None else ""
    if config.stream.user is not None and config.web is None:
        ids = f"One {person} is one value of {config.stream.user}: someone with two of them counts as two."
    yield html_list(
        [
            *sentences,
            *([ids] if ids else []),
            f"Rows are counted and then forgotten. What remains {state_text}; every published answer carries noise, "
            "too.",
            "These limits are proven, and hold whatever someone knows already. What they do not cover is listed under "
            "“What is not protected”.",
        ]
    )
    yield paragraph(
        f"The same for each of the {count_of(len(plans), 'question')}: by how much the odds of a right guess can "
        "change at most."
        if len(plans) > 1
        else "For the one question: by how much the odds of a right guess can change at most."
    )
    rows = []
    for plan, share in zip(plans, total.shares, strict=True):
        unit = protected_unit(plan.claim.unit, plan.claim.window, config)
        one = f"{unit}: {odds_factor(plan.claim.epsilon)}{but_for(plan.loss_exceeds())}"
        rows.append([plan.config.name, short_odds(share), one])
    span = format_duration(total.period)
    yield html_table(["question", f"one {person}, any {span}", "what the question itself protects"], rows)


def _responsible(config: Config) -> Iterable[str]:
    operator = config.statement
    fields = {
        "controller": operator.controller,
        "contact": operator.contact,
        "purpose": operator.purpose,
        "why this much loss is acceptable": operator.why_epsilon,
        "how long answers are stored": operator.retention,
    }
    yield html_table(["field", "by the operator"], [[name, text or gap()] for name, text in fields.items()])


def _collected(config: Config, document: dict[str, Any]) -> Iterable[str]:
    stream = config.stream
    read = config.needed_columns
    rows = []
    for name, kind in stream.columns.items():
        if name not in read:
            continue
        roles = [
            role
            for column, role in (
                (stream.user, "identifies the person the row is about"),
                (stream.time, "when it happened"),
                (stream.weight, "how much is added or taken away"),
            )
            if column == name
        ]
        queries_using_column = [query.name for query in config.queries if name in query.parsed.columns]
        if queries_using_column:
            roles.append("used by " + quoted_names(dict.fromkeys(queries_using_column)))
        rows.append([code(name), kind, "; ".join(roles)])
    yield paragraph(f"Of each row of the stream “{stream.name}” these columns are read, and no other:")
    yield html_table(["column", "type", "what for"], rows)
    for name in config.lookups:
        yield paragraph(f"Rows are joined with the lookup table “{name}”, which is treated as public.")
    inputs = _inputs(config)
    facts_of = {intake: facts for intake, facts in document["intakes"].items() if facts and intake in inputs}
    ways = "; ".join(f"{intake}: {', '.join(facts)}" for intake, facts in facts_of.items())
    conditions = "; ".join(
        f"{intake}: {condition}" for intake, condition in document["conditions"].items() if intake in inputs
    )
    declared = config.statement.inputs or config.web is not None
    if not declared:
        yield paragraph("This configuration does not say how rows arrive ([statement] inputs).")
    elif config.web is None:
        yield paragraph(f"Rows arrive by: {', '.join(inputs)}.")
    if ways:
        yield paragraph(f"{'What this makes public' if declared else 'Depending on that, public'}: {ways}.")
    if conditions:
        yield paragraph(f"What this assumes: {conditions}.")


def _inputs(config: Config) -> tuple[Intake, ...]:
    """Return the inputs that are used; all, if that is not declared."""
    if config.statement.inputs:
        return config.statement.inputs
    return INTAKES if config.web is None else _WEB_INPUTS[config.web.source]


def _stored(config: Config, plans: Sequence[QueryPlan], document: dict[str, Any]) -> Iterable[str]:
    total = sum(query["state_bytes"] for query in document["queries"])
    states = (
        f"A noisy state for each question, {total:,} bytes in all (questions with windows have one for each open "
        "window, which is dropped once it is answered). It holds neither rows nor identifiers, and is random from the "
        "start, so that neither presence nor absence can be read off it with certainty."
    )
    if config.two_party is not None:
        states = (
            f"A state for each question, as a share of {total:,} bytes in all on each of two machines (questions with "
            "windows have one for each open window). One share tells nothing, whatever rows came; "
            f"{both_shares(plans)}. Both shares are re-randomised in every step."
        )
    answers = "The published answers, until the program ends: this configuration names no directory."
    if config.directory is not None:
        answers = "The published answers, until the operator deletes them."
        if any(plan.config.names is not None for plan in plans):
            answers += f" Tables for names outside a published list are stored for the last {config.keep_tables} lists."
    operator = config.statement.retention
    answers += f" By the operator: {operator}" if operator else ""
    yield html_list([states, answers, "The budget spent, this configuration, and how far the input was read."])
    if config.directory is None:
        where = "The state is in memory only: this configuration names no directory to store it in."
    elif config.durability == "batch":
        where = (
            "The same state is also on disk, replaced in place and without a history. It is encrypted; the key lies "
            "next to it unless the operator keeps it elsewhere."
        )
    else:
        where = "The state on disk, if there is one, is older than the one in memory. The limits cover memory only."
    yield paragraph(where + " No log of rows, addresses or requests is written.")


def _published(plans: Sequence[QueryPlan], document: dict[str, Any]) -> Iterable[str]:
    rows = []
    for plan, query in zip(plans, document["queries"], strict=True):
        groups = f", for each of {len(plan.groups):,} groups" if plan.config.groups else ""
        if plan.config.names is not None:
            groups = (
                f", for every {plan.config.names} with at least {format_error(query['listing_threshold'])} rows (95%)"
            )
        rows.append([plan.config.name, code(query["sql"]), query["answers"] + groups, declared_error(plan)])
    yield html_table(["question", "what is asked", "when", "expected error (95%)"], rows)
    facts = list(dict.fromkeys(fact for plan in plans for fact in plan.claim.public))
    yield paragraph("Treated as public, and not protected: " + "; ".join(facts) + ".")


def declared_error(plan: QueryPlan) -> str:
    """Return the error at the declared size, or at the largest of the usual sizes if none is declared."""
    size = plan.config.expected
    if size is None or plan.config.names is not None or plan.config.announced:
        label, error = expected_errors(plan)[-1]
    else:
        label = f"at the declared size, {size:,}"
        error = error_at(plan, size)
    return f"± {format_error(error)} {label}" if math.isfinite(error) else f"no bound on {label}"


def _small_groups(plans: Sequence[QueryPlan], document: dict[str, Any]) -> Iterable[str]:
    sentences = [
        "A group of one is protected as much as a group of thousands: the limits above hold for each member, and no "
        "answer is left out or rounded because few are in it.",
        "Noise has the same size in every group, so the smaller a group, the less its answer says. A group smaller "
        "than the error cannot be told from an empty one.",
    ]
    for plan, query in zip(plans, document["queries"], strict=True):
        name = plan.config.name
        if plan.config.names is not None:
            least = format_error(query["listing_threshold"])
            sentences.append(f"“{name}”: names with fewer than {least} rows are usually not listed at all.")
        elif plan.config.groups:
            sentences.append(f"“{name}”: expect {declared_error(plan)}, in each of {len(plan.groups):,} groups.")
    yield html_list(sentences)


def _signature() -> Iterable[str]:
    yield html_table(["name", "date", "signature"], [[gap(), gap(), gap()]])
