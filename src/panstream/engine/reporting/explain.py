"""Explain a configuration before a row is read: algorithms, errors, claims, totals and public facts."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, replace
from inspect import cleandoc
from textwrap import wrap
from typing import Any

from panstream.core.algorithm import proof_reference
from panstream.core.estimate import format_number
from panstream.engine.config.config import Config, QueryConfig, StreamConfig
from panstream.engine.config.statement import Intake
from panstream.engine.planner.accuracy import accuracy_warning, expected_errors
from panstream.engine.planner.event_total import compose_events
from panstream.engine.planner.open_domain import having_warning, listing_threshold_text, top_items_for
from panstream.engine.planner.person_division import divide_person_budget
from panstream.engine.planner.person_period import planned_person_total
from panstream.engine.planner.public_facts import CONDITIONS, INTAKES, KAFKA, step_length, with_public_facts
from panstream.engine.planner.query_plan import QueryPlan, plan_all, plan_query, planned_ledger
from panstream.engine.planner.secret_shared_rules import two_party_summary
from panstream.engine.reporting.person_table import person_json, person_table
from panstream.engine.sql.parser import Aggregate
from panstream.errors import ConfigError
from panstream.primitives.durations import format_duration
from panstream.privacy.claim import weak_epsilon_warning
from panstream.privacy.ledger import LedgerTotal
from panstream.privacy.person_loss import PersonTotal
from panstream.privacy.rounding import rounded_up

_WIDTH = 100  # of what is wrapped


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigExplanation:
    """A configuration and its plans, as text or JSON."""

    config: Config
    plans: tuple[QueryPlan, ...]

    def totals(self) -> list[dict[str, Any]]:
        """Return the total cost of all queries, per unit."""
        return [total.to_json() for total in planned_ledger(self.config, self.plans).totals()]

    def _announced(self, plan: QueryPlan) -> str | None:
        """Return the error with and without paid announced intrusions, at the same epsilon."""
        many = plan.config.announced
        if not many:
            return None
        if plan.claim.intrusions.announced < 0:
            return "any number is covered, so announced need not be declared"
        without = plan_query(replace(plan.config, announced=0), self.config.stream, plan.claim.locations)
        (size_label, error), (_, error_without) = (expected_errors(variant)[-1] for variant in (plan, without))
        return (
            f"{many} paid for in advance; without, the error would be {format_error(error_without)} "
            f"instead of {format_error(error)}, {size_label}"
        )

    def _shared(self, plan: QueryPlan) -> str | None:
        """Return which answers of a statement come from this state, and how its epsilon is divided between states."""
        statement = next(candidate for candidate in self.config.statements if plan.config.name in candidate.queries)
        if plan.config.parsed.single_output:
            return None
        answers = ", ".join(output.name for output in plan.outputs)
        if len(statement.queries) == 1:
            return f"one state, with all of epsilon, answers {answers}"
        return (
            f"epsilon of {statement.name!r} is split evenly between {len(statement.queries)} states; this one answers "
            f"{answers}"
        )

    def _beside_one_machine(self, plan: QueryPlan) -> str | None:
        """Return the error that the same query would have on one machine."""
        if not self.config.stream.machines:
            return None
        stream = replace(self.config.stream, machines=())
        try:
            one = plan_query(replace(plan.config, bounded_by=None, changes=None), stream, plan.claim.locations)
            (size_label, error), (_, single_error) = (expected_errors(variant)[-1] for variant in (plan, one))
        except ConfigError:
            return None
        if math.isinf(single_error):
            return "one machine has no answer of this kind with a bounded error"
        if format_error(single_error) == format_error(error):
            return f"on one machine the error would be the same, {size_label}"
        single = f"on one machine the error would be {format_error(single_error)}"
        return f"{single} instead of {format_error(error)}, {size_label}"

    def _names(self, plan: QueryPlan) -> list[tuple[str, str]]:
        """Return the listing threshold of names, and the smaller error with declared keys."""
        query = plan.config
        if query.names is None:
            return []
        one = replace(query, groups={query.names: ("",)}, delta=0.0)
        (_, listed), *_ = expected_errors(plan_query(one, self.config.stream, plan.claim.locations))
        (_, open_), *_ = expected_errors(plan)
        price = (
            f"counts are off by up to {format_error(open_)} (95%), and rarer names are not seen; with groups = "
            f"{{ {query.names} = [...] }} every listed key is answered, and off by up to {format_error(listed)}: list "
            "the keys if they are few and known"
        )
        view = next(statement.view for statement in self.config.statements if query.name in statement.queries)
        return [("names", listing_threshold_text(query)), ("price", price), *having_warning(query, view)]

    @property
    def step(self) -> float:
        """Return the seconds between two commits of a live stream; 0 if every batch is committed."""
        return step_length(self.config, self.plans)

    def intakes(self) -> dict[str, list[str]]:
        """Return what each intake makes public, besides what the claims name."""
        named = {fact for plan in self.plans for fact in plan.claim.public}
        facts_by_intake: dict[str, list[str]] = {}
        for intake in INTAKES:
            plans = with_public_facts(self.plans, self.config.stream, [intake], by_clock=self.step > 0)
            facts = dict.fromkeys(fact for plan in plans for fact in plan.claim.public if fact not in named)
            facts_by_intake[intake] = list(facts)
        return facts_by_intake

    def warnings(self, intakes: Collection[Intake] = INTAKES) -> list[str]:
        """Return the queries whose answers follow from what an intake makes public."""
        intakes_by_warning: dict[str, list[str]] = {}
        for plan in self.plans:
            for intake in intakes:
                if why := _why_revealing(plan.config, intake, by_clock=self.step > 0):
                    intakes_by_warning.setdefault(f"{plan.config.name}: {why}", []).append(intake)
        return [f"{warning} ({', '.join(intakes)})" for warning, intakes in intakes_by_warning.items()]

    def uncertain(self) -> list[str]:
        """Return the queries that will be too uncertain at their expected size, and what would help."""
        return [f"[[query]] {plan.config.name}: {text}" for plan in self.plans for text in _accuracy_warnings(plan)]

    def strict_windows(self) -> list[str]:
        """Return a warning if windows by event time close with the first row of a later one."""
        stream = self.config.stream
        if stream.time is None or stream.lateness or all(plan.config.window is None for plan in self.plans):
            return []
        return [
            "[stream] lateness is 0: a row that comes after one of a later window is left out of its own; unless rows "
            'come in the order of their times, declare how late they may be, as lateness = "5 minutes"'
        ]

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "stream": self.config.stream.name,
            "durability": self.config.durability,
            "queries": [
                {
                    "name": plan.config.name,
                    "sql": plan.config.sql,
                    "algorithm": type(plan.algorithm).__name__,
                    "why": plan.why,
                    "state_bytes": plan.state_bytes,
                    "groups": len(plan.groups),
                    "answers": _when(plan),
                    "error_95": [
                        {"at": size_label, "error": error if math.isfinite(error) else None}
                        for size_label, error in expected_errors(plan)
                    ],
                    **(
                        {"listing_threshold": top_items_for(plan.config).listing_threshold} if plan.config.names else {}
                    ),
                    "claim": plan.claim.to_json(),
                    "proof": proof_reference(plan.algorithm),
                }
                for plan in self.plans
            ],
            "totals": self.totals(),
            "person": person_json(self.config, self.plans),
            "step": self.step,
            "intakes": self.intakes(),
            "conditions": CONDITIONS,
            "warnings": [*self.warnings(), *self.uncertain(), *self.strict_windows()],
        }

    def text(self) -> str:
        """Return the explanation as text."""
        lines = [f"stream {self.config.stream.name}, durability {self.config.durability}"]
        for plan in self.plans:
            groups = f" for {len(plan.groups)} groups" if plan.config.groups else ""
            rows = [
                ("question", cleandoc(plan.config.sql)),
                *[("shares", text) for text in [self._shared(plan)] if text],
                ("algorithm", type(plan.algorithm).__name__),
                ("why", plan.why),
                ("answers", _when(plan) + _counted(plan, self.config.stream)),
                ("state", f"{plan.state_bytes:,} bytes{groups}"),
                *[("error, 95%", f"{format_error(error)} {size_label}") for size_label, error in expected_errors(plan)],
                *self._names(plan),
                *[("warning", text) for text in _accuracy_warnings(plan)],
                *[("announced", text) for text in [self._announced(plan)] if text],
                *[("two machines", text) for text in [self._beside_one_machine(plan)] if text],
                *plan.claim.rows(),
                ("proof", proof_reference(plan.algorithm)),
            ]
            lines += ["", plan.config.name, *(_row(name, text) for name, text in rows)]
        lines += ["", *person_table(self.config, self.plans)]
        lines += [
            "",
            "what the ledger adds up, for which limits per unit hold: the loss to each query, as if every state",
        ]
        lines += ["of it were copied"]
        person = planned_person_total(self.config, self.plans)
        for total in planned_ledger(self.config, self.plans).totals():
            lines.append(_row(total.protects, _ledger_text(compose_events(total, self.plans), total, person)))
        if self.config.stream.machines:
            lines += ["", *two_party_summary(self.plans, self.config.stream.lateness, self.config.stream.cells)]
        lines += ["", "how rows arrive, and what else that makes public"]
        for intake in INTAKES:
            condition = CONDITIONS.get(intake)
            texts = [*self.intakes()[intake], *([condition] if condition else [])]
            lines.append(f"  {intake:<15} {'; '.join(texts) or 'nothing'}")
        when = f"every {format_duration(self.step)}, whether or not any arrived" if self.step else ""
        lines.append(f"  live rows are stored {when or 'as they arrive, batch by batch'}")
        lines.append("  not covered: rows in flight, batches over HTTP that wait for an earlier one of their producer,")
        lines.append("  and parts of a batch that wait for their commit (at most --max-staged bytes, for ten minutes)")
        warnings = [*self.warnings(), *self.strict_windows()]
        lines += [line for warning in warnings for line in ("", f"warning: {warning}")]
        return "\n".join(lines)


def _ledger_text(composed: LedgerTotal, added: LedgerTotal, person: PersonTotal) -> str:
    """Return a total in words, with how it compares to the sum of all queries and to the number of one person."""
    if added.reason:
        names = ", ".join(repr(name) for name, loss in added.parts if math.isinf(loss))
        text = f"not bounded by {names}: nothing limits how often one {added.unit} has what they protect"
        return "\n".join(wrap(f"{text} ({added.adjacency})", _WIDTH))
    limit = "no limit declared" if added.limit is None else f"of {added.limit:g} declared"
    slack = f", delta {added.delta:.3g}" if added.delta else ""
    lines = [f"epsilon {added.epsilon:g}{slack}, {limit} ({added.adjacency})"]
    if composed.epsilon < added.epsilon:
        lines.append(f"composed by zCDP at this delta: epsilon {rounded_up(composed.epsilon)}{slack}")
    if added.unit == "user-window" and person.epsilon < added.epsilon:
        span = format_duration(person.period)
        lines.append(
            f"one copy, of the states that are open together, in any {span}: {rounded_up(person.epsilon)}, above"
        )
    return "\n".join(lines)


def _accuracy_warnings(plan: QueryPlan) -> list[str]:
    return [text for text in (accuracy_warning(plan), weak_epsilon_warning(plan.config.epsilon)) if text]


def explain(config: Config) -> ConfigExplanation:
    """Plan every query of a configuration; raise ConfigError where one cannot be answered.

    Args:
        config: The configuration to plan.
    """
    config = divide_person_budget(config)
    return ConfigExplanation(config=config, plans=plan_all(config))


def _when(plan: QueryPlan) -> str:
    """Return when a query is answered, as text."""
    query = plan.config
    if query.window is not None:
        span = f"per window of {format_duration(query.window)}"
        return f"once {span}" if query.every is None else f"every {format_duration(query.every)}, afresh {span}"
    if query.retention_window is not None:
        times = "" if plan.is_unbounded else f", {plan.releases:,} times"
        return f"once per window of {format_duration(query.retention_window)}{times}"
    if query.every is not None:
        return f"every {format_duration(query.every)}, " + (
            "without end" if plan.is_unbounded else f"{plan.releases:,} times"
        )
    return "once, at the end of the input" if plan.releases == 1 else f"{plan.releases:,} times, when asked"


def _counted(plan: QueryPlan, stream: StreamConfig) -> str:
    """Return which rows an answer counts, if late rows make a difference."""
    if stream.time is None or (plan.config.every is None and plan.config.window is None):
        return ""
    lines = []
    if plan.config.retention_window is not None:
        return "\neach counts the rows of its window that came before the stream reached the end; late rows are dropped"
    if plan.config.every is not None:
        lines.append(
            "each counts the rows that came before the stream reached its time; a late row counts in the next answer"
        )
    if plan.config.window is not None and stream.lateness:
        last = "the last of a window" if plan.config.every is not None else "a window"
        lines.append(
            f"{last} waits {format_duration(stream.lateness)} for late rows, and counts those of the window only"
        )
    return "".join(f"\n{line}" for line in lines)


def _row(name: str, text: str) -> str:
    first, *rest = text.splitlines()
    return "\n".join([f"  {name:<11} {first}", *(f"  {'':<11} {line}" for line in rest)])


def format_error(number: float) -> str:
    """Return an error with three digits, or "no bound on" if it is infinite."""
    return format_number(number, 3, infinite="no bound on")


def _why_revealing(query: QueryConfig, intake: Intake, *, by_clock: bool) -> str | None:
    """Return why a query's answer follows from what an intake makes public; None if it does not."""
    parsed = query.parsed
    if parsed.aggregate is not Aggregate.COUNT or parsed.where or parsed.user_where or parsed.group_by:
        return None
    if intake in ("files", "growing files"):
        return "how many rows were read from a file is public, and so is this count of all rows"
    if intake == "calls" or not by_clock:
        return "the number of batches is public: if each brings one row, so is this count"
    if intake in KAFKA:
        return "a copy of memory shows how many messages there were, and so this count of all rows"
    if intake == "http":
        return (
            "producers that number their batches make the number of these public: if each brings one row, so is this "
            "count; Client(pace=...) sends on a clock, empty batches included"
        )
    return None
