"""Figures for Prometheus: the latest answers, and what an operator watches. Nothing moves with rows or requests."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from panstream import __version__
from panstream.engine.engine import Engine
from panstream.engine.names import listed_names
from panstream.errors import MissingExtra
from panstream.server.service import view_of
from panstream.store.releases import Release


def metrics(engine: Engine, *, failed: bool) -> bytes:
    """Return the current figures in Prometheus' text format.

    The registry is our own: the client library's default collectors would tell of the process, and counts and
    histograms of requests of the people behind them.
    """
    try:
        from prometheus_client import CollectorRegistry, generate_latest
    except ImportError:
        raise MissingExtra("the server", "server") from None

    class _Figures:
        def collect(self) -> Iterator[Any]:
            yield from _families(engine, failed)

    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Figures())
    return bytes(generate_latest(registry))


def _families(engine: Engine, failed: bool) -> Iterator[Any]:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily

    yield InfoMetricFamily("panstream", "The running version.", {"version": __version__})
    yield GaugeMetricFamily("panstream_failed", "1 while the state cannot be stored.", float(failed))
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
    if engine.sink is not None:
        copied = math.nan if engine.sink.copied is None else engine.sink.copied
        yield GaugeMetricFamily("panstream_sink_up", "0 while answers cannot be copied there.", float(engine.sink.up))
        yield GaugeMetricFamily(
            "panstream_sink_copied_time_seconds", "When answers were last copied, in seconds since 1970.", copied
        )
    yield from _answers(engine)


def _answers(engine: Engine) -> Iterator[Any]:
    """Yield the latest answer of every query and group as it was published, names included that a query shows."""
    from prometheus_client.core import GaugeMetricFamily

    words = {
        "panstream_answer": "The latest answer; NaN: no data.",
        "panstream_answer_low": "Lower end of its 95% interval.",
        "panstream_answer_high": "Upper end of its 95% interval.",
        "panstream_answer_time_seconds": "When it was published, in seconds since 1970.",
    }
    families = [GaugeMetricFamily(name, text, labels=["query", "group"]) for name, text in words.items()]
    for plan in engine.plans:
        for series in plan.series:
            last = engine.log.last(series)
            for release in [] if last is None else [last, *listed_names(last, view_of(last, engine.config))]:
                for family, value in zip(families, _figures(release), strict=True):
                    family.add_metric(_labels(release), value)
    yield from families


def _labels(release: Release) -> list[str]:
    group = release.record.get("group", {})
    query = release.query.partition(" [")[0] if group else release.query
    return [query, ", ".join(f"{key}={value}" for key, value in group.items())]


def _figures(release: Release) -> tuple[float, float, float, float]:
    record = release.record
    (low, high), value = record["interval"], record["value"]
    return (
        math.nan if value is None else float(value),
        -math.inf if low is None else float(low),
        math.inf if high is None else float(high),
        datetime.fromisoformat(release.time).timestamp(),
    )
