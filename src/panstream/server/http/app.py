"""The ASGI application: routes, authentication, and handlers.

Everything in a response is public, as the engine publishes it, except the outcome of a batch, which its sender gets.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from panstream.engine.runtime.engine import Engine
from panstream.engine.runtime.intrusions import CopyTime, RefreshOutcome
from panstream.engine.runtime.producers import Sender
from panstream.engine.storage.release_log import Release
from panstream.errors import (
    BudgetExhausted,
    ConfigError,
    InvalidParameter,
    NotSupported,
    PanstreamError,
    ProducerFenced,
)
from panstream.server.auth import Authenticator, QuotaTracker
from panstream.server.errors import HttpError, to_json
from panstream.server.http.openapi import describe
from panstream.server.http.query_json import queries_json
from panstream.server.http.staged_parts import StagedParts
from panstream.server.ingest.jobs import Job, sender_from_headers
from panstream.server.ingest.request_bodies import receive, receive_small
from panstream.server.ingest.staging import part_from_headers
from panstream.server.service import Service, metrics, release_json, releases_csv

Handler = Callable[[Request], Awaitable[Response]]

_TIME = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}Z", re.ASCII)
_METRICS = "text/plain; version=0.0.4; charset=utf-8"
_MAX_NAMES = 100  # in one request for counts
_MAX_ANNOUNCEMENT = 1_000  # bytes
_STATUS_CODES = {404: "not_found", 405: "method_not_allowed"}
_ERROR_CODES = {BudgetExhausted: "budget_exhausted", InvalidParameter: "bad_request", NotSupported: "conflict"}


def application(service: Service, access: Authenticator, quotas: QuotaTracker, pages: Sequence[BaseRoute]) -> Any:
    """Return the ASGI application; ``pages`` are further routes, without authentication."""

    def route(path: str, **handlers: tuple[str | None, Handler]) -> Route:
        async def endpoint(request: Request) -> Response:
            scope, handler = handlers["GET" if request.method == "HEAD" else request.method]
            grant = access.check(request.headers, scope)
            request.state.token = grant.name
            with quotas.request(grant.name):
                return await handler(request)

        return Route(path, endpoint, methods=list(handlers))

    calls = _Handlers(service, quotas)
    routes: list[BaseRoute] = [
        route("/v1/streams/{name}/events", POST=("ingest", calls.events)),
        route("/v1/streams/{name}/commit", POST=("ingest", calls.commit), DELETE=("ingest", calls.abort)),
        route("/v1/producers", GET=("ingest", calls.producers)),
        route(
            "/v1/producers/{name}",
            GET=("ingest", calls.producer),
            POST=("ingest", calls.open_producer),
            DELETE=("ingest", calls.close_producer),
        ),
        route("/v1/queries", GET=("read", calls.queries)),
        route("/v1/queries/{name}/counts", GET=("read", calls.counts)),
        route("/v1/queries/{name}/release", POST=("admin", calls.release)),
        route("/v1/releases", GET=("read", calls.releases)),
        route("/v1/ledger", GET=("read", calls.ledger)),
        route("/v1/intrusions", GET=("read", calls.intrusions), POST=("admin", calls.announce)),
        route("/healthz", GET=(None, calls.health)),
        route("/metrics", GET=("read", calls.metrics)),
        route("/openapi.json", GET=(None, calls.description)),
        *pages,
    ]
    handlers: Any = dict.fromkeys((HTTPException, HttpError, PanstreamError, Exception), _refuse)
    app = Starlette(routes=routes, exception_handlers=handlers)
    app.router.redirect_slashes = False

    async def outermost(scope: Scope, receive: Receive, send: Send) -> None:
        """Catch all errors: tracebacks would be logged, and can quote rows.

        Then clear the request's head, which the connection would hold until its next request.
        """
        try:
            await app(scope, receive, send)
        except Exception as error:
            print(f"panstream: internal error ({type(error).__name__})", file=sys.stderr)
        finally:
            scope.get("headers", []).clear()
            scope.clear()

    return outermost


class _Handlers:
    """One method per operation of the interface."""

    def __init__(self, service: Service, quotas: QuotaTracker) -> None:
        self._service = service
        self._worker = service.worker
        self._quotas = quotas
        self._parts = StagedParts(service, quotas)
        self._description = describe()

    async def events(self, request: Request) -> Response:
        if request.path_params["name"] != self._service.config.stream.name:
            raise HttpError("not_found", "there is no stream of this name")
        self._service.check_running()
        if (part := part_from_headers(request.headers)) is not None:
            return _json((await self._parts.add(request, *part)).to_json())
        sender, sequence = sender_from_headers(request.headers, request.state.token)
        body = await receive(request, self._quotas, request.state.token)
        outcome = await self._worker.take(Job(body, sender, sequence))
        return _json(outcome.to_json())

    async def commit(self, request: Request) -> Response:
        return _json((await self._parts.commit(request)).to_json())

    async def abort(self, request: Request) -> Response:
        self._parts.abort(request)
        return _json({})

    async def producers(self, request: Request) -> Response:
        token = request.state.token

        def opened(engine: Engine) -> list[dict[str, Any]]:
            return [self._producer(engine, token, producer.name) for producer in engine.producers.all_of(token)]

        return _json({"producers": await self._worker.call(opened)})

    async def producer(self, request: Request) -> Response:
        token = request.state.token
        name = request.path_params["name"]
        return _json(await self._worker.call(lambda engine: self._producer(engine, token, name)))

    async def open_producer(self, request: Request) -> Response:
        token = request.state.token
        name = request.path_params["name"]
        max_producers = self._quotas.limits.producers
        self._service.check_running()

        def opened(engine: Any) -> tuple[dict[str, Any], set[Sender]]:
            previous = _senders(engine, token, name)
            engine.producers.open(token, name, max_producers)
            return self._producer(engine, token, name), previous

        producer, previous = await self._worker.call(opened, durable=True)
        for sender in previous:
            self._parts.area.drop(sender)
        return _json(producer)

    async def close_producer(self, request: Request) -> Response:
        token = request.state.token
        name = request.path_params["name"]

        def closed(engine: Any) -> tuple[dict[str, Any], set[Sender]]:
            last = self._producer(engine, token, name)
            previous = _senders(engine, token, name)
            engine.close_producer(token, name)
            return last, previous

        producer, previous = await self._worker.call(closed, durable=True)
        for sender in previous:
            self._parts.area.drop(sender)
        return _json(producer)

    def _producer(self, engine: Engine, token: str, name: str) -> dict[str, Any]:
        """Return a producer's last sequence number, and how many batches it may have in flight."""
        producer = engine.producers.find(token, name)
        last = max(0, engine.last_sequence(producer.position_key))
        return {"name": producer.name, "id": producer.id, "last": last, "in_flight": self._quotas.limits.window}

    async def queries(self, request: Request) -> Response:
        return _json(await self._worker.call(queries_json))

    async def release(self, request: Request) -> Response:
        name = request.path_params["name"]

        def draw(engine: Engine) -> tuple[list[Release], list[Future[Release]]]:
            drawn = engine.draw(name)
            return drawn, engine.names.futures_of(drawn)

        def published(engine: Engine) -> list[Release]:
            engine.publish_names(wait=False)
            return [engine.log.find(release) or release for release in drawn]

        drawn, names = await self._worker.call(draw)
        if names:  # items are decoded in other threads: batches are applied meanwhile
            await asyncio.gather(*map(asyncio.wrap_future, names))
            drawn = await self._worker.call(published)
        return _json({"releases": [release_json(release, self._service.config) for release in drawn]})

    async def counts(self, request: Request) -> Response:
        names = request.query_params.getlist("name")
        number = request.query_params.get("number")
        if not 1 <= len(names) <= _MAX_NAMES:
            raise HttpError("bad_request", f"name must be given, {_MAX_NAMES} times at most")
        if number is not None and not (number.isascii() and number.isdecimal() and len(number) <= 9):
            raise HttpError("bad_request", "number must be the number of a release")
        return _json({"counts": await self._service.counts(request.path_params["name"], names, number)})

    async def releases(self, request: Request) -> Response:
        query = request.query_params.get("query")
        since = request.query_params.get("since")
        limit = _page_size(request)
        written = request.query_params.get("format", "json")
        if written not in ("json", "csv"):
            raise HttpError("bad_request", "format must be json or csv")
        if since is not None and _TIME.fullmatch(since) is None:
            raise HttpError("bad_request", "since must be a time in UTC such as 2026-01-31T23:59:59Z")
        streamed = "text/event-stream" in request.headers.get("accept", "") and request.method == "GET"
        seen = request.headers.get("last-event-id", "")
        if streamed and since is None and _TIME.fullmatch(seen):
            since = seen
        listener = (
            self._service.listeners.subscribe(request.state.token, self._quotas.limits.max_concurrent)
            if streamed
            else None
        )
        try:
            releases = await self._service.past(query, since, limit)
        except BaseException:
            if listener is not None:
                self._service.listeners.unsubscribe(listener)
            raise
        if listener is None and written == "csv":
            return Response(
                releases_csv(releases, self._service.config), 200, {"cache-control": "no-store"}, "text/csv"
            )
        past = [release_json(release, self._service.config) for release in releases]
        if listener is None:
            return _json({"releases": past})
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        stream = self._service.listeners.stream(listener, past, query)
        return StreamingResponse(stream, media_type="text/event-stream", headers=headers)

    async def ledger(self, request: Request) -> Response:
        return _json(await self._worker.call(_ledger))

    async def intrusions(self, request: Request) -> Response:
        return _json(await self._worker.call(_intrusions))

    async def announce(self, request: Request) -> Response:
        copy = await _announcement(request, self._quotas.limits.body_time)
        if copy is None:
            return await self.intrusions(request)
        outcome, ledger = await self._worker.call(partial(self._announce, copy=copy))
        self._service.listeners.publish("ledger", ledger)
        return _json(outcome)

    @staticmethod
    def _announce(engine: Any, copy: CopyTime) -> tuple[dict[str, Any], dict[str, Any]]:
        states = engine.announce_intrusion(copy)
        return _intrusions(engine, states), _ledger(engine)

    async def health(self, request: Request) -> Response:
        content = self._service.health()
        return _json(content, 503 if content["status"] in ("failed", "stopping") else 200)

    async def metrics(self, request: Request) -> Response:
        readers = self._service.readers
        text = await self._worker.call(lambda engine: metrics(engine, failed=self._worker.failed, readers=readers))
        return Response(text, media_type=_METRICS)

    async def description(self, request: Request) -> Response:
        return _json(self._description)


