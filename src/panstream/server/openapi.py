"""The HTTP interface as data: an OpenAPI 3.1 description, served as ``/openapi.json``."""

from __future__ import annotations

from typing import Any

from panstream import __version__
from panstream.engine.producers import ID_PATTERN, NAME_PATTERN, ROUND, WINDOW
from panstream.server.jobs import MAX_SEQUENCE
from panstream.server.refusals import CODES
from panstream.server.schemas import SCHEMAS

__all__ = ["describe"]


def describe() -> dict[str, Any]:
    """Return the description of the interface."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "panstream",
            "version": __version__,
            "description": "Private statistics over streams that survive a break-in. Answers are noisy; a release is drawn "
            "once and never again.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "paths": {
            "/v1/streams/{name}/events": {"post": _events()},
            "/v1/producers": {
                "get": _get("listProducers", "The producers open under this token.", "Producers", "ingest")
            },
            "/v1/producers/{name}": {"get": _producer(), "post": _open(), "delete": _close()},
            "/v1/queries": {"get": _get("listQueries", "What is asked, and what each question costs.", "Queries")},
            "/v1/queries/{name}/release": {"post": _release()},
            "/v1/releases": {"get": _releases()},
            "/v1/ledger": {"get": _get("getLedger", "What was spent, in total and by query.", "LedgerState")},
            "/v1/intrusions": {"get": _price(), "post": _announce()},
            "/healthz": {"get": _get("getHealth", "Whether the server takes events.", "Health", scope=None)},
            "/metrics": {"get": _metrics()},
            "/openapi.json": {"get": _description()},
        },
        "components": {
            "schemas": SCHEMAS,
            "responses": {code: {"description": text, "content": _json("Error")} for code, (_, text) in CODES.items()},
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "Scopes: ingest sends events, read sees what is published, admin releases and announces. "
                    "A server bound to loopback may run without tokens.",
                }
            },
        },
    }


def _json(schema: str) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": f"#/components/schemas/{schema}"}}}


def _operation(name: str, summary: str, scope: str | None, refusals: tuple[str, ...], **rest: Any) -> dict[str, Any]:
    """Return an operation with the refusals that every one has, and its own."""
    common = ("bad_request", "request_timeout", "too_large", "misdirected", "rate_limited", "header_too_large")
    guarded = () if scope is None else ("unauthorized", "forbidden")
    responses: dict[str, Any] = rest.pop("responses")
    for code in (*common, *guarded, *refusals, "internal", "unavailable"):
        status = str(CODES[code][0])
        if status in responses:
            responses[status] = {
                "description": f"{responses[status].get('description', '')} {CODES[code][1]}".strip(),
                "content": _json("Error"),
            }
        else:
            responses[status] = {"description": CODES[code][1], "content": _json("Error")}
    return {
        "operationId": name,
        "summary": summary,
        "security": [] if scope is None else [{"token": []}, {}],
        **({} if scope is None else {"x-scope": scope}),
        **rest,
        "responses": dict(sorted(responses.items())),
    }


def _get(name: str, summary: str, schema: str, scope: str | None = "read") -> dict[str, Any]:
    return _operation(name, summary, scope, (), responses={"200": {"description": "OK", "content": _json(schema)}})


def _name(what: str) -> dict[str, Any]:
    return {"name": "name", "in": "path", "required": True, "schema": {"type": "string"}, "description": what}


def _header(name: str, schema: dict[str, Any], text: str) -> dict[str, Any]:
    return {"name": name, "in": "header", "required": False, "schema": schema, "description": text}


def _events() -> dict[str, Any]:
    return _operation(
        "sendEvents",
        "Take in a batch of events: all of its good rows or nothing. 200 means durable, as the store is configured.",
        "ingest",
        ("bad_body", "not_found", "unknown_producer", "sequence_gap", "unsupported_media_type"),
        parameters=[
            _name("The stream's name."),
            _header(
                "Panstream-Producer",
                {"type": "string", "pattern": ID_PATTERN},
                "The id that opening the producer told. A batch of a producer counts once, however often it is sent. One "
                "producer must not have two requests under way at a time. Without it, a batch counts each time.",
            ),
            _header(
                "Panstream-Sequence",
                {"type": "integer", "minimum": 1, "maximum": MAX_SEQUENCE},
                "Grows from batch to batch of a producer, beginning above the `last` that opening it told: the next number, "
                f"or at most {WINDOW:,} above the last one that was counted. A batch with a number not above that was "
                "counted before, and `new` is false. Given together with the producer or not at all.",
            ),
            _header("Content-Encoding", {"enum": ["identity", "gzip", "zstd"]}, "How the body is compressed."),
        ],
        requestBody={
            "required": True,
            "content": {
                "application/x-ndjson": {"schema": {"type": "string", "description": "One JSON object a line."}},
                "text/csv": {"schema": {"type": "string", "description": "With a header line."}},
                "application/vnd.apache.arrow.stream": {
                    "schema": {
                        "type": "string",
                        "contentEncoding": "binary",
                        "description": "An IPC stream; buffers not compressed, use Content-Encoding.",
                    }
                },
            },
        },
        responses={"200": {"description": "Durable.", "content": _json("Applied")}},
    )


def _producer_name() -> dict[str, Any]:
    name = _name("Names the sending system, never a person: it is stored.")
    return {**name, "schema": {"type": "string", "pattern": NAME_PATTERN}}


def _producer() -> dict[str, Any]:
    return _operation(
        "getProducer",
        "How far a producer of this token came.",
        "ingest",
        ("not_found",),
        parameters=[_producer_name()],
        responses={"200": {"description": "OK", "content": _json("Producer")}},
    )


def _open() -> dict[str, Any]:
    return _operation(
        "openProducer",
        "Open a producer under this token, or take it over: batches under ids that earlier openings told are refused from now "
        f"on. One that sends nothing from the end of one round of {ROUND} days to the end of the next is closed.",
        "ingest",
        ("too_many_producers",),
        parameters=[_producer_name()],
        responses={"200": {"description": "Open, and durable.", "content": _json("Producer")}},
    )


def _close() -> dict[str, Any]:
    return _operation(
        "closeProducer",
        "Close a producer of this token: what is sent again of it is refused.",
        "ingest",
        ("not_found",),
        parameters=[_producer_name()],
        responses={"200": {"description": "Closed.", "content": _json("Producer")}},
    )


def _release() -> dict[str, Any]:
    return _operation(
        "releaseQuery",
        "Answer a query without schedule now, using up one of its releases.",
        "admin",
        ("not_found", "conflict", "budget_exhausted"),
        parameters=[_name("The query's name.")],
        responses={"200": {"description": "Published.", "content": _json("Releases")}},
    )


def _releases() -> dict[str, Any]:
    query = {"in": "query", "required": False}
    text = {"type": "string", "maxLength": 200}
    return _operation(
        "listReleases",
        "What was published: a page as JSON, or with Accept: text/event-stream the same and then everything new.",
        "read",
        ("not_found",),
        parameters=[
            {**query, "name": "query", "schema": text, "description": "Only this query's."},
            {
                **query,
                "name": "since",
                "schema": {"type": "string", "pattern": r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}Z$"},
                "description": "Only those published at this time (UTC) or later.",
            },
            {
                **query,
                "name": "limit",
                "schema": {"type": "integer", "minimum": 1, "maximum": 10_000, "default": 1_000},
                "description": "At most so many, the latest ones; of a stream, so many old ones at its start.",
            },
            _header(
                "Last-Event-ID",
                text,
                "For an event stream: the id of the last event seen. What was published in its second or later is sent "
                "again, so tell releases apart by series and number.",
            ),
        ],
        responses={
            "200": {
                "description": "Oldest first. An event stream has events `release` (data: a Release; id: its time), `ledger` "
                "(data: a LedgerState, after an intrusion was announced) and comments every 15 seconds.",
                "content": {
                    **_json("Releases"),
                    "text/event-stream": {"schema": {"type": "string"}},
                },
            }
        },
    )


def _price() -> dict[str, Any]:
    return _get("getIntrusions", "Intrusions announced so far, and what another announcement would do.", "Intrusions")


def _announce() -> dict[str, Any]:
    return _operation(
        "announceIntrusion",
        "Someone may have copied the state: refresh every state that can be. Without confirm, only tell the price.",
        "admin",
        ("unsupported_media_type",),
        requestBody={
            "required": True,
            "content": _json("Announcement"),
        },
        responses={"200": {"description": "Done, or the price.", "content": _json("Intrusions")}},
    )


def _metrics() -> dict[str, Any]:
    text = {"text/plain": {"schema": {"type": "string"}}}
    return _operation(
        "getMetrics",
        "Prometheus text: only quantities that the claims declare public.",
        "read",
        (),
        responses={"200": {"description": "OK", "content": text}},
    )


def _description() -> dict[str, Any]:
    return _operation(
        "getDescription",
        "This description.",
        None,
        (),
        responses={"200": {"description": "OK", "content": {"application/json": {"schema": {"type": "object"}}}}},
    )
