"""Error responses, all of the form ``{"error": {"code": ..., "message": ...}}``."""

from __future__ import annotations

import json

CODES = {
    "bad_request": (400, "The request cannot be understood, or could be understood in two ways."),
    "bad_body": (400, "The body does not hold rows of the declared columns, or is not compressed as it says."),
    "unauthorized": (401, "Missing or unknown bearer token."),
    "forbidden": (403, "The token has another scope, or the request comes from another site."),
    "not_found": (404, "Nothing has this name."),
    "method_not_allowed": (405, "This cannot be done here."),
    "request_timeout": (408, "The request came too slowly."),
    "conflict": (409, "The query answers by its schedule, not when asked."),
    "budget_exhausted": (409, "All releases that were paid for have been made."),
    "unknown_producer": (409, "The producer is not open under this token, or was reopened; nothing was counted."),
    "sequence_gap": (409, "An earlier batch of the producer is missing; this one was not counted. Send both again."),
    "missing_parts": (409, "A part that the commit names is not here; nothing was counted. Send all parts again."),
    "too_many_producers": (409, "Too many producers are open under this token: close some."),
    "too_large": (413, "The body, as sent or decompressed, or its number of rows is over the limit."),
    "unsupported_media_type": (415, "Content-Type or Content-Encoding is not supported."),
    "misdirected": (421, "Without tokens, the server answers only under a loopback name."),
    "rate_limited": (429, "The token's request rate or number of simultaneous requests is exceeded; see Retry-After."),
    "header_too_large": (431, "The request's header is over the limit."),
    "internal": (500, "Internal error. Everything acknowledged is stored."),
    "unavailable": (503, "The server is stopping, is full, or gave up its state; try again later."),
}
_PHRASES = {
    200: b"OK",
    400: b"Bad Request",
    408: b"Request Timeout",
    413: b"Content Too Large",
    500: b"Internal Server Error",
    503: b"Service Unavailable",
}  # of statuses on the fast path; HTTP allows an empty reason for the others
_COMMON = b"cache-control: no-store\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
_ENCODE = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode


class HttpError(Exception):
    """A request is answered with one of ``CODES``. The message never contains a value of a row."""

    def __init__(self, code: str, message: str = "", *, retry_after: int | None = None) -> None:
        self.code = code
        self.retry_after = retry_after
        self.status, default = CODES[code]
        self.message = message or default
        super().__init__(self.message)

    @classmethod
    def after(cls, error: Exception, what: str) -> HttpError:
        """Return the response for an unexpected error in processing a body; the error's own text may quote a row."""
        if isinstance(error, MemoryError):
            return cls("too_large", "the body needs more memory than there is; send it in smaller parts")
        return cls("internal", f"{what} ({type(error).__name__})")

    @property
    def headers(self) -> dict[str, str]:
        """Headers beside those of every JSON response."""
        headers = {} if self.retry_after is None else {"retry-after": str(self.retry_after)}
        return headers | ({"www-authenticate": 'Bearer realm="panstream"'} if self.code == "unauthorized" else {})

    @property
    def body(self) -> bytes:
        """The body of the response."""
        return to_json({"error": {"code": self.code, "message": self.message}})

    def to_http_response(self, *, last: bool = False) -> bytes:
        """Return head and body of the response; ``last`` announces that the connection is closed after it."""
        lines = "".join(f"{name}: {value}\r\n" for name, value in self.headers.items())
        return frame_json_response(self.status, self.body, lines.encode() + (b"connection: close\r\n" if last else b""))


def to_json(content: object) -> bytes:
    """Serialize to JSON without spaces; NaN and infinities raise ValueError."""
    return _ENCODE(content).encode()


def frame_json_response(status: int, body: bytes, lines: bytes = b"") -> bytes:
    """Return head and body of a JSON response, with further header ``lines``."""
    return b"HTTP/1.1 %d %s\r\n" % (status, _PHRASES.get(status, b"")) + lines + _COMMON % len(body) + body