def _senders(engine: Engine, token: str, name: str) -> set[Sender]:
    """Return under which id a producer of a token is open, if it is."""
    return {Sender(token, producer.id) for producer in engine.producers.all_of(token) if producer.name == name}


def _page_size(request: Request) -> int:
    text = request.query_params.get("limit", "1000")
    if not (text.isascii() and text.isdecimal() and len(text) <= 5 and 1 <= int(text) <= 10_000):
        raise HttpError("bad_request", "limit must be a whole number in 1..10000")
    return int(text)


async def _announcement(request: Request, seconds: float) -> CopyTime | None:
    """Parse the announcement of an intrusion; return the time of the copy, None if it is not confirmed."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise HttpError("unsupported_media_type", "Content-Type must be application/json")
    data = await receive_small(request, _MAX_ANNOUNCEMENT, seconds, "this body")
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        document = None
    field_types = {"confirm": bool, "copied_at": str | None, "just_now": bool}
    if (
        not isinstance(document, dict)
        or not {"confirm"} <= set(document) <= set(field_types)
        or not all(isinstance(value, field_types[name]) for name, value in document.items())
    ):
        raise HttpError(
            "bad_request",
            'the body must be {"confirm": true} or {"confirm": false}, with "copied_at" (a time) or "just_now": true',
        )
    copy = CopyTime.parse("copied_at", document.get("copied_at"), just_now=document.get("just_now", False))
    return copy if document["confirm"] else None


def _ledger(engine: Engine) -> dict[str, Any]:
    """Return the ledger as JSON values: totals, charges, and announced intrusions."""
    book = engine.ledger
    return {
        "totals": [total.to_json() for total in book.totals()],
        "person": engine.person_total.to_json(),
        "entries": [
            {"name": name, **{key: claim.to_json()[key] for key in ("unit", "adjacency", "window", "epsilon", "delta")}}
            for name, claim in book
        ],
        "intrusions": list(engine.intrusions),
    }


def _intrusions(engine: Engine, states: Sequence[RefreshOutcome] | None = None) -> dict[str, Any]:
    """Return the announced intrusions, the effect of this request on each state, and the price of another one."""
    prices = [(plan.config.name, *engine.exposure.outlook(plan)) for plan in engine.plans]
    return {
        "done": states is not None,
        "states": [state.to_json() for state in states or ()],
        "announced": list(engine.intrusions),
        "price": [
            {"query": name, "refreshable": good, "epsilon": 0.0 if good else None, "text": text}
            for name, good, text in prices
        ],
    }


def _json(content: object, status: int = 200) -> Response:
    return Response(to_json(content), status, {"cache-control": "no-store"}, "application/json")


async def _refuse(request: Request, error: Exception) -> Response:
    """Return the error response for any exception."""
    refusal = _refusal(error)
    headers = {"cache-control": "no-store", **refusal.headers}
    response = Response(refusal.body, refusal.status, headers, "application/json")
    for name, value in ((error.headers if isinstance(error, HTTPException) else None) or {}).items():
        response.headers[name] = value
    return response


def _refusal(error: Exception) -> HttpError:
    if isinstance(error, HttpError):
        return error
    if isinstance(error, HTTPException):
        return HttpError(_STATUS_CODES.get(error.status_code, "bad_request"))
    if isinstance(error, ConfigError):
        return HttpError("not_found", "there is no query of this name")
    if isinstance(error, ProducerFenced):
        return HttpError(error.code, str(error))
    for kind, code in _ERROR_CODES.items():
        if isinstance(error, kind):
            return HttpError(code, str(error))
    return HttpError("unavailable" if isinstance(error, PanstreamError) else "internal")
