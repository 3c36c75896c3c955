"""HTTP/1.1 on a connection: uvicorn's pure-Python protocol, with time limits and the one error shape.

Pure Python, since a parser in C keeps buffers that nobody overwrites.
"""

from __future__ import annotations

import asyncio
from typing import Any

import h11
import numpy as np
from uvicorn.protocols.http.h11_impl import H11Protocol

from panstream.scratch import wipe
from panstream.server.limits import Limits
from panstream.server.refusals import Refusal, refuse

__all__ = ["protocol_with"]


def protocol_with(limits: Limits) -> type[H11Protocol]:
    """Return the protocol class of a server with these limits."""

    class Protocol(H11Protocol):
        """One connection."""

        _head_timer: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self.client = None  # addresses are not kept
            if len(self.connections) > limits.connections:
                self._answer(Refusal("unavailable", "too many connections; try again"))
                return
            self._expect_head()

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop_timer()
            super().connection_lost(exc)
            self._forget()
            _overwrite(getattr(getattr(self.conn, "_receive_buffer", None), "_data", None))

        def data_received(self, data: bytes) -> None:
            if self.transport.is_closing():
                return
            if self._head_timer is None and self.conn.their_state is h11.IDLE:
                self._expect_head()
            super().data_received(data)
            if self.conn.their_state is not h11.IDLE:
                self._stop_timer()

        def on_response_complete(self) -> None:
            self._forget()
            super().on_response_complete()
            if self.conn.their_state is h11.SEND_BODY and not self.transport.is_closing():
                # The rest of a body that was refused is not waited for.
                self.transport.close()

        def send_400_response(self, msg: str) -> None:
            """Answer what is not HTTP, or has too long a head."""
            event = self.conn.trailing_data[0]
            self._answer(Refusal("header_too_large" if len(event) > limits.head else "bad_request"))

        def _forget(self) -> None:
            """Overwrite what was received of a body and never asked for: these objects live on until collected."""
            self.headers = []
            if self.cycle is not None:
                _overwrite(self.cycle.body)

        def _should_upgrade(self) -> bool:
            return False

        def _expect_head(self) -> None:
            self._head_timer = self.loop.call_later(limits.head_time, self._too_slow)

        def _stop_timer(self) -> None:
            if self._head_timer is not None:
                self._head_timer.cancel()
                self._head_timer = None

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

    return Protocol


def _overwrite(data: object) -> None:
    if isinstance(data, bytearray) and data:
        wipe(np.frombuffer(data, np.uint8))
        data.clear()
