"""Routes for websites: the beacon script, the endpoint of beacons, and a tracking pixel."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from panstream.server.dashboard import asset
from panstream.server.errors import HttpError
from panstream.server.ingest.request_bodies import receive_small
from panstream.server.website.beacon_buffer import MAX_BEACON, PATH, PIXEL, SCRIPT, BeaconBuffer
from panstream.server.website.script import website_script

_GIF = bytes.fromhex("47494638396101000100800000000000ffffff21f90401000000002c00000000010001000002024401003b")
_PAGE = re.compile(r"(https?://[^/?#]*)([^?#]*)")
_DAY = "public, max-age=86400"
_NO_ORIGIN = "beacons are taken from the pages of declared sites only: [web] origins"


def routes(beacons: BeaconBuffer, seconds: float, caps: Mapping[tuple[str, int], int]) -> list[Route]:
    """Return the routes that a website's pages use.

    Args:
        beacons: Where beacons go.
        seconds: The time in which a body has to be received.
        caps: The most rows that a browser numbers, by kind and seconds of a window.
    """
    script = website_script(caps)
    headers = {
        "Cache-Control": _DAY,
        "Cross-Origin-Resource-Policy": "cross-origin",
        "X-Content-Type-Options": "nosniff",
    }

    async def beacon(request: Request) -> Response:
        """Receive a beacon that is not on the fast path, or answer a CORS preflight request."""
        origin = request.headers.get("origin", "")
        if not beacons.is_declared(origin):
            raise HttpError("forbidden", _NO_ORIGIN)
        allowed = {"Access-Control-Allow-Origin": origin, "Vary": "Origin", "Cache-Control": "no-store"}
        if request.method == "OPTIONS":
            allowed |= {"Access-Control-Allow-Methods": "POST", "Access-Control-Allow-Headers": "Content-Type"}
            return Response(None, 204, {**allowed, "Access-Control-Max-Age": "86400"})
        beacons.take(request.headers, await receive_small(request, MAX_BEACON, seconds, "a beacon"), _peer(request))
        return Response(None, 204, allowed)

    async def pixel(request: Request) -> Response:
        """Count a page view without a script, of the page named in the query or else in the Referer header."""
        page = _PAGE.match(request.headers.get("referer", ""))  # not urlsplit, which caches its arguments
        if page is None or not beacons.is_declared(page[1].lower()):
            raise HttpError("forbidden", _NO_ORIGIN)
        parameters = request.query_params
        seen = {"url": parameters.get("u") or page[2] or "/", "referrer": parameters.get("r", ""), "event": "view"}
        beacons.take(request.headers, json.dumps(seen).encode()[:MAX_BEACON], _peer(request))
        return Response(_GIF, 200, {"Cache-Control": "no-store"}, "image/gif")

    return [
        asset(SCRIPT, "text/javascript; charset=utf-8", script, headers),
        Route(PATH, beacon, methods=["POST", "OPTIONS"]),
        Route(PIXEL, pixel, methods=["GET"]),
    ]


def _peer(request: Request) -> str:
    return "" if request.client is None else request.client.host
