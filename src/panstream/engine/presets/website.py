"""A configuration for a site: which questions are useful at its size, what each costs, and the file to serve.

Useful means that the 95% interval reaches no further than a quarter of what is counted; a list of names must find one
that has a twentieth of the events. Everything is decided from the size that is declared, never from data.
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
from panstream.engine.planner.query_plan import QueryPlan, plan_all
from panstream.engine.presets._website_queries import (
    MONTH,
    SECONDS,
    STREAM,
    UNASKED,
    WebsiteQuery,
    columns_of,
    website_queries,
)
from panstream.errors import ConfigError, InvalidParameter
from panstream.primitives.toml_config import toml_lines
from panstream.privacy.rounding import rounded_up

SIZES = (1_000, 10_000, 100_000)  # visitors a day for which errors are told
_PART = 0.25  # of what is counted
_FEW = 10.0  # a count within this many / epsilon is as good as it gets
_NAME = 0.05  # of the events: a name as frequent as that must be listed
_GROUP = 0.1  # of the events: a group that must be told apart from none
_TYPICAL = 1_000.0  # milliseconds of a page to load
_MEMORY = [1 << size for size in range(20, 25)]  # of a list of names
_SAID = {"1 hour": "hour", "1 day": "day", "7 days": "7 days", "30 days": "30 days"}


@dataclass(frozen=True, slots=True, kw_only=True)
class WebsiteSpec:
    """What the owner of a site declares."""

    site: str
    visitors: int = 1_000  # a day
    epsilon: float = 1.0  # of every question
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
        """Return the configuration without its questions, as plain values."""
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
    """A question in one window at one size: its keys, its plan, and how exact the answer will be."""

    question: WebsiteQuery
    window: str
    keys: dict[str, Any]
    plan: QueryPlan
    size: int
    error: float
    least: float | None  # events that a name must have to be listed

    @property
    def useful(self) -> bool:
        """Whether the answer says enough."""
        if self.least is not None:
            return self.least <= _NAME * self.size
        if self.question.kind == "timing":
            return self.error <= _PART * _TYPICAL
        group = _GROUP if self.question.kind == "groups" else 1.0
        return self.error <= _PART * group * self.size or (
            self.question.kind == "count" and self.error <= _FEW / self.plan.config.epsilon
        )

    @property
    def exactness(self) -> str:
        """The error in a few words."""
        if self.least is not None:
            return f"from {math.ceil(self.least):,} in {self.window}"
        if self.question.kind == "timing":
            return f"±{format_number(self.error, 2)} ms"
        if self.question.kind != "visitors":
            return f"±{format_number(self.error, 2)}"
        share = 100 * self.error / self.size
        return f"±{format_number(self.error, 2)} ({'under 1' if share < 0.5 else f'{share:.0f}'}%)"

    @property
    def monthly(self) -> float:
        """What one visitor can lose in any 30 days; infinite where single events are protected."""
        if self.plan.claim.unit == "event":
            return math.inf
        return self.plan.claim.epsilon * (math.ceil(SECONDS[MONTH] / SECONDS[self.window]) + 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """The questions that are asked of a site, those that are left out, and why."""

    site: WebsiteSpec
    asked: tuple[_QueryCandidate, ...]
    left_out: tuple[tuple[str, str], ...]

    def config(self) -> dict[str, Any]:
        """Return the configuration as plain values."""
        return {**self.site.sections_of_file(), "query": [candidate.keys for candidate in self.asked]}


def propose_queries(site: WebsiteSpec) -> Proposal:
    """Choose the questions that are useful at the declared size."""
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
    """Return the question in the shortest window in which it is useful; or why there is none."""
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
    if candidate.least is not None:
        return (
            f"only names with {math.ceil(candidate.least):,} of about {candidate.size:,} events in {per} would be "
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
    (plan,) = plan_all(read_config({**site.sections_of_file(), "query": [keys]}))
    threshold = top_items_for(plan.config).listing_threshold if question.kind == "names" else None
    return _QueryCandidate(
        question=question, window=window, keys=keys, plan=plan, size=size, error=error_at(plan, size), least=threshold
    )


def _memory(epsilon: float, size: int, keys: Mapping[str, Any]) -> int:
    """Return the least memory with which names are listed as early as with the most, or early enough.

    A small state is written quickly, so that steps are short and nothing stays in flight for long.
    """
    thresholds = {
        memory: TopItems(epsilon, expected=size, memory=memory, **keys).listing_threshold for memory in _MEMORY
    }
    enough = max(min(thresholds.values()), _NAME / 5 * size)
    return next(memory for memory in _MEMORY if thresholds[memory] <= 1.001 * enough)


def to_text(proposal: Proposal) -> str:
    """Return what is promised, for whoever is about to start it."""
    site = proposal.site
    exactness = {
        size: {candidate.question.name: candidate.exactness for candidate in _chosen(replace(site, visitors=size))[0]}
        for size in SIZES
    }
    rows = [("question", "window", "protects one", "epsilon", *(f"{n:,}/day" for n in SIZES), "30 days of a visitor")]
    for candidate in proposal.asked:
        claim = candidate.plan.claim
        unit = "event" if claim.unit == "event" else f"visitor's {_SAID[candidate.window]}"
        spent = rounded_up(claim.epsilon) + (f", {claim.delta:.0e}" if claim.delta else "")
        errors = (exactness[n].get(candidate.question.name, "-") for n in SIZES)
        sum_ = "not bounded" if math.isinf(candidate.monthly) else rounded_up(candidate.monthly)
        rows.append((candidate.question.name, candidate.window, unit, spent, *errors, sum_))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    table = ["  ".join(word.ljust(width) for word, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    together = sum(candidate.monthly for candidate in proposal.asked if math.isfinite(candidate.monthly))
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
        f"a visitor's 30 days lose at most epsilon {rounded_up(together)} to the questions about visitors; what they",
        "  lose to the others, which protect single events, is not bounded",
        f"an event loses at most epsilon {rounded_up(events)}{f', delta {slack:.0e}' if slack else ''} to all "
        "questions together",
    ]
    if proposal.left_out:
        lines += ["", "left out, since the answers would be useless or there are none:"]
        lines += [f"  {names}: {why}" for names, why in _by_reason(proposal.left_out)]
    if site.machines is not None:
        lines += ["", "the cells are held as shares by two machines: panstream explain says what that protects"]
    return "\n".join(lines)


_FROM = {"beacon": "beacons of browsers", "log": "an access log"}


def to_toml(proposal: Proposal) -> str:
    """Return the file to serve, with comments."""
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
        unit = "one event" if candidate.plan.claim.unit == "event" else f"one visitor's {_SAID[candidate.window]}"
        lines += ["", f"# protects {unit}; 95% error at about {candidate.size:,}: {candidate.exactness}", "[[query]]"]
        lines += toml_lines(candidate.keys)
    if proposal.left_out:
        lines += ["", "# Left out:", *(f"# {names}: {why}" for names, why in _by_reason(proposal.left_out))]
    lines += ["", "[store]", *toml_lines(file["store"])]
    return "\n".join([*lines, "# Keep it out of backups: every copy of it is an intrusion.", ""])


def _by_reason(left_out: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the questions of each reason, as one text, and the reason."""
    names: dict[str, list[str]] = {}
    for name, why in left_out:
        names.setdefault(why, []).append(name)
    return [(", ".join(some), why) for why, some in names.items()]
