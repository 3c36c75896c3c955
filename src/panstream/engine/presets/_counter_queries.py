"""The queries about a site whose visitors' browsers number what they send, so that every row count has a bound."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from panstream.engine.presets._website_queries import (
    BY_SECTION_AND_DEVICE,
    DAY,
    HOUR,
    MONTH,
    UTM_QUESTIONS,
    WEEK,
    WebsiteQuery,
)

DELTA = 1e-6
_MEMORY = 1 << 21  # bytes of a list of names
# The most rows of one browser in a window: rows above that are not counted, which makes answers too small. In a day,
# 8 page views are 96% of all if their number is geometric with a mean of 3, and 4 are 80%.
_VIEWS = {HOUR: 5, DAY: 8, WEEK: 12, MONTH: 18}
_LISTS = {DAY: 4, WEEK: 6, MONTH: 9}
_OTHERS = {DAY: 2, WEEK: 3, MONTH: 5}
_ONE = {HOUR: 1, DAY: 1, WEEK: 1, MONTH: 1}
_COUNTERS = {  # what browsers number, and how many rows count
    "visitors per day": ("view", _ONE),
    "visitors per week": ("view", _ONE),
    "visitors per month": ("view", _ONE),
    "page views per hour": ("view", _VIEWS),
    "page views per day": ("view", _VIEWS),
    "pages": ("view", _LISTS),
    "entry pages": ("entry", _ONE),
    "sections": ("view", _LISTS),
    "referrers": ("referral", _ONE),
    "campaigns": ("campaign", _ONE),
    **dict.fromkeys(UTM_QUESTIONS.values(), ("entry", _ONE)),
    BY_SECTION_AND_DEVICE: ("view", _LISTS),
    "countries": ("view", _ONE),
    "browsers": ("view", _ONE),
    "systems": ("view", _ONE),
    "devices": ("view", _ONE),
    "events": ("event", _OTHERS),
    "load time": ("load", _OTHERS),
    "errors per day": ("error", _ONE),
}


def with_counters(questions: Iterable[WebsiteQuery]) -> list[WebsiteQuery]:
    """Return the queries about rows that browsers number; the first row of a window stands for its visitor."""
    counted = []
    for asked in questions:
        question = asked
        if question.name == "errors per hour":  # too few in an hour
            question = replace(question, name="errors per day", windows=(DAY,))
        counter, caps = _COUNTERS[question.name]
        keys = {key: value for key, value in question.keys.items() if key not in ("groups_per_user", "memory")}
        counted.append(
            replace(
                question,
                sql=question.sql.replace("COUNT(DISTINCT visitor)", "COUNT(*)"),
                keys={**keys, "delta": DELTA, **({"memory": _MEMORY} if question.kind == "names" else {})},
                counter=counter,
                caps=tuple(caps[window] for window in question.windows),
            )
        )
    return counted
