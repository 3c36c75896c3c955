"""The queries about a site whose visitors' browsers number what they send, so that every row count has a bound."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from panstream.engine.presets._website_queries import (
    BY_SECTION_AND_DEVICE,
    DAY,
    HOUR,
    MONTH,
    SECONDS,
    UTM_QUESTIONS,
    VISITORS,
    WEEK,
    WebsiteQuery,
)

DELTA = 1e-6
_MEMORY = 1 << 21  # bytes of a list of names
# The most rows of one browser in a window; rows above that are not counted, which makes answers too small. The more
# visitors a site has, the smaller noise is beside its figures, so more rows may count: with these, the error that is
# expected of a cap and that of the noise are about equal (benchmarks.accuracy.web_profiles).
_SIZES = (3_000, 10_000, 50_000)  # visitors a day from which the next caps hold
_VIEWS = (
    {HOUR: 5, DAY: 8, WEEK: 12, MONTH: 18},
    {HOUR: 5, DAY: 12, WEEK: 18, MONTH: 24},
    {HOUR: 5, DAY: 16, WEEK: 24, MONTH: 36},
    {HOUR: 8, DAY: 32, WEEK: 48, MONTH: 64},
)
_LISTS = (
    {DAY: 4, WEEK: 6, MONTH: 9},
    {DAY: 6, WEEK: 9, MONTH: 14},
    {DAY: 6, WEEK: 12, MONTH: 18},
    {DAY: 8, WEEK: 12, MONTH: 18},
)
_OTHERS = ({DAY: 2, WEEK: 3, MONTH: 5},) * 4
_ONE = ({HOUR: 1, DAY: 1, WEEK: 1, MONTH: 1},) * 4
_TAIL = (0.9, 1.17)  # of the rows of one visitor, from a day of a public log with 4 page views a visitor
_ROWS = {"view": "page views", "event": "events", "load": "load times"}
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


def share_beyond(question: WebsiteQuery, window: str, cap: int) -> float:
    """Return the share of the rows that are expected to be more than ``cap`` of one visitor in a window.

    Page views are not spread evenly: a visitor with many is likely to have more. The formula fits a day of a real log.
    """
    if cap == 1:
        return 0.0  # the first row stands for its visitor
    rows = max(1.0, question.daily * SECONDS[window] / SECONDS[DAY] / VISITORS[window])
    scale, exponent = _TAIL
    return float((1.0 + cap / (scale * rows)) ** -exponent)


def what_is_counted(question: WebsiteQuery, window: str) -> str:
    """Return what an answer counts if a cap leaves rows out, and how many are expected to be; else nothing."""
    cap = question.caps[question.windows.index(window)] if question.counter else 0
    if cap <= 1:
        return ""
    span = {HOUR: "hour", DAY: "day"}.get(window, window)
    text = f"at most {cap} {_ROWS.get(question.counter, 'rows')} per visitor and {span}"
    if question.kind == "timing":
        return text
    return f"{text}; about {share_beyond(question, window, cap):.0%} of all are expected to be more than that"


def with_counters(questions: Iterable[WebsiteQuery], visitors: int) -> list[WebsiteQuery]:
    """Return the queries about rows that browsers number; the first row of a window stands for its visitor."""
    size = sum(visitors >= larger for larger in _SIZES)
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
                caps=tuple(caps[size][window] for window in question.windows),
            )
        )
    return counted
