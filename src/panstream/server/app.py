"""The application: routes, and what is done before and after every one of them."""

from __future__ import annotations

import re
import sys
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute, Route

from panstream.errors import (
    BudgetExhausted,
    ConfigError,
    InvalidParameter,
    NotSupported,
    PanstreamError,
    ProducerRefused,
)
from panstream.server import metrics, views
from panstream.server.access import Access
from panstream.server.bodies import receive
from panstream.server.feed import event
from panstream.server.intake import origin, outcome
from panstream.server.limits import Gate
from panstream.server.openapi import describe
from panstream.server.refusals import Refusal, json_response, refuse
from panstream.server.service import Service
from panstream.server.small_bodies import read_announcement

__all__ = ["application"]

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Handler = Callable[[Request], Awaitable[Response]]

_TIME = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}Z", re.ASCII)
_STATUS_CODES = {404: "not_found", 405: "method_not_allowed"}


def application(service: Service, access: Access, gate: Gate, pages: Sequence[BaseRoute]) -> Any:
    """Return the ASGI application; ``pages`` are served besides the interface."""

    def route(path: str, **handlers: tuple[str | None, Handler]) -> Route:
        async def endpoint(request: Request) -> Response:
            scope, handler = handlers["GET" if request.method == "HEAD" else request.method]
            holder = access.check(request.headers, scope)
            request.state.holder = holder.name
            with gate.request(holder.name):
                return await handler(request)

        return Route(path, endpoint, methods=list(handlers))

    calls = _Calls(service, gate)
    routes: list[BaseRoute] = [
        route("/v1/streams/{name}/events", POST=("ingest", calls.events)),
        route("/v1/producers", GET=("ingest", calls.producers)),
        route(
            "/v1/producers/{name}",
            GET=("ingest", calls.producer),
            POST=("ingest", calls.open_producer),
            DELETE=("ingest", calls.close_producer),
        ),
        route("/v1/queries", GET=("read", calls.queries)),
        route("/v1/queries/{name}/release", POST=("admin", calls.release)),
        route("/v1/releases", GET=("read", calls.releases)),
        route("/v1/ledger", GET=("read", calls.ledger)),
        route("/v1/intrusions", GET=("read", calls.intrusions), POST=("admin", calls.announce)),
        route("/healthz", GET=(None, calls.health)),
        route("/metrics", GET=("read", calls.metrics)),
        route("/openapi.json", GET=(None, calls.description)),
        *pages,
    ]
    handlers: Any = {HTTPException: _http_error, Refusal: _refused, PanstreamError: _failed, Exception: _internal}
    app = Starlette(routes=routes, exception_handlers=handlers)
    app.router.redirect_slashes = False
    return _Outermost(app)


