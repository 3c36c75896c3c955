"""GROUP BY an open-domain key: the heavy-hitter sketch of the query, and listed names as rows of an answer."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from panstream.algorithms.auto import TopItems
from panstream.algorithms.heavy_hitters.estimates import CountedName, certain_ranks
from panstream.algorithms.heavy_hitters.prefix_sketch import FrequentItems
from panstream.algorithms.heavy_hitters.short_names import short_names_text
from panstream.core.estimate import format_number
from panstream.engine.config.config import QueryConfig, StreamConfig
from panstream.engine.planner.sender_bounds import limits_users
from panstream.engine.sql.formulas import Constant
from panstream.engine.sql.result_view import AnswerComparison, ResultView
from panstream.engine.storage.release_log import Release
from panstream.errors import InvalidParameter
from panstream.primitives.escaping import printable

_WRONG = 0.05  # expected number of listed names per release that never occurred
_ALL = ResultView()
_SLACK = 1e-6
_KINDS = ("string", "int")
_ONCE = (
    "unlisted names are answered once: after an answer fresh noise must be drawn, and every further answer would "
    "protect an event less"
)


def check_key_type(key: str, kind: str) -> None:
    """Raise InvalidParameter for an open-domain key that is neither text nor integer."""
    if kind not in _KINDS:
        raise InvalidParameter(
            f"GROUP BY {key} needs its keys listed in groups, or converted to text: CAST({key} AS VARCHAR); unlisted "
            f"keys can be texts and whole numbers, not {kind}"
        )


def choose_heavy_hitter_sketch(query: QueryConfig, stream: StreamConfig) -> tuple[FrequentItems, str]:
    """Return the sketch that finds a query's heavy hitters, and a text about its size."""
    if stream.weight is not None:
        raise InvalidParameter("COUNT(*) of names does not work with signed weights")
    if query.every is not None or query.releases > 1 or query.horizon is not None:
        raise InvalidParameter(f"every, horizon and releases cannot be used: {_ONCE}; use window for answers over time")
    if query.announced:
        raise InvalidParameter("any number of announced intrusions is covered, so announced need not be declared")
    if limits_users(query) and stream.user is None:
        raise InvalidParameter("COUNT(*) needs a user column for contributions")
    algorithm = top_items_for(query).algorithm
    cells = f"{algorithm.levels} x {algorithm.width:,} and {algorithm.rows} x {algorithm.row_width:,} cells"
    return algorithm, f"noised tables of prefixes and counts, {cells}; names are decoded from the released tables"


def top_items_for(query: QueryConfig) -> TopItems:
    """Return the `TopItems` of a query with an open domain."""
    options: dict[str, Any] = {
        name: getattr(query, name)
        for name in ("expected", "memory", "max_item_bytes")
        if getattr(query, name) is not None
    }
    return TopItems(query.epsilon, delta=query.delta, contributions=query.contributions, key=query.key, **options)


def listing_threshold_text(query: QueryConfig) -> str:
    """Return how many events a name needs to be listed, and how many with a delta."""
    threshold = top_items_for(query).listing_threshold
    text = (
        f"those with at least {_events(threshold)} events are listed with probability 95%; expect at most {_WRONG:g} "
        "wrong names"
    )
    short = short_names_text(top_items_for(query).algorithm)
    text += f"; shorter names need fewer: {short}" if short else ""
    fewer = top_items_for(replace(query, delta=query.delta or _SLACK, memory=None)).listing_threshold
    return text if fewer >= threshold else f"{text}; with delta = {_SLACK:g}, those with at least {_events(fewer)}"


def having_warning(query: QueryConfig, view: ResultView) -> list[tuple[str, str]]:
    """Return a warning if HAVING selects names below the listing threshold."""
    threshold = top_items_for(query).listing_threshold
    condition = view.having
    if not isinstance(condition, AnswerComparison) or not isinstance(condition.right, Constant):
        return []
    if condition.sign not in (">", ">=") or condition.right.number >= threshold:
        return []
    text = f"HAVING asks for names with fewer events than {_events(threshold)}: some of them will be missing"
    return [("warning", text)]


def named_items(counted_names: Iterable[CountedName], *, whole: bool) -> list[dict[str, Any]]:
    """Return listed names as JSON values; with ``whole``, names are converted to integers."""
    items = [item.to_json() for item in counted_names]
    for item in items if whole else ():
        with contextlib.suppress(ValueError):  # a truncated number stays a text
            item["name"] = int(item["name"])
    return items


def shown_items(record: Mapping[str, Any], view: ResultView) -> list[dict[str, Any]]:
    """Return the listed names of a record that a view shows, in its order."""
    items = record["items"]
    answers = [dict.fromkeys(view.shown, item["count"]) for item in items]
    return [items[index] for index in view.rows([(item["name"],) for item in items], answers)]


def listed_names(release: Release, view: ResultView = _ALL) -> list[Release]:
    """Return the listed names of a release, each as a release with group, count and interval."""
    if "items" not in release.record:
        return []
    shared = {
        name: value for name, value in release.record.items() if name not in ("items", "listing_threshold", "key")
    }
    key = release.record["key"]
    rows = []
    for item in shown_items(release.record, view):
        name_record = {"value": item["count"], "unclipped": item["count"], "group": {key: item["name"]}}
        name_record |= {"standard_error": item["standard_error"], "interval": item["interval"]}
        name = f"{release.query} [{key}={printable(str(item['name']))}]"
        rows.append(replace(release, query=name, record={**shared, **name_record}))
    return rows


def note_of(release: Release, view: ResultView) -> str:
    """Return one sentence about which names a list contains, and which ranks are certain."""
    record = release.record
    note = listed_note(record["listing_threshold"])
    if not record["items"]:
        return f"no name stands out; {note}"
    first = next(iter(view.order), None)
    by_count = first is not None and first.by is not None and first.descending and not view.offset
    if view.limit is None or not by_count:
        return note
    ends: Sequence[Any] = [item["interval"] for item in record["items"]]
    sure = certain_ranks(ends, view.limit, record["listing_threshold"])
    return f"{note}; {certain_ranks_note(sure, view.limit)}"


def listed_note(threshold: float) -> str:
    """Return which names a list contains, and the expected number of wrong ones."""
    return (
        f"names with at least {_events(threshold)} events are listed with probability 95%; expect at most {_WRONG:g} "
        "wrong names"
    )


def certain_ranks_note(sure: int, limit: int) -> str:
    """Return how many of the first ``limit`` names certainly belong there."""
    return f"{sure} of the first {limit} certainly {'belongs' if sure == 1 else 'belong'} in it"


def _events(number: float) -> str:
    return format_number(math.ceil(number))
