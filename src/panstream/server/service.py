"""What is served: the engine's thread, its releases as they are published, and figures for an operator.

All that is shown here is public: releases, the version, whether the state can be stored (the disk's affair), intrusions
announced, answers made (by the schedule or when asked), and what the configuration spends.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, TypeAlias

from panstream import __version__
from panstream.engine.config import Config
from panstream.engine.engine import Engine
from panstream.engine.results import EXTRA
from panstream.errors import MissingExtra
from panstream.server.refusals import Refusal, to_json
from panstream.server.worker import Worker
from panstream.store.releases import Release

__all__ = ["Service", "metrics", "release_json"]

_WAITING = 1_000  # events that a slow listener may be behind before it is dropped
_LISTENERS = 256
_BREATH = 15.0  # seconds between comments, so that a lost connection is noticed

Listener: TypeAlias = "asyncio.Queue[tuple[str | None, bytes] | None]"


class Service:
    """One stream, served. ``open_engine`` is given what to call with every release; ``ended`` hears if it fails."""

    def __init__(
        self,
        config: Config,
        open_engine: Callable[[Callable[[Release], None]], Engine],
        *,
        ended: Callable[[], None] = lambda: None,
    ) -> None:
        self.config = config
        self.listeners = _Listeners()
        self.stopping = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self.worker = Worker(lambda: open_engine(self._published), ended=ended)

    def start(self) -> None:
        """Begin; call it from the event loop."""
        self._loop = asyncio.get_running_loop()
        self.worker.run()

    def begin_stop(self) -> None:
        """Take nothing new, and end the streams of events."""
        self.stopping = True
        self.listeners.close()

    async def stop(self) -> None:
        """Commit and close."""
        self.begin_stop()
        await self.worker.stop()

    def check_running(self) -> None:
        """Refuse what comes while stopping."""
        if self.stopping:
            raise Refusal("unavailable", "the server is stopping", retry_after=5)

    async def past(self, query: str | None, since: str | None, limit: int) -> list[dict[str, Any]]:
        """Return the latest releases, oldest first."""

        def look(engine: Engine) -> list[dict[str, Any]]:
            names = None
            if query is not None:
                names = [
                    name
                    for plan in engine.plans
                    if query in (plan.config.name, plan.config.statement)
                    for name in plan.series
                ]
                if not names:
                    raise Refusal("not_found", "there is no query of this name")
            return [release_json(each) for each in engine.log.latest(names, since=since, limit=limit)]

        found: list[dict[str, Any]] = await self.worker.call(look)
        return found

    def _published(self, release: Release) -> None:
        """Hand a release to the listeners; called by the engine's thread."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self.listeners.publish, "release", release_json(release))


class _Listeners:
    """Hands every event to every listener. A listener that does not keep up is dropped, and may come again."""

    def __init__(self) -> None:
        self._listeners: dict[Listener, str] = {}
        self._closed = False

    def publish(self, kind: str, shown: dict[str, Any]) -> None:
        """Hand out an event, about one query if it names one, or about all; call it on the event loop."""
        data, query = _event(kind, shown), shown.get("query")
        for listener in list(self._listeners):
            if listener.qsize() >= _WAITING:
                self._listeners.pop(listener, None)
                listener.put_nowait(None)
            else:
                listener.put_nowait((query, data))

    def close(self) -> None:
        """End every listener's stream."""
        self._closed = True
        for listener in list(self._listeners):
            listener.put_nowait(None)
        self._listeners.clear()

    def listen(self, name: str, most: int) -> Listener:
        """Return the queue of a new listener, of whom the token ``name`` may have ``most``."""
        if self._closed or len(self._listeners) >= _LISTENERS:
            raise Refusal("unavailable", "there are too many listeners, or the server is stopping", retry_after=5)
        if sum(each == name for each in self._listeners.values()) >= most:
            raise Refusal("rate_limited", retry_after=5)
        listener: Listener = asyncio.Queue()
        self._listeners[listener] = name
        return listener

    def leave(self, listener: Listener) -> None:
        """Forget a listener."""
        self._listeners.pop(listener, None)

    async def stream(
        self, listener: Listener, past: list[dict[str, Any]], query: str | None = None
    ) -> AsyncIterator[bytes]:
        """Yield old events, then new ones about the query as they come."""
        try:
            yield b"retry: 2000\n\n" + b"".join(_event("release", each) for each in past)
            while True:
                try:
                    item = await asyncio.wait_for(listener.get(), _BREATH)
                except TimeoutError:
                    yield b": still here\n\n"
                    continue
                if item is None:
                    return
                about, data = item
                if about is None or query is None or about == query:
                    yield data
        finally:
            self.leave(listener)


def _event(kind: str, shown: dict[str, Any]) -> bytes:
    """Return one server-sent event; a release has an id, its time."""
    head = f"id: {shown['time']}\n" if kind == "release" else ""
    return f"{head}event: {kind}\ndata: {to_json(shown).decode()}\n\n".encode()


def release_json(published: Release) -> dict[str, Any]:
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


def metrics(engine: Engine, *, failed: bool) -> bytes:
    """Return the current figures in Prometheus' text format: nothing that moves with rows or requests.

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

    yield InfoMetricFamily("panstream", "The release that runs.", {"version": __version__})
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
