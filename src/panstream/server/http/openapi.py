"""The OpenAPI 3.1 description of the HTTP interface, served as ``/openapi.json``."""

from __future__ import annotations

from typing import Any

from panstream import __version__
from panstream.engine.runtime.producers import ID_PATTERN, NAME_PATTERN, ROUND
from panstream.server.auth import Limits
from panstream.server.errors import CODES
from panstream.server.http.json_schemas import SCHEMAS
from panstream.server.ingest.jobs import MAX_SEQUENCE
from panstream.server.ingest.staging import MAX_PARTS

_PARTS: dict[str, Any] = {
    "type": "object",
    "description": "The parts of a batch that are committed.",
    "properties": {
        "parts": {
            "description": "How many parts there are, 1 to n; or the numbers of those that count.",
            "anyOf": [
                {"type": "integer", "minimum": 0, "maximum": MAX_PARTS},
                {"type": "array", "items": {"type": "integer", "minimum": 1}, "maxItems": MAX_PARTS},
            ],
        }
    },
    "required": ["parts"],
    "additionalProperties": False,
}


def describe() -> dict[str, Any]:
    """Return the OpenAPI document as JSON values."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "panstream",
            "version": __version__,
            "description": "Private statistics over streams that survive a break-in. Answers are noisy; a release is "
            "drawn once and never again.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "paths": _paths(),
        "components": {
            "schemas": SCHEMAS,
            "responses": {code: {"description": text, "content": _json("Error")} for code, (_, text) in CODES.items()},
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "Scopes: ingest sends events, read sees what is published, admin releases and "
                    "announces. A server bound to loopback may run without tokens.",
                }
            },
        },
    }


def _json(schema: str) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": f"#/components/schemas/{schema}"}}}


def _operation(
    name: str,
    summary: str,
    schema: str | dict[str, Any],
    scope: str | None = "read",
    refusals: tuple[str, ...] = (),
    *,
    text: str = "OK",
    **rest: Any,
) -> dict[str, Any]:
    """Return an operation with its own error responses and those that every operation has."""
    content = _json(schema) if isinstance(schema, str) else schema
    responses: dict[str, Any] = {"200": {"description": text, "content": content}}
    common = ("bad_request", "request_timeout", "too_large", "misdirected", "rate_limited", "header_too_large")
    guarded = () if scope is None else ("unauthorized", "forbidden")
    for code in (*common, *guarded, *refusals, "internal", "unavailable"):
        status = str(CODES[code][0])
        description = CODES[code][1]
        if status in responses:
            description = f"{responses[status]['description']} {description}"
        responses[status] = {"description": description, "content": _json("Error")}
    return {
        "operationId": name,
        "summary": summary,
        "security": [] if scope is None else [{"token": []}, {}],
        **({} if scope is None else {"x-scope": scope}),
        **rest,
        "responses": dict(sorted(responses.items())),
    }


def _parameter(location: str, name: str, schema: dict[str, Any], text: str) -> dict[str, Any]:
    return {"name": name, "in": location, "required": location == "path", "schema": schema, "description": text}


def _paths() -> dict[str, Any]:
    word: dict[str, Any] = {"type": "string"}
    pattern = {**word, "pattern": NAME_PATTERN}
    producer = [_parameter("path", "name", pattern, "Names the sending system, never a person: it is stored.")]
    query = [_parameter("path", "name", word, "The query's name.")]
    plain = {"text/plain": {"schema": word}}
    anything = {"application/json": {"schema": {"type": "object"}}}
    announcement = {"required": True, "content": _json("Announcement")}
    return {
        "/v1/streams/{name}/events": {"post": _events()},
        "/v1/streams/{name}/commit": _commit(),
        "/v1/producers": {
            "get": _operation("listProducers", "The producers open under this token.", "Producers", "ingest")
        },
        "/v1/producers/{name}": {
            "get": _operation(
                "getProducer",
                "The last batch counted from a producer of this token.",
                "Producer",
                "ingest",
                ("not_found",),
                parameters=producer,
            ),
            "post": _operation(
                "openProducer",
                "Open a producer under this token, or take it over: batches under ids from earlier openings are "
                f"refused from now on. One that sends nothing from the end of one round of {ROUND} days to the end of "
                "the next is closed.",
                "Producer",
                "ingest",
                ("too_many_producers",),
                text="Open, and durable.",
                parameters=producer,
            ),
            "delete": _operation(
                "closeProducer",
                "Close a producer of this token; later batches under its id are refused.",
                "Producer",
                "ingest",
                ("not_found",),
                text="Closed.",
                parameters=producer,
            ),
        },
        "/v1/queries": {"get": _operation("listQueries", "The queries, and what each costs in privacy.", "Queries")},
        "/v1/queries/{name}/counts": {
            "get": _operation(
                "countNames",
                "How often names occurred, listed or not, from a published table. Any number of requests costs "
                "nothing.",
                "NameCounts",
                "read",
                ("not_found",),
                text="In the order of the names. Each interval holds for its name alone, with 95%.",
                parameters=[
                    *query,
                    _parameter("query", "name", word, "A name; may be given up to 100 times."),
                    _parameter("query", "number", {"type": "integer"}, "Number of the release; the latest by default."),
                ],
            )
        },
        "/v1/queries/{name}/release": {
            "post": _operation(
                "releaseQuery",
                "Answer a query without schedule now, using up one of its releases.",
                "Releases",
                "admin",
                ("not_found", "conflict", "budget_exhausted"),
                text="Published.",
                parameters=query,
            )
        },
        "/v1/releases": {"get": _releases()},
        "/v1/ledger": {"get": _operation("getLedger", "What was spent, in total and by query.", "LedgerState")},
        "/v1/intrusions": {
            "get": _operation(
                "getIntrusions", "Intrusions announced so far, and what another announcement would do.", "Intrusions"
            ),
            "post": _operation(
                "announceIntrusion",
                "Someone may have copied the state: refresh every state that can be, and say which are covered. Of "
                "states that are refreshed by freezing them, a copy is covered only if no row was applied since: in a "
                "live stream that takes just_now. Without confirm, only the price is returned.",
                "Intrusions",
                "admin",
                ("unsupported_media_type",),
                text="Done, or the price.",
                requestBody=announcement,
            ),
        },
        "/healthz": {"get": _operation("getHealth", "Whether the server takes events.", "Health", None)},
        "/metrics": {
            "get": _operation(
                "getMetrics",
                "Prometheus text: the latest answers, and only quantities that the claims declare public.",
                plain,
            )
        },
        "/openapi.json": {"get": _operation("getDescription", "This description.", anything, None)},
    }


def _events() -> dict[str, Any]:
    word: dict[str, Any] = {"type": "string"}
    stream = {
        "contentEncoding": "binary",
        "description": "An IPC stream; buffers not compressed, use Content-Encoding.",
    }
    return _operation(
        "sendEvents",
        "Take in a batch of events: all of its good rows or nothing. 200 means durable, as the store is configured.",
        "Applied",
        "ingest",
        ("bad_body", "not_found", "unknown_producer", "sequence_gap", "unsupported_media_type"),
        text="Durable.",
        parameters=[
            _parameter("path", "name", word, "The stream's name."),
            _parameter(
                "header",
                "Panstream-Producer",
                {**word, "pattern": ID_PATTERN},
                "The id returned when the producer was opened. A batch of a producer counts once, however often it is "
                "sent, and batches are applied in the order of their numbers, over whatever connections they come. "
                "Without it, a batch counts each time, in no particular order.",
            ),
            _parameter(
                "header",
                "Panstream-Sequence",
                {"type": "integer", "minimum": 1, "maximum": MAX_SEQUENCE},
                "The producer's batches are numbered 1, 2, 3, ...; the next one has the number after the `last` "
                "returned when it was opened. A batch with that number or a lower one was counted before, and `new` "
                "is false. A refused batch was not counted: send the next batch, or an empty body, under the same "
                "number. "
                "Up to `in_flight` batches may be sent without waiting for an answer. One that comes before an "
                f"earlier one waits for it, up to {Limits().order_time:g} seconds, and is then refused "
                "(`sequence_gap`); so is one whose number is too high. Send it again after the one that is missing. "
                "Given together with the producer or not at all.",
            ),
            _parameter(
                "header",
                "Panstream-Part",
                {**word, "pattern": r"^[0-9]{1,19}/([0-9]{1,5}|\*)$"},
                "k/n: this is part k of the n parts of a batch, or k/* if n is not known yet. The parts of the "
                "producer's next batch wait in memory, in clear, until they are committed, the producer is opened "
                f"anew, or none has come for {Limits().staged_time:g} seconds. In the answer, `rows` are those of the "
                "part, and `skipped` and `late` are empty. A part that is sent again replaces itself.",
            ),
            _parameter(
                "header", "Content-Encoding", {"enum": ["identity", "gzip", "zstd"]}, "How the body is compressed."
            ),
        ],
        requestBody={
            "required": True,
            "content": {
                "application/x-ndjson": {"schema": {**word, "description": "One JSON object per line."}},
                "text/csv": {"schema": {**word, "description": "With a header line."}},
                "application/vnd.apache.arrow.stream": {"schema": {**word, **stream}},
            },
        },
    )


def _commit() -> dict[str, Any]:
    batch = [
        _parameter("path", "name", {"type": "string"}, "The stream's name."),
        _parameter("header", "Panstream-Producer", {"type": "string", "pattern": ID_PATTERN}, "As for the parts."),
        _parameter(
            "header",
            "Panstream-Sequence",
            {"type": "integer", "minimum": 1, "maximum": MAX_SEQUENCE},
            "As for the parts.",
        ),
    ]
    return {
        "post": _operation(
            "commitParts",
            "Count the parts of a batch that were sent with Panstream-Part, as one batch: all of their good rows or "
            "nothing. A commit that is sent again has no effect, and says so. After any other error the parts may be "
            "gone: send them again.",
            "Applied",
            "ingest",
            ("bad_body", "not_found", "unknown_producer", "sequence_gap", "missing_parts", "unsupported_media_type"),
            text="Durable.",
            parameters=batch,
            requestBody={"required": True, "content": {"application/json": {"schema": _PARTS}}},
        ),
        "delete": _operation(
            "dropParts",
            "Wipe the parts of this producer that wait for a commit.",
            {"application/json": {"schema": {"type": "object"}}},
            "ingest",
            ("not_found",),
            text="Wiped, if there were any.",
            parameters=batch,
        ),
    }


def _releases() -> dict[str, Any]:
    word = {"type": "string"}
    text = {**word, "maxLength": 200}
    time = {"type": "string", "pattern": r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}Z$"}
    number = {"type": "integer", "minimum": 1, "maximum": 10_000, "default": 1_000}
    return _operation(
        "listReleases",
        "What was published: a page as JSON or CSV, or with Accept: text/event-stream it and then everything new.",
        {
            **_json("Releases"),
            "text/csv": {"schema": {"type": "string"}},
            "text/event-stream": {"schema": {"type": "string"}},
        },
        "read",
        ("not_found",),
        text="Oldest first. An event stream has events `release` (data: a Release; id: its time), `ledger` "
        "(data: a LedgerState, after an intrusion was announced) and comments every 15 seconds.",
        parameters=[
            _parameter("query", "query", text, "Only this query's."),
            _parameter("query", "since", time, "Only those published at this time (UTC) or later."),
            _parameter(
                "query",
                "limit",
                number,
                "At most this many, the latest ones; for an event stream, how many old ones it starts with.",
            ),
            _parameter("query", "format", {"enum": ["json", "csv"], "default": "json"}, "How a page is written."),
            _parameter(
                "header",
                "Last-Event-ID",
                text,
                "For an event stream: the id of the last event seen. What was published in its second or later is sent "
                "again, so tell releases apart by series and number.",
            ),
        ],
    )
