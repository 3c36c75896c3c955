"""Published answers as rows of named values, the form in which every sink stores them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from panstream.engine.planner.open_domain import listed_names
from panstream.engine.reporting.export import format_gaps
from panstream.engine.storage.release_log import Release

KEY_COLUMNS = ("stream", "query", "group_key", "number")  # identify an answer
COLUMNS = {
    "stream": "TEXT",
    "query": "TEXT",
    "group_key": "TEXT",
    "number": "BIGINT",
    "time": "TIME",
    "period_start": "TIME",
    "period_end": "TIME",
    **dict.fromkeys(
        ("value", "low", "high", "level", "standard_error", "unclipped", "epsilon", "delta"), "DOUBLE PRECISION"
    ),
    "unit": "TEXT",
    "description": "TEXT",
    "too_uncertain": "BOOLEAN",
    "claim": "TEXT",
    "since": "TIME",
    "gaps": "TEXT",
}


def rows_of(stream: str, release: Release) -> Iterator[tuple[Any, ...]]:
    """Yield a release as rows, one per listed name and then its own, which marks the release as complete."""
    for row_release in (*listed_names(release), release):
        record = row_release.record
        claim = record["claim"]
        period = record.get("window", [None, record.get("end")])
        figures = (record["value"], *record["interval"], record["level"], record["standard_error"], record["unclipped"])
        yield (
            *(stream, *key_of(row_release), row_release.number, row_release.time, *period, *figures),
            *(float(record["epsilon"]), claim["delta"], claim["unit"], record.get("description")),
            *(record.get("too_uncertain", False), json.dumps(claim, sort_keys=True)),
            *(record.get("since"), format_gaps(record)),
        )


def key_of(release: Release) -> tuple[str, str]:
    """Return the query of a release, and its group as JSON."""
    return release.asked, json.dumps(release.record.get("group", {}), sort_keys=True, ensure_ascii=False)
