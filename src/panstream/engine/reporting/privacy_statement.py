"""The privacy statement of a configuration, a page for readers who are not engineers: ``panstream statement``.

Every figure comes from ``explain`` or from a claim; this module only adds text. The page loads no other resources.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from datetime import date
from typing import Any

from panstream import __version__
from panstream.engine.config.config import Config
from panstream.engine.planner.query_plan import QueryPlan, planned_ledger
from panstream.engine.reporting.explain import explain, format_error
from panstream.engine.reporting.person_sentences import odds_factor, person_sentences
from panstream.engine.reporting.statement_page import PAGE, code, html_list, html_table, paragraph
from panstream.engine.reporting.unusable_share import epsilon_for_files
from panstream.engine.runtime.intrusions import covered_intrusions_text
from panstream.primitives.durations import format_duration
from panstream.primitives.escaping import html_text
from panstream.privacy.claim import Unit
from panstream.privacy.rounding import rounded_up

_GUESSES = (("50%", 1.0), ("1%", 1 / 99))  # prior probability of an attacker's guess, and its odds
_ADJACENT = {"add-remove": "", "replace": ", exchanged for another"}
_GLUE = "\N{NO-BREAK SPACE}"


def statement(config: Config, *, source: str, digest: str, today: date) -> str:
    """Return the page as HTML.

    Args:
        config: The configuration.
        source: Name of its file.
        digest: SHA-256 of the file, in hexadecimal.
        today: Date of the page.
    """
    explanation = explain(config)
    document = explanation.to_json()
    plans = explanation.plans
    sections = [
        ("In short", _in_short(config, plans)),
        ("What is collected", _collected(config)),
        ("What is kept", _stored(config, plans, document)),
        ("What a thief would see", _attacker_section(config, plans, explanation.step)),
        ("What is published, and how often", _published(plans, document)),
        ("The numbers", _numbers(config, plans)),
        ("What is not protected", _not_protected(config, plans, document)),
        ("What this rests on", _assumptions_section(plans)),
    ]
    body = "".join(f"<section><h2>{title}</h2>{''.join(parts)}</section>" for title, parts in sections)
    footer = (
        f"Made on {today.day} {today:%B %Y} by panstream {__version__} from {source} (SHA-256 {digest}). It says what "
        "the program promises with this configuration, not how the machine is run, and is not legal advice."
    )
    return PAGE.format(stream=html_text(config.stream.name), made=html_text(footer), body=body)


def _in_short(config: Config, plans: Sequence[QueryPlan]) -> Iterable[str]:
    worst = max(plan.claim.epsilon for plan in plans)
    state_text = "is a set of numbers that carry random noise from the start"
    often = "once"
    if config.two_party is not None:
        state_text = "is divided between two machines, and what either of them holds is random"
        often = "as often as she likes, but never both machines between the same two steps,"
    yield html_list(
        [
            *person_sentences(config, plans, copied=_places(config, plans)),
            f"Rows are counted and then forgotten. What remains {state_text}.",
            f"Every published answer carries noise, too. {_pluralize(len(config.statements), 'question')} "
            f"{'is' if len(config.statements) == 1 else 'are'} answered; what else is public is listed below.",
            f"Someone who copies {_places(config, plans)} {often} and reads every answer can improve her odds of a "
            f"right guess about one protected person or row by a factor of at most {odds_factor(worst)} per question"
            f"{but_for(max(plan.loss_exceeds() for plan in plans))}. “The numbers” says what each question protects, "
            "and what all of them add up to.",
            "That limit is proven, and holds whatever she already knows. What it does not cover is listed under “What "
            "is not protected”.",
        ]
    )


def _collected(config: Config) -> Iterable[str]:
    stream = config.stream
    read = config.needed_columns
    rows = []
    for name, kind in stream.columns.items():
        roles = [
            role
            for column, role in (
                (stream.user, "identifies the person the row is about"),
                (stream.time, "when it happened"),
                (stream.weight, "how much is added or taken away"),
            )
            if column == name and name in read
        ]
        queries_using_column = [query.name for query in config.queries if name in query.parsed.columns]
        if queries_using_column:
            roles.append("used by " + _names(dict.fromkeys(queries_using_column)))
        rows.append([code(name), kind, "; ".join(roles) if name in read else "not read: no question needs it"])
    yield paragraph(f"Each row of the stream “{stream.name}” may have these columns:")
    yield html_table(["column", "type", "what for"], rows)
    for name in config.lookups:
        yield paragraph(f"Rows are joined with the lookup table “{name}”, which is treated as public.")


def _stored(config: Config, plans: Sequence[QueryPlan], document: dict[str, Any]) -> Iterable[str]:
    total = sum(query["state_bytes"] for query in document["queries"])
    states = (
        f"A noisy state for each question, {total:,} bytes in all (questions with windows have one for each open "
        "window). It holds neither rows nor identifiers, and is random from the start, so that neither presence nor "
        "absence can be read off it with certainty."
    )
    if config.two_party is not None:
        states = (
            f"A state for each question, as a share of {total:,} bytes in all on each of two machines (questions with "
            "windows have one for each open window). One share tells nothing, whatever rows came; "
            f"{_both_shares(plans)}. Both shares are re-randomised in every step."
        )
    yield html_list(
        [states, "The published answers, the budget spent, this configuration, and how far the input was read."]
    )
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


def _attacker_section(config: Config, plans: Sequence[QueryPlan], step: float) -> Iterable[str]:
    flight = (
        f"for up to {format_duration(step)} and the time it takes to store them" if step else "until they are stored"
    )
    states = "noisy states"
    second = "A second copy that nobody noticed is not covered, by this or by any program that remembers anything."
    if config.two_party is not None:
        states = "machine's shares of the states"
        second = (
            "Further copies, of either machine, tell no more, unless both are copied between the same two steps: "
            f"{_both_shares(plans)}."
        )
    yield html_list(
        [
            f"Someone who copies {_places(config, plans)} at a moment of her choice gets the {states}, this "
            "configuration and the published answers. What she learns about one protected person or row is "
            "limited by the numbers below, whatever else she knows.",
            f"Rows that have just arrived are readable while they are being counted (live rows {flight}); then they "
            "are overwritten. Those rows are not protected from a copy made at that very moment.",
            second,
        ]
    )


def _published(plans: Sequence[QueryPlan], document: dict[str, Any]) -> Iterable[str]:
    rows = []
    for plan, query in zip(plans, document["queries"], strict=True):
        groups = f", for each of {len(plan.groups):,} groups" if plan.config.groups else ""
        if plan.config.names is not None:
            groups = (
                f", for every {plan.config.names} with at least {format_error(query['listing_threshold'])} rows (95%)"
            )
        error = query["error_95"][-1]
        reach = "no bound on" if error["error"] is None else f"± {format_error(error['error'])}"
        rows.append([plan.config.name, code(query["sql"]), query["answers"] + groups, f"{reach} {error['at']}"])
    yield html_table(["question", "what is asked", "when", "expected error (95%)"], rows)
    facts = list(dict.fromkeys(fact for plan in plans for fact in plan.claim.public))
    yield paragraph("Treated as public, and not protected: " + "; ".join(facts) + ".")
    ways = "; ".join(f"{intake}: {', '.join(facts)}" for intake, facts in document["intakes"].items() if facts)
    yield paragraph(f"Depending on how rows arrive, also: {ways}.")
    conditions = "; ".join(f"{intake}: {condition}" for intake, condition in document["conditions"].items())
    yield paragraph(f"Depending on how rows arrive, what is promised changes: {conditions}.")


def _numbers(config: Config, plans: Sequence[QueryPlan]) -> Iterable[str]:
    slack = [plan for plan in plans if plan.claim.delta]
    yield paragraph(
        "Epsilon (ε) limits what anyone can learn from the covered break-ins and all answers together: the odds change "
        "by a factor of at most e to the power ε. Suppose an intruder is 50% (or 1%) sure that a certain person or row "
        "is in the data. Whatever she sees, she ends up between these bounds"
        + ("; where there is a δ (delta), only with the probability that is given below:" if slack else ":")
    )
    rows = []
    for plan in plans:
        bounds = _bounds(plan.claim.epsilon, plan.claim.delta)
        rows.append([plan.config.name, _unit(plan, config), *bounds, covered_intrusions_text(plan.claim)])
    totals = planned_ledger(config, tuple(plans)).totals()
    for total in totals:
        if not total.reason:
            protected = _protected(total.unit, total.window, config)
            rows.append(["all questions together", protected, *_bounds(total.epsilon, total.delta), ""])
    guesses = [f"{guess} sure becomes" for guess, _ in _GUESSES]
    yield html_table(["question", "protects", "ε", *guesses, "break-ins covered"], rows)
    for plan in plans:
        claim = plan.claim
        if claim.event_epsilon is not None:
            yield paragraph(f"“{plan.config.name}”: a single row loses at most ε = {rounded_up(claim.event_epsilon)}.")
        if claim.delta:
            yield paragraph(
                f"“{plan.config.name}”: ε = {rounded_up(claim.epsilon)}, δ = {claim.delta:.3g} means that no "
                "probability changes by more than the factor e to the power ε, and δ on top. The bounds above hold "
                f"with a probability of 1 - {rounded_up(plan.loss_exceeds())}, over the noise that was drawn; those "
                f"for twice the ε with 1 - {rounded_up(plan.loss_exceeds(2.0))}. The moment of a break-in must not "
                "depend on earlier answers."
            )
        if claim.note:
            yield paragraph(f"“{plan.config.name}”: {claim.note}.")
    worst = max((plan.loss_exceeds() / plan.claim.delta for plan in slack), default=0.0)
    for total in totals:
        if total.delta and not total.reason:
            yield paragraph(
                f"All questions together, {_protected(total.unit, total.window, config)}: the bounds hold with a "
                f"probability of at least 1 - {rounded_up(min(worst * total.delta, 1.0))}."
            )
        if total.limit is not None:
            protected = _protected(total.unit, total.window, config)
            yield paragraph(f"The declared budget of all questions for {protected} is ε = {total.limit:g}.")
    if share := epsilon_for_files(config):
        yield paragraph(
            f"If rows are read from files, the share of rows that could not be used is published once, too: ε = "
            f"{rounded_up(share)} on top of each total above."
        )


def _not_protected(config: Config, plans: Sequence[QueryPlan], document: dict[str, Any]) -> Iterable[str]:
    queries = [plan.config for plan in plans]
    rowwise = [plan.config.name for plan in plans if plan.claim.unit == "event"]
    windowed = [plan.config.name for plan in plans if plan.claim.unit == "user-window"]
    looks = "Repeated looks at the memory, including by the operator"
    if config.two_party is not None:
        looks = (
            f"Looks at both machines between the same two steps, including by their operators: {_both_shares(plans)}; "
            "an intruder who acts with a stolen certificate"
        )
    limits = [
        "What is true of many people: that is what the answers are for, and anyone may draw conclusions from it.",
        "Rows elsewhere: at their sender, on their way here, in the files that they are read from, in other copies.",
        f"{looks}; swap, hibernation images, backups and snapshots of "
        "the stored state; anyone who controls the operating system while rows arrive.",
        "Past rows, if the program was started with --no-hardening or does not run on Linux: parts of them may stay in "
        "freed memory for a while.",
        "Sizes and times of network messages, and the messages themselves if they are sent without TLS.",
    ]
    limits += [
        f"Any copy of the state of “{plan.config.name}”: no break-in is covered there."
        for plan in plans
        if covered_intrusions_text(plan.claim) == "none"
    ]
    late = [plan.config.name for plan in plans if plan.claim.intrusions.freezes]
    if late:
        limits.append(
            f"A break-in that is reported after further rows were counted, in {_names(late)}: it is then the one that "
            "may stay unnoticed, and a second one is not covered."
        )
    if rowwise:
        limits.append(
            f"Someone with several rows, in {_names(rowwise)}: the limit is for a single row, so k rows can lose "
            "k times as much."
        )
    if windowed:
        limits.append(f"Someone who returns, in {_names(windowed)}: the limit is for a single window, and adds up.")
    if config.stream.user is not None:
        limits.append(
            f"Someone with several values of {config.stream.user}: each counts as another person, and losses add up."
        )
    limits += [
        f"Someone with more than {query.contributions:,} rows, in “{query.name}”: that number was declared, and is not "
        "enforced from one batch to the next."
        for query in queries
        if query.contributions is not None
    ]
    limits += [
        f"Someone in more than {_pluralize(query.groups_per_user, 'group')}, in “{query.name}”: that number was "
        "declared."
        for query in queries
        if query.groups_per_user is not None
    ]
    limits += [
        f"All questions together, for {_protected(total.unit, total.window, config)}: no limit, because nothing bounds "
        f"how often that counts in {_names(name for name, loss in total.parts if math.isinf(loss))}."
        for total in planned_ledger(config, tuple(plans)).totals()
        if total.reason
    ]
    yield html_list(limits)
    if document["warnings"]:
        yield paragraph("Warnings about this configuration:")
        yield html_list(document["warnings"])


def _assumptions_section(plans: Sequence[QueryPlan]) -> Iterable[str]:
    rows: dict[str, list[str]] = {}
    for plan in plans:
        page = f"docs/proofs/{plan.algorithm.proof}"
        rows.setdefault(f"{type(plan.algorithm).__name__}: {page}", []).append(plan.config.name)
    yield html_list(
        [
            "Proofs, in the documentation of this version: "
            + "; ".join(f"{proof} (for {_names(names)})" for proof, names in rows.items())
            + "; totals: docs/proofs/totals.md; questions in SQL: docs/proofs/sql.md"
            + (
                "; rows that depend on answers: docs/proofs/adaptive.md."
                if any(plan.claim.inputs == "adaptive" for plan in plans)
                else "."
            ),
            *(
                f"What the proofs assume: {assumption}."
                for assumption in dict.fromkeys(plan.claim.assumption for plan in plans)
                if assumption
            ),
            *(
                f"“{plan.config.name}”: the proof holds for rows, and for moments of a break-in, that do not depend on "
                "earlier answers."
                for plan in plans
                if plan.claim.inputs == "fixed"
            ),
            "Audits that anyone can repeat: “panstream audit” measures the algorithms against their limits; “panstream "
            "audit system” runs the program on inputs that differ in one person; “panstream audit memory” searches the "
            "memory and files of a running server for what was sent to it. This page does not say that they were run "
            "on this machine.",
            "“panstream explain” prints the same promises in technical terms; docs/explanation/threat-model.md goes "
            "through the attacks one by one.",
        ]
    )


def _both_shares(plans: Sequence[QueryPlan]) -> str:
    """Return what a copy of both machines' shares reveals."""
    if all(plan.claim.intrusions.together for plan in plans):
        return "both together are a noisy state, of which one copy is covered and a second is not"
    return "both together are the exact state"


