"""A drawn answer as the public record that is stored, logged and shown."""

from __future__ import annotations

import math
import time
from datetime import UTC, datetime, timedelta
from typing import Any

from panstream.engine.certainty import help_for, too_uncertain
from panstream.engine.plan import QueryPlan
from panstream.engine.running import Drawn
from panstream.store.releases import Release

__all__ = ["EXTRA", "iso", "record", "series_name", "stamp_of"]

EXTRA = ("group", "window", "until", "beyond", "statement", "too_uncertain", "help")
"""Fields of a record that only some answers have."""


def record(plan: QueryPlan, drawn: Drawn, stamp: str) -> Release:
    """Return what is published: the estimate, its interval, and the claim of the whole query."""
    claim = plan.claim.to_json()
    fields: dict[str, Any] = {**drawn.estimate.to_json(), "claim": claim, "epsilon": claim["epsilon"]}
    group = plan.groups[drawn.group]
    if group:
        fields["group"] = dict(zip(plan.config.parsed.group_by, map(_plain, group), strict=True))
    if drawn.window is not None:
        length = plan.config.window or 0.0
        fields["window"] = [iso(drawn.window * length), iso((drawn.window + 1) * length)]
    if drawn.until is not None:
        fields["until"] = iso(drawn.until)
    if too_uncertain(plan, drawn.estimate):
        fields |= {"too_uncertain": True, "help": help_for(plan)}
    return Release(query=series_name(plan, drawn.group), number=drawn.number, time=stamp, record=_finite(fields))


def series_name(plan: QueryPlan, group: int) -> str:
    """Return the name under which one group's answers are logged: ``visits [region=north]``."""
    keys = plan.groups[group]
    return plan.config.name if not keys else f"{plan.config.name} [{plan.group_name(keys)}]"


def iso(seconds: float) -> str:
    """Return seconds since 1970 as a date and time in UTC."""
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z")


def stamp_of(seconds: float) -> str:
    """Return seconds since 1970 as an answer's time, to the second."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def _plain(value: Any) -> Any:
    return value if isinstance(value, str | int | float | bool) else str(value)


def _finite(value: Any) -> Any:
    """Return the value with numbers that JSON cannot hold as null: no data, or no bound."""
    if isinstance(value, dict):
        return {name: _finite(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
