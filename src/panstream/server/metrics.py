"""``/metrics`` in Prometheus' text format: nothing that moves with rows or requests.

What is there: the version, whether the state can be stored (the disk's affair), intrusions announced, answers made (by the
schedule or when asked), and what the configuration spends. A registry of its own: the client library's default collectors
would tell of the process, and counts and histograms of requests of the people behind them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from panstream import __version__
from panstream.engine.engine import Engine
from panstream.errors import MissingExtra

if TYPE_CHECKING:
    from panstream.server.worker import Worker

__all__ = ["MEDIA_TYPE", "exposition"]

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def exposition(engine: Engine, worker: Worker) -> bytes:
    """Return the current figures as text."""
    try:
        from prometheus_client import CollectorRegistry, generate_latest
    except ImportError:
        raise MissingExtra("the server", "server") from None

    class _Figures:
        def collect(self) -> Iterator[Any]:
            yield from _families(engine, worker)

    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Figures())
    return bytes(generate_latest(registry))


def _families(engine: Engine, worker: Worker) -> Iterator[Any]:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily

    yield InfoMetricFamily("panstream", "The release that runs.", {"version": __version__})
    yield GaugeMetricFamily("panstream_failed", "1 while the state cannot be stored.", float(worker.failed))
    yield CounterMetricFamily("panstream_intrusions", "Intrusions announced, ever.", len(engine.intrusions))
    made = CounterMetricFamily("panstream_releases", "Releases made, ever.", labels=["query"])
    loss = GaugeMetricFamily("panstream_epsilon", "Privacy loss that a query's claim names.", labels=["query", "unit"])
    for plan in engine.plans:
        made.add_metric([plan.config.name], engine.made(plan.config.name))
        loss.add_metric([plan.config.name, plan.claim.unit], plan.claim.epsilon)
    yield made
    yield loss
    names = ["unit", "adjacency", "window"]
    spent = GaugeMetricFamily(
        "panstream_ledger_epsilon", "Most that one unit can have lost to all queries; +Inf: not bounded.", labels=names
    )
    limit = GaugeMetricFamily("panstream_ledger_limit", "The declared budget.", labels=names)
    for total in engine.ledger.totals():
        labels = [total.unit, total.adjacency, "" if total.window is None else f"{total.window:g}"]
        spent.add_metric(labels, total.epsilon)
        limit.add_metric(labels, math.inf if total.limit is None else total.limit)
    yield spent
    yield limit
