"""HTTP/1.1 on a connection: uvicorn's pure-Python protocol, with time limits and the one error shape.

Pure Python, since a parser in C keeps buffers that nobody overwrites.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import h11
from h11._readers import ContentLengthReader
from uvicorn.protocols.http.h11_impl import H11Protocol

from panstream.server.limits import Limits
from panstream.server.refusals import Refusal, refuse
from panstream.server.sweep import Sweeper, overwrite

__all__ = ["protocol_with"]

_HIGH_WATER = 1 << 18  # bytes of a body that wait before reading pauses


def protocol_with(limits: Limits) -> type[H11Protocol]:
    """Return the protocol class of a server with these limits."""
    sweeper = Sweeper()

    class Protocol(H11Protocol):
        """One connection."""

        _timer: asyncio.TimerHandle | None = None
        _allowance: int | None = None  # bytes of a refused body that are still read, and dropped

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self.client = None  # addresses are not kept
            if len(self.connections) > limits.connections:
                self._answer(Refusal("unavailable", "too many connections; try again"))
                return
            self._start_timer(limits.head_time, self._too_slow)

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop_timer()
            super().connection_lost(exc)
            self._unset_keepalive_if_required()
            self._forget()
            overwrite(getattr(getattr(self.conn, "_receive_buffer", None), "_data", None))
            sweeper.soon(self.loop)

        def data_received(self, data: bytes) -> None:
            if self.transport.is_closing():
                return
            if self._allowance is not None:
                self._allowance -= len(data)
                if self._allowance < 0:
                    self.transport.abort()
                    return
            elif self._timer is None and self.conn.their_state is h11.IDLE:
                self._start_timer(limits.head_time, self._too_slow)
            if self._allowance is None and self._take_directly(data):
                return
            super().data_received(data)
            if self.conn.their_state is not h11.IDLE and self._allowance is None:
                self._stop_timer()
            if self._allowance is not None and self.conn.their_state is not h11.SEND_BODY:
                self._allowance = None
                self._stop_timer()

        def _take_directly(self, data: bytes) -> bool:
            """Take the middle of a body of known length without copying it through the parser."""
            reader = getattr(self.conn, "_reader", None)
            if type(reader) is not ContentLengthReader or self.conn.our_state is h11.DONE:
                return False
            if len(data) >= reader._remaining or self.conn.trailing_data[0] or self.cycle is None:
                return False
            reader._remaining -= len(data)
            self.cycle.body += data
            if len(self.cycle.body) > _HIGH_WATER:
                self.flow.pause_reading()
            self.cycle.message_event.set()
            return True

        def on_response_complete(self) -> None:
            self._forget()
            super().on_response_complete()
            if self.conn.their_state is h11.SEND_BODY and not self.transport.is_closing():
                # Refused before all of it came. To close now could make the sender miss the answer.
                self._allowance = limits.body
                self._start_timer(limits.body_time, self.transport.abort)

        def send_400_response(self, msg: str) -> None:
            """Answer what is not HTTP, or has too long a head."""
            too_long = len(self.conn.trailing_data[0]) > limits.head
            self._answer(Refusal("header_too_large" if too_long else "bad_request"))

        def _forget(self) -> None:
            """Overwrite what was received of a body and never asked for: these objects live on until collected."""
            self.headers = []
            if self.cycle is not None:
                overwrite(self.cycle.body)

        def _should_upgrade(self) -> bool:
            return False

        def _start_timer(self, seconds: float, action: Callable[[], None]) -> None:
            self._stop_timer()
            self._timer = self.loop.call_later(seconds, action)

        def _stop_timer(self) -> None:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

        def _too_slow(self) -> None:
            self._answer(Refusal("request_timeout"))

        def _answer(self, refusal: Refusal) -> None:
            """Send an error without a request, and close."""
            response = refuse(refusal)
            if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE) and not self.transport.is_closing():
                headers: list[Any] = [*response.raw_headers, (b"connection", b"close")]
                events: list[Any] = [
                    h11.Response(status_code=response.status_code, headers=headers),
                    h11.Data(data=bytes(response.body)),
                    h11.EndOfMessage(),
                ]
                for event in events:
                    self.transport.write(self.conn.send(event) or b"")
            self.transport.close()
            overwrite(getattr(getattr(self.conn, "_receive_buffer", None), "_data", None))
            sweeper.soon(self.loop)

    return Protocol
