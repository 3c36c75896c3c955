"""A configuration for a website: the queries that are useful at its size, their costs, and the file to serve.

A query is useful if its 95% error is at most a quarter of the expected count; a list of names, if it finds a name with
a twentieth of the events. All of this depends on the declared size only, never on data.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from panstream.algorithms.auto import TopItems
from panstream.core.estimate import format_number
from panstream.engine.config.config import read_config
from panstream.engine.config.website import Source, normalize_hostname, origins_of, parse_network
from panstream.engine.planner.accuracy import error_at
from panstream.engine.planner.open_domain import top_items_for
from panstream.engine.planner.person_period import person_share
from panstream.engine.planner.query_plan import QueryPlan, plan_all
from panstream.engine.presets._website_queries import (
    STREAM,
    UNASKED,
    WebsiteQuery,
    columns_of,
    website_queries,
)
from panstream.errors import ConfigError, InvalidParameter
from panstream.primitives.toml_config import toml_lines
from panstream.privacy.person_loss import PERIOD, PersonShare, PersonTotal
from panstream.privacy.rounding import rounded_up

SIZES = (1_000, 10_000, 100_000)  # daily visitors for which errors are shown
_PART = 0.25  # largest useful error, as a share of the count
_FEW = 10.0  # a count with an error of this many / epsilon is useful whatever its size: no mechanism does much better
_NAME = 0.05  # share of the events from which a name must be listed
_GROUP = 0.1  # share of the events of a typical group
_TYPICAL = 1_000.0  # milliseconds that a page takes to load
_MEMORY = [1 << size for size in range(20, 25)]  # candidate bytes for a list of names
_SPANS = {"1 hour": "hour", "1 day": "day", "7 days": "7 days", "30 days": "30 days"}


@dataclass(frozen=True, slots=True, kw_only=True)
class WebsiteSpec:
    """What the owner of a site declares."""

    site: str
    visitors: int = 1_000  # per day
    epsilon: float = 1.0  # of every query
    source: Source = "beacon"
    sections: tuple[str, ...] = ()
    campaigns: tuple[str, ...] = ()
    countries: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    trusted_proxies: tuple[str, ...] = ()
    machines: Mapping[str, Any] | None = None  # addresses, names, certificate, key, authority

    def __post_init__(self) -> None:
        object.__setattr__(self, "site", normalize_hostname(self.site))
        object.__setattr__(self, "sections", tuple(f"/{section.strip('/')}" for section in self.sections))
        object.__setattr__(self, "countries", tuple(country.upper() for country in self.countries))
        object.__setattr__(self, "origins", self.origins or origins_of(self.site))
        if not 1 <= self.visitors <= 1_000_000_000:
            raise InvalidParameter(f"visitors per day must be in 1..1,000,000,000, got {self.visitors}")
        if not (math.isfinite(self.epsilon) and self.epsilon > 0):
            raise InvalidParameter(f"epsilon must be positive, got epsilon={self.epsilon:g}")
        for proxy in self.trusted_proxies:
            parse_network(proxy)

    def sections_of_file(self) -> dict[str, Any]:
        """Return the configuration without its queries, as plain values."""
        stream: dict[str, Any] = {"name": STREAM, "user": "visitor"}
        if self.source == "log":
            stream |= {"time": "time", "lateness": "1 minute"}
        machines = {} if self.machines is None else dict(self.machines)
        if machines:
            stream["machines"] = machines.pop("machines")
        web: dict[str, Any] = {"site": self.site, "source": self.source}
        if self.source == "beacon":
            web |= {"origins": list(self.origins), "trusted_proxies": list(self.trusted_proxies)}
        stream["columns"] = columns_of(self.source)
        return {
            "web": web,
            "stream": stream,
            **({"two_party": machines} if machines else {}),
            "store": {"directory": f"{self.site}-state"},
        }


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
            return self.threshold <= _NAME * self.size
        if self.question.kind == "timing":
            return self.error <= _PART * _TYPICAL
        group = _GROUP if self.question.kind == "groups" else 1.0
        return self.error <= _PART * group * self.size or (
            self.question.kind == "count" and self.error <= _FEW / self.plan.config.epsilon
        )

    @property
    def exactness(self) -> str:
        """The expected error as a short text."""
        if self.threshold is not None:
            return f"from {math.ceil(self.threshold):,} in {self.window}"
        if self.question.kind == "timing":
            return f"±{format_number(self.error, 2)} ms"
        if self.question.kind != "visitors":
            return f"±{format_number(self.error, 2)}"
        share = 100 * self.error / self.size
        return f"±{format_number(self.error, 2)} ({'under 1' if share < 0.5 else f'{share:.0f}'}%)"

    @property
    def monthly(self) -> float:
        """What one visitor can lose in any 30 days, with one intrusion; infinite where single events are protected."""
        return self.share.epsilon


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """The queries proposed for a site, and those left out with the reason."""

    site: WebsiteSpec
    asked: tuple[_QueryCandidate, ...]
    left_out: tuple[tuple[str, str], ...]

    def config(self) -> dict[str, Any]:
        """Return the configuration as plain values."""
        return {**self.site.sections_of_file(), "query": [candidate.keys for candidate in self.asked]}


def propose_queries(site: WebsiteSpec) -> Proposal:
    """Choose the queries that are useful at the declared size; raise InvalidParameter if none is."""
    candidates, left_out = _chosen(site)
    if not candidates:
        raise InvalidParameter("no question is useful at this size and epsilon; a larger epsilon would help")
    return Proposal(site=site, asked=tuple(candidates), left_out=tuple(left_out))


def _chosen(site: WebsiteSpec) -> tuple[list[_QueryCandidate], list[tuple[str, str]]]:
    candidates: list[_QueryCandidate] = []
    left_out: list[tuple[str, str]] = []
    for question in website_queries(site.sections, site.campaigns, site.countries):
        if question.name in UNASKED.get(site.source, ()):
            left_out.append((question.name, "an access log does not tell"))
            continue
        candidate, why = _useful(site, question)
        if candidate is None:
            left_out.append((question.name, why))
        else:
            candidates.append(candidate)
    return candidates, left_out


def _useful(site: WebsiteSpec, question: WebsiteQuery) -> tuple[_QueryCandidate | None, str]:
    """Return the query in the shortest window in which it is useful; or None and the reason."""
    why = ""
    for window in question.windows:
        try:
            candidate = _ask(site, question, window)
        except (InvalidParameter, ConfigError) as error:
            return None, str(error).partition(": ")[2] or str(error)
        if candidate.useful:
            return candidate, ""
        why = _useless(candidate)
    return None, why


def _useless(candidate: _QueryCandidate) -> str:
    per = {"1 hour": "an hour", "1 day": "a day"}.get(candidate.window, candidate.window)
    if candidate.threshold is not None:
        return (
            f"only names with {math.ceil(candidate.threshold):,} of about {candidate.size:,} events in {per} would be "
            "listed"
        )
    what = "visitors" if candidate.question.kind == "visitors" else "events"
    return f"the 95% error would be {format_number(candidate.error, 2)} with about {candidate.size:,} {what} in {per}"


def _ask(site: WebsiteSpec, question: WebsiteQuery, window: str) -> _QueryCandidate:
    size = question.size(site.visitors, window)
    keys = {"name": question.name, "sql": question.sql, "epsilon": site.epsilon, "window": window, **question.keys}
    if question.kind not in ("count", "groups"):
        keys["expected"] = size
    if question.kind == "names":
        keys["memory"] = _memory(site.epsilon, size, question.keys)
    config = read_config({**site.sections_of_file(), "query": [keys]})
    (plan,) = plan_all(config)
    threshold = top_items_for(plan.config).listing_threshold if question.kind == "names" else None
    return _QueryCandidate(
        question=question,
        window=window,
        keys=keys,
        plan=plan,
        size=size,
        error=error_at(plan, size),
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
    enough = max(min(thresholds.values()), _NAME / 5 * size)
    return next(memory for memory in _MEMORY if thresholds[memory] <= 1.001 * enough)


def to_text(proposal: Proposal) -> str:
    """Return a table of the proposed queries, their errors and costs, and what they protect."""
    site = proposal.site
    exactness = {
        size: {candidate.question.name: candidate.exactness for candidate in _chosen(replace(site, visitors=size))[0]}
        for size in SIZES
    }
    rows = [("question", "window", "protects one", "epsilon", *(f"{n:,}/day" for n in SIZES), "30 days of a visitor")]
    for candidate in proposal.asked:
        claim = candidate.plan.claim
        unit = "event" if claim.unit == "event" else f"visitor's {_SPANS[candidate.window]}"
        spent = rounded_up(claim.epsilon) + (f", {claim.delta:.0e}" if claim.delta else "")
        errors = (exactness[n].get(candidate.question.name, "-") for n in SIZES)
        sum_ = "not bounded" if math.isinf(candidate.monthly) else rounded_up(candidate.monthly)
        rows.append((candidate.question.name, candidate.window, unit, spent, *errors, sum_))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    table = ["  ".join(word.ljust(width) for word, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    total = PersonTotal(period=PERIOD, shares=tuple(candidate.share for candidate in proposal.asked))
    events = sum(candidate.plan.claim.epsilon for candidate in proposal.asked)
    slack = sum(candidate.plan.claim.delta for candidate in proposal.asked)
    lines = [
        f"{site.site}: {site.visitors:,} visitors a day declared, about 3 page views each; from {_FROM[site.source]}",
        "how far a 95% interval reaches, if this many visitors come a day and that is what you declare:",
        "",
        *table,
        "",
        "a visitor is an address with a user agent, not a person: people who share both are counted once, and",
        "  someone who changes either is counted again",
        *_person_lines(total),
        f"an event loses at most epsilon {rounded_up(events)}{f', delta {slack:.0e}' if slack else ''} to all "
        "questions together",
    ]
    if proposal.left_out:
        lines += ["", "left out, since the answers would be useless or there are none:"]
        lines += [f"  {names}: {why}" for names, why in _by_reason(proposal.left_out)]
    if site.machines is not None:
        lines += ["", "the cells are held as shares by two machines: panstream explain says what that protects"]
    return "\n".join(lines)


def _person_lines(total: PersonTotal) -> list[str]:
    """Return what one visitor loses in any 30 days: a number, and what has none."""
    visitors = total.bounded
    if total.is_bounded:
        return [total.text("visitor")]
    lines = ["one visitor, any 30 days, one intrusion: not bounded, since most questions protect single events"]
    if visitors.shares:
        names = ", ".join(share.name for share in visitors.shares)
        lines.append(f"  to {names}: epsilon {rounded_up(visitors.epsilon)} together")
    return lines


_FROM = {"beacon": "beacons of browsers", "log": "an access log"}


def to_toml(proposal: Proposal) -> str:
    """Return the configuration file, with comments."""
    file = proposal.config()
    site = proposal.site
    lines = [f"# {site.site}: written by panstream web for {site.visitors:,} visitors a day. Serve it with", "#"]
    served = "panstream serve FILE" + (" --follow LOG" if site.source == "log" else "")
    lines += [f"#   {served}", "", "[web]", *toml_lines(file["web"]), "", "[stream]"]
    lines += toml_lines({key: value for key, value in file["stream"].items() if not isinstance(value, dict)})
    lines += ["", "[stream.columns]", *toml_lines(file["stream"]["columns"])]
    if "two_party" in file:
        lines += ["", "[two_party]", *toml_lines(file["two_party"])]
    for candidate in proposal.asked:
        unit = "one event" if candidate.plan.claim.unit == "event" else f"one visitor's {_SPANS[candidate.window]}"
        lines += ["", f"# protects {unit}; 95% error at about {candidate.size:,}: {candidate.exactness}", "[[query]]"]
        lines += toml_lines(candidate.keys)
    if proposal.left_out:
        lines += ["", "# Left out:", *(f"# {names}: {why}" for names, why in _by_reason(proposal.left_out))]
    lines += ["", "[store]", *toml_lines(file["store"])]
    return "\n".join([*lines, "# Keep it out of backups: every copy of it is an intrusion.", ""])


def _by_reason(left_out: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return each reason with the names of its queries, joined."""
    names: dict[str, list[str]] = {}
    for name, why in left_out:
        names.setdefault(why, []).append(name)
    return [(", ".join(some), why) for why, some in names.items()]
