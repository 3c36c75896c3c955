"""The queries of a stream as JSON values, as the HTTP interface lists them."""

from __future__ import annotations

from typing import Any

from panstream.engine.planner.query_plan import QueryPlan
from panstream.engine.runtime.engine import Engine
from panstream.engine.runtime.release_record import iso_timestamp


def queries_json(engine: Engine) -> dict[str, Any]:
    """Return the stream and its queries as JSON values."""
    config = engine.config
    stream = engine.config.stream
    return {
        "stream": {
            "name": stream.name,
            "columns": dict(stream.columns),
            "user": stream.user,
            "time": stream.time,
            "time_zone": stream.time_zone,
            "durability": config.durability,
            "on_disk": config.directory is not None,
        },
        "web": None if config.web is None else config.web.to_json(),
        "queries": [_query(engine, plan) for plan in engine.plans],
    }


def _query(engine: Engine, plan: QueryPlan) -> dict[str, Any]:
    query = plan.config
    running = engine.running_query(query.name)
    # With event times it would show whether a row has come.
    end = running.next_answer if engine.config.stream.time is None else None
    scheduled = query.every is not None or query.window is not None
    return {
        "name": query.name,
        "sql": query.sql,
        "algorithm": type(plan.algorithm).__name__,
        "why": plan.why,
        "claim": plan.claim.to_json(),
        "state_bytes": plan.state_bytes,
        "series": list(plan.series),
        "outputs": [
            {"name": output.name, "aggregate": output.aggregate.value, "additive": output.additive}
            for output in plan.outputs
        ],
        "releases": {"planned": plan.planned_releases, "made": engine.release_count(query.name)},
        "every": query.every,
        "window": query.window,
        "on_demand": not scheduled,
        "next_answer": None if end is None else iso_timestamp(end),
        "finished": running.finished,
        "refreshable": engine.exposure.outlook(plan)[0],
    }
