"""The short way in for events: no task, no request object, the body received straight into its place.

It takes only what would be taken anyway. Whatever would be refused at its head goes the general way, and is refused there.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from urllib.parse import quote

from panstream.engine.producers import Sender
from panstream.server.access import Access
from panstream.server.bodies import Body, announced
from panstream.server.intake import origin, outcome
from panstream.server.jobs import Taken
from panstream.server.limits import Gate, Use
from panstream.server.refusals import Refusal, refuse
from panstream.server.service import Service

__all__ = ["Desk", "Passage"]

_PHRASES = {
    200: b"OK",
    400: b"Bad Request",
    408: b"Request Timeout",
    413: b"Content Too Large",
    422: b"Unprocessable Content",
    500: b"Internal Server Error",
    503: b"Service Unavailable",
}
_ENCODE = json.JSONEncoder(separators=(",", ":")).encode
_ALL = b'{"new":true,"rows":%d,"skipped":{"count":0,"rows":[]},"late":{"count":0,"rows":[]}}'
_JSON = b"cache-control: no-store\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"


@dataclass(slots=True, eq=False)
class Passage:
    """One request by the short way. Once it is no longer ``receiving``, its body belongs to another thread."""

    body: Body
    sender: Sender | None
    sequence: int
    use: Use
    receiving: bool = True

    def received(self, count: int) -> None:
        """Note that so many bytes more have come."""
        self.body.size += count
        self.receiving = self.body.size < self.body.expected


class Desk:
    """Admits requests that bring events, and has their answers written."""

    def __init__(self, service: Service, access: Access, gate: Gate) -> None:
        self._service, self._access, self._gate = service, access, gate
        path = f"/v1/streams/{quote(service.config.stream.name, safe='')}/events"
        self.first = f"POST {path} HTTP/1.1\r\n".encode()

    def admit(self, headers: Mapping[str, str]) -> Passage | None:
        """Return the request, its place held and its memory reserved; None if it is to be refused."""
        try:
            holder = self._access.check(headers, "ingest")
            self._service.check_running()
            sender, sequence = origin(headers, holder.name)
            body = announced(headers, self._gate, holder.name)
        except Refusal:
            return None
        try:
            use = self._gate.enter(holder.name)
        except Refusal:
            body.wipe()
            return None
        return Passage(body, sender, sequence, use)

    def take(self, passage: Passage, tell: Callable[[bytes, bool], None]) -> None:
        """Have a whole body taken; ``tell`` is called with the answer, and whether it is a good one, when that is durable."""

        def told(taken: Taken | None, refusal: BaseException | None) -> None:
            self._gate.leave(passage.use)
            if taken is None:
                tell(refusal_bytes(refusal if isinstance(refusal, Refusal) else Refusal("internal")), False)
            else:
                tell(_taken(taken), True)

        self._service.worker.take_soon(passage.body, passage.sender, passage.sequence, told)

    def abandon(self, passage: Passage) -> None:
        """Forget a request whose body did not come."""
        self._gate.leave(passage.use)
        passage.body.wipe()


def _taken(taken: Taken) -> bytes:
    """Return the answer to a good body; nearly all of them are new and have no row to tell of."""
    applied = taken.applied
    if applied.new and not (applied.skipped or applied.late):
        return _framed(200, b"", _ALL % taken.rows)
    return _framed(200, b"", _ENCODE(outcome(taken)).encode())


def refusal_bytes(refusal: Refusal, *, last: bool = False) -> bytes:
    """Return a refusal as it goes over the wire; ``last`` says that the connection ends with it."""
    response = refuse(refusal)
    more = [(name, value) for name, value in response.raw_headers if name in (b"retry-after", b"www-authenticate")]
    lines = b"".join(b"%s: %s\r\n" % pair for pair in more) + (b"connection: close\r\n" if last else b"")
    return _framed(response.status_code, lines, bytes(response.body))


def _framed(status: int, lines: bytes, body: bytes) -> bytes:
    return b"HTTP/1.1 %d %s\r\n" % (status, _PHRASES.get(status, b"")) + lines + _JSON % len(body) + body
