"""ASGI for one request: passes the body to the application as it comes, and frames the response with h11."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, MutableMapping
from email.utils import formatdate
from http import HTTPStatus
from typing import Any, TypeAlias
from urllib.parse import unquote

import h11

from panstream.server.errors import HttpError
from panstream.server.ingest.buffer_wiping import wipe_bytearray

Message: TypeAlias = MutableMapping[str, Any]
Application: TypeAlias = Callable[
    [MutableMapping[str, Any], Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]], Awaitable[None]
]
ClientAddress: TypeAlias = tuple[str, int]


class AsgiExchange:
    """One request that the application answers.

    Args:
        connection: The h11 connection that has parsed the request's head; it frames the response.
        request: The request.
        transport: Where the response is written.
        writable: Set while the transport's buffer is not full.
        on_response: Called when the response is complete.
    """

    def __init__(
        self,
        connection: h11.Connection,
        request: h11.Request,
        transport: asyncio.Transport,
        writable: asyncio.Event,
        on_response: Callable[[], None],
    ) -> None:
        self._connection = connection
        self._transport = transport
        self._writable = writable
        self._on_response: Callable[[], None] | None = on_response
        self._is_head = request.method == b"HEAD"
        self._continue_expected = connection.they_are_waiting_for_100_continue
        self._body_ended = False
        self._changed = asyncio.Event()
        self._disconnected = False
        self.body = bytearray()  # received, and not yet read by the application
        self.keep_alive = True
        self.response_started = False
        self.response_complete = False

    async def run(self, app: Application, scope: MutableMapping[str, Any]) -> None:
        """Run the application; if it sends no complete response, close the connection, after an error if possible."""
        code = "internal"
        try:
            await app(scope, self._receive, self._send)
        except asyncio.CancelledError:
            code = "unavailable"  # the server stops before the application was done
            raise
        finally:
            on_response = self._on_response  # breaks a reference cycle with the connection
            self._on_response = None
            if on_response is not None and not (self.response_complete or self._disconnected):
                if not self.response_started:
                    self._transport.write(HttpError(code).to_http_response(last=True))
                self._transport.close()
                on_response()

    def receive_body(self, data: bytes) -> None:
        """Append received bytes to the body."""
        self.body += data
        self._changed.set()

    def end_body(self) -> None:
        """Mark the body as complete."""
        self._body_ended = True
        self._changed.set()

    def disconnect(self) -> None:
        """Report the end of the connection to the application, and wipe what it has not read of the body."""
        wipe_bytearray(self.body)
        self._disconnected = True
        self._changed.set()

    async def _receive(self) -> Message:
        if self._continue_expected and not self._transport.is_closing():
            self._continue_expected = False
            self._write(h11.InformationalResponse(status_code=100, headers=[], reason=b"Continue"))
        if not (self._disconnected or self.response_complete):
            self._transport.resume_reading()
            await self._changed.wait()
            self._changed.clear()
        if self._disconnected or self.response_complete:
            return {"type": "http.disconnect"}
        part = bytes(self.body)
        wipe_bytearray(self.body)
        return {"type": "http.request", "body": part, "more_body": not self._body_ended}

    async def _send(self, message: Message) -> None:
        if not self._disconnected:
            await self._writable.wait()
        if self._disconnected:
            return
        if message["type"] == "http.response.start":
            self._start_response(message["status"], list(message.get("headers", ())))
        else:
            self._send_body(message.get("body", b""), more=message.get("more_body", False))

    def _start_response(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        self.response_started = True
        self._continue_expected = False
        reason = b""
        with contextlib.suppress(ValueError):
            reason = HTTPStatus(status).phrase.encode()
        # Computed for every response: a cached date would reveal in memory when the last request came.
        dated = [(b"date", formatdate(usegmt=True).encode()), *headers]
        self._write(h11.Response(status_code=status, headers=dated, reason=reason))

    def _send_body(self, part: bytes, *, more: bool) -> None:
        self._write(h11.Data(data=b"" if self._is_head else part))
        if more:
            return
        self._write(h11.EndOfMessage())
        self.response_complete = True
        self._changed.set()
        if self._connection.our_state is h11.MUST_CLOSE or not self.keep_alive:
            self._transport.close()
        if self._on_response is not None:
            self._on_response()

    def _write(self, event: h11.Event) -> None:
        if data := self._connection.send(event):
            self._transport.write(data)


def scope_of(
    request: h11.Request, transport: asyncio.Transport, client: ClientAddress | None
) -> MutableMapping[str, Any]:
    """Return the ASGI scope of a request."""
    raw_path, _, query = request.target.partition(b"?")
    address = transport.get_extra_info("sockname")
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": request.http_version.decode("ascii"),
        "method": request.method.decode("ascii"),
        "scheme": "http" if transport.get_extra_info("sslcontext") is None else "https",
        "path": unquote(raw_path.decode("ascii")),
        "raw_path": raw_path,
        "query_string": query,
        "root_path": "",
        "headers": list(request.headers),
        "client": client,
        "server": None if address is None else tuple(address[:2]),
    }
