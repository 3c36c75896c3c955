"""A configuration for a website: the queries that are useful at its size, their costs, and the file to serve.

Questions about different visitors share one budget for all that one visitor does in 30 days. All others protect single
rows, and share a budget for one page view. A query is useful if its 95% error is at most a quarter of the expected
count; a list of names, if it finds a name with a twentieth of the events. All of this depends on the declared size
only, never on data.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from panstream.algorithms.auto import TopItems
from panstream.core.estimate import format_number
from panstream.engine.config.config import read_config
from panstream.engine.planner.accuracy import error_at
from panstream.engine.planner.event_total import event_loss
from panstream.engine.planner.open_domain import top_items_for
from panstream.engine.planner.person_division import divide_person_budget
from panstream.engine.planner.person_period import person_share
from panstream.engine.planner.query_plan import QueryPlan, plan_all
from panstream.engine.presets._website_queries import (
    GROUP,
    NAME,
    SPANS,
    UNASKED,
    VIEW_DELTA,
    WebsiteQuery,
    in_window,
    useful_error,
)
from panstream.engine.presets.website_spec import WebsiteSpec
from panstream.errors import BudgetExceeded, ConfigError, InvalidParameter
from panstream.primitives.durations import parse_period
from panstream.privacy.person_loss import PERIOD, PersonShare, PersonTotal
from panstream.privacy.rounding import round_down

_FEW = 10.0  # a count with an error of this many / epsilon is useful whatever its size: no mechanism does much better
_MEMORY = [1 << size for size in range(20, 25)]  # candidate bytes for a list of names
# Shares of the budget of a page view. A count is exact enough with little, a list is not: its noise decides what it
# can name at all.
_SHARES = {"count": 0.2, "groups": 0.5, "names": 1.0, "timing": 1.0}
_DIGITS = 3  # of an epsilon
_HALVINGS = 9  # of the interval in which its scale is searched


@dataclass(frozen=True, slots=True, kw_only=True)
class _QueryCandidate:
    """A query in one window: its keys, its plan, and its expected error."""

    question: WebsiteQuery
    window: str
    keys: dict[str, Any]
    plan: QueryPlan
    size: int
    error: float
    threshold: float | None  # events that a name needs to be listed; None for other queries
    share: PersonShare

    @property
    def useful(self) -> bool:
        """Whether the expected error is small enough."""
        if self.threshold is not None:
            return self.threshold <= useful_error(self.question, self.size)
        return self.error <= useful_error(self.question, self.size) or (
            self.question.kind == "count" and self.error <= _FEW / self.plan.config.epsilon
        )

    @property
    def exactness(self) -> str:
        """The expected error as a short text."""
        if self.threshold is not None:
            return f"from {math.ceil(self.threshold):,} {in_window(self.window)}"
        if self.question.kind == "timing":
            return f"±{format_number(self.error, 2)} ms"
        if not self.question.counts_visitors:
            return f"±{format_number(self.error, 2)}"
        if self.question.kind == "retention":
            return f"±{format_number(self.error, 2)} of who came back"
        group = self.question.kind == "visitor groups"
        share = 100 * self.error / (self.size * (GROUP if group else 1.0))
        return f"±{format_number(self.error, 2)} ({'under 1' if share < 0.5 else f'{share:.0f}'}%)"

    @property
    def protects(self) -> str:
        """What the claim of the query is about."""
        return f"visitor's {SPANS[self.window]}" if self.question.per_visitor else "event"


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """The queries proposed for a site, and those left out with the reason."""

    site: WebsiteSpec
    asked: tuple[_QueryCandidate, ...]
    left_out: tuple[tuple[str, str], ...]

    def config(self) -> dict[str, Any]:
        """Return the configuration as plain values."""
        values = self.site.sections_of_file()
        unbounded = [candidate.question.name for candidate in self.asked if not candidate.question.per_visitor]
        budget: dict[str, Any] = dict(self.site.person_section)
        values["stream"]["budget"] = budget | ({"allow_unbounded": unbounded} if unbounded else {})
        return {
            **values,
            "query": [candidate.keys for candidate in self.asked],
            "statement": dict.fromkeys(("controller", "contact", "purpose", "why_epsilon", "retention"), ""),
        }

    def person_total(self) -> PersonTotal:
        """Return what one visitor can lose in any 30 days."""
        shares = tuple(candidate.share for candidate in self.asked)
        return PersonTotal(period=PERIOD, shares=shares, delta=self.site.person_section.get("delta", 0.0))

    def page_view_loss(self) -> tuple[float, float]:
        """Return epsilon and delta of one page view, to all questions about events together."""
        return event_loss([candidate.plan for candidate in self.asked if _reads_views(candidate.question)], VIEW_DELTA)


def _reads_views(question: WebsiteQuery) -> bool:
    return question.of_views and not question.per_visitor


def propose_queries(site: WebsiteSpec) -> Proposal:
    """Choose the queries that are useful at the declared size; raise InvalidParameter if none is."""
    left_out: dict[str, str] = {}
    asked: dict[str, _QueryCandidate] = {}
    questions = site.questions()
    known = [question for question in questions if question.name not in UNASKED.get(site.source, ())]
    left_out |= {question.name: "an access log does not tell" for question in questions if question not in known}
    if site.machines is not None:
        unlisted = [question.name for question in known if question.kind == "names"]
        left_out |= dict.fromkeys(unlisted, "two machines count listed names only")
        known = [question for question in known if question.name not in unlisted]
    _divide(site, [question for question in known if question.per_visitor], asked, left_out)
    views = [question for question in known if _reads_views(question)]
    scale = _page_view_scale(site, views) if views else 1.0
    for question in known:
        if question.per_visitor:
            continue
        epsilon = _rounded_down(_SHARES[question.kind] * (scale if question.of_views else 1.0))
        candidate, why = _useful(site, question, epsilon)
        if candidate is None:
            left_out[question.name] = why
        else:
            asked[question.name] = candidate
    if not asked:
        raise InvalidParameter("no question is useful at this size; a larger person or page_view would help")
    names = [question.name for question in questions]
    return Proposal(
        site=site,
        asked=tuple(asked[name] for name in names if name in asked),
        left_out=tuple((name, left_out[name]) for name in names if name in left_out),
    )


# Questions about visitors, which share one budget.


def _divide(
    site: WebsiteSpec,
    questions: Sequence[WebsiteQuery],
    asked: dict[str, _QueryCandidate],
    left_out: dict[str, str],
) -> None:
    """Divide the budget of a visitor between the questions that can be useful within it."""
    values = site.sections_of_file()
    values["stream"]["budget"] = site.person_section
    fixed = [question for question in questions if question.kind == "retention"]
    questions = [question for question in questions if question not in fixed]
    for question in fixed:
        asked[question.name] = _ask(site, question, question.windows[0], question.keys["epsilon"])
    values["query"] = [_undivided(site, question) for question in questions]
    values["query"] += [asked[question.name].keys for question in fixed]
    try:
        config = divide_person_budget(read_config(values))
    except BudgetExceeded as error:
        left_out |= {question.name: f"not useful within {site.budget:g}: {error}" for question in questions}
        return
    by_name = {question.name: question for question in questions}
    shares = {name: math.fsum(query.epsilon for query in config.queries if query.statement == name) for name in by_name}
    for query in config.queries:
        if query.statement not in by_name:
            continue
        question = by_name[query.statement]
        window = next(window for window in question.windows if parse_period(window, name="window") == query.window)
        if question.name not in asked:  # a statement with several answers has several queries
            asked[question.name] = _ask(site, question, window, shares[question.name])
    left_out |= {choice.name: choice.reasons[-1] for choice in config.choices if choice.dropped}


def _undivided(site: WebsiteSpec, question: WebsiteQuery) -> dict[str, Any]:
    sizes = [question.size(site.visitors, window) for window in question.windows]
    return {
        "name": question.name,
        "sql": question.sql,
        "window": list(question.windows),
        "expected": [_expected(question, size) for size in sizes],
        "target_error": [useful_error(question, size) for size in sizes],
        **({"bounded_by": "sender", "counter": question.counter} if question.counter else {}),
        **({"contributions": list(question.caps)} if question.counter else {}),
        "weight": question.weight,
        **question.keys,
    }


# Questions about events.


def _page_view_scale(site: WebsiteSpec, questions: Sequence[WebsiteQuery]) -> float:
    """Return the largest factor of `_SHARES` with which one page view loses no more than it may."""

    def loss(scale: float) -> tuple[float, float]:
        epsilons = [_rounded_down(_SHARES[question.kind] * scale) for question in questions]
        scaled = [replace(query, epsilon=epsilon) for query, epsilon in zip(config.queries, epsilons, strict=True)]
        return event_loss(plan_all(replace(config, queries=tuple(scaled))), VIEW_DELTA)

    def fits(scale: float) -> bool:
        epsilon, delta = loss(scale)
        return epsilon <= site.page_view and delta <= VIEW_DELTA * (1 + 1e-9)

    queries = [{**_keys(site, question, question.windows[0], 1.0), **_any_memory(question)} for question in questions]
    config = read_config({**site.sections_of_file(), "query": queries})
    low = 0.0
    high = 2.0 * site.page_view
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _useful(site: WebsiteSpec, question: WebsiteQuery, epsilon: float) -> tuple[_QueryCandidate | None, str]:
    """Return the query in the shortest window in which it is useful; or None and the reason."""
    why = ""
    for window in question.windows:
        try:
            candidate = _ask(site, question, window, epsilon)
        except (InvalidParameter, ConfigError) as error:
            return None, str(error).partition(": ")[2] or str(error)
        if candidate.useful:
            return candidate, ""
        why = _useless(candidate)
    return None, why


def _useless(candidate: _QueryCandidate) -> str:
    when = in_window(candidate.window)
    if candidate.threshold is not None:
        return (
            f"only names with {math.ceil(candidate.threshold):,} of about {candidate.size:,} events {when} would be "
            "listed"
        )
    what = "visitors" if candidate.question.kind == "visitors" else "events"
    return f"the 95% error would be {format_number(candidate.error, 2)} with about {candidate.size:,} {what} {when}"


def _any_memory(question: WebsiteQuery) -> dict[str, Any]:
    """Return a memory for names: the loss does not depend on it, and the best one takes time to find."""
    return {"memory": _MEMORY[0]} if question.kind == "names" else {}


def _keys(site: WebsiteSpec, question: WebsiteQuery, window: str, epsilon: float) -> dict[str, Any]:
    keys = {"name": question.name, "sql": question.sql, "window": window, **question.keys, "epsilon": epsilon}
    if question.counter:
        bound = question.caps[question.windows.index(window)]
        keys |= {"contributions": bound, "bounded_by": "sender", "counter": question.counter}
    if question.kind not in ("count", "groups"):
        keys["expected"] = _expected(question, question.size(site.visitors, window))
    return keys


def _expected(question: WebsiteQuery, size: int) -> int:
    """Return the size of one state: that of a typical group, where there are groups of visitors."""
    return max(1, round(GROUP * size)) if question.kind == "visitor groups" else size


def _ask(site: WebsiteSpec, question: WebsiteQuery, window: str, epsilon: float) -> _QueryCandidate:
    size = question.size(site.visitors, window)
    keys = _keys(site, question, window, epsilon)
    if question.kind == "names" and not question.counter:
        keys["memory"] = _memory(epsilon, size, question.keys)
    config = read_config({**site.sections_of_file(), "query": [keys]})
    (plan,) = plan_all(config)
    threshold = top_items_for(plan.config).listing_threshold if question.kind == "names" else None
    return _QueryCandidate(
        question=question,
        window=window,
        keys=keys,
        plan=plan,
        size=size,
        error=error_at(plan, _expected(question, size)),
        threshold=threshold,
        share=person_share(plan, config.stream, PERIOD),
    )


def _memory(epsilon: float, size: int, keys: Mapping[str, Any]) -> int:
    """Return the smallest memory whose listing threshold is as low as that of the largest, or low enough.

    A small state is written quickly, so steps are short and rows are in flight, and unprotected, only briefly.
    """
    thresholds = {
        memory: TopItems(epsilon, expected=size, memory=memory, **keys).listing_threshold for memory in _MEMORY
    }
    enough = max(min(thresholds.values()), NAME / 5 * size)
    return next(memory for memory in _MEMORY if thresholds[memory] <= 1.001 * enough)


def _rounded_down(epsilon: float) -> float:
    """Return an epsilon with few digits."""
    unit = 10.0 ** (math.floor(math.log10(epsilon)) - _DIGITS + 1)
    return round_down(float(f"{math.floor(epsilon / unit + 1e-9) * unit:.{_DIGITS}g}"))
