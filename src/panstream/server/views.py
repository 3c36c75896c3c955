"""What the engine publishes, in the shapes of the interface. Everything here is public."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from panstream import __version__
from panstream.engine.engine import Engine
from panstream.engine.fate import Refreshed, fate
from panstream.engine.plan import QueryPlan
from panstream.engine.results import EXTRA, series_name
from panstream.store.releases import Release

__all__ = ["health", "intrusions", "ledger", "producer", "producers", "queries", "release", "series_of"]


def producers(engine: Engine, token: str) -> dict[str, Any]:
    """Return the producers that are open under a token."""
    return {"producers": [producer(engine, token, each.name) for each in engine.producers.all_of(token)]}


def producer(engine: Engine, token: str, name: str) -> dict[str, Any]:
    """Return how far a producer came."""
    found = engine.producers.find(token, name)
    return {"name": found.name, "id": found.id, "last": max(0, engine.last_sequence(found.place))}


def queries(engine: Engine) -> dict[str, Any]:
    """Return the stream and its questions."""
    config, stream = engine.config, engine.config.stream
    return {
        "stream": {
            "name": stream.name,
            "columns": dict(stream.columns),
            "user": stream.user,
            "time": stream.time,
            "durability": config.durability,
            "on_disk": config.directory is not None,
        },
        "queries": [_query(engine, plan) for plan in engine.plans],
    }


def _query(engine: Engine, plan: QueryPlan) -> dict[str, Any]:
    query = plan.config
    scheduled = query.every is not None or query.window is not None
    return {
        "name": query.name,
        "sql": query.sql,
        "algorithm": type(plan.algorithm).__name__,
        "why": plan.why,
        "claim": plan.claim.to_json(),
        "state_bytes": plan.state_bytes,
        "series": series_of(plan),
        "releases": {"planned": None if query.window is not None else plan.releases, "made": engine.made(query.name)},
        "every": query.every,
        "window": query.window,
        "on_demand": not scheduled,
        "finished": engine.finished(query.name),
        "refreshable": fate(plan, len(engine.intrusions))[0],
    }


def series_of(plan: QueryPlan) -> list[str]:
    """Return the names under which a query's groups are published."""
    return [series_name(plan, group) for group in range(len(plan.groups))]


def release(published: Release) -> dict[str, Any]:
    """Return one published answer."""
    record = published.record
    extra: dict[str, Any] = {key: record[key] for key in EXTRA if key in record}
    name = published.query.partition(" [")[0] if "group" in extra else published.query
    return {
        "query": name,
        "series": published.query,
        "number": published.number,
        "time": published.time,
        **{key: record[key] for key in ("value", "standard_error", "interval", "level", "epsilon")},
        "unit": record["claim"]["unit"],
        **extra,
    }


def ledger(engine: Engine) -> dict[str, Any]:
    """Return what was spent."""
    book = engine.ledger
    return {
        "totals": [total.to_json() for total in book.totals()],
        "entries": [
            {
                "name": entry.name,
                "unit": entry.unit,
                "adjacency": entry.adjacency,
                "window": entry.window,
                "epsilon": _epsilon(entry.epsilon),
                "delta": entry.delta,
            }
            for entry in book
        ],
        "intrusions": list(engine.intrusions),
    }


def intrusions(engine: Engine, states: Sequence[Refreshed] | None = None) -> dict[str, Any]:
    """Return the intrusions announced, what this request did to each state, and the price of another announcement."""
    before = len(engine.intrusions)
    prices = [(plan.config.name, *fate(plan, before)) for plan in engine.plans]
    return {
        "done": states is not None,
        "states": [state.to_json() for state in states or ()],
        "announced": list(engine.intrusions),
        "price": [
            {"query": name, "refreshable": good, "epsilon": 0.0 if good else None, "text": text}
            for name, good, text in prices
        ],
    }


def health(*, failed: bool, stopping: bool, waiting: bool = False) -> dict[str, Any]:
    """Return whether events are taken, and whether answers wait for the operator to set the clock right."""
    status = "failed" if failed else "stopping" if stopping else "waiting" if waiting else "ok"
    return {"status": status, "version": __version__}


def _epsilon(value: float) -> float | str:
    return value if math.isfinite(value) else "inf"
