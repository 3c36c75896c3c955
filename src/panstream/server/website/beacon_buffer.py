"""Beacons of browsers: who may send them, whom they are from, and the basket in which they wait for their step.

A beacon is answered at once, with the same words whatever is in it. It waits in memory of our own until the clock ends
the step, goes with all others into one micro-batch, be that empty, and is overwritten with it. So nothing but noise
moves with the number of beacons: no counter, no commit, no size.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
from collections.abc import Callable, Mapping

from panstream.engine.config.website import Network, WebConfig
from panstream.server.auth import QuotaTracker
from panstream.server.errors import HttpError
from panstream.server.ingest.jobs import Job, read_head
from panstream.server.ingest.request_bodies import BEACONS, RequestBody

PATH = "/v1/beacon"
PIXEL = "/v1/beacon.gif"
SCRIPT = "/panstream.js"
LONGEST = 4_096  # bytes of a beacon's body
_RATE = 4 << 20  # bytes a second that the basket has room for
# Bytes of it
_LEAST = 1 << 20
_MOST = 16 << 20
# Bytes of a header that count
_AGENT = 512
_LANGUAGE = 35
_FORWARDED = 1_000
_MAPPED = "::ffff:"
_FULL = "too many beacons are waiting; try again"
_TAKEN = (
    b"HTTP/1.1 204 No Content\r\naccess-control-allow-origin: %b\r\nvary: origin\r\ncache-control: no-store\r\n\r\n"
)


class BeaconBuffer:
    """Takes beacons. ``submit`` has what has come applied; ``check`` refuses everything while the server stops."""

    def __init__(
        self,
        web: WebConfig,
        gate: QuotaTracker,
        submit: Callable[[Job], None],
        check: Callable[[], None],
        period: float,
    ) -> None:
        self._site = web.site
        self._gate = gate
        self._submit = submit
        self._check = check
        self._period = period
        self._answers = {origin: _TAKEN % origin.encode() for origin in web.origins}
        self._proxies = web.trusted_proxies
        self._first = f"POST {PATH} HTTP/1.1\r\n".encode()
        self._size = min(_MOST, max(_LEAST, round(_RATE * period)))  # the same however many come
        self._body: RequestBody | None = self._clear()
        self._timer: asyncio.TimerHandle | None = None

    # On the event loop.

    def start(self) -> None:
        """Hand over what has come whenever a step is over, whether or not anything came."""
        self._timer = asyncio.get_running_loop().call_later(self._period, self._tick)

    def stop(self) -> None:
        """Hand over what is left; nothing is taken any more."""
        if self._timer is not None:
            self._timer.cancel()
        self._submit_buffered()
        if self._body is not None:
            self._body.wipe()
            self._body = None

    def read(self, data: bytearray, start: int, stop: int, peer: str) -> tuple[bytes, int] | None:
        """Take the beacon that stands whole in ``data[start:stop]``; return the answer and where the request ends.

        None if it is not whole, unusual, or to be refused: then it goes the general way.
        """
        head = read_head(data, start, min(stop, start + self._gate.limits.head), self._first)
        if head is None:
            return None
        headers, begin = head
        end = begin + int(headers["content-length"])
        answer = self._answers.get(headers.get("origin", ""))
        if answer is None or end > stop or end - begin > LONGEST:
            return None
        with memoryview(data) as view:
            content = bytes(view[begin:end])
        try:
            self.take(headers, content, peer)
        except HttpError:
            return None
        return answer, end

    def is_declared(self, origin: str) -> bool:
        """Return whether the pages of an origin may send beacons."""
        return origin in self._answers

    def take(self, headers: Mapping[str, str], content: bytes, peer: str) -> None:
        """Put a beacon into the basket, unless its browser asks not to be counted; refuse if that is full."""
        self._check()
        if headers.get("dnt") == "1" or headers.get("sec-gpc") == "1":
            return
        agent = headers.get("user-agent", "")[:_AGENT]
        language = headers.get("accept-language", "").partition(",")[0].partition(";")[0][:_LANGUAGE]
        head = f"{self._site} {self._address(headers, peer)}\n{_line(agent)}\n{_line(language)}\n"
        line = b"%b%b\n" % (head.encode("utf-8", "replace"), content.replace(b"\n", b" "))
        body = self._body
        size = len(line) if self._body is None else self._body.size + len(line)
        if body is None or size > self._size:
            raise HttpError("unavailable", _FULL, retry_after=1)
        body.data[body.size : size] = line
        body.size = size

    def _address(self, headers: Mapping[str, str], peer: str) -> str:
        """Return the visitor's address: the connection's, or what proxies that are trusted say it is."""
        address = peer.removeprefix(_MAPPED)
        if not self._proxies or not _is_in(address, self._proxies):
            return address
        for candidate in reversed(headers.get("x-forwarded-for", "")[-_FORWARDED:].split(",")):
            text = candidate.strip().removeprefix(_MAPPED)
            try:
                ipaddress.ip_address(text)
            except ValueError:
                break  # what stands before it is not to be believed either
            address = text
            if not _is_in(address, self._proxies):
                break
        return address

    def _tick(self) -> None:
        self.start()
        self._submit_buffered()

    def _submit_buffered(self) -> None:
        body = self._body
        self._body = None
        if body is not None:
            self._submit(Job(body))
        with contextlib.suppress(HttpError):  # no memory for the next one: it is tried again after this step
            self._body = self._clear()

    def _clear(self) -> RequestBody:
        body = RequestBody(self._gate, BEACONS, "identity", token=BEACONS)
        body.make_room(self._size)
        return body


def _line(text: str) -> str:
    return text.replace("\n", " ").replace("\r", " ")


def _is_in(address: str, networks: tuple[Network, ...]) -> bool:
    with contextlib.suppress(ValueError):
        parsed = ipaddress.ip_address(address)
        return any(parsed in network for network in networks)
    return False