class _Calls:
    """One method a call of the interface."""

    def __init__(self, service: Service, gate: Gate) -> None:
        self._service, self._worker, self._gate = service, service.worker, gate
        self._description = describe()

    async def events(self, request: Request) -> Response:
        if request.path_params["name"] != self._service.config.stream.name:
            raise Refusal("not_found", "there is no stream of this name")
        self._service.check_running()
        sender, sequence = origin(request.headers, request.state.holder)
        body = await receive(request, self._gate, request.state.holder)
        return json_response(outcome(await self._worker.take(body, sender, sequence)))

    async def producers(self, request: Request) -> Response:
        token = request.state.holder
        return json_response(await self._worker.call(lambda engine: views.producers(engine, token)))

    async def producer(self, request: Request) -> Response:
        token, name = request.state.holder, request.path_params["name"]
        return json_response(await self._worker.call(lambda engine: views.producer(engine, token, name)))

    async def open_producer(self, request: Request) -> Response:
        token, name, most = request.state.holder, request.path_params["name"], self._gate.limits.producers
        self._service.check_running()

        def opened(engine: Any) -> dict[str, Any]:
            engine.producers.open(token, name, most)
            return views.producer(engine, token, name)

        return json_response(await self._worker.call(opened, durable=True))

    async def close_producer(self, request: Request) -> Response:
        token, name = request.state.holder, request.path_params["name"]

        def closed(engine: Any) -> dict[str, Any]:
            last = views.producer(engine, token, name)
            engine.close_producer(token, name)
            return last

        return json_response(await self._worker.call(closed, durable=True))

    async def queries(self, request: Request) -> Response:
        return json_response(await self._worker.call(views.queries))

    async def release(self, request: Request) -> Response:
        name = request.path_params["name"]
        drawn = await self._worker.call(lambda engine: engine.release(name))
        return json_response({"releases": [views.release(each) for each in drawn]})

    async def releases(self, request: Request) -> Response:
        query, since, limit = request.query_params.get("query"), request.query_params.get("since"), _limit(request)
        if since is not None and _TIME.fullmatch(since) is None:
            raise Refusal("bad_request", "since must be a time in UTC such as 2026-01-31T23:59:59Z")
        streamed = "text/event-stream" in request.headers.get("accept", "") and request.method == "GET"
        seen = request.headers.get("last-event-id", "")
        if streamed and since is None and _TIME.fullmatch(seen):
            since = seen
        listener = self._service.feed.listen(request.state.holder, self._gate.limits.at_once) if streamed else None
        try:
            past = await self._service.past(query, since, limit)
        except BaseException:
            if listener is not None:
                self._service.feed.leave(listener)
            raise
        if listener is None:
            return json_response({"releases": past})
        old = [event("release", each, each["time"]) for each in past]
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        stream = self._service.feed.stream(listener, old, query)
        return StreamingResponse(stream, media_type="text/event-stream", headers=headers)

    async def ledger(self, request: Request) -> Response:
        return json_response(await self._worker.call(views.ledger))

    async def intrusions(self, request: Request) -> Response:
        return json_response(await self._worker.call(views.intrusions))

    async def announce(self, request: Request) -> Response:
        if not await read_announcement(request, self._gate.limits):
            return await self.intrusions(request)
        found, ledger = await self._worker.call(self._announce)
        self._service.feed.publish(event("ledger", ledger))
        return json_response(found)

    @staticmethod
    def _announce(engine: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        states = engine.announce_intrusion()
        return views.intrusions(engine, states), views.ledger(engine)

    async def health(self, request: Request) -> Response:
        worker = self._worker
        status = views.health(failed=worker.failed, stopping=self._service.stopping, waiting=worker.engine.jumped)
        return json_response(status, 200 if status["status"] in ("ok", "waiting") else 503)

    async def metrics(self, request: Request) -> Response:
        text = await self._worker.call(lambda engine: metrics.exposition(engine, self._worker))
        return Response(text, media_type=metrics.MEDIA_TYPE)

    async def description(self, request: Request) -> Response:
        return json_response(self._description)


def _limit(request: Request) -> int:
    given = request.query_params.get("limit", "1000")
    if not (given.isascii() and given.isdecimal() and len(given) <= 5 and 1 <= int(given) <= 10_000):
        raise Refusal("bad_request", "limit must be a whole number in 1..10000")
    return int(given)


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, Refusal)
    return refuse(error)


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    response = refuse(Refusal(_STATUS_CODES.get(error.status_code, "bad_request")))
    for name, value in (error.headers or {}).items():
        response.headers[name] = value
    return response


async def _failed(request: Request, error: Exception) -> Response:
    if isinstance(error, BudgetExhausted):
        return refuse(Refusal("budget_exhausted", str(error)))
    if isinstance(error, ConfigError):
        return refuse(Refusal("not_found", "there is no query of this name"))
    if isinstance(error, ProducerRefused):
        return refuse(Refusal(error.code, str(error)))
    if isinstance(error, InvalidParameter):
        return refuse(Refusal("bad_request", str(error)))
    if isinstance(error, NotSupported):
        return refuse(Refusal("conflict", str(error)))
    return refuse(Refusal("unavailable"))


async def _internal(request: Request, error: Exception) -> Response:
    return refuse(Refusal("internal"))


class _Outermost:
    """Lets no error out: its traceback would be logged, and errors can quote what they stumbled over.

    Afterwards the head of the request is forgotten, which the connection would keep until its next request.
    """

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._app(scope, receive, send)
        except Exception as error:
            print(f"panstream: internal error ({type(error).__name__})", file=sys.stderr)
        finally:
            scope.get("headers", []).clear()
            scope.clear()
