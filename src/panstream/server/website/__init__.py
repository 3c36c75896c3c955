"""Routes for websites: the beacon script, the endpoint of beacons, a tracking pixel, and the visitors' privacy page."""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Sequence
from hashlib import sha256
from importlib.resources import files

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from panstream import __version__
from panstream.engine.config.website import WebConfig
from panstream.engine.planner.query_plan import QueryPlan
from panstream.engine.reporting.privacy_statement import but_for
from panstream.engine.reporting.statement_page import PAGE, html_list, html_table
from panstream.primitives.durations import format_duration
from panstream.primitives.escaping import html_text
from panstream.privacy.claim import Claim, Intrusions
from panstream.privacy.rounding import rounded_up
from panstream.server.dashboard import HEADERS, asset
from panstream.server.errors import HttpError
from panstream.server.ingest.request_bodies import receive_small
from panstream.server.website.beacon_buffer import MAX_BEACON, PATH, PIXEL, SCRIPT, BeaconBuffer

_GIF = bytes.fromhex("47494638396101000100800000000000ffffff21f90401000000002c00000000010001000002024401003b")
_PAGE = re.compile(r"(https?://[^/?#]*)([^?#]*)")
_DAY = "public, max-age=86400"
_NO_ORIGIN = "beacons are taken from the pages of declared sites only: [web] origins"

_SENT = {
    "beacon": "When a page opens, a small script tells this site’s counter the address of the page, the page that "
    "you came from, your browser’s language and name, and how long the page took to load; later, that an error "
    "happened in a script (not its text), and events that the site names, such as a sign-up. As with every request, "
    "the counter sees the network address that it comes from. No cookie is set, and nothing is stored in your browser.",
    "log": "The web server writes a line for every request: your network address, the page, the page that you came "
    "from and your browser’s name. The counter reads these lines. The log itself is the web server’s, and is not "
    "covered by what this page says. No cookie is set for counting, and nothing is stored in your browser.",
}
_OUT = (
    "Turn on “Do Not Track” or “Global Privacy Control” in your browser: the script then sends nothing. Blocking the "
    "script works as well."
)
_STORED = (
    "What is stored are numbers that carry random noise from the start; what is published has noise added as well."
)
_STORED_AS_SHARES = (
    "What is stored is split between two machines, so that either part by itself is random; what is published has "
    "noise added."
)


def routes(beacons: BeaconBuffer, seconds: float) -> list[Route]:
    """Return the routes that a website's pages use; a body has to be received within ``seconds``."""
    script = (files(__name__) / "panstream.js").read_bytes()
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


def privacy_page(web: WebConfig, plans: Sequence[QueryPlan], step: float) -> Route:
    """Return the route of ``/privacy``, without authentication; its policy allows nothing but its own style."""
    text = _page(web, plans, step)
    style = re.search("<style>(.*?)</style>", text, re.DOTALL)
    assert style is not None
    digest = base64.b64encode(sha256(style[1].encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; frame-ancestors 'none'"

    async def get_page(request: Request) -> Response:
        return Response(text, 200, {**HEADERS, "Content-Security-Policy": policy}, "text/html; charset=utf-8")

    return Route("/privacy", get_page, methods=["GET"])


def _peer(request: Request) -> str:
    return "" if request.client is None else request.client.host


def _page(web: WebConfig, plans: Sequence[QueryPlan], step: float) -> str:
    """Return the HTML of ``/privacy``: what the claims mean for visitors of the site."""
    worst = max(plan.claim.epsilon for plan in plans)
    copies = plans[0].claim.intrusions  # one machine, or two, holds the states of all questions
    shared = copies.machines > 1
    short = [
        "Visits are counted, visitors are not recognised. There is no cookie, no profile and no list of addresses.",
        "Your network address and your browser’s name are made into a number while a request is on its way. It is "
        f"overwritten once it is counted, within about {format_duration(step)}, and never written to disk.",
        _STORED_AS_SHARES if shared else _STORED,
        f"Someone who {_copied(plans, step)}, and reads everything it ever publishes, can improve her odds of a right "
        f"guess about one row of the table below by a factor of at most {_factor(worst)} each"
        f"{but_for(max(plan.loss_exceeds() for plan in plans))}. That is proven, whatever she already knows"
        f"{', as long as the encryption holds' if shared else ''}.",
    ]
    head = ("counted", "how often", "what is protected", "odds change at most by")
    rows = [(plan.config.name, _often(plan), _protected(plan.claim), _factor(plan.claim.epsilon)) for plan in plans]
    limits = [
        "The limits are for what the table names. If you come on several days or open several pages, factors are "
        "multiplied: two page views can change the odds by the square of the factor for one.",
        "A visitor is an address with a browser, not a person. Someone with two devices is two visitors.",
        f"A request that has just arrived is readable in memory until it is counted. {_not_covered(copies)}",
        "Your internet provider, and any proxy or web server in front of the counter, may keep logs of their own.",
        "What is true of many visitors is published: that is what counting is for.",
    ]
    deltas = [plan for plan in plans if plan.claim.delta]
    if deltas:
        names = ", ".join(plan.config.name for plan in deltas)
        max_delta = max(plan.loss_exceeds() for plan in deltas)
        limits.insert(
            1,
            f"In lists found by name ({names}), the odds stay within the factor with a probability of 1 - "
            f"{rounded_up(max_delta)} for each, not always; and only if the moment of the copy does not depend on "
            "earlier answers.",
        )
    sections = [
        ("In short", html_list(short)),
        ("What your browser sends", f"<p>{_SENT[web.source]}</p>"),
        ("What is counted", html_table(head, rows)),
        ("What is not protected", html_list(limits)),
    ]
    if web.source == "beacon":
        sections.append(("If you would rather not be counted", f"<p>{_OUT}</p>"))
    body = "".join(f"<section><h2>{title}</h2>{part}</section>" for title, part in sections)
    text = (
        f"Made by panstream {__version__} from what this counter is configured to do. It says what the program "
        "promises, and is not legal advice."
    )
    return PAGE.format(stream=html_text(web.site), made=html_text(text), body=body)


def _copied(plans: Sequence[QueryPlan], step: float) -> str:
    if plans[0].claim.intrusions.machines > 1:
        epoch = f"one step (usually about {format_duration(step)})"
        return f"copies one of the two machines at a time, as often as she likes but never both within {epoch}"
    locations = "memory and disk" if all("disk" in plan.claim.locations for plan in plans) else "memory"
    return f"copies the {locations} of the counter once"


def _not_covered(copies: Intrusions) -> str:
    if copies.machines == 1:
        return "A second copy of the memory that nobody noticed is not covered."
    if copies.together:
        return "Copies of both machines within one step are covered once; a second time is not."
    return "Copies of both machines within one step are not covered: together they show the exact counts."


def _often(plan: QueryPlan) -> str:
    query = plan.config
    seconds = query.window if query.every is None else query.every
    return "when asked" if seconds is None else f"every {format_duration(seconds).removeprefix('1 ')}"


def _protected(claim: Claim) -> str:
    if claim.unit == "event":
        return "one event, such as a page view"
    return "one visitor" if claim.window is None else f"one visitor within a period of {format_duration(claim.window)}"


def _factor(epsilon: float) -> str:
    """Return e to the power of epsilon with three digits, rounded up."""
    if not math.isfinite(epsilon) or epsilon > 20:
        return "any size"
    return rounded_up(math.exp(epsilon))
