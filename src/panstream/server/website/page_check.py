"""Check a page of a site: its tag, what may keep a browser from using it, and what the server answers it.

The test beacon carries the headers of a browser that asks not to be counted, so the server answers it like any other
and counts nothing.
"""

from __future__ import annotations

import http.client
import re
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from html.parser import HTMLParser
from typing import Literal
from urllib.parse import SplitResult, urljoin, urlsplit

from panstream.server.website.beacon_buffer import PATH, SCRIPT

State = Literal["ok", "note", "fault"]
_TIMEOUT = 20.0
_MAX_PAGE = 8 << 20  # bytes
_NOT_COUNTED = {"DNT": "1", "Sec-GPC": "1"}
_STRANGER = "https://panstream-check.invalid"
_TEST = b'{"url":"/","referrer":"","event":"view"}'
_LOCAL = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, slots=True)
class PageFinding:
    """One line of the report."""

    state: State
    text: str


@dataclass(frozen=True, slots=True)
class _HttpAnswer:
    status: int
    headers: Mapping[str, str]  # names in lower case
    body: str
    url: str


class _Tags(HTMLParser):
    """The tags of a page that matter here."""

    def __init__(self) -> None:
        super().__init__()
        self.scripts: list[dict[str, str]] = []
        self.policies: list[str] = []
        self.referrer = ""
        self.base = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        if tag == "script" and urlsplit(values.get("src", "")).path.endswith(SCRIPT):
            self.scripts.append(values)
        elif tag == "base" and not self.base:
            self.base = values.get("href", "")
        elif tag == "meta" and values.get("http-equiv", "").lower() == "content-security-policy":
            self.policies.append(values.get("content", ""))
        elif tag == "meta" and values.get("name", "").lower() == "referrer":
            self.referrer = values.get("content", "")


def check_page(url: str) -> list[PageFinding]:
    """Fetch a page and check it.

    Args:
        url: The page's address, with http:// or https://.
    """
    try:
        answer = _request("GET", url)
    except OSError as error:
        return [PageFinding("fault", f"the page cannot be fetched: {_reason(error)}")]
    if answer.status != 200:
        return [PageFinding("fault", f"the page answers with status {answer.status}")]
    return [PageFinding("ok", f"page: {answer.url}"), *check_html(answer.body, answer.url, answer.headers)]


def check_html(text: str, url: str, headers: Mapping[str, str] | None = None) -> list[PageFinding]:
    """Check the text of a page.

    Args:
        text: The page.
        url: Where it is, or will be, served.
        headers: The headers that it is served with, names in lower case.
    """
    return list(_findings(text, url, headers or {}))


def _findings(text: str, url: str, headers: Mapping[str, str]) -> Iterator[PageFinding]:
    tags = _Tags()
    tags.feed(text)
    if not tags.scripts:
        wanted = f'<script defer src="https://YOUR-SERVER{SCRIPT}"></script>'
        yield PageFinding("fault", f"no tag: the page has no script whose address ends with {SCRIPT}; add {wanted}")
        return
    tag = tags.scripts[0]
    script = urljoin(urljoin(url, tags.base), tag["src"])
    yield PageFinding("ok", f"tag: {script}")
    if len(tags.scripts) > 1:
        yield PageFinding("fault", f"the page has the tag {len(tags.scripts)} times, and each counts: keep one")
    yield from _hindrances(tags, tag, script, url, headers)
    yield from _server(script, _origin(url))


def _hindrances(
    tags: _Tags, tag: Mapping[str, str], script: str, url: str, headers: Mapping[str, str]
) -> Iterator[PageFinding]:
    """Yield what would keep a browser from running the script or from sending."""
    if tag.get("type", "").lower() == "module":
        yield PageFinding(
            "fault", 'type="module": a module does not know its own address, so the script would not run; remove it'
        )
    if "defer" not in tag and "async" not in tag:
        yield PageFinding("note", "without defer, the page waits for the script")
    if tag.get("data-counter") == "off":
        yield PageFinding("note", 'data-counter="off": browsers number no page views before panstream.counter(true)')
    if url.startswith("https:") and script.startswith("http:") and urlsplit(script).hostname not in _LOCAL:
        yield PageFinding("fault", "the page is https and the script http: browsers do not load it")
    policies = [*tags.policies, headers.get("content-security-policy", "")]
    for wanted, directive in ((script, "script-src"), (urljoin(script, "v1/beacon"), "connect-src")):
        for policy in policies:
            if not _allows(policy, directive, wanted, url):
                yield PageFinding("fault", f"Content-Security-Policy: {directive} must allow {_origin(script)}")
    referrer = tags.referrer or headers.get("referrer-policy", "").split(",")[-1].strip()
    if "no-referrer" in (referrer.lower(), tag.get("referrerpolicy", "").lower()):
        yield PageFinding(
            "fault", "Referrer-Policy: no-referrer hides the page's origin, so beacons are refused; use same-origin"
        )


