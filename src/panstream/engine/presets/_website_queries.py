"""The queries about a site's visitors, and the columns of a beacon or an access log that they use."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from panstream.engine.config.website import LOG_MADE, MADE, Source
from panstream.engine.sources.formats.beacons import BROWSERS, OTHER, SYSTEMS
from panstream.primitives.sender_counts import COLUMN

HOUR = "1 hour"
DAY = "1 day"
WEEK = "7 days"
MONTH = "30 days"
# Units of the calendar, in a site's time zone.
LOCAL = {DAY: "day", WEEK: "week", MONTH: "month"}
SECONDS = {HOUR: 3600.0, DAY: 86400.0, WEEK: 604800.0, MONTH: 2592000.0}
SECONDS |= {"day": SECONDS[DAY], "week": SECONDS[WEEK], "month": 30.4 * SECONDS[DAY]}  # of a typical one
SPANS = {HOUR: "hour", DAY: "day", WEEK: "7 days", MONTH: "30 days"} | {unit: unit for unit in LOCAL.values()}
# Distinct visitors of a window per daily visitor. Assumed, to size states and predict errors: visitors return, so a
# week has fewer distinct ones than seven days.
VISITORS = {HOUR: 1 / 12, DAY: 1.0, WEEK: 5.0, MONTH: 15.0, "day": 1.0, "week": 5.0, "month": 15.0}
STREAM = "web"
DEVICES = ("desktop", "mobile", "tablet", "other")
UTM_QUESTIONS = {"source": "sources", "medium": "mediums", "term": "terms", "content": "contents"}
BY_SECTION_AND_DEVICE = "page views by section and device"
SLOWEST = 10_000.0  # milliseconds

# Countries that are counted unless others are declared; the list is public, and its length costs no privacy.
COUNTRIES = tuple(
    [
        "AT",
        "AU",
        "BE",
        "BR",
        "CA",
        "CH",
        "CN",
        "CZ",
        "DE",
        "DK",
        "ES",
        "FI",
        "FR",
        "GB",
        "IE",
        "IN",
        "IT",
        "JP",
        "MX",
        "NL",
        "NO",
        "PL",
        "PT",
        "SE",
        "TR",
        "US",
    ]
)
_SHOWN = 20  # names of a list
VIEW_DELTA = 1e-6  # of all lists of names that a page view is in
_LISTS = 5  # of page views, unless further ones are asked for
_GROUP_BYTES = 1 << 16  # of the state of one group of visitors

_PART = 0.25  # largest useful error, as a share of the count
NAME = 0.05  # share of the events from which a name must be listed
GROUP = 0.1  # share of the events of a typical group
_TYPICAL = 1_000.0  # milliseconds that a page takes to load

Kind = Literal["visitors", "visitor groups", "retention", "count", "groups", "names", "timing"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WebsiteQuery:
    """A query with candidate windows, of which the shortest useful one is chosen.

    ``daily`` is the assumed number of counted events per visitor and day. A query ``of_views`` reads page views, and
    a query with ``per_visitor`` counts different visitors: whatever one does in a window changes one bit. The larger
    ``weight`` is, the later it is left out where a visitor's budget does not suffice for all. ``counter`` is the kind
    of rows that browsers number, and ``caps`` how many of them count, by window.
    """

    name: str
    kind: Kind
    sql: str
    windows: tuple[str, ...]
    daily: float = 1.0
    keys: dict[str, Any] = field(default_factory=dict)
    of_views: bool = True
    weight: float = 1.0
    counter: str = ""
    caps: tuple[int, ...] = ()

    @property
    def per_visitor(self) -> bool:
        """Whether the query protects whatever one visitor does in a window."""
        return self.counts_visitors or bool(self.counter)

    @property
    def counts_visitors(self) -> bool:
        """Whether the answer is a number of visitors."""
        return self.kind in ("visitors", "visitor groups", "retention")

    def size(self, visitors: int, window: str) -> int:
        """Return the expected number of visitors or events in a window.

        >>> next(query for query in website_queries() if query.name == "page views per day").size(1_000, DAY)
        3000
        """
        if self.counts_visitors:
            return max(1, round(visitors * VISITORS[window]))
        return max(1, round(visitors * self.daily * SECONDS[window] / SECONDS[DAY]))


def website_queries(
    sections: tuple[str, ...] = (),
    campaigns: tuple[str, ...] = (),
    countries: tuple[str, ...] = (),
    pages: tuple[str, ...] = (),
    utm: tuple[str, ...] = (),
) -> list[WebsiteQuery]:
    """Return all queries; without a list of pages, sections or campaigns, those are an open domain."""
    list_delta = VIEW_DELTA / (_LISTS + len(utm))
    declared_sections = sections
    sections = sections or tuple(dict.fromkeys("/" + page.split("/")[1] for page in pages))
    any_time = (DAY, WEEK, MONTH)
    by_name = "ORDER BY COUNT(*) DESC LIMIT"

    def visitors(name: str, window: str, weight: float) -> WebsiteQuery:
        sql = f"SELECT COUNT(DISTINCT visitor) FROM {STREAM} WHERE event = 'view'"
        return WebsiteQuery(name=name, kind="visitors", sql=sql, windows=(window,), weight=weight)

    def visitor_groups(
        name: str, key: str, condition: str, listed: tuple[str, ...], weight: float = 1.0
    ) -> WebsiteQuery:
        sql = f"SELECT {key}, COUNT(DISTINCT visitor) FROM {STREAM} WHERE {condition} GROUP BY {key}"
        # User agent and language are part of the id, so one id is in one group of devices, browsers, or countries.
        keys = {"groups": {key: list(listed)}, "groups_per_user": 1, "memory": _GROUP_BYTES}
        return WebsiteQuery(name=name, kind="visitor groups", sql=sql, windows=any_time, keys=keys, weight=weight)

    def count(name: str, condition: str, window: str, daily: float, *, of_views: bool = True) -> WebsiteQuery:
        sql = f"SELECT COUNT(*) FROM {STREAM} WHERE {condition}"
        return WebsiteQuery(name=name, kind="count", sql=sql, windows=(window,), daily=daily, of_views=of_views)

    def names(
        name: str, key: str, condition: str, daily: float, max_item_bytes: int, *, of_views: bool = True
    ) -> WebsiteQuery:
        sql = f"SELECT {key}, COUNT(*) FROM {STREAM} WHERE {condition} GROUP BY {key} {by_name} {_SHOWN}"
        return WebsiteQuery(
            name=name,
            kind="names",
            sql=sql,
            windows=any_time,
            daily=daily,
            keys={"delta": list_delta, "max_item_bytes": max_item_bytes},
            of_views=of_views,
        )

    def groups(name: str, key: str, condition: str, daily: float, listed: tuple[str, ...]) -> WebsiteQuery:
        sql = f"SELECT {key}, COUNT(*) FROM {STREAM} WHERE {condition} GROUP BY {key}"
        keys = {"groups": {key: list(listed)}}
        return WebsiteQuery(name=name, kind="groups", sql=sql, windows=any_time, daily=daily, keys=keys)

    def either(
        name: str, key: str, condition: str, daily: float, max_item_bytes: int, listed: tuple[str, ...]
    ) -> WebsiteQuery:
        if listed:
            return groups(name, key, condition, daily, listed)
        return names(name, key, condition, daily, max_item_bytes)

    def by_section_and_device(condition: str) -> WebsiteQuery:
        sql = f"SELECT section, device, COUNT(*) FROM {STREAM} WHERE {condition} GROUP BY section, device"
        keys = {"groups": {"section": list(declared_sections), "device": list(DEVICES)}}
        return WebsiteQuery(name=BY_SECTION_AND_DEVICE, kind="groups", sql=sql, windows=(DAY,), daily=3.0, keys=keys)

    view = "event = 'view'"
    visit = "event = 'view' AND entry"
    timing = f"SELECT MEDIAN(value) AS p50, QUANTILE_CONT(value, 0.95) AS p95 FROM {STREAM} WHERE event = 'load'"
    return [
        visitors("visitors per day", DAY, 6.0),
        visitors("visitors per week", WEEK, 2.0),
        visitors("visitors per month", MONTH, 2.0),
        count("page views per hour", view, HOUR, 3.0),
        count("page views per day", view, DAY, 3.0),
        either("pages", "path", view, 3.0, 64, pages),
        either("entry pages", "path", visit, 1.0, 64, pages),
        either("sections", "section", view, 3.0, 24, sections),
        names("referrers", "referrer_host", f"{visit} AND referrer_host <> ''", 0.5, 32),
        either("campaigns", "campaign", f"{visit} AND campaign <> ''", 0.1, 24, campaigns),
        *(
            names(UTM_QUESTIONS[word], f"utm_{word}", f"{visit} AND utm_{word} <> ''", 0.1, 24)
            for word in UTM_QUESTIONS
            if word in utm
        ),
        *([by_section_and_device(view)] if declared_sections else []),
        visitor_groups("countries", "country", view, countries or COUNTRIES),
        visitor_groups("devices", "device", view, DEVICES),
        visitor_groups("browsers", "browser", view, (*BROWSERS, OTHER), weight=0.25),
        visitor_groups("systems", "system", view, (*SYSTEMS, OTHER), weight=0.25),
        names("events", "event", "event NOT IN ('view', 'load', 'error')", 0.3, 24, of_views=False),
        WebsiteQuery(
            name="load time",
            kind="timing",
            sql=timing,
            windows=any_time,
            daily=3.0,
            keys={"lower": 0.0, "upper": SLOWEST},
            of_views=False,
        ),
        count("errors per hour", "event = 'error'", HOUR, 0.03, of_views=False),
    ]


def in_local_time(questions: Iterable[WebsiteQuery]) -> list[WebsiteQuery]:
    """Return the queries with units of the calendar instead of days, weeks and months of fixed lengths."""
    return [
        replace(question, windows=tuple(LOCAL.get(window, window) for window in question.windows))
        for question in questions
    ]


RETURNING = "returning visitors"
_LARGE = 60_000  # visitors a week from which on a smaller epsilon is enough
_YEARS = 520  # windows of a stream whose rows bring their own times, or of two machines


def retention_query(visitors: int, source: Source, *, shared: bool = False) -> WebsiteQuery:
    """Return the question who came back, with an epsilon of its own, for a number of visitors a day.

    Args:
        visitors: How many come a day.
        source: Where rows come from.
        shared: Whether two machines hold the windows as shares.
    """
    epsilon = 1.0 if shared else 2.66 if visitors * VISITORS[WEEK] < _LARGE else 1.5
    sql = f"SELECT RETENTION(visitor, 4) FROM {STREAM} WHERE event = 'view'"
    keys: dict[str, Any] = {"epsilon": epsilon, **({"horizon": _YEARS} if shared or source == "log" else {})}
    return WebsiteQuery(name=RETURNING, kind="retention", sql=sql, windows=(WEEK,), keys=keys)


def columns_of(source: Source, *, counter: bool = False) -> dict[str, str]:
    """Return the columns of a stream of beacons, with or without numbers of browsers, or of an access log."""
    if counter:
        return {**MADE, "event": "string", "value": "double", COLUMN: "string"}
    if source == "beacon":
        return {"visitor": "int", **MADE, "event": "string", "value": "double"}
    return {"visitor": "int", "time": "timestamp", "path": "string", **LOG_MADE}


UNASKED = {"log": ("countries", "load time", "events")}  # an access log lacks their columns


def useful_error(question: WebsiteQuery, size: int) -> float:
    """Return the largest useful error; of a list of names, the threshold from which a name is listed."""
    if question.kind == "names":
        return NAME * size
    if question.kind == "timing":
        return _PART * _TYPICAL
    return _PART * (GROUP if question.kind in ("groups", "visitor groups") else 1.0) * size


def in_window(window: str) -> str:
    """Return the words for a count in a window.

    >>> in_window("1 day"), in_window("week"), in_window("30 days")
    ('in a day', 'in a week', 'in 30 days')
    """
    span = SPANS[window]
    return f"in {'' if span[0].isdigit() else 'an ' if span == 'hour' else 'a '}{span}"
