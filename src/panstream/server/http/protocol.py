"""HTTP/1.1 on a connection: a fast path for events, the application for everything else, and time limits.

It stands on what asyncio and h11 document, and nothing else. h11 is pure Python: a parser in C keeps buffers that
nobody overwrites.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import h11
import numpy as np

from panstream.primitives.memory.scratch import clear_registers, wipe
from panstream.server.auth import Limits
from panstream.server.errors import HttpError
from panstream.server.http.asgi import Application, AsgiExchange, ClientAddress, scope_of
from panstream.server.http.connection_limiter import ClientConnection
from panstream.server.http.request_parser import RequestParser
from panstream.server.ingest.buffer_wiping import GcScheduler, wipe_bytearray
from panstream.server.ingest.jobs import FastPath, Job
from panstream.server.ingest.request_bodies import RequestBody
from panstream.server.website.beacon_buffer import BeaconBuffer

KEEP_ALIVE = 5.0  # seconds that a connection may be idle
_HIGH_WATER = 1 << 18  # bytes of a body that wait before reading pauses
_SCRATCH = 1 << 16


class ServerState:
    """What all connections of a server share. It counts nothing: how many requests there were is nobody's business.

    Args:
        app: answers what does not take the fast path.
        limits: sizes and times.
        fast_path: takes events.
        beacons: takes the beacons of a website, if there is one.
    """

    def __init__(
        self, app: Application, limits: Limits, fast_path: FastPath, beacons: BeaconBuffer | None = None
    ) -> None:
        self.app = app
        self.limits = limits
        self.fast_path = fast_path
        self.beacons = beacons
        self.sweeper = GcScheduler()
        self.connections: set[EventProtocol] = set()
        self.tasks: set[asyncio.Task[None]] = set()  # of the application
        self.scratch = bytearray(_SCRATCH)  # what arrives here is dealt with at once, or copied
        self.view = memoryview(self.scratch)
        self.cells = np.frombuffer(self.scratch, np.uint8)


class EventProtocol(asyncio.BufferedProtocol):
    """One connection. The loop writes what arrives where ``get_buffer`` says."""

    transport: asyncio.Transport
    _client: ClientAddress | None = None
    _timer: asyncio.TimerHandle | None = None  # for a head, or a body that the application does not wait for
    _idle_timer: asyncio.TimerHandle | None = None
    _discard_limit: int | None = None  # bytes of a refused body that are still read, and dropped
    _exchange: AsgiExchange | None = None  # the request that the application answers
    _job: Job | None = None  # the request that is under way on the fast path
    _body: RequestBody | None = None  # its body, while that is received
    _body_started = 0.0
    _pipelined = b""  # what came behind it
    _last = False  # whether the connection ends with it
    _answered = 0.0

    def __init__(
        self, state: ServerState, loop: asyncio.AbstractEventLoop, client_connection: ClientConnection
    ) -> None:
        self._state = state
        self._limits = state.limits
        self._fast_path = state.fast_path
        self._loop = loop
        self._client_connection = client_connection
        self._parser = RequestParser(state.limits.head)
        self._writable = asyncio.Event()
        self._writable.set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for a request."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self._state.connections.add(self)
        address = transport.get_extra_info("peername")
        if self._state.beacons is not None and address:
            self._client = address[0], address[1]  # only beacons need it, and it goes with the connection
        self._start_timer(self._limits.head_time, self._on_timeout)

    def connection_lost(self, exc: Exception | None) -> None:
        """Leave nothing behind."""
        self._state.connections.discard(self)
        self._stop_timer()
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        if self._body is not None:
            self._drop_body()
        self._client = None
        self._client_connection.close()
        self._writable.set()
        exchange = self._exchange
        if exchange is not None:
            exchange.disconnect()
        self._close()
        if self._job is None and (exchange is None or exchange.response_complete):
            # Nothing comes back to this connection. Without references in a circle it is freed now, not by the
            # collector, which would stop everything while it looks at thousands of others.
            del self.transport
        else:
            self._state.sweeper.soon(self._loop)

    def pause_writing(self) -> None:
        """Have the application wait: the other side is slow to read."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """Let the application go on."""
        self._writable.set()

    def shutdown(self) -> None:
        """End the connection, after the answer that is under way."""
        if self._job is not None:
            self._last = True
        elif self._exchange is not None and not self._exchange.response_complete:
            self._exchange.keep_alive = False
        else:
            self._close()

    def _close(self) -> None:
        """Close; what was not read is overwritten now, since in TLS the other side may put off the end."""
        self.transport.close()
        self._exchange = None
        self._pipelined = b""
        self._parser.wipe()

    # The fast path.

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return where the next bytes go: straight into a body that is under way."""
        if self._body is None:
            return self._state.view
        try:
            return self._body.discard()
        except HttpError as refusal:
            self._give_up_body(refusal)
        return self._state.view

    def buffer_updated(self, nbytes: int) -> None:
        """Take what arrived."""
        job = self._job
        view = self._state.view
        if self._body is not None and job is not None:
            if job.received(nbytes):
                self._submit(job)
            return
        try:
            if job is not None:
                self._pipelined += view[:nbytes]
                self.transport.pause_reading()
            else:
                left = nbytes - self._take_beacons(nbytes)
                if left and not self._begin_fast_path(left):
                    self._receive(view[:left])
        finally:
            wipe(self._state.cells[:nbytes])
            clear_registers()

    @property
    def _between_requests(self) -> bool:
        """Whether a request may begin with the next byte."""
        return self._parser.between_requests and self._discard_limit is None and not self.transport.is_closing()

    def _take_beacons(self, count: int) -> int:
        """Take the beacons that stand whole in what arrived; return how many bytes they were, and move up the rest."""
        state = self._state
        beacons = self._state.beacons
        taken = 0
        if beacons is None or self._client is None or not self._between_requests:
            return 0
        answers = []
        while taken < count and (found := beacons.read(state.scratch, taken, count, self._client[0])) is not None:
            answers.append(found[0])
            taken = found[1]
        if taken:
            self._stop_timer()
            self._client_connection.request_started()
            self._client_connection.request_finished()
            self.transport.write(b"".join(answers))
            self._note_answer()
            state.view[: count - taken] = state.view[taken:count]
        return taken

    def _begin_fast_path(self, count: int) -> bool:
        """Begin a request on the fast path, if it may go there."""
        view = self._state.view
        if not self._between_requests:
            return False
        found = self._fast_path.admit(self._state.scratch, min(count, self._limits.head))
        if found is None:
            return False
        job, body, begin = found
        stop = min(count, begin + body.expected)
        body.data[: stop - begin] = view[begin:stop]
        complete = job.received(stop - begin)
        self._job = job
        self._client_connection.request_started(body.token)
        if stop < count:
            self._pipelined = bytes(view[stop:count])
            self.transport.pause_reading()
        if complete:
            self._submit(job)
        else:
            self._body = body
            self._body_started = self._loop.time()
            self._start_timer(self._limits.body_timeout(body.size), self._check_body_rate)
        return True

    def _submit(self, job: Job) -> None:
        """Hand over a complete body: from here on its memory belongs to another thread."""
        self._body = None
        self._stop_timer()
        self._fast_path.submit(job, self._on_job_done)

    def _on_job_done(self, answer: bytes, good: bool) -> None:
        """Write the answer, and go on with what came meanwhile."""
        self._job = None
        self._client_connection.request_finished()
        if self.transport.is_closing():
            return
        self.transport.write(answer)
        if self._last:
            self._close()
            return
        self._note_answer()
        if not good:
            self._state.sweeper.soon(self._loop)
        if self._pipelined:
            pipelined = self._pipelined
            self._pipelined = b""
            self._state.view[: len(pipelined)] = pipelined
            self.transport.resume_reading()
            self.buffer_updated(len(pipelined))

    def _check_body_rate(self) -> None:
        """Wait for more of a body that comes fast enough; give up one that does not."""
        if self._body is None:
            return
        left = self._body_started + self._limits.body_timeout(self._body.size) - self._loop.time()
        if left > 0:
            self._start_timer(left, self._check_body_rate)
        else:
            self._give_up_body(HttpError("request_timeout"))

    def _give_up_body(self, refusal: HttpError) -> None:
        """Refuse a body before all of it came; the rest is read and dropped, so that the sender sees why."""
        assert self._body is not None
        self._discard_limit = self._body.expected - self._body.size
        self._last = True
        self._drop_body()
        self._client_connection.request_finished()
        self.transport.write(refusal.to_http_response(last=True))
        self._start_timer(self._limits.body_time, self.transport.abort)

    def _drop_body(self) -> None:
        job = self._job
        self._job = None
        self._body = None
        assert job is not None
        self._fast_path.abandon(job)

    # What the application answers.

    def _receive(self, data: memoryview) -> None:
        """Have the parser read what arrived."""
        if self.transport.is_closing():
            return
        if self._discard_limit is not None:
            self._discard_limit -= len(data)
            if self._discard_limit < 0 or (self._last and not self._discard_limit):
                self.transport.abort()
                return
            if self._last:
                return
        self._parser.receive(data)
        self._handle_events()

    def _handle_events(self) -> None:
        while True:
            try:
                event = self._parser.next_event()
            except h11.RemoteProtocolError:
                self._refuse(HttpError("header_too_large" if self._parser.head_too_long else "bad_request"))
                return
            exchange = self._exchange
            if isinstance(event, h11.Request):
                self._begin_exchange(event)
            elif exchange is None or event is h11.NEED_DATA:
                break
            elif event is h11.PAUSED:
                self.transport.pause_reading()
                break
            elif isinstance(event, h11.EndOfMessage):
                exchange.end_body()
                if exchange.response_complete:
                    self._discard_limit = None
                    self._stop_timer()
                    self._note_answer()
                    self._end_exchange()
            elif isinstance(event, h11.Data) and not exchange.response_complete:
                exchange.receive_body(event.data)
                if len(exchange.body) > _HIGH_WATER:
                    self.transport.pause_reading()
        if self._timer is None and self._parser.has_part_of_head:
            self._start_timer(self._limits.head_time, self._on_timeout)

    def _begin_exchange(self, request: h11.Request) -> None:
        self._stop_timer()
        self._client_connection.request_started()
        assert self._parser.connection is not None
        self._exchange = AsgiExchange(
            self._parser.connection, request, self.transport, self._writable, self._on_response
        )
        scope = scope_of(request, self.transport, self._client)
        task = self._loop.create_task(self._exchange.run(self._state.app, scope))
        self._state.tasks.add(task)
        task.add_done_callback(self._state.tasks.discard)

    def _end_exchange(self) -> None:
        self._exchange = None
        self._parser.next_request()

    def _on_response(self) -> None:
        """Go on with the next request."""
        assert self._exchange is not None
        wipe_bytearray(self._exchange.body)
        self._client_connection.request_finished()
        if self.transport.is_closing():
            self._close()
            return
        self._note_answer()
        self.transport.resume_reading()
        if self._parser.body_complete:
            self._end_exchange()
            self._handle_events()
        else:
            # Refused before all of it came. To close now could make the sender miss the answer.
            self._discard_limit = self._limits.body
            self._start_timer(self._limits.body_time, self.transport.abort)

    def _on_timeout(self) -> None:
        self._refuse(HttpError("request_timeout"))

    def _refuse(self, refusal: HttpError) -> None:
        """Send an error that is not the application's, and close."""
        exchange = self._exchange
        if not (self.transport.is_closing() or (exchange is not None and exchange.response_started)):
            self.transport.write(refusal.to_http_response(last=True))
        if exchange is not None:
            exchange.disconnect()
        self._close()
        self._state.sweeper.soon(self._loop)  # the parser's errors hold what it stumbled over, and each other

    # Time.

    def _note_answer(self) -> None:
        self._answered = self._loop.time()
        if self._idle_timer is None:
            self._idle_timer = self._loop.call_later(KEEP_ALIVE, self._close_if_idle)

    def _close_if_idle(self) -> None:
        """Close a connection on which nothing happens; one timer for many requests, so it may come too early."""
        self._idle_timer = None
        if self._job is not None or self._exchange is not None or self._timer is not None:
            return  # whoever answers sets the timer again
        left = self._answered + KEEP_ALIVE - self._loop.time()
        if left > 0:
            self._idle_timer = self._loop.call_later(left, self._close_if_idle)
        else:
            self._close()

    def _start_timer(self, seconds: float, action: Callable[[], None]) -> None:
        self._stop_timer()
        self._timer = self._loop.call_later(seconds, action)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