def _server(script: str, origin: str) -> Iterator[PageFinding]:
    """Yield what the server of the script answers to a page of this origin."""
    beacon = urljoin(script, PATH.removeprefix("/"))
    try:
        answer = _request("GET", script)
        if answer.status != 200:
            yield PageFinding("fault", f"the script answers with status {answer.status}")
            return
        if "javascript" not in answer.headers.get("content-type", "") or "v1/beacon" not in answer.body:
            yield PageFinding("fault", "what is served as the script is not panstream's: does the proxy pass it on?")
            return
        yield PageFinding("ok", "script: served")
        preflight = {"Origin": origin, "Access-Control-Request-Method": "POST"}
        answer = _request("OPTIONS", beacon, headers=preflight)
        allowed = answer.headers.get("access-control-allow-origin", "")
        if answer.status == 403:
            yield PageFinding(
                "fault", f"origin {origin} is not declared: add it to [web] origins, and start the server again"
            )
            return
        if answer.status >= 300 or allowed not in (origin, "*"):
            yield PageFinding(
                "fault",
                f"CORS: the server answers {answer.status} and allows {allowed or 'no origin'}, not {origin}; the "
                "proxy must pass OPTIONS and the Origin header on",
            )
            return
        yield PageFinding("ok", f"origin {origin}: allowed")
        headers = {"Origin": origin, "Content-Type": "text/plain;charset=UTF-8", **_NOT_COUNTED}
        answer = _request("POST", beacon, body=_TEST, headers=headers)
        if answer.status != 204:
            yield PageFinding("fault", f"a beacon answers with status {answer.status}; 204 was expected")
            return
        yield PageFinding("ok", "test beacon: accepted, and not counted, because it asks not to be (Sec-GPC, DNT)")
        answer = _request("POST", beacon, body=_TEST, headers={**headers, "Origin": _STRANGER})
        if answer.status != 403:
            yield PageFinding(
                "fault", f"a page of another origin gets {answer.status}, not 403: does a proxy change Origin?"
            )
        answer = _request("GET", urljoin(script, "privacy"))
        if answer.status == 200:
            yield PageFinding("ok", f"page for visitors: {answer.url}")
        else:
            yield PageFinding(
                "note", f"/privacy answers with status {answer.status}: let the proxy pass it on, and link to it"
            )
    except OSError as error:
        yield PageFinding("fault", f"the server of the script cannot be reached: {_reason(error)}")


def _request(method: str, url: str, body: bytes | None = None, headers: Mapping[str, str] | None = None) -> _HttpAnswer:
    request = urllib.request.Request(
        url, body, {"User-Agent": "panstream web --check", **(headers or {})}, method=method
    )
    try:
        answer = urllib.request.urlopen(request, timeout=_TIMEOUT)
    except urllib.error.HTTPError as error:
        answer = error
    except http.client.HTTPException as error:
        raise OSError(f"it answers nothing that is HTTP ({type(error).__name__})") from None
    with answer:
        text = answer.read(_MAX_PAGE).decode("utf-8", "replace")
        return _HttpAnswer(
            answer.status, {name.lower(): value for name, value in answer.headers.items()}, text, answer.url or url
        )


def _reason(error: OSError) -> str:
    return str(error.reason if isinstance(error, urllib.error.URLError) else error) or type(error).__name__


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}".lower()


def _allows(policy: str, directive: str, url: str, page: str) -> bool:
    """Return whether a Content-Security-Policy allows a script or a connection; True if it is not known."""
    directives: dict[str, list[str]] = {}
    for part in policy.split(";"):
        name, *named_sources = part.split() or [""]
        directives.setdefault(name.lower(), named_sources)
    sources = directives.get(directive, directives.get("default-src"))
    if sources is None or any(source.startswith(("'nonce-", "'sha", "'strict-dynamic'")) for source in sources):
        return True
    return any(_matches(source.lower(), urlsplit(url.lower()), page) for source in sources)


def _matches(source: str, url: SplitResult, page: str) -> bool:
    if source == "'self'":
        return _origin(url.geturl()) == _origin(page)
    if source == "*" or source == f"{url.scheme}:":
        return True
    match = re.fullmatch(r"(?:([a-z]+)://)?(\*|(?:\*\.)?[^/:*]+)(?::(\d+|\*))?(/.*)?", source)
    if match is None:
        return False
    scheme, host, port, path = match.groups()
    hostname = url.hostname or ""
    named = host in ("*", hostname) or (host.startswith("*.") and hostname.endswith(host[1:]))
    usual = 443 if url.scheme == "https" else 80
    return (
        named
        and scheme in (None, url.scheme, "http" if url.scheme == "https" else url.scheme)
        and (port == "*" or int(port or usual) == (url.port or usual))
        and (not path or url.path == path or (path.endswith("/") and url.path.startswith(path)))
    )
