"""A drawn answer as the public record that is stored and logged."""

from __future__ import annotations

import math
import time
from datetime import UTC, datetime, timedelta
from typing import Any

from panstream.algorithms.distinct.sketch import Sketch
from panstream.algorithms.distinct.sketch_bitmap import SketchBitmap
from panstream.algorithms.heavy_hitters.estimates import ItemEstimates
from panstream.core.estimate import Estimate
from panstream.engine.planner.accuracy import improvement_hint, too_uncertain
from panstream.engine.planner.query_plan import QueryPlan
from panstream.engine.runtime.coverage import ALL_DATA, Coverage
from panstream.engine.runtime.running_query import DrawnAnswer
from panstream.engine.sql.retention_outputs import RetentionAnswer
from panstream.engine.storage.release_log import Release
from panstream.primitives.time_grid import TimeGrid

_LEVEL_OF_TWO = 0.975  # union bound: the intervals of usable and unusable rows hold together with 95%


def release_record(plan: QueryPlan, drawn: DrawnAnswer, stamp: str, coverage: Coverage = ALL_DATA) -> Release:
    """Return the release of a drawn answer: estimate, interval and the query's claim; for names, their tables."""
    estimate = drawn.estimate()
    level = _LEVEL_OF_TWO if plan.config.of_unusable else plan.outputs[drawn.output].level
    fields: dict[str, Any] = {**Estimate.to_json(estimate, level), "epsilon": plan.claim_json["epsilon"]}
    del fields["claim"]  # that of one group; the query's claim covers all groups
    group = plan.groups[drawn.group]
    if group:
        fields["group"] = dict(zip(plan.config.parsed.group_by, map(_plain, group), strict=True))
    if drawn.window is not None and (grid := plan.config.window_grid) is not None:
        fields["window"] = [iso_timestamp(grid.start(drawn.window)), iso_timestamp(grid.start(drawn.window + 1))]
    if plan.config.retention_window is not None and drawn.until is not None and plan.config.step_grid is not None:
        fields |= _retention_fields(plan.outputs[drawn.output].name, drawn.until, plan.config.step_grid)
    if drawn.until is not None:
        fields["end"] = iso_timestamp(drawn.until)
    fields |= coverage.labels(fields.get("window"))
    if too_uncertain(plan, estimate, plan.outputs[drawn.output]):
        fields |= {"too_uncertain": True, "help": improvement_hint(plan)}
    name = plan.series[drawn.group * len(plan.outputs) + drawn.output]
    table = b""
    if isinstance(estimate, ItemEstimates):
        fields |= {"key": plan.config.names, "listing_threshold": estimate.listing_threshold}
        table = estimate.held.tables.to_bytes()
    if isinstance(plan.algorithm, SketchBitmap) and plan.claim.is_private and drawn.window is not None:
        table, fields["sketch"] = _sketch_bytes(plan, estimate, name, drawn.window)
    record = {**_finite(fields), "claim": plan.claim_json}
    unread = isinstance(estimate, ItemEstimates)
    return Release(query=name, number=drawn.number, time=stamp, record=record, table=table, unread=unread)


def _sketch_bytes(plan: QueryPlan, estimate: Estimate, name: str, window: int) -> tuple[bytes, str]:
    """Return the published sketch of a window, and its id.

    The question is named by its text, so that sketches of other questions are not taken for it.
    """
    grid = plan.config.window_grid
    assert grid is not None
    ends = (grid.start(window), grid.start(window + 1))
    question = f"{name}: {plan.config.sql}"[:1000]
    sketch = Sketch.published(plan.algorithm, bytes(estimate.released), question, *ends)
    return sketch.to_bytes(), sketch.id


def _retention_fields(name: str, until: float, grid: TimeGrid) -> dict[str, Any]:
    """Return the window that an answer is about, and of users who came back the earlier window they were in."""
    answer = RetentionAnswer.named(name)
    window = grid.index(until) - 1

    def span(number: int) -> list[str]:
        return [iso_timestamp(grid.start(number)), iso_timestamp(grid.start(number + 1))]

    fields: dict[str, Any] = {"answer": name, "window": span(window)}
    if answer.lag:
        fields["lag"] = answer.lag
    if answer.kind == "back":
        fields["cohort"] = span(window - answer.lag)
    return fields


def iso_timestamp(seconds: float) -> str:
    """Return seconds since 1970 as a date and time in UTC."""
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z")


def release_timestamp(seconds: float) -> str:
    """Return seconds since 1970 as an answer's time, to the second."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def _plain(value: Any) -> Any:
    return value if isinstance(value, str | int | float | bool) else str(value)


def _finite(value: Any) -> Any:
    """Replace infinities and NaN, which JSON lacks, by null: no data, or no bound."""
    if isinstance(value, dict):
        return {name: _finite(member) for name, member in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(member) for member in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
