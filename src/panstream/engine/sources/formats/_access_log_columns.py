"""Columns about visits that are derived from those of an access log, by pyarrow: DuckDB would leave residue of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from panstream.engine.arrow import arrow_mask, compute, pa
from panstream.engine.config.website import LOG_MADE, UTM
from panstream.engine.sources.formats._bots import known_bots
from panstream.engine.sources.formats.beacons import SOURCES, derived_column, extract_pattern

FILES = "avif|bmp|css|eot|gif|ico|jpe?g|js|json|map|mjs|mp3|mp4|mpe?g|otf|png|svg|ttf|txt|wav|webm|webp|woff2?|xbm|xml"
_UTM = {name: f"(?:^|&){parameter}=(?P<found>[^&]+)" for name, parameter in UTM.items()}
_OF = {
    **{name: (SOURCES[name],) for name in ("referrer_host", "entry", "device", "browser", "system")},
    "section": ("path",),
    **dict.fromkeys(UTM, ("query",)),
    "event": ("status", "agent", "method", "path"),
}


def columns_needed_for(names: Mapping[str, str]) -> list[str]:
    """Return the columns of a log from which the derived ones among ``names`` are computed."""
    return list(dict.fromkeys(source for name in names if name in LOG_MADE for source in _OF[name]))


def derived_log_column(name: str, columns: Mapping[str, Any], site: str) -> Any:
    """Return a derived column.

    >>> derived_log_column("campaign", {"query": pa.array(["a=1&utm_campaign=may", None])}, "example.org").to_pylist()
    ['may', '']
    """
    if name == "event":
        return _events(columns)
    text = columns[_OF[name][0]]
    return extract_pattern(text, _UTM[name]) if name in _UTM else derived_column(name, text, site)


def _events(columns: Mapping[str, Any]) -> Any:
    """Classify lines: "view", "error" (of the server), "bot" or "other"."""
    no = pa.scalar(False)
    nothing = pa.scalar("", pa.string())
    status = columns["status"]
    path = columns["path"]
    agents = compute.coalesce(columns["agent"], nothing)
    failed = compute.coalesce(compute.greater_equal(status, 500), no)
    robots = arrow_mask(known_bots().is_bot(agents))
    answered = compute.is_in(status, value_set=pa.array([200, 304]))
    got = compute.coalesce(compute.equal(columns["method"], "GET"), no)
    file = compute.coalesce(compute.match_substring_regex(path, rf"(?i)\.({FILES})$"), pa.scalar(True))
    viewed = compute.and_not(compute.and_(answered, got), file)
    chosen = compute.make_struct(failed, robots, viewed)
    return compute.case_when(chosen, *(pa.scalar(word) for word in ("error", "bot", "view", "other")))
