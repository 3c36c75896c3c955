"""The page ``/privacy`` of a site's counter: five sentences for visitors, and what is behind them."""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from hashlib import sha256

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from panstream import __version__
from panstream.engine.config.config import Config
from panstream.engine.config.website import WebConfig
from panstream.engine.planner.person_period import planned_person_total
from panstream.engine.planner.query_plan import QueryPlan
from panstream.engine.reporting.person_sentences import odds_factor, person_sentences, short_odds
from panstream.engine.reporting.statement_page import PAGE, html_list, html_table, paragraph
from panstream.engine.reporting.statement_words import but_for
from panstream.primitives.durations import format_duration
from panstream.primitives.escaping import html_text
from panstream.privacy.claim import Claim, Intrusions
from panstream.server.dashboard import HEADERS

_SENT = {
    "beacon": "When a page opens, a small script tells this site’s counter the address of the page, the page that "
    "you came from, your browser’s language and name, and how long the page took to load; later, that an error "
    "happened in a script (not its text), and events that the site names, such as a sign-up. Each message has a random "
    "number, drawn for it alone, so that one that is delivered twice counts once. As with every request, "
    "the counter sees the network address that it comes from.",
    "log": "The web server writes a line for every request: your network address, the page, the page that you came "
    "from and your browser’s name. The counter reads these lines. The log itself is the web server’s, and is not "
    "covered by what this page says.",
}
_NOTHING_STORED = " No cookie is set for counting, and nothing is stored in your browser."
_COUNTER = (
    " No cookie is set. The script stores how many things of a kind it has sent in the current hour, day, week or "
    "month, so that no more of them count than the limits below allow: a few numbers, overwritten when a period is "
    "over, with no identifier and no page. They stay in your browser, except that what is sent says which one of the "
    "period it is. Your browser’s tools show them under IndexedDB, “panstream”; deleting this site’s data deletes them."
)
_OUT = {
    "beacon": "Not to be counted, turn on “Do Not Track” or “Global Privacy Control” in your browser, and the script "
    "sends nothing, or block the script",
    "log": "The log is the web server’s, so a setting of your browser cannot keep you out of it",
}


def privacy_page(web: WebConfig, config: Config, plans: Sequence[QueryPlan], step: float) -> Route:
    """Return the route of ``/privacy``, without authentication; its policy allows nothing but its own style."""
    text = _page(web, config, plans, step)
    style = re.search("<style>(.*?)</style>", text, re.DOTALL)
    assert style is not None
    digest = base64.b64encode(sha256(style[1].encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; frame-ancestors 'none'"

    async def get_page(request: Request) -> Response:
        return Response(text, 200, {**HEADERS, "Content-Security-Policy": policy}, "text/html; charset=utf-8")

    return Route("/privacy", get_page, methods=["GET"])


def _page(web: WebConfig, config: Config, plans: Sequence[QueryPlan], step: float) -> str:
    """Return the HTML: what the claims mean for visitors of the site."""
    total = planned_person_total(config, plans)
    person = "; ".join(
        sentence.rstrip(".")
        for sentence in person_sentences(
            total, deeds="whatever your browser did here", person="one browser", copied=_copied(plans, step)
        )
    ).replace("; Bounded", "; bounded")
    span = format_duration(total.period)
    head = ("counted", "how often", f"your browser, any {span}", "what the question itself protects")
    rows = [
        (plan.config.name, _often(plan), short_odds(share), _protected(plan))
        for plan, share in zip(plans, total.shares, strict=True)
    ]
    copies = plans[0].claim.intrusions  # one machine, or two, holds the states of all questions
    limits = [
        "Periods add up: over a year, factors of single months are multiplied. So are those of two browsers or two "
        "addresses of yours, which count as two visitors.",
        f"A request that has just arrived is readable in memory until it is counted. {_not_covered(copies)}",
        "Your internet provider, and any proxy or web server in front of the counter, may keep logs of their own.",
        "What is true of many visitors is published: that is what counting is for.",
    ]
    sections = [
        ("In short", "".join(map(paragraph, [f"{person}.", *_rest(web, config, plans, step)]))),
        ("What your browser sends", f"<p>{_SENT[web.source]}{_COUNTER if web.counter else _NOTHING_STORED}</p>"),
        (
            "What is counted",
            paragraph("By how much the odds of a right guess can change at most:") + html_table(head, rows),
        ),
        ("What is not protected", html_list(limits)),
    ]
    body = "".join(f"<section><h2>{title}</h2>{part}</section>" for title, part in sections)
    text = (
        f"Made by panstream {__version__} from what this counter is configured to do. It says what the program "
        "promises, and is not legal advice."
    )
    return PAGE.format(stream=html_text(web.site), made=html_text(text), body=body)


def _rest(web: WebConfig, config: Config, plans: Sequence[QueryPlan], step: float) -> list[str]:
    """Return the sentences after those about the odds."""
    shared = plans[0].claim.intrusions.machines > 1
    noise = "is split between two machines, so that either part alone is random" if shared else "is random noise with "
    noise += "" if shared else "counts hidden in it"
    operator = config.statement
    by = f" by {operator.controller}" if operator.controller else ""
    use = f", for {operator.purpose.rstrip('.')}" if operator.purpose else ""
    reach = f"; questions and objections: {operator.contact.rstrip('.')}" if operator.contact else ""
    return [
        f"Visits are counted{by}{use}, without a cookie, a profile or a list of addresses: your network address and "
        "your browser’s name are made into a number, which is overwritten within about "
        f"{format_duration(step)} and never written to disk.",
        f"What is stored {noise}, and every published figure carries more noise, so that one page view more or less "
        "hardly shows in it, nor one visitor more or less in a number of visitors.",
        "You have to trust whoever runs the counter and the site with what your browser sends, until it is counted.",
        f"{_OUT[web.source]}{reach}.",
    ]


def _copied(plans: Sequence[QueryPlan], step: float) -> str:
    if plans[0].claim.intrusions.machines > 1:
        epoch = f"one step (usually about {format_duration(step)})"
        return f"one of the two machines at a time, as often as she likes but never both within {epoch},"
    locations = "memory and disk" if all("disk" in plan.claim.locations for plan in plans) else "memory"
    return f"the {locations} of the counter once"


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


def _protected(plan: QueryPlan) -> str:
    claim = plan.claim
    return f"{_unit(claim)}: {odds_factor(claim.epsilon)}{but_for(plan.loss_exceeds())}"


def _unit(claim: Claim) -> str:
    if claim.unit == "event":
        return "one event, such as a page view"
    return "one browser" if claim.window is None else f"one browser within a period of {format_duration(claim.window)}"
