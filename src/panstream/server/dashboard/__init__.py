"""The dashboard: static files with a content security policy that allows nothing else.

They contain no data: the page requests it from the HTTP interface, with the reader's own token.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

__all__ = ["HEADERS", "asset", "routes"]

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "font-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cache-Control": "no-cache",
}

_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
    ".woff2": "font/woff2",
}


def _assets() -> dict[str, tuple[str, bytes]]:
    """Return type and content of every static file, by the path under which it is served."""
    static = Path(__file__).with_name("static")
    assets = {
        f"/dashboard/{file.relative_to(static).as_posix()}": (_TYPES[file.suffix], file.read_bytes())
        for file in static.rglob("*")
        if file.is_file()
    }
    assets["/"] = assets.pop("/dashboard/index.html")
    return assets


def routes() -> list[Route]:
    """Return one route per file, so that a request cannot name any other path."""
    return [asset(path, kind, body, HEADERS) for path, (kind, body) in _assets().items()]


def asset(path: str, kind: str, body: bytes, headers: Mapping[str, str]) -> Route:
    """Return the route of a file in memory, with an ETag by which browsers revalidate it."""
    response_headers = {**headers, "Content-Type": kind, "ETag": f'"{sha256(body).hexdigest()[:16]}"'}

    async def get(request: Request) -> Response:
        is_cached = response_headers["ETag"] in request.headers.get("if-none-match", "")
        return Response(b"" if is_cached else body, 304 if is_cached else 200, response_headers)

    return Route(path, get, methods=["GET"])
