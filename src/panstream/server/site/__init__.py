"""What the pages of a site ask for: the script that sends beacons, a picture for pages without it, where they go."""

from __future__ import annotations

import asyncio
import json
import re
from hashlib import sha256
from importlib.resources import files

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from panstream.server.beacons import LONGEST, PATH, PIXEL, SCRIPT, Beacons
from panstream.server.refusals import Refusal

_GIF = bytes.fromhex("47494638396101000100800000000000ffffff21f90401000000002c00000000010001000002024401003b")
_PAGE = re.compile(r"(https?://[^/?#]*)([^?#]*)")
_DAY = "public, max-age=86400"
_NO_ORIGIN = "beacons are taken from the pages of declared sites only: [web] origins"


def routes(beacons: Beacons, seconds: float) -> list[Route]:
    """Return the routes of a site; a body may take so many seconds."""
    script = (files(__name__) / "panstream.js").read_bytes()
    headers = {
        "Cache-Control": _DAY,
        "Cross-Origin-Resource-Policy": "cross-origin",
        "X-Content-Type-Options": "nosniff",
        "ETag": f'"{sha256(script).hexdigest()[:16]}"',
    }

    async def get_script(request: Request) -> Response:
        known = headers["ETag"] in request.headers.get("if-none-match", "")
        return Response(b"" if known else script, 304 if known else 200, headers, "text/javascript; charset=utf-8")

    async def beacon(request: Request) -> Response:
        """Take a beacon that came in pieces, or say whether one may be sent."""
        origin = request.headers.get("origin", "")
        if not beacons.is_declared(origin):
            raise Refusal("forbidden", _NO_ORIGIN)
        allowed = {"Access-Control-Allow-Origin": origin, "Vary": "Origin", "Cache-Control": "no-store"}
        if request.method == "OPTIONS":
            allowed |= {"Access-Control-Allow-Methods": "POST", "Access-Control-Allow-Headers": "Content-Type"}
            return Response(None, 204, {**allowed, "Access-Control-Max-Age": "86400"})
        beacons.take(request.headers, await _content(request, seconds), _peer(request))
        return Response(None, 204, allowed)

    async def pixel(request: Request) -> Response:
        """Take a page view without a script: the page is named in the query, or is the one that shows the picture."""
        page = _PAGE.match(request.headers.get("referer", ""))  # urlsplit would remember it
        if page is None or not beacons.is_declared(page[1].lower()):
            raise Refusal("forbidden", _NO_ORIGIN)
        given = request.query_params
        seen = {"url": given.get("u") or page[2] or "/", "referrer": given.get("r", ""), "event": "view"}
        beacons.take(request.headers, json.dumps(seen).encode()[:LONGEST], _peer(request))
        return Response(_GIF, 200, {"Cache-Control": "no-store"}, "image/gif")

    return [
        Route(SCRIPT, get_script, methods=["GET"]),
        Route(PATH, beacon, methods=["POST", "OPTIONS"]),
        Route(PIXEL, pixel, methods=["GET"]),
    ]


def _peer(request: Request) -> str:
    return "" if request.client is None else request.client.host


async def _content(request: Request, seconds: float) -> bytes:
    """Return a small body that comes in time."""
    data, slow = b"", False
    try:
        async with asyncio.timeout(seconds):
            async for chunk in request.stream():
                data += chunk
                if len(data) > LONGEST:
                    raise Refusal("too_large", f"a beacon may have {LONGEST:,} bytes")
    except TimeoutError:
        slow = True
    if slow:
        raise Refusal("request_timeout")
    return data
