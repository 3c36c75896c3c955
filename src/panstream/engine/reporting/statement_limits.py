"""The sections of a privacy statement about limits: break-ins, trust, figures, and what is not covered."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from panstream.core.algorithm import proof_reference
from panstream.engine.config.config import Config
from panstream.engine.config.website import OF_THE_ID
from panstream.engine.planner.event_total import compose_events
from panstream.engine.planner.query_plan import QueryPlan, planned_ledger
from panstream.engine.reporting.statement_page import html_list, html_table, paragraph
from panstream.engine.reporting.statement_words import (
    both_shares,
    copied_places,
    count_of,
    protected_unit,
    quoted_names,
)
from panstream.engine.reporting.unusable_share import epsilon_for_files
from panstream.engine.runtime.intrusions import covered_intrusions_text
from panstream.primitives.durations import format_duration
from panstream.privacy.rounding import rounded_up

_GUESSES = (("50%", 1.0), ("1%", 1 / 99))  # prior probability of an attacker's guess, and its odds
_ADJACENT = {"add-remove": "", "replace": ", exchanged for another"}
_GLUE = "\N{NO-BREAK SPACE}"

_DECLARED = "that number was declared, and is not enforced from one batch to the next"
_ENFORCED = {
    None: _DECLARED,
    "declared": _DECLARED,
    "sender": "that number is kept by the person's own sender, and by nothing else",
}


def attacker_section(config: Config, plans: Sequence[QueryPlan], step: float) -> Iterable[str]:
    """Yield what a copy of memory and disk shows."""
    flight = (
        f"for up to {format_duration(step)} and the time it takes to store them" if step else "until they are stored"
    )
    states = "noisy states"
    second = "A second copy that nobody noticed is not covered, by this or by any program that remembers anything."
    if config.two_party is not None:
        states = "machine's shares of the states"
        second = (
            "Further copies, of either machine, tell no more, unless both are copied between the same two steps: "
            f"{both_shares(plans)}."
        )
    yield html_list(
        [
            f"Someone who copies {copied_places(config, plans)} at a moment of her choice gets the {states}, this "
            "configuration and the published answers. What she learns about one protected person or row is "
            "limited by the numbers below, whatever else she knows.",
            f"Rows that have just arrived are readable while they are being counted (live rows {flight}); then they "
            "are overwritten. Those rows are not protected from a copy made at that very moment.",
            second,
        ]
    )


def trusted_parties(config: Config, plans: Sequence[QueryPlan]) -> list[str]:
    """Return whom one has to trust, with what, and until when."""
    machine = "the machine"
    if config.two_party is not None:
        machine = "the machine that receives rows"
    trusted = [
        f"Whoever controls {machine}, while rows arrive: until it is counted, a row can be read there. Nobody has to "
        "be trusted with rows that were counted before; that is what the numbers are about.",
        "Its operating system and hardware, to give random numbers that cannot be guessed and to overwrite memory "
        "when told to; and this program, whose source is open and whose audits can be repeated.",
        "Everything that rows pass before they come here: senders, networks, proxies, and the logs that they keep.",
    ]
    if config.two_party is not None:
        trusted.append(
            "The operators of the two machines, not to put together what both hold: "
            f"{both_shares(plans)}. Each of them alone needs no trust with what is counted."
        )
    if config.web is not None:
        trusted.append("The site itself: its pages, and all other scripts on them, see what their visitors do.")
    declared = [plan.config.name for plan in plans if plan.config.contributions is not None]
    if declared:
        trusted.append(
            f"Whoever declared how many rows one person has, in {quoted_names(declared)}: for someone with more rows "
            "the limits do not hold."
        )
    trusted.append("Nobody who reads answers: they can be public.")
    return trusted


def numbers_section(config: Config, plans: Sequence[QueryPlan]) -> Iterable[str]:
    """Yield epsilon as probabilities of a guess, for every question and in total."""
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
    totals = [compose_events(total, plans) for total in planned_ledger(config, tuple(plans)).totals()]
    for total in totals:
        if not total.reason:
            protected = protected_unit(total.unit, total.window, config)
            every = ", every state copied" if total.unit == "user-window" else ""
            rows.append([f"all questions together{every}", protected, *_bounds(total.epsilon, total.delta), ""])
    guesses = [f"{guess} sure becomes" for guess, _ in _GUESSES]
    yield html_table(["question", "protects", "ε", *guesses, "break-ins covered"], rows)
    for text, names in _notes(plans).items():
        yield paragraph(f"{quoted_names(names)}: {text}")
    worst = max((plan.loss_exceeds() / plan.claim.delta for plan in slack), default=0.0)
    for total in totals:
        if total.delta and not total.reason:
            yield paragraph(
                f"All questions together, {protected_unit(total.unit, total.window, config)}: the bounds hold with a "
                f"probability of at least 1 - {rounded_up(min(worst * total.delta, 1.0))}."
            )
        if total.limit is not None:
            protected = protected_unit(total.unit, total.window, config)
            yield paragraph(f"The declared budget of all questions for {protected} is ε = {total.limit:g}.")
    if share := epsilon_for_files(config):
        yield paragraph(
            f"If rows are read from files, the share of rows that could not be used is published once, too: ε = "
            f"{rounded_up(share)} on top of each total above."
        )


def _notes(plans: Sequence[QueryPlan]) -> dict[str, list[str]]:
    """Return what is to be said about single questions, each with the names of those it is true of."""
    notes: dict[str, list[str]] = {}
    for plan in plans:
        claim = plan.claim
        texts = [f"{claim.note}."] if claim.note else []
        if claim.event_epsilon is not None:
            texts.append(f"a single row loses at most ε = {rounded_up(claim.event_epsilon)}.")
        if claim.delta:
            texts.append(
                f"ε = {rounded_up(claim.epsilon)}, δ = {claim.delta:.3g} means that no probability changes by more "
                "than the factor e to the power ε, and δ on top. The bounds above hold with a probability of 1 - "
                f"{rounded_up(plan.loss_exceeds())}, over the noise that was drawn; those for twice the ε with 1 - "
                f"{rounded_up(plan.loss_exceeds(2.0))}."
            )
        for text in texts:
            notes.setdefault(text, []).append(plan.config.name)
    return notes


def not_protected(config: Config, plans: Sequence[QueryPlan], warnings: Sequence[str]) -> Iterable[str]:
    """Yield what no number limits, and warnings."""
    queries = [plan.config for plan in plans]
    rowwise = [plan.config.name for plan in plans if plan.claim.unit == "event"]
    windowed = [plan.config.name for plan in plans if plan.claim.unit == "user-window"]
    looks = "Repeated looks at the memory, including by the operator"
    if config.two_party is not None:
        looks = (
            f"Looks at both machines between the same two steps, including by their operators: {both_shares(plans)}; "
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
            f"A break-in that is reported after further rows were counted, in {quoted_names(late)}: it is then the one "
            "that may stay unnoticed, and a second one is not covered."
        )
    if rowwise:
        limits.append(
            f"Someone with several rows, in {quoted_names(rowwise)}: the limit is for a single row, so k rows can lose "
            "k times as much."
        )
    if windowed:
        limits.append(
            f"Someone who returns, in {quoted_names(windowed)}: the limit is for a single window, and adds up."
        )
    if config.stream.user is not None:
        limits.append(
            f"Someone with several values of {config.stream.user}: each counts as another person, and losses add up."
        )
    limits += [
        f"Someone with more than {query.contributions:,} rows, in “{query.name}”: {_ENFORCED[query.bounded_by]}."
        for query in queries
        if query.contributions is not None and query.bounded_by in _ENFORCED
    ]
    limits += [
        f"Someone in more than {count_of(query.groups_per_user, 'group')}, in “{query.name}”: that number was declared."
        for query in queries
        if query.groups_per_user is not None and not (config.web and OF_THE_ID.issuperset(query.groups))
    ]
    limits += [
        f"All questions together, for {protected_unit(total.unit, total.window, config)}: no limit, because nothing "
        f"bounds how often that counts in {quoted_names(name for name, loss in total.parts if math.isinf(loss))}."
        for total in planned_ledger(config, tuple(plans)).totals()
        if total.reason
    ]
    yield html_list(limits)
    if warnings:
        yield paragraph("Warnings about this configuration:")
        yield html_list(warnings)


def assumptions_section(plans: Sequence[QueryPlan], audits: str) -> Iterable[str]:
    """Yield proofs, what they assume, and audits; ``audits`` says whether they were run on this machine."""
    rows: dict[str, list[str]] = {}
    for plan in plans:
        reference = proof_reference(plan.algorithm)
        rows.setdefault(f"{type(plan.algorithm).__name__}: {reference}", []).append(plan.config.name)
    yield html_list(
        [
            "Proofs, in the documentation of this version: "
            + "; ".join(f"{proof} (for {quoted_names(names)})" for proof, names in rows.items())
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
            "memory and files of a running server for what was sent to it. " + audits,
            "“panstream explain” prints the same promises in technical terms; docs/explanation/threat-model.md goes "
            "through the attacks one by one.",
        ]
    )


def _unit(plan: QueryPlan, config: Config) -> str:
    claim = plan.claim
    contributions = plan.config.contributions
    rows = "" if contributions is None else f", with {count_of(contributions, 'row')} at most"
    return protected_unit(claim.unit, claim.window, config) + rows + _ADJACENT[claim.adjacency]


def _bounds(epsilon: float, delta: float) -> list[str]:
    """Return epsilon with delta and, for each prior, the range of posterior probabilities; rounded outwards."""
    if not math.isfinite(epsilon):
        return ["no limit", *("anything" for _ in _GUESSES)]
    shown = []
    for _, odds in _GUESSES:
        low, high = (1 / (1 + math.exp(min(700.0, change)) / odds) for change in (epsilon, -epsilon))
        shown.append(f"{math.floor(1000 * low) / 10:g}%{_GLUE}to{_GLUE}{math.ceil(1000 * high) / 10:g}%")
    return [rounded_up(epsilon) + (f", δ{_GLUE}={_GLUE}{rounded_up(delta)}" if delta else ""), *shown]