def _places(config: Config, plans: Sequence[QueryPlan]) -> str:
    if config.two_party is not None:
        return "the memory and disk of one of the two machines"
    if "disk" in plans[0].claim.locations:
        return "the machine's memory, its disk, or both at the same time,"
    return "the machine's memory" if config.directory is None else "the machine's memory (not its disk)"


def _unit(plan: QueryPlan, config: Config) -> str:
    claim = plan.claim
    contributions = plan.config.contributions
    rows = "" if contributions is None else f", with {_pluralize(contributions, 'row')} at most"
    return _protected(claim.unit, claim.window, config) + rows + _ADJACENT[claim.adjacency]


def _protected(unit: Unit, window: float | None, config: Config) -> str:
    person = f"one person (one {config.stream.user})"
    if unit in ("user", "user-window"):
        return person if window is None else f"{person} within {format_duration(window)}"
    return "one row" if unit == "event" else f"one {unit}"


def _bounds(epsilon: float, delta: float) -> list[str]:
    """Return epsilon with delta and, for each prior, the range of posterior probabilities; rounded outwards."""
    if not math.isfinite(epsilon):
        return ["no limit", *("anything" for _ in _GUESSES)]
    shown = []
    for _, odds in _GUESSES:
        low, high = (1 / (1 + math.exp(min(700.0, change)) / odds) for change in (epsilon, -epsilon))
        shown.append(f"{math.floor(1000 * low) / 10:g}%{_GLUE}to{_GLUE}{math.ceil(1000 * high) / 10:g}%")
    return [rounded_up(epsilon) + (f", δ{_GLUE}={_GLUE}{rounded_up(delta)}" if delta else ""), *shown]


def but_for(chance: float) -> str:
    """Return the clause that excepts ``chance`` from a bound; empty if it is 0."""
    return f", but for a chance of at most {rounded_up(chance)}" if chance else ""


def _names(names: Iterable[str]) -> str:
    return ", ".join(f"“{name}”" for name in names)


def _pluralize(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
