"""What every checklist says about a configuration, each fact worded once."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property

from panstream.core.algorithm import proof_reference
from panstream.engine.config.config import Config
from panstream.engine.planner.person_period import person_word, planned_person_total
from panstream.engine.planner.query_plan import QueryPlan
from panstream.engine.reporting.checklists.checklist import Field
from panstream.engine.reporting.evidence import evidence_sentence
from panstream.engine.reporting.explain import ConfigExplanation, explain
from panstream.engine.reporting.person_sentences import person_sentences
from panstream.engine.reporting.privacy_statement import declared_error
from panstream.engine.reporting.statement_words import copied_places, count_of, protected_unit, quoted_names
from panstream.engine.runtime.intrusions import covered_intrusions_text
from panstream.primitives.durations import format_duration
from panstream.privacy.person_loss import PersonTotal
from panstream.privacy.rounding import rounded_up


@dataclass(frozen=True, kw_only=True)
class Facts:
    """Texts about one configuration.

    Attributes:
        config: The configuration.
        now: Time of the page, in UTC.
        digest: SHA-256 of the configuration's file, in hexadecimal.
    """

    config: Config
    now: datetime
    digest: str

    @cached_property
    def explanation(self) -> ConfigExplanation:
        """The configuration's explanation."""
        return explain(self.config)

    @property
    def plans(self) -> Sequence[QueryPlan]:
        """One plan per question."""
        return self.explanation.plans

    @cached_property
    def total(self) -> PersonTotal:
        """What one person loses over a period."""
        return planned_person_total(self.config, self.plans)

    @property
    def epsilon(self) -> float:
        """The person's loss over the period; infinite if it is not bounded."""
        return self.total.epsilon

    @property
    def delta(self) -> float:
        """The delta of the person's loss."""
        return self.total.stated_delta

    def person(self) -> str:
        """Return what one person loses over a period, in words."""
        who = person_word(self.config)
        copied = f"{copied_places(self.config, self.plans)} once"
        if self.config.two_party is not None:
            copied = f"{copied_places(self.config, self.plans)} at a time, as often as she likes,"
        return " ".join(
            person_sentences(self.total, deeds=f"whatever one {who} did", person=f"one {who}", copied=copied)
        )

    def parameters(self) -> str:
        """Return epsilon and delta of one person, then of each question."""
        of_questions = "; ".join(f"“{plan.config.name}” {_loss(plan)}" for plan in self.plans)
        span = format_duration(self.total.period)
        delta = f", delta = {self.delta:g}" if self.delta else ", delta = 0"
        whole = "not bounded" if not math.isfinite(self.epsilon) else f"epsilon = {rounded_up(self.epsilon)}{delta}"
        who = person_word(self.config)
        return f"One {who}, any {span}, all questions and one intrusion: {whole}. Per question: {of_questions}."

    def unit(self) -> str:
        """Return the units of privacy, the notion of neighbours, and who bounds the rows of one unit."""
        units: dict[str, list[str]] = {}
        for plan in self.plans:
            unit = f"{protected_unit(plan.claim.unit, plan.claim.window, self.config)}, {plan.claim.adjacency}"
            units.setdefault(unit, []).append(plan.config.name)
        return "; ".join(f"{unit}: {quoted_names(names)}" for unit, names in units.items()) + f". {self._bounds()}"

    def _bounds(self) -> str:
        bounds = [
            f"“{plan.config.name}”: at most {count_of(plan.config.contributions, 'row')} of one person, bounded by "
            f"{plan.config.bounded_by}"
            for plan in self.plans
            if plan.config.contributions is not None
        ]
        return f"Rows of one person: {'; '.join(bounds)}." if bounds else "No number of rows of one person is declared."

    def unit_name(self) -> str:
        """Return the units of privacy in a few words."""
        units = dict.fromkeys(protected_unit(plan.claim.unit, plan.claim.window, self.config) for plan in self.plans)
        return ", ".join(units)

    def total_text(self) -> str:
        """Return the sum of all questions for one person, with its limit."""
        limit = "" if self.total.limit is None else f" The declared limit is epsilon {self.total.limit:g}."
        return f"{self.person()}{limit}"

    def small_groups(self) -> str:
        """Return what noise does to small groups."""
        return (
            "Noise has the same size in every group, so answers about small groups are relatively less exact; a group "
            "smaller than the error cannot be told from an empty one. No answer is suppressed or rounded because few "
            "are in it, and members of small groups are protected as much as others."
        )

    def side_channels(self) -> str:
        """Return what is known about timing, floating point and rows in flight."""
        return (
            "Noise is drawn with the same work whatever is drawn, on integers. Rows that have arrived and are not yet "
            "applied are readable in memory. Not covered: timing of requests, processor caches, swap, and anyone who "
            "controls the operating system while rows arrive (SECURITY.md)."
        )

    def variant_name(self) -> str:
        """Return the variant's name as the registry has it."""
        return "Approximate DP" if any(plan.claim.delta for plan in self.plans) or self.delta else "Pure DP"

    def variants(self) -> str:
        """Return the variants of differential privacy that are used."""
        names = [f"({'epsilon, delta' if plan.claim.delta else 'epsilon'})" for plan in self.plans]
        kinds = " and ".join(dict.fromkeys(names))
        return (
            f"{kinds}-differential privacy, pan-private: the same bound covers the answers and one copy of the "
            "state at any moment together."
        )

    def mechanisms(self) -> str:
        """Return the algorithm of each question, and where its noise is from."""
        kinds: dict[str, list[str]] = {}
        for plan in self.plans:
            kinds.setdefault(type(plan.algorithm).__name__, []).append(plan.config.name)
        text = "; ".join(f"{kind} for {quoted_names(names)}" for kind, names in kinds.items())
        return (
            f"{text}. Noise is integer (randomised response, discrete Laplace, discrete Gaussian), drawn exactly from "
            "the operating system's entropy; no floating-point numbers are added to data."
        )

    def proofs(self) -> str:
        """Return pages and theorems of the proofs."""
        references = dict.fromkeys(filter(None, (proof_reference(plan.algorithm) for plan in self.plans)))
        return f"{'; '.join(references)}; totals: docs/proofs/totals.md; one person: docs/proofs/person-period.md."

    def errors(self) -> str:
        """Return the expected error of each question."""
        return "; ".join(f"“{plan.config.name}” {declared_error(plan)}" for plan in self.plans) + " (95%)."

    def intrusions(self) -> str:
        """Return which copies of the state each question covers."""
        texts: dict[str, list[str]] = {}
        for plan in self.plans:
            texts.setdefault(covered_intrusions_text(plan.claim), []).append(plan.config.name)
        return "; ".join(f"{quoted_names(names)}: {text}" for text, names in texts.items()) + "."

    def public(self) -> str:
        """Return what is treated as public."""
        return "; ".join(dict.fromkeys(fact for plan in self.plans for fact in plan.claim.public)) + "."

    def columns(self) -> str:
        """Return the columns that are read."""
        read = self.config.needed_columns
        names = [f"{name} ({kind})" for name, kind in self.config.stream.columns.items() if name in read]
        return f"{', '.join(names)}. Other columns are not read."

    def questions(self) -> str:
        """Return the questions as they are asked."""
        documents = self.explanation.to_json()["queries"]
        return (
            "; ".join(f"“{document['name']}”: {document['sql']} ({document['answers']})" for document in documents)
            + "."
        )

    def storage(self) -> str:
        """Return what is stored, and where."""
        where = "in memory only" if self.config.directory is None else "in memory and, encrypted, on disk"
        if self.config.two_party is not None:
            where = "as two secret shares on two machines"
        return (
            f"Noisy states ({where}), published answers and public counters. Rows, identifiers and hashes are wiped "
            "after the batch they came in is applied."
        )

    def evidence(self) -> str:
        """Return what is known about audits on this machine; empty if no evidence is declared."""
        if self.config.statement.evidence is None:
            return ""
        return evidence_sentence(self.config.statement, self.digest, self.now)

    def filled(self, section: str, name: str, answer: str, *, program: bool = False, key: str = "") -> Field:
        """Return a field with an answer from the configuration, or from how the program works."""
        return Field(
            section=section, name=name, answer=answer, origin="program" if program else "configuration", key=key
        )

    def by_operator(self, section: str, name: str, answer: str, hint: str, *, key: str = "") -> Field:
        """Return a field that only the operator can fill in."""
        return Field(section=section, name=name, answer=answer, origin="operator", hint=hint, key=key)

    def audited(self, section: str, name: str) -> Field:
        """Return the field about audits on this machine."""
        return Field(
            section=section,
            name=name,
            answer=self.evidence(),
            origin="evidence",
            hint="run panstream audit CONFIG --evidence DIR --key FILE, and name both in [statement] evidence and "
            "evidence_key",
        )


def stated(key: str) -> str:
    """Return the hint for a field that a key of ``[statement]`` fills."""
    return f"[statement] {key}"


def joined(parts: Iterable[str]) -> str:
    """Return the parts that are not empty, as one text."""
    return " ".join(part for part in parts if part)


def _loss(plan: QueryPlan) -> str:
    if not math.isfinite(plan.claim.epsilon):
        return "no limit"
    return f"{rounded_up(plan.claim.epsilon)}" + (f" (delta {plan.claim.delta:g})" if plan.claim.delta else "")
