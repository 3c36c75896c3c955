"""One connection to a server: requests one after the other, sent again with the same sequence until answered."""

from __future__ import annotations

import http.client
import json
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from panstream.errors import InvalidParameter, RequestRefused, ServerUnreachable

__all__ = ["Address", "Patience", "Wire"]

_AGAIN = (408, 425, 429, 500, 502, 503, 504)


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long to go on trying. Times are seconds; pauses double from ``first`` to ``longest``."""

    tries: int = 8
    first: float = 0.05
    longest: float = 5.0
    timeout: float = 30.0
    sleep: Callable[[float], None] = time.sleep

    def pause(self, number: int, asked: str | None = None) -> None:
        """Wait before another try; ``asked`` is the server's Retry-After."""
        wished = float(asked) if asked is not None and asked.isdecimal() else 0.0
        self.sleep(min(self.longest, max(wished, self.first * 2.0**number)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where the server is, and what shows that we may talk to it."""

    url: str
    token: str | None = field(default=None, repr=False)
    ca_file: str | None = None

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.username:
            raise InvalidParameter("url must be like https://host:port, with nothing behind it")

    def connect(self, timeout: float) -> http.client.HTTPConnection:
        """Return a connection, not yet made."""
        parts = urlsplit(self.url)
        host = parts.hostname or ""
        if parts.scheme == "http":
            return http.client.HTTPConnection(host, parts.port, timeout=timeout)
        context = ssl.create_default_context(cafile=self.ca_file)
        return http.client.HTTPSConnection(host, parts.port, timeout=timeout, context=context)

    @property
    def base(self) -> str:
        """Return the path that all others are below."""
        return urlsplit(self.url).path.rstrip("/")

    def headers(self) -> dict[str, str]:
        """Return the headers of every request."""
        return {} if self.token is None else {"Authorization": f"Bearer {self.token}"}


class Wire:
    """A connection that is made when needed, and again when lost. For one thread at a time."""

    def __init__(self, address: Address, patience: Patience) -> None:
        self._address, self._patience = address, patience
        self._connection: http.client.HTTPConnection | None = None
        self.unanswered = False  # whether a try of the last request may have been taken although no answer said so

    def ask(self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None) -> Any:
        """Return the answer's JSON. Sends the same again while the server cannot be reached or is busy.

        Only for requests that may be repeated.
        """
        reason, self.unanswered = "", False
        for number in range(self._patience.tries):
            wait: str | None = None
            try:
                status, answer, wait = self._exchange(method, path, body, headers or {})
            except (OSError, http.client.HTTPException) as error:
                self.close()
                reason = type(error).__name__
                self.unanswered |= not isinstance(error, ConnectionRefusedError)
            else:
                if status == 200:
                    return answer
                code, message = _error(answer, status)
                if status not in _AGAIN:
                    raise RequestRefused(message, code=code, status=status)
                reason = code
                self.unanswered |= status != 429
            if number + 1 < self._patience.tries:
                self._patience.pause(number, wait)
        raise ServerUnreachable(f"no answer after {self._patience.tries} tries; the last one ended with {reason}")

    def _exchange(self, method: str, path: str, body: Any, headers: Mapping[str, str]) -> tuple[int, Any, str | None]:
        connection = self._open()
        connection.request(
            method,
            self._address.base + path,
            body,
            {**self._address.headers(), "Accept": "application/json", **headers},
        )
        response = connection.getresponse()
        data = response.read()
        if response.will_close:
            self.close()
        try:
            answer = json.loads(data)
        except ValueError:
            answer = None
        return response.status, answer, response.headers.get("Retry-After")

    def events(self, path: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield the server-sent events of one connection, until it ends."""
        connection = self._open()
        headers = {**self._address.headers(), "Accept": "text/event-stream"}
        connection.request("GET", self._address.base + path, headers=headers)
        response = connection.getresponse()
        if response.status != 200:
            answer = response.read()
            try:
                code, message = _error(json.loads(answer), response.status)
            except ValueError:
                code, message = _error(None, response.status)
            self.close()
            raise RequestRefused(message, code=code, status=response.status)
        kind, data = "message", ""
        try:
            for raw in response:
                line = raw.decode().rstrip("\r\n")
                name, _, value = line.partition(":")
                if not line:
                    if data:
                        yield kind, json.loads(data)
                    kind, data = "message", ""
                elif name == "event":
                    kind = value.strip()
                elif name == "data":
                    data += value.strip()
        finally:
            self.close()

    def _open(self) -> http.client.HTTPConnection:
        if self._connection is None:
            self._connection = self._address.connect(self._patience.timeout)
        return self._connection

    def close(self) -> None:
        """Close the connection; the next request makes a new one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _error(answer: Any, status: int) -> tuple[str, str]:
    found = answer.get("error") if isinstance(answer, dict) else None
    if isinstance(found, dict):
        return str(found.get("code")), str(found.get("message"))
    return "http", f"the server answered with status {status}"
