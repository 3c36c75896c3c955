"""What the owner of a site declares: its size, its budget, and which questions it wants."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from panstream.engine.config.config import read_config
from panstream.engine.config.website import Source, normalize_hostname, origins_of, parse_network
from panstream.engine.planner.person_period import planned_person_total
from panstream.engine.planner.query_plan import plan_all
from panstream.engine.presets._counter_queries import DELTA as COUNTED_DELTA
from panstream.engine.presets._counter_queries import with_counters
from panstream.engine.presets._website_queries import (
    STREAM,
    UTM_QUESTIONS,
    WebsiteQuery,
    columns_of,
    in_local_time,
    retention_query,
    website_queries,
)
from panstream.errors import InvalidParameter
from panstream.privacy.rounding import rounded_up

PERSON_COUNTED = 2.0  # to all questions, where browsers number what they send
PERSON = 4.0  # what one visitor may lose in 30 days to the questions about visitors
PAGE_VIEW = 3.0  # what one page view may lose to the questions about events


@dataclass(frozen=True, slots=True, kw_only=True)
class WebsiteSpec:
    """What the owner of a site declares."""

    site: str
    visitors: int = 1_000  # per day
    person: float | None = None  # PERSON, or with a counter PERSON_COUNTED; with retention, and what that takes
    page_view: float = PAGE_VIEW
    counter: bool = False  # whether browsers number what they send
    retention: bool = False  # whether it is asked who came back
    source: Source = "beacon"
    sections: tuple[str, ...] = ()
    campaigns: tuple[str, ...] = ()
    countries: tuple[str, ...] = ()
    pages: tuple[str, ...] = ()
    utm: tuple[str, ...] = ()
    time_zone: str = "UTC"
    origins: tuple[str, ...] = ()
    trusted_proxies: tuple[str, ...] = ()
    machines: Mapping[str, Any] | None = None  # addresses, names, certificate, key, authority

    def __post_init__(self) -> None:
        object.__setattr__(self, "site", normalize_hostname(self.site))
        object.__setattr__(self, "sections", tuple(f"/{section.strip('/')}" for section in self.sections))
        object.__setattr__(self, "countries", tuple(country.upper() for country in self.countries))
        object.__setattr__(self, "origins", self.origins or origins_of(self.site)[: 1 if self.counter else None])
        if self.retention and self.counter:
            raise InvalidParameter(
                "retention compares visitors of one week with those of later ones, and a counter in the browser knows "
                "no visitors: leave one of the two out"
            )
        if self.person is None:
            object.__setattr__(self, "person", PERSON_COUNTED if self.counter else PERSON + self.retention_loss())
        if self.counter and (self.source == "log" or self.machines is not None):
            raise InvalidParameter(
                "a counter is for beacons of browsers, on one machine: not with logs or two_machines"
            )
        if self.counter and self.time_zone != "UTC":
            raise InvalidParameter("a counter has days of UTC, since browsers do not know time_zone: leave it out")
        if not 1 <= self.visitors <= 1_000_000_000:
            raise InvalidParameter(f"visitors per day must be in 1..1,000,000,000, got {self.visitors}")
        if self.retention and self.budget <= self.retention_loss():
            raise InvalidParameter(
                f"person must be above {rounded_up(self.retention_loss())}: who came back takes so much of what one "
                f"visitor loses in 30 days, got person={self.budget:g}"
            )
        for name, epsilon in (("person", self.budget), ("page_view", self.page_view)):
            if not (math.isfinite(epsilon) and epsilon > 0):
                raise InvalidParameter(f"{name} must be positive, got {name}={epsilon:g}")
        for word in set(self.utm) - set(UTM_QUESTIONS):
            raise InvalidParameter(f"utm must be one of {', '.join(UTM_QUESTIONS)}, got {word!r}")
        for proxy in self.trusted_proxies:
            parse_network(proxy)

    @property
    def budget(self) -> float:
        """What one visitor may lose in any 30 days."""
        assert self.person is not None
        return self.person

    @property
    def person_section(self) -> dict[str, float]:
        """``[stream.budget]`` without exceptions."""
        return {"person": self.budget, **({"delta": COUNTED_DELTA} if self.counter else {})}

    def retention_loss(self) -> float:
        """Return what one visitor loses in any 30 days to the question who came back, rounded up to two digits."""
        if not self.retention:
            return 0.0
        (question,) = in_local_time([self._retention_query()])
        size = question.size(self.visitors, question.windows[0])
        query = {"name": question.name, "sql": question.sql, "window": question.windows[0], "expected": size}
        config = read_config({**self.sections_of_file(), "query": [query | question.keys]})
        return math.ceil(100 * planned_person_total(config, plan_all(config)).epsilon) / 100

    def _retention_query(self) -> WebsiteQuery:
        return retention_query(self.visitors, self.source, shared=self.machines is not None)

    def questions(self) -> list[WebsiteQuery]:
        """Return all questions about the site, useful or not."""
        questions = website_queries(self.sections, self.campaigns, self.countries, self.pages, self.utm)
        if self.retention:  # it counts the visitors of a week too
            questions = [question for question in questions if question.name != "visitors per week"]
            questions.insert(2, self._retention_query())
        return with_counters(questions, self.visitors) if self.counter else in_local_time(questions)

    def sections_of_file(self) -> dict[str, Any]:
        """Return the configuration without its queries, as plain values."""
        stream: dict[str, Any] = {"name": STREAM}
        if not self.counter:
            stream |= {"user": "visitor", "time_zone": self.time_zone}
        if self.source == "log":
            stream |= {"time": "time", "lateness": "1 minute"}
        machines = {} if self.machines is None else dict(self.machines)
        if machines:
            stream["machines"] = machines.pop("machines")
        web: dict[str, Any] = {"site": self.site, "source": self.source}
        if self.source == "beacon":
            web |= {"origins": list(self.origins), "trusted_proxies": list(self.trusted_proxies)}
        if self.counter:
            web["counter"] = True
        stream["columns"] = columns_of(self.source, counter=self.counter)
        return {
            "web": web,
            "stream": stream,
            **({"two_party": machines} if machines else {}),
            "store": {"directory": f"{self.site}-state"},
        }
