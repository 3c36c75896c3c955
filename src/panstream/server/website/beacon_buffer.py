"""Beacons of browsers: allowed origins, client addresses behind proxies, and the buffer of a step.

A beacon is answered at once, and the response does not depend on its content. It is buffered until the step ends by
the clock; then all beacons are applied as one micro-batch, which may be empty, and wiped. So the number of beacons
changes no counter, no commit and no size: only noisy cells.
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
MAX_BEACON = 4_096  # bytes of a beacon's body
_RATE = 4 << 20  # bytes a second, for which the buffer has capacity
_MIN_CAPACITY = 1 << 20  # bytes
_MAX_CAPACITY = 16 << 20
_MAX_AGENT = 512  # characters of a header that are used
_MAX_LANGUAGE = 35
_MAX_FORWARDED = 1_000
_MAPPED = "::ffff:"  # prefix of an IPv4 address in IPv6
_FULL = "too many beacons are waiting; try again"
_ACCEPTED = (
    b"HTTP/1.1 204 No Content\r\naccess-control-allow-origin: %b\r\nvary: origin\r\ncache-control: no-store\r\n\r\n"
)


class BeaconBuffer:
    """Collects the beacons of a step.

    Args:
        web: The website's configuration.
        quotas: Where the buffer's memory is reserved.
        submit: Applies the beacons of a step.
        check: Raises HttpError while the server stops.
        period: Seconds of a step.
    """

    def __init__(
        self,
        web: WebConfig,
        quotas: QuotaTracker,
        submit: Callable[[Job], None],
        check: Callable[[], None],
        period: float,
    ) -> None:
        self._site = web.site
        self._quotas = quotas
        self._submit = submit
        self._check = check
        self._period = period
        self._answers = {origin: _ACCEPTED % origin.encode() for origin in web.origins}
        self._proxies = web.trusted_proxies
        self._first = f"POST {PATH} HTTP/1.1\r\n".encode()
        # Fixed, so that the memory in use does not depend on the number of beacons.
        self._capacity = min(_MAX_CAPACITY, max(_MIN_CAPACITY, round(_RATE * period)))
        self._body: RequestBody | None = self._new_body()
        self._timer: asyncio.TimerHandle | None = None

    # All methods are for the event loop.

    def start(self) -> None:
        """Submit the buffer at the end of every step, whether or not it has beacons."""
        self._timer = asyncio.get_running_loop().call_later(self._period, self._tick)

    def stop(self) -> None:
        """Submit the buffered beacons, and refuse further ones."""
        if self._timer is not None:
            self._timer.cancel()
        self._submit_buffered()
        if self._body is not None:
            self._body.wipe()
            self._body = None

    def read(self, data: bytearray, start: int, stop: int, peer: str) -> tuple[bytes, int] | None:
        """Process a complete beacon request in ``data[start:stop]``.

        Returns:
            The response, and where the request ends. None if it is incomplete, unusual or to be refused: then it takes
            the general path.
        """
        head = read_head(data, start, min(stop, start + self._quotas.limits.head), self._first)
        if head is None:
            return None
        headers, begin = head
        end = begin + int(headers["content-length"])
        answer = self._answers.get(headers.get("origin", ""))
        if answer is None or end > stop or end - begin > MAX_BEACON:
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
        """Buffer a beacon, unless its browser asks not to be counted.

        Raises:
            HttpError: If the buffer is full, or the server is stopping.
        """
        self._check()
        if headers.get("dnt") == "1" or headers.get("sec-gpc") == "1":
            return
        agent = headers.get("user-agent", "")[:_MAX_AGENT]
        language = headers.get("accept-language", "").partition(",")[0].partition(";")[0][:_MAX_LANGUAGE]
        head = f"{self._site} {self._address(headers, peer)}\n{_line(agent)}\n{_line(language)}\n"
        line = b"%b%b\n" % (head.encode("utf-8", "replace"), content.replace(b"\n", b" "))
        if self._body is None or self._body.size + len(line) > self._capacity:
            raise HttpError("unavailable", _FULL, retry_after=1)
        self._body.append(line)

    def _address(self, headers: Mapping[str, str], peer: str) -> str:
        """Return the visitor's address: the connection's, or what trusted proxies have forwarded."""
        address = peer.removeprefix(_MAPPED)
        if not self._proxies or not _is_in(address, self._proxies):
            return address
        for candidate in reversed(headers.get("x-forwarded-for", "")[-_MAX_FORWARDED:].split(",")):
            text = candidate.strip().removeprefix(_MAPPED)
            try:
                ipaddress.ip_address(text)
            except ValueError:
                break  # entries before an invalid one are not trusted either
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
        with contextlib.suppress(HttpError):  # no memory for the next step: tried again at its end
            self._body = self._new_body()

    def _new_body(self) -> RequestBody:
        body = RequestBody(self._quotas, BEACONS, "identity", token=BEACONS)
        body.ensure_capacity(self._capacity)
        return body


def _line(text: str) -> str:
    return text.replace("\n", " ").replace("\r", " ")


def _is_in(address: str, networks: tuple[Network, ...]) -> bool:
    with contextlib.suppress(ValueError):
        parsed = ipaddress.ip_address(address)
        return any(parsed in network for network in networks)
    return False
