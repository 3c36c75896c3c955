"""One shape for everything that is refused."""

from __future__ import annotations

import json

from starlette.responses import Response

from panstream.server.openapi import CODES

__all__ = ["Refusal", "json_response", "refuse"]


class Refusal(Exception):
    """A request that is answered with an error. ``code`` is one of ``CODES``; the message never holds a value of a row."""

    def __init__(self, code: str, message: str = "", *, row: int | None = None, retry_after: int | None = None) -> None:
        self.code, self.row, self.retry_after = code, row, retry_after
        self.status, default = CODES[code]
        self.message = message or default
        super().__init__(self.message)


def json_response(content: object, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Return JSON that no cache keeps."""
    data = json.dumps(content, allow_nan=False, separators=(",", ":")).encode()
    return Response(data, status, {"cache-control": "no-store", **(headers or {})}, "application/json")


def refuse(refusal: Refusal) -> Response:
    """Return the response that tells of a refusal."""
    error: dict[str, object] = {"code": refusal.code, "message": refusal.message}
    if refusal.row is not None:
        error["row"] = refusal.row
    headers: dict[str, str] = {}
    if refusal.retry_after is not None:
        headers["retry-after"] = str(refusal.retry_after)
    if refusal.code == "unauthorized":
        headers["www-authenticate"] = 'Bearer realm="panstream"'
    return json_response({"error": error}, refusal.status, headers)
