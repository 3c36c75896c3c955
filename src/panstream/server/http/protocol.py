"""HTTP/1.1 on a connection: uvicorn's pure-Python protocol, with a fast path for events, and time limits.

Pure Python, since a parser in C keeps buffers that nobody overwrites. This module is the only one that relies on what
h11 and uvicorn do not promise: where the parser keeps bytes, how many are left of a body, and the methods that
``Protocol`` replaces. ``_check_private_parts`` looks at them when a server starts, and the releases are bounded in
pyproject.toml.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import h11
import numpy as np
from h11._readers import ContentLengthReader
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle
from uvicorn.server import ServerState

from panstream.errors import PanstreamError
from panstream.primitives.memory.scratch import clear_registers, wipe
from panstream.server.auth import Limits
from panstream.server.errors import Refusal
from panstream.server.http.connection_limiter import Guest
from panstream.server.http.request_head import is_ambiguous
from panstream.server.ingest.buffer_wiping import Sweeper, overwrite
from panstream.server.ingest.jobs import FastPath, Job
from panstream.server.ingest.request_bodies import Body
from panstream.server.website.beacon_buffer import Beacons

_HIGH_WATER = 1 << 18  # bytes of a body that wait before reading pauses
_SCRATCH = 1 << 16
_ONCE = frozenset((b"host", b"origin", b"authorization", b"panstream-producer", b"panstream-sequence"))
_REPLACED = (
    *("connection_made", "connection_lost", "data_received", "on_response_complete", "send_400_response", "shutdown"),
    *("timeout_keep_alive_handler", "_should_upgrade", "_unset_keepalive_if_required", "handle_events"),
)


class Parser(h11.Connection):
    """h11, refusing heads that are too long, and heads that another parser might read otherwise."""

    def __init__(self, role: type[h11.SERVER], head: int) -> None:
        super().__init__(role, head)
        self._most = head
        self.too_long = False  # whether a head was

    def next_event(self) -> Any:
        """Return the next event, or raise ``RemoteProtocolError``."""
        if self.their_state is h11.IDLE:
            data = self._receive_buffer._data
            end = data.find(b"\r\n\r\n")
            self.too_long = (len(data) if end < 0 else end + 4) > self._most
            if self.too_long:
                raise h11.RemoteProtocolError("the head is too long")
            if is_ambiguous(data, len(data) if end < 0 else end):
                raise h11.RemoteProtocolError("the head could be read in more than one way")
        event = super().next_event()
        if isinstance(event, h11.Request):
            names = [name for name, _ in event.headers if name in _ONCE]
            if len(set(names)) < len(names):
                raise h11.RemoteProtocolError("a header that may be given once is given twice")
        return event

    def skip(self, count: int) -> bool:
        """Count bytes as read, if they are in the middle of a body of known length, and nothing waits before them."""
        reader = self._reader
        if type(reader) is not ContentLengthReader or self.our_state is h11.DONE:
            return False
        if count >= reader._remaining or self.trailing_data[0]:
            return False
        reader._remaining -= count
        return True

    def wipe(self) -> None:
        """Overwrite what was received and not read."""
        overwrite(self._receive_buffer._data)


class Shared:
    """What all connections of a server share."""

    def __init__(self, limits: Limits, fast_path: FastPath, beacons: Beacons | None = None) -> None:
        _check_private_parts()
        self.limits, self.fast_path, self.beacons, self.sweeper = limits, fast_path, beacons, Sweeper()
        self.scratch = bytearray(_SCRATCH)  # what arrives here is dealt with at once, or copied
        self.view, self.cells = memoryview(self.scratch), np.frombuffer(self.scratch, np.uint8)


class Protocol(H11Protocol, asyncio.BufferedProtocol):
    """One connection. The loop writes what arrives where ``get_buffer`` says."""

    _timer: asyncio.TimerHandle | None = None
    _allowance: int | None = None  # bytes of a refused body that are still read, and dropped
    _job: Job | None = None  # the request that is under way on the fast path
    _body: Body | None = None  # its body, while that is received
    _early = b""  # what came behind it
    _last = False  # whether the connection ends with it
    _answered = 0.0
    _began = 0.0  # of the body under way on the fast path

    def __init__(
        self, config: Config, state: ServerState, loop: asyncio.AbstractEventLoop, shared: Shared, guest: Guest
    ) -> None:
        super().__init__(config, state, {}, loop)
        self.conn = self._parser = Parser(h11.SERVER, shared.limits.head)
        self._shared, self._limits, self._fast_path = shared, shared.limits, shared.fast_path
        self._guest = guest

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for a request."""
        super().connection_made(transport)
        if self._shared.beacons is None:
            self.client = None  # addresses are not kept; for beacons, while the connection is open
        self._start_timer(self._limits.head_time, self._too_slow)

    def connection_lost(self, exc: Exception | None) -> None:
        """Leave nothing behind."""
        self._stop_timer()
        if self._body is not None:
            self._drop_body()
        super().connection_lost(exc)
        self.client = None
        self._guest.leave()
        self._unset_keepalive_if_required()
        self._forget()
        self._parser.wipe()
        if self._job is None and (self.cycle is None or self.cycle.response_complete):
            # Nothing comes back to this connection. Without references in a circle it is freed now, not by the
            # collector, which would stop everything while it looks at thousands of others.
            del self.transport, self.cycle, self.flow
        else:
            self._shared.sweeper.soon(self.loop)

    # The fast path.

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return where the next bytes go: straight into a body that is under way."""
        if self._body is None:
            return self._shared.view
        try:
            return self._body.free()
        except Refusal as refusal:
            self._give_up_body(refusal)
        return self._shared.view

    def buffer_updated(self, count: int) -> None:
        """Take what arrived."""
        job, view = self._job, self._shared.view
        if self._body is not None and job is not None:
            if job.received(count):
                self._submit(job)
            return
        try:
            if job is not None:
                self._early += view[:count]
                self.flow.pause_reading()
            else:
                left = count - self._take_beacons(count)
                if left and not self._enter(left):
                    self.data_received(bytes(view[:left]))
        finally:
            wipe(self._shared.cells[:count])
            clear_registers()

    @property
    def _between_requests(self) -> bool:
        """Whether a request may begin with the next byte."""
        conn = self.conn
        if conn.their_state is not h11.IDLE or conn.our_state is not h11.IDLE or conn.trailing_data[0]:
            return False
        return self._allowance is None and not self.transport.is_closing()

    def _take_beacons(self, count: int) -> int:
        """Take the beacons that stand whole in what arrived; return how many bytes they were, and move up the rest."""
        beacons, shared, taken = self._shared.beacons, self._shared, 0
        if beacons is None or self.client is None or not self._between_requests:
            return 0
        answers = []
        while taken < count and (found := beacons.read(shared.scratch, taken, count, self.client[0])) is not None:
            answers.append(found[0])
            taken = found[1]
        if taken:
            self._stop_timer()
            self._guest.begin()
            self._guest.end()
            self.transport.write(b"".join(answers))
            self._note_answer()
            shared.view[: count - taken] = shared.view[taken:count]
        return taken

    def _enter(self, count: int) -> bool:
        """Begin a request on the fast path, if it may go there."""
        view = self._shared.view
        if not self._between_requests:
            return False
        found = self._fast_path.admit(self._shared.scratch, min(count, self._limits.head))
        if found is None:
            return False
        job, body, begin = found
        stop = min(count, begin + body.expected)
        body.data[: stop - begin] = view[begin:stop]
        whole = job.received(stop - begin)
        self._job = job
        self._guest.begin(body.token)
        if stop < count:
            self._early = bytes(view[stop:count])
            self.flow.pause_reading()
        if whole:
            self._submit(job)
        else:
            self._body, self._began = body, self.loop.time()
            self._start_timer(self._limits.patience(body.size), self._look_at_body)
        return True

    def _submit(self, job: Job) -> None:
        """Hand over a whole body: from here on its memory belongs to another thread."""
        self._body = None
        self._stop_timer()
        self._fast_path.submit(job, self._told)

    def _told(self, answer: bytes, good: bool) -> None:
        """Write the answer, and go on with what came meanwhile."""
        self._job = None
        self._guest.end()
        if self.transport.is_closing():
            return
        self.transport.write(answer)
        if self._last:
            self.transport.close()
            return
        self._note_answer()
        if not good:
            self._shared.sweeper.soon(self.loop)
        if self._early:
            early, self._early = self._early, b""
            self._shared.view[: len(early)] = early
            self.flow.resume_reading()
            self.buffer_updated(len(early))

    def _note_answer(self) -> None:
        self._answered = self.loop.time()
        if self.timeout_keep_alive_task is None:
            self._close_if_idle_in(self.timeout_keep_alive)

    def _close_if_idle_in(self, seconds: float) -> None:
        self.timeout_keep_alive_task = self.loop.call_later(seconds, self.timeout_keep_alive_handler)

    def timeout_keep_alive_handler(self) -> None:
        """Close a connection on which nothing happens; one timer for many requests, so it may come too early."""
        self.timeout_keep_alive_task = None
        left = self._answered + self.timeout_keep_alive - self.loop.time()
        if self._job is not None or self._answering or self.conn.their_state is not h11.IDLE:
            return  # whoever answers sets the timer again
        if left > 0:
            self._close_if_idle_in(left)
        else:
            super().timeout_keep_alive_handler()

    @property
    def _answering(self) -> bool:
        """Whether a request on the general way is not answered yet."""
        return self.cycle is not None and not self.cycle.response_complete

    def _look_at_body(self) -> None:
        """Wait for more of a body that comes fast enough; give up one that does not."""
        if self._body is None:
            return
        left = self._began + self._limits.patience(self._body.size) - self.loop.time()
        if left > 0:
            self._start_timer(left, self._look_at_body)
        else:
            self._give_up_body(Refusal("request_timeout"))

    def _give_up_body(self, refusal: Refusal) -> None:
        """Refuse a body before all of it came; the rest is read and dropped, so that the sender sees why."""
        assert self._body is not None
        self._allowance = self._body.expected - self._body.size
        self._last = True
        self._drop_body()
        self._guest.end()
        self.transport.write(refusal.framed(last=True))
        self._start_timer(self._limits.body_time, self.transport.abort)

    def _drop_body(self) -> None:
        job, self._job, self._body = self._job, None, None
        assert job is not None
        self._fast_path.abandon(job)

    def shutdown(self) -> None:
        """End the connection, after the answer that is under way."""
        if self._job is None:
            super().shutdown()
        else:
            self._last = True

    # The general way.

    def data_received(self, data: bytes) -> None:
        """Have the parser read what arrived."""
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
            self._start_timer(self._limits.head_time, self._too_slow)
        if self._allowance is None and self.cycle is not None and self._parser.skip(len(data)):
            # The middle of a body of known length is not copied through the parser.
            self.cycle.body += data
            if len(self.cycle.body) > _HIGH_WATER:
                self.flow.pause_reading()
            self.cycle.message_event.set()
            return
        super().data_received(data)
        if self._answering:
            self._guest.begin()
        if self.conn.their_state is not h11.IDLE and self._allowance is None:
            self._stop_timer()
        if self._allowance is not None and self.conn.their_state is not h11.SEND_BODY:
            self._allowance = None
            self._stop_timer()

    def on_response_complete(self) -> None:
        """Go on with the next request."""
        self._forget()
        self._answered = self.loop.time()
        self._guest.end()
        super().on_response_complete()
        self.server_state.total_requests = 0  # how many there were is nobody's business
        if self._answering:
            self._guest.begin()  # with the next request, which was here already
        if self.conn.their_state is h11.SEND_BODY and not self.transport.is_closing():
            # Refused before all of it came. To close now could make the sender miss the answer.
            self._allowance = self._limits.body
            self._start_timer(self._limits.body_time, self.transport.abort)

    def send_400_response(self, msg: str) -> None:
        """Answer what is not HTTP, or has too long a head."""
        self._answer(Refusal("header_too_large" if self._parser.too_long else "bad_request"))

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
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE) and not self.transport.is_closing():
            self.transport.write(refusal.framed(last=True))
        self.transport.close()
        self._parser.wipe()
        self._shared.sweeper.soon(self.loop)


def _check_private_parts() -> None:
    """Raise PanstreamError if h11 or uvicorn are not as this module needs them: bytes might stay."""
    parser = Parser(h11.SERVER, 1 << 10)
    good = set(_REPLACED) <= set(vars(H11Protocol))
    good &= {"body", "response_complete", "message_event"} <= set(RequestResponseCycle.__init__.__code__.co_names)
    try:
        parser.receive_data(b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 3\r\n\r\n")
        good &= isinstance(parser.next_event(), h11.Request) and parser.skip(2) and not parser.skip(1)
        parser.receive_data(b"c")
        good &= bytes(parser._receive_buffer._data) == b"c"
        parser.wipe()
        good &= parser.trailing_data[0] == b""
    except AttributeError:
        good = False
    if not good:
        raise PanstreamError("this version of h11 or uvicorn does not work with the server")
