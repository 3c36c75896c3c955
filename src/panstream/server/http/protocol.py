"""HTTP/1.1 on a connection: a fast path for events, the ASGI application for everything else, and time limits.

Only documented interfaces of asyncio and h11 are used. h11 is pure Python: a parser in C has buffers that cannot be
wiped.
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
    """What all connections of a server share. It counts no requests: the number of them is not public.

    Args:
        app: Answers what does not take the fast path.
        limits: Sizes and times.
        fast_path: Receives batches of events.
        beacons: Receives the beacons of a website, if there is one.
    """

    def __init__(
        self, app: Application, limits: Limits, fast_path: FastPath, beacons: BeaconBuffer | None = None
    ) -> None:
        self.app = app
        self.limits = limits
        self.fast_path = fast_path
        self.beacons = beacons
        self.gc_scheduler = GcScheduler()
        self.connections: set[EventProtocol] = set()
        self.tasks: set[asyncio.Task[None]] = set()  # of the application
        self.scratch = bytearray(_SCRATCH)  # receive buffer; its bytes are processed or copied, and wiped, at once
        self.view = memoryview(self.scratch)
        self.cells = np.frombuffer(self.scratch, np.uint8)


class EventProtocol(asyncio.BufferedProtocol):
    """The protocol of one connection."""

    transport: asyncio.Transport
    _client: ClientAddress | None = None
    _timer: asyncio.TimerHandle | None = None  # for a head, or a body that the application does not wait for
    _idle_timer: asyncio.TimerHandle | None = None
    _discard_limit: int | None = None  # bytes of a refused body that are still read and discarded
    _exchange: AsgiExchange | None = None  # the request that the application answers
    _job: Job | None = None  # the current request on the fast path
    _body: RequestBody | None = None  # its body, while that is received
    _body_started = 0.0
    _pipelined = b""  # bytes behind it
    _last = False  # whether the connection is closed after it
    _answered = 0.0  # time of the last response

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
        """Start the timeout for the first request."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self._state.connections.add(self)
        address = transport.get_extra_info("peername")
        if self._state.beacons is not None and address:
            self._client = address[0], address[1]  # only beacons need it; it is dropped with the connection
        self._start_timer(self._limits.head_time, self._on_timeout)

    def connection_lost(self, exc: Exception | None) -> None:
        """Wipe what was received, stop timers, and free the connection."""
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
            # Breaks the reference cycle with the transport, so that the connection is freed now and not by the
            # garbage collector, which would stop the server while it examines thousands of others.
            del self.transport
        else:
            self._state.gc_scheduler.collect_soon(self._loop)

    def pause_writing(self) -> None:
        """Suspend the application: the transport's write buffer is full."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """Resume the application."""
        self._writable.set()

    def shutdown(self) -> None:
        """Close the connection, after the current response if there is one."""
        if self._job is not None:
            self._last = True
        elif self._exchange is not None and not self._exchange.response_complete:
            self._exchange.keep_alive = False
        else:
            self._close()

    def _close(self) -> None:
        """Close the transport, and wipe unparsed bytes now: in TLS the client may delay ``connection_lost``."""
        self.transport.close()
        self._exchange = None
        self._pipelined = b""
        self._parser.wipe()

    # The fast path.

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the memory for the next bytes: that of the current body, so that they are not copied."""
        if self._body is None:
            return self._state.view
        try:
            return self._body.free_space()
        except HttpError as refusal:
            self._refuse_body(refusal)
        return self._state.view

    def buffer_updated(self, nbytes: int) -> None:
        """Process received bytes, and wipe the shared receive buffer."""
        job = self._job
        view = self._state.view
        if self._body is not None and job is not None:
            if job.add_received(nbytes):
                self._submit(job)
            return
        try:
            if job is not None:
                self._pipelined += view[:nbytes]
                self.transport.pause_reading()
            else:
                remaining = nbytes - self._take_beacons(nbytes)
                if remaining and not self._begin_fast_path(remaining):
                    self._receive(view[:remaining])
        finally:
            wipe(self._state.cells[:nbytes])
            clear_registers()

    @property
    def _between_requests(self) -> bool:
        """Whether the next byte may start a request."""
        return self._parser.between_requests and self._discard_limit is None and not self.transport.is_closing()

    def _take_beacons(self, count: int) -> int:
        """Process complete beacons at the start of the receive buffer, and move the rest up.

        Returns:
            The number of bytes that were processed.
        """
        state = self._state
        beacons = self._state.beacons
        taken = 0
        if beacons is None or self._client is None or not self._between_requests:
            return 0
        answers = []
        while taken < count and (beacon := beacons.read(state.scratch, taken, count, self._client[0])) is not None:
            answer, taken = beacon
            answers.append(answer)
        if taken:
            self._stop_timer()
            self._client_connection.request_started()
            self._client_connection.request_finished()
            self.transport.write(b"".join(answers))
            self._note_answer()
            state.view[: count - taken] = state.view[taken:count]
        return taken

    def _begin_fast_path(self, count: int) -> bool:
        """Start a request on the fast path; False if it has to take the general one."""
        view = self._state.view
        if not self._between_requests:
            return False
        admitted = self._fast_path.admit(self._state.scratch, min(count, self._limits.head))
        if admitted is None:
            return False
        job, body, begin = admitted
        stop = min(count, begin + body.expected)
        body.data[: stop - begin] = view[begin:stop]
        complete = job.add_received(stop - begin)
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
        """Submit a complete body: from here on its memory belongs to another thread."""
        self._body = None
        self._stop_timer()
        self._fast_path.submit(job, self._on_job_done)

    def _on_job_done(self, answer: bytes, good: bool) -> None:
        """Write the response, and process what was received meanwhile."""
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
            self._state.gc_scheduler.collect_soon(self._loop)
        if self._pipelined:
            pipelined = self._pipelined
            self._pipelined = b""
            self._state.view[: len(pipelined)] = pipelined
            self.transport.resume_reading()
            self.buffer_updated(len(pipelined))

    def _check_body_rate(self) -> None:
        """Refuse a body that is received too slowly; otherwise check again at its new deadline."""
        if self._body is None:
            return
        remaining = self._body_started + self._limits.body_timeout(self._body.size) - self._loop.time()
        if remaining > 0:
            self._start_timer(remaining, self._check_body_rate)
        else:
            self._refuse_body(HttpError("request_timeout"))

    def _refuse_body(self, refusal: HttpError) -> None:
        """Refuse an incomplete body; the rest is read and discarded, so that the sender reads the response."""
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

    # The general path: h11 and the application.

    def _receive(self, data: memoryview) -> None:
        """Pass received bytes to the parser, or discard those of a refused body."""
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
        """Continue with the next request, after the application's response."""
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
            # The body is incomplete. Closing now would reset the connection, and the sender could miss the response.
            self._discard_limit = self._limits.body
            self._start_timer(self._limits.body_time, self.transport.abort)

    def _on_timeout(self) -> None:
        self._refuse(HttpError("request_timeout"))

    def _refuse(self, refusal: HttpError) -> None:
        """Send an error response, unless the application has started one, and close."""
        exchange = self._exchange
        if not (self.transport.is_closing() or (exchange is not None and exchange.response_started)):
            self.transport.write(refusal.to_http_response(last=True))
        if exchange is not None:
            exchange.disconnect()
        self._close()
        # The parser's exceptions are in a reference cycle, and hold the bytes that they complain about.
        self._state.gc_scheduler.collect_soon(self._loop)

    # Timers.

    def _note_answer(self) -> None:
        self._answered = self._loop.time()
        if self._idle_timer is None:
            self._idle_timer = self._loop.call_later(KEEP_ALIVE, self._close_if_idle)

    def _close_if_idle(self) -> None:
        """Close an idle connection; since one timer serves many requests, it may fire early, and is then set again."""
        self._idle_timer = None
        if self._job is not None or self._exchange is not None or self._timer is not None:
            return  # the response sets the timer again
        remaining = self._answered + KEEP_ALIVE - self._loop.time()
        if remaining > 0:
            self._idle_timer = self._loop.call_later(remaining, self._close_if_idle)
        else:
            self._close()

    def _start_timer(self, seconds: float, action: Callable[[], None]) -> None:
        self._stop_timer()
        self._timer = self._loop.call_later(seconds, action)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
