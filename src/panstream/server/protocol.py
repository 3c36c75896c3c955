"""HTTP/1.1 on a connection: uvicorn's pure-Python protocol, with a short way for events, time limits and the one error shape.

Pure Python, since a parser in C keeps buffers that nobody overwrites.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import h11
import numpy as np
from h11._readers import ContentLengthReader
from uvicorn.protocols.http.h11_impl import H11Protocol

from panstream.scratch import clear_registers, wipe
from panstream.server.desk import Desk, Passage, refusal_bytes
from panstream.server.door import Guest
from panstream.server.heads import is_ambiguous, read_head
from panstream.server.limits import Limits
from panstream.server.refusals import Refusal, refuse
from panstream.server.sweep import Sweeper, overwrite

__all__ = ["protocol_with"]

_HIGH_WATER = 1 << 18  # bytes of a body that wait before reading pauses
_SCRATCH = 1 << 16


def protocol_with(limits: Limits, desk: Desk) -> type[H11Protocol]:
    """Return the protocol class of a server with these limits, whose events go to ``desk``."""
    sweeper = Sweeper()
    scratch = bytearray(_SCRATCH)  # of all connections: what arrives is dealt with at once, or copied
    view, cells = memoryview(scratch), np.frombuffer(scratch, np.uint8)

    class Protocol(H11Protocol, asyncio.BufferedProtocol):
        """One connection. The loop writes what arrives where ``get_buffer`` says."""

        _timer: asyncio.TimerHandle | None = None
        _allowance: int | None = None  # bytes of a refused body that are still read, and dropped
        _passage: Passage | None = None  # the request that is under way on the short way
        _early = b""  # what came behind it
        _last = False  # whether the connection ends with it
        _answered = 0.0
        _began = 0.0  # of the body under way on the short way
        guest: Guest | None = None

        def __init__(self, *given: Any, **named: Any) -> None:
            super().__init__(*given, **named)
            self.conn = _Strict(h11.SERVER, limits.head)

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self.client = None  # addresses are not kept
            self._start_timer(limits.head_time, self._too_slow)

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop_timer()
            passage = self._passage
            if passage is not None and passage.receiving:
                self._passage = None
                desk.abandon(passage)
            super().connection_lost(exc)
            if self.guest is not None:
                self.guest.leave()
            self._unset_keepalive_if_required()
            self._forget()
            overwrite(getattr(getattr(self.conn, "_receive_buffer", None), "_data", None))
            sweeper.soon(self.loop)

        # The short way.

        def get_buffer(self, sizehint: int) -> memoryview:
            """Return where the next bytes go: straight into a body that is under way."""
            passage = self._passage
            if passage is None or not passage.receiving:
                return view
            try:
                return passage.body.free()
            except Refusal as refusal:
                self._give_up_body(refusal)
            return view

        def buffer_updated(self, count: int) -> None:
            """Take what arrived."""
            passage = self._passage
            if passage is not None and passage.receiving:
                passage.received(count)
                if not passage.receiving:
                    self._take(passage)
                return
            try:
                if passage is not None:
                    self._early += view[:count]
                    self.flow.pause_reading()
                elif not self._enter(count):
                    self.data_received(bytes(view[:count]))
            finally:
                wipe(cells[:count])
                clear_registers()

        def _enter(self, count: int) -> bool:
            """Begin a request by the short way, if it may go there."""
            conn = self.conn
            if conn.their_state is not h11.IDLE or conn.our_state is not h11.IDLE or conn.trailing_data[0]:
                return False
            if self._allowance is not None or self.transport.is_closing():
                return False
            found = read_head(scratch, min(count, limits.head), desk.first)
            passage = None if found is None else desk.admit(found[0])
            if found is None or passage is None:
                return False
            body, begin = passage.body, found[1]
            stop = min(count, begin + body.expected)
            body.data[: stop - begin] = view[begin:stop]
            passage.received(stop - begin)
            self._passage = passage
            if self.guest is not None:
                self.guest.begin(passage.body.token)
            if stop < count:
                self._early = bytes(view[stop:count])
                self.flow.pause_reading()
            if passage.receiving:
                self._began = self.loop.time()
                self._start_timer(limits.patience(body.size), self._look_at_body)
            else:
                self._take(passage)
            return True

        def _take(self, passage: Passage) -> None:
            self._stop_timer()
            desk.take(passage, self._told)

        def _told(self, answer: bytes, good: bool) -> None:
            """Write the answer, and go on with what came meanwhile."""
            self._passage = None
            if self.guest is not None:
                self.guest.end()
            self.server_state.total_requests += 1
            if self.transport.is_closing():
                return
            self.transport.write(answer)
            if self._last:
                self.transport.close()
                return
            self._answered = self.loop.time()
            if self.timeout_keep_alive_task is None:
                self._close_if_idle_in(self.timeout_keep_alive)
            if not good:
                sweeper.soon(self.loop)
            if self._early:
                early, self._early = self._early, b""
                view[: len(early)] = early
                self.flow.resume_reading()
                self.buffer_updated(len(early))

        def _close_if_idle_in(self, seconds: float) -> None:
            self.timeout_keep_alive_task = self.loop.call_later(seconds, self.timeout_keep_alive_handler)

        def timeout_keep_alive_handler(self) -> None:
            """Close a connection on which nothing happens; one timer for many requests, so it may come too early."""
            self.timeout_keep_alive_task = None
            left = self._answered + self.timeout_keep_alive - self.loop.time()
            if self._busy:
                return  # whoever answers sets the timer again
            if left > 0:
                self._close_if_idle_in(left)
            else:
                super().timeout_keep_alive_handler()

        @property
        def _busy(self) -> bool:
            """Whether a request has begun that is not answered."""
            answering = self.cycle is not None and not self.cycle.response_complete
            return self._passage is not None or answering or self.conn.their_state is not h11.IDLE

        def _look_at_body(self) -> None:
            """Wait for more of a body that comes fast enough; give up one that does not."""
            passage = self._passage
            if passage is None:
                return
            left = self._began + limits.patience(passage.body.size) - self.loop.time()
            if left > 0:
                self._start_timer(left, self._look_at_body)
            else:
                self._give_up_body(Refusal("request_timeout"))

        def _give_up_body(self, refusal: Refusal) -> None:
            """Refuse a body before all of it came; the rest is read and dropped, so that the sender sees why."""
            passage, self._passage = self._passage, None
            assert passage is not None
            self._allowance = passage.body.expected - passage.body.size
            self._last = True
            desk.abandon(passage)
            if self.guest is not None:
                self.guest.end()
            self.transport.write(refusal_bytes(refusal, last=True))
            self._start_timer(limits.body_time, self.transport.abort)

        def shutdown(self) -> None:
            """End the connection, after the answer that is under way."""
            if self._passage is None:
                super().shutdown()
            else:
                self._last = True

        # The general way.

        def data_received(self, data: bytes) -> None:
            if self.transport.is_closing():
                return
            if self._allowance is not None:
                self._allowance -= len(data)
                if self._allowance < 0 or (self._last and not self._allowance):
                    self.transport.abort()
                    return
                if self._last:
                    return
            elif self._timer is None and self.conn.their_state is h11.IDLE:
                self._start_timer(limits.head_time, self._too_slow)
            if self._allowance is None and self._take_directly(data):
                return
            super().data_received(data)
            if self.guest is not None and self.cycle is not None and not self.cycle.response_complete:
                self.guest.begin()
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
            self._answered = self.loop.time()
            if self.guest is not None:
                self.guest.end()
            super().on_response_complete()
            if self.guest is not None and self.cycle is not None and not self.cycle.response_complete:
                self.guest.begin()  # with the next request, which was here already
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


class _Strict(h11.Connection):
    """The parser, refusing heads that it would read although another parser might see another body in them."""

    def next_event(self) -> Any:
        """Return the next event, or raise ``RemoteProtocolError``."""
        if self.their_state is h11.IDLE and is_ambiguous(self._receive_buffer._data):
            raise h11.RemoteProtocolError("more than one way to tell where the body ends")
        return super().next_event()
