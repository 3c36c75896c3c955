"""One served stream: its engine's thread, releases as they are published, and metrics for Prometheus.

Everything here is public: releases, the version, whether the state can be stored (a matter of the disk), announced
intrusions, the number of releases, and the privacy loss of the configuration. Nothing depends on rows or requests.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any, TypeAlias

from panstream import __version__
from panstream.engine.config.config import Config
from panstream.engine.planner.open_domain import listed_names, shown_items
from panstream.engine.reporting.evidence import evidence_reader
from panstream.engine.reporting.export import EXTRA, to_csv
from panstream.engine.reporting.point_queries import count_names
from panstream.engine.runtime.engine import Engine
from panstream.engine.sql.result_view import ResultView
from panstream.engine.storage.release_log import Release
from panstream.errors import import_optional
from panstream.primitives.memory import secret_memory
from panstream.server.auth import Limits
from panstream.server.errors import HttpError, to_json
from panstream.server.ingest.engine_thread import EngineThread
from panstream.server.ingest.source_reader import SourceReader
from panstream.server.ingest.staging import StagingArea

_MAX_QUEUED = 1_000  # events that a slow listener may be behind before it is dropped
_MAX_LISTENERS = 256
_KEEPALIVE_INTERVAL = 15.0  # seconds between comments, so that a lost connection is noticed

Listener: TypeAlias = "asyncio.Queue[tuple[str | None, bytes] | None]"


class Service:
    """One served stream.

    Args:
        config: The stream's configuration.
        open_engine: Opens the engine, given a function that it calls with every release.
        ended: Called if the engine's thread ends by an error.
        limits: The server's limits.
    """

    def __init__(
        self,
        config: Config,
        open_engine: Callable[[Callable[[Release], None]], Engine],
        *,
        ended: Callable[[], None] = lambda: None,
        limits: Limits | None = None,
    ) -> None:
        self.config = config
        self.listeners = _EventBroadcaster()
        self.readers: Sequence[SourceReader] = ()
        self.staging = StagingArea(limits or Limits())
        self.stopping = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._evidence = evidence_reader(config.statement, config.digest)
        self.worker = EngineThread(lambda: open_engine(self._published), ended=ended, limits=limits)

    def start(self) -> None:
        """Start the engine's thread; call it from the event loop."""
        self._loop = asyncio.get_running_loop()
        self.worker.run()

    def begin_stop(self) -> None:
        """Refuse new batches, and end the event streams of listeners."""
        self.stopping = True
        self.listeners.close()
        self.staging.drop_all()
        self.worker.begin_stop()

    async def stop(self) -> None:
        """Commit, and close the engine."""
        self.begin_stop()
        await self.worker.stop()

    def health(self) -> dict[str, Any]:
        """Return what ``/healthz`` shows: the status, the version, the kind of memory, and the newest evidence."""
        if self.worker.failed:
            status = "failed"
        elif self.stopping:
            status = "stopping"
        else:  # after a jump of the clock, answers wait until the operator has set it right
            status = "waiting" if self.worker.engine.jumped else "ok"
        content = {"status": status, "version": __version__, "memory": secret_memory.report().kind}
        evidence = self._evidence()
        return content if evidence is None else {**content, "evidence": evidence}

    def check_running(self) -> None:
        """Raise HttpError if the server is stopping."""
        if self.stopping:
            raise HttpError("unavailable", "the server is stopping", retry_after=5)

    async def past(self, query: str | None, since: str | None, limit: int) -> list[Release]:
        """Return the latest releases, oldest first; raise HttpError if there is no such query."""

        def read(engine: Engine) -> list[Release]:
            names = None
            if query is not None:
                names = [
                    name
                    for plan in engine.plans
                    if query in (plan.config.name, plan.config.statement)
                    for name in plan.series
                ]
                if not names:
                    raise HttpError("not_found", "there is no query of this name")
            return engine.log.latest(names, since=since, limit=limit)

        releases: list[Release] = await self.worker.call(read)
        return releases

    async def counts(self, query: str, names: list[str], number: str | None) -> list[dict[str, Any]]:
        """Return the counts of names from the published table of a release, by default the latest.

        Raises:
            HttpError: If there is no such table.
        """

        def read(engine: Engine) -> tuple[Release, bytes]:
            release = engine.log.last(query)
            if number is not None:
                release = next(engine.log.history(query, after=int(number) - 1), None)
            table = b"" if release is None else engine.log.table(query, release.number)
            if release is None or "key" not in release.record or not table or number not in (None, str(release.number)):
                raise HttpError("not_found", "this query has published no table of names, or none of this number")
            return release, table

        release, table = await self.worker.call(read)
        return await asyncio.to_thread(count_names, release, table, names)

    def _published(self, release: Release) -> None:
        """Send a release to the listeners; called by the engine's thread."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self.listeners.publish, "release", release_json(release, self.config))


class _EventBroadcaster:
    """Sends every event to every listener. One that is too far behind is dropped, and may reconnect."""

    def __init__(self) -> None:
        self._listeners: dict[Listener, str] = {}
        self._closed = False

    def publish(self, kind: str, shown: dict[str, Any]) -> None:
        """Queue an event for every listener; call it on the event loop."""
        data = _event(kind, shown)
        query = shown.get("query")
        for listener in list(self._listeners):
            if listener.qsize() >= _MAX_QUEUED:
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

    def subscribe(self, name: str, max_listeners: int) -> Listener:
        """Return the queue of a new listener; raise HttpError if the token ``name`` has ``max_listeners`` already."""
        if self._closed or len(self._listeners) >= _MAX_LISTENERS:
            raise HttpError("unavailable", "there are too many listeners, or the server is stopping", retry_after=5)
        if sum(listener_name == name for listener_name in self._listeners.values()) >= max_listeners:
            raise HttpError("rate_limited", retry_after=5)
        listener: Listener = asyncio.Queue()
        self._listeners[listener] = name
        return listener

    def unsubscribe(self, listener: Listener) -> None:
        """Remove a listener, if it is still subscribed."""
        self._listeners.pop(listener, None)

    async def stream(
        self, listener: Listener, past: list[dict[str, Any]], query: str | None = None
    ) -> AsyncIterator[bytes]:
        """Yield past releases, then new events about the query, as server-sent events."""
        try:
            yield b"retry: 2000\n\n" + b"".join(_event("release", release) for release in past)
            while True:
                try:
                    item = await asyncio.wait_for(listener.get(), _KEEPALIVE_INTERVAL)
                except TimeoutError:
                    yield b": still here\n\n"
                    continue
                if item is None:
                    return
                about, data = item
                if about is None or query is None or about == query:
                    yield data
        finally:
            self.unsubscribe(listener)


def _event(kind: str, shown: dict[str, Any]) -> bytes:
    """Return one server-sent event; the id of a release is its time, from which a client can resume."""
    head = f"id: {shown['time']}\n" if kind == "release" else ""
    return f"{head}event: {kind}\ndata: {to_json(shown).decode()}\n\n".encode()


def release_json(published: Release, config: Config) -> dict[str, Any]:
    """Return a release as JSON values; of a list of names, those that its statement shows."""
    record = published.record
    extra: dict[str, Any] = {key: record[key] for key in EXTRA if key in record}
    if "items" in extra:
        extra["items"] = shown_items(record, _view(published, config))
    return {
        "query": published.asked,
        "series": published.query,
        "number": published.number,
        "time": published.time,
        **{key: record[key] for key in ("value", "unclipped", "standard_error", "interval", "level", "epsilon")},
        "unit": record["claim"]["unit"],
        **extra,
    }


def releases_csv(published: Iterable[Release], config: Config) -> str:
    """Return releases as CSV; a list of names is followed by one line for each name that its statement shows."""
    return to_csv(row for release in published for row in (release, *listed_names(release, _view(release, config))))


def _view(published: Release, config: Config) -> ResultView:
    """Return the view of the statement that a release belongs to."""
    views = {name: statement.view for statement in config.statements for name in statement.queries}
    return views.get(published.query, ResultView())


def metrics(engine: Engine, *, failed: bool, readers: Sequence[SourceReader] = ()) -> bytes:
    """Return the current metrics in Prometheus' text format.

    The registry is our own: the library's default collectors expose process statistics that depend on rows, and
    counts and histograms of requests would reveal how many events there are.
    """
    prometheus = import_optional("prometheus_client", "the server", "server")

    class _Collector:
        def collect(self) -> Iterator[Any]:
            yield from _families(engine, failed)
            yield from _sources(readers)

    registry = prometheus.CollectorRegistry(auto_describe=False)
    registry.register(_Collector())
    return bytes(prometheus.generate_latest(registry))


def serve_metrics(engine: Engine, port: int) -> Callable[[], None]:
    """Serve figures of a run at a port of loopback, from a thread; return a function that ends it.

    They have no answers: those are read from the log, which belongs to the thread of the engine.
    """
    prometheus = import_optional("prometheus_client", "metrics", "server")

    class _Collector:
        def collect(self) -> Iterator[Any]:
            yield from _progress(engine)

    registry = prometheus.CollectorRegistry(auto_describe=False)
    registry.register(_Collector())
    server, _ = prometheus.start_http_server(port, "127.0.0.1", registry)

    def stop() -> None:
        server.shutdown()
        server.server_close()

    return stop


def _progress(engine: Engine) -> Iterator[Any]:
    """Yield the newest time and what else a thread may read while the engine works."""
    from prometheus_client.core import GaugeMetricFamily

    if engine.config.stream.time is not None and engine.committed_time is not None:
        newest = "The newest time of any stored row, in seconds since 1970; time() minus this is the lag."
        yield GaugeMetricFamily("panstream_newest_time_seconds", newest, engine.committed_time)
    for name, meaning, value in engine.gauges():
        yield GaugeMetricFamily(name, meaning, value)


def _families(engine: Engine, failed: bool) -> Iterator[Any]:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily

    yield InfoMetricFamily("panstream", "The running version.", {"version": __version__})
    yield GaugeMetricFamily("panstream_failed", "1 while the state cannot be stored.", float(failed))
    yield GaugeMetricFamily(
        "panstream_waiting", "1 while the system's clock is ahead, so that no answers are drawn.", float(engine.jumped)
    )
    yield from _progress(engine)
    yield CounterMetricFamily("panstream_intrusions", "Intrusions announced, ever.", len(engine.intrusions))
    release_counter = CounterMetricFamily("panstream_releases", "Releases made, ever.", labels=["query"])
    loss = GaugeMetricFamily("panstream_epsilon", "Privacy loss that a query's claim names.", labels=["query", "unit"])
    for plan in engine.plans:
        release_counter.add_metric([plan.config.name], engine.release_count(plan.config.name))
        loss.add_metric([plan.config.name, plan.claim.unit], plan.claim.epsilon)
    yield release_counter
    yield loss
    names = ["unit", "adjacency", "window"]
    spent = GaugeMetricFamily(
        "panstream_ledger_epsilon",
        "The losses of one unit to all queries, added up as if every state were copied; +Inf: not bounded.",
        labels=names,
    )
    limit = GaugeMetricFamily("panstream_ledger_limit", "The declared budget.", labels=names)
    for total in engine.ledger.totals():
        labels = [total.unit, total.adjacency, "" if total.window is None else f"{total.window:g}"]
        spent.add_metric(labels, total.epsilon)
        limit.add_metric(labels, math.inf if total.limit is None else total.limit)
    yield spent
    yield limit
    person = engine.person_total
    yield GaugeMetricFamily(
        "panstream_person_epsilon",
        "Most that one person can lose in any period to all queries and one intrusion; +Inf: not bounded.",
        person.epsilon,
    )
    yield GaugeMetricFamily("panstream_person_delta", "The delta of panstream_person_epsilon.", person.stated_delta)
    yield GaugeMetricFamily("panstream_person_period_seconds", "The period.", person.period)
    if engine.sink is not None:
        copied = math.nan if engine.sink.copied is None else engine.sink.copied
        yield GaugeMetricFamily("panstream_sink_up", "0 while answers cannot be copied there.", float(engine.sink.up))
        yield GaugeMetricFamily(
            "panstream_sink_copied_time_seconds", "When answers were last copied, in seconds since 1970.", copied
        )
    yield from _answers(engine)


def _sources(readers: Sequence[SourceReader]) -> Iterator[Any]:
    """Yield whether each broker can be reached, a matter of the network and not of rows."""
    from prometheus_client.core import GaugeMetricFamily

    family = GaugeMetricFamily("panstream_source_up", "0 while rows cannot be read from there.", labels=["source"])
    for reader in readers:
        if reader.name is not None:
            family.add_metric([reader.name], float(reader.up))
    if family.samples:
        yield family


def _answers(engine: Engine) -> Iterator[Any]:
    """Yield the latest release of every query and group, including the names that a query shows."""
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
            for release in [] if last is None else [last, *listed_names(last, _view(last, engine.config))]:
                group = ", ".join(f"{key}={value}" for key, value in release.record.get("group", {}).items())
                for family, value in zip(families, _figures(release), strict=True):
                    family.add_metric([release.asked, group], value)
    yield from families


def _figures(release: Release) -> tuple[float, float, float, float]:
    record = release.record
    low, high = record["interval"]
    value = record["value"]
    return (
        math.nan if value is None else float(value),
        -math.inf if low is None else float(low),
        math.inf if high is None else float(high),
        datetime.fromisoformat(release.time).timestamp(),
    )
