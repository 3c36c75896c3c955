"""A connection is closed when nothing happens on it, and never while a request is under way. The clock is the
test's.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import Any

import pytest

from panstream.server.auth import Limits, QuotaTracker
from panstream.server.http.connection_limiter import ClientConnection, ConnectionLimiter
from panstream.server.http.protocol import KEEP_ALIVE, EventProtocol, ServerState
from panstream.server.ingest.jobs import FastPath, Job, read_head
from panstream.server.ingest.request_bodies import RequestBody

KEEP = KEEP_ALIVE
PATIENT = Limits(head_time=1000.0, body_time=1000.0, body_rate=0.01)
FIRST = b"POST /fast HTTP/1.1\r\n"
REQUESTS = {
    "get": b"GET /long HTTP/1.1\r\nHost: a\r\n\r\n",
    "fast": FIRST + b"Host: a\r\nContent-Length: 3\r\n\r\nabc",
    "chunked": b"POST /long HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
}
ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


class Clockwork(asyncio.SelectorEventLoop):
    """An event loop whose clock the test advances."""

    now = 0.0

    def time(self) -> float:
        return self.now

    def turn(self) -> None:
        """Do everything that can be done now."""
        for _ in range(20):
            self.run_until_complete(asyncio.sleep(0))

    def wait(self, seconds: float) -> None:
        """Let time pass, in steps, so that timers that set timers are seen."""
        end = self.now + seconds
        while self.now < end:
            self.now = min(end, self.now + KEEP / 5)
            self.turn()


class Wire(asyncio.Transport):
    """Takes what the server writes."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.closed = False

    def write(self, data: Any) -> None:
        self.written += bytes(data)

    def close(self) -> None:
        self.closed = True

    abort = close

    def is_closing(self) -> bool:
        return self.closed

    def pause_reading(self) -> None:
        return

    def resume_reading(self) -> None:
        return


class HeldPath(FastPath):
    """Admits every request to the fast path, and answers when the test says so."""

    def __init__(self, held: list[Callable[[], None]]) -> None:
        self.first = FIRST
        self._held = held

    def admit(self, data: bytearray, size: int) -> tuple[Job, RequestBody, int] | None:
        found = read_head(data, 0, size, self.first)
        if found is None:
            return None
        body = RequestBody(QuotaTracker(Limits()), "json", "identity", expected=int(found[0]["content-length"]))
        body.ensure_capacity(3)
        return Job(body), body, found[1]

    def abandon(self, job: Job) -> None:
        return

    def submit(self, job: Job, tell: Callable[[bytes, bool], None]) -> None:
        self._held.append(lambda: tell(ANSWER, True))


class Connection:
    """One connection of a server whose every answer is held back until ``answer`` is called."""

    def __init__(self, loop: Clockwork, limits: Limits = PATIENT) -> None:
        self.loop = loop
        self.held = list[Callable[[], None]]()
        self.wire = Wire()

        async def app(scope: Any, receive: Any, send: Any) -> None:
            while (await receive())["more_body"]:
                continue
            future = loop.create_future()
            self.held.append(lambda: future.set_result(None))
            await future
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
            await send({"type": "http.response.body", "body": b"ok"})

        client_connection = ClientConnection(ConnectionLimiter(limits), None, 0)  # type: ignore[arg-type]  # which the limiter does not count
        self.protocol: Any = EventProtocol(ServerState(app, limits, HeldPath(self.held)), loop, client_connection)
        self.protocol.connection_made(self.wire)

    def send(self, data: bytes) -> None:
        buffer = self.protocol.get_buffer(-1)
        while data:
            part = data[: len(buffer)]
            data = data[len(buffer) :]
            buffer[: len(part)] = part
            self.protocol.buffer_updated(len(part))
            buffer = self.protocol.get_buffer(-1)
        self.loop.turn()

    def answer(self) -> None:
        assert len(self.held) == 1, "requests are taken one after the other"
        self.held.pop()()
        self.loop.turn()

    @property
    def answers(self) -> int:
        return self.wire.written.count(b"HTTP/1.1 200")


@pytest.fixture
def loop() -> Iterator[Clockwork]:
    made = Clockwork()
    yield made
    made.close()


@pytest.mark.slow
@pytest.mark.parametrize("together", [False, True], ids=["one by one", "in one packet"])
@pytest.mark.parametrize("kinds", list(product(REQUESTS, repeat=3)), ids="-".join)
def test_busy_connections_are_kept_and_idle_ones_closed(loop: Clockwork, kinds: Sequence[str], together: bool) -> None:
    """Whatever came before on the connection, a request that takes long is answered; then idleness ends it."""
    connection = Connection(loop)
    if together:
        connection.send(b"".join(REQUESTS[kind] for kind in kinds))
    for number, kind in enumerate(kinds):
        if not together:
            connection.send(REQUESTS[kind])
        loop.wait(4 * KEEP)
        assert not connection.wire.closed, f"cut off during request {number + 1}"
        connection.answer()
        assert connection.answers == number + 1
        if not together:
            loop.wait(0.9 * KEEP)
            assert not connection.wire.closed, f"closed too soon after request {number + 1}"
    loop.wait(1.2 * KEEP)
    assert connection.wire.closed


def test_a_connection_that_is_idle_after_a_refused_body_is_closed(loop: Clockwork) -> None:
    async def refuse(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 404, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body"})

    connection = Connection(loop)
    connection.protocol._state.app = refuse
    connection.send(b"POST /long HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\n")
    assert connection.wire.written.startswith(b"HTTP/1.1 404 ")
    loop.wait(2 * KEEP)
    connection.send(b"late")
    loop.wait(0.9 * KEEP)
    assert not connection.wire.closed
    loop.wait(0.3 * KEEP)
    assert connection.wire.closed


def test_a_head_that_begins_behind_a_request_has_a_time_limit(loop: Clockwork) -> None:
    connection = Connection(loop, Limits(head_time=3 * KEEP))
    connection.send(REQUESTS["get"] + REQUESTS["get"][:-1])
    connection.answer()
    loop.wait(2.8 * KEEP)
    assert not connection.wire.closed
    loop.wait(0.4 * KEEP)
    assert b"HTTP/1.1 408 " in connection.wire.written
    assert connection.wire.closed


@pytest.mark.parametrize("kind", ["fast", "chunked"])
def test_a_body_that_comes_slowly_is_waited_for(loop: Clockwork, kind: str) -> None:
    connection = Connection(loop)
    connection.send(REQUESTS["get"])
    connection.answer()
    loop.wait(0.5 * KEEP)
    begin = REQUESTS[kind].index(b"abc") + 1
    connection.send(REQUESTS[kind][:begin])
    loop.wait(4 * KEEP)
    connection.send(REQUESTS[kind][begin:])
    loop.wait(4 * KEEP)
    connection.answer()
    assert (connection.answers, connection.wire.closed) == (2, False)


BEHIND = b"GET /secret HTTP/1.1\r\nX: y"
LAST = {
    "closing": (REQUESTS["get"].replace(b"Host", b"Connection: close\r\nHost") + BEHIND, True),
    "cut chunk": (REQUESTS["chunked"].replace(b"0\r\n\r\n", b"secret\r\n") + BEHIND, False),
    "fast": (REQUESTS["fast"] + BEHIND, True),
}


@pytest.mark.parametrize("kind", LAST)
def test_nothing_waits_until_the_other_side_closes_too(loop: Clockwork, kind: str) -> None:
    """In TLS that may be seconds, during which the connection is not lost."""
    connection = Connection(loop)
    data, answered = LAST[kind]
    connection.send(data)
    protocol = connection.protocol
    protocol.shutdown()
    if answered:
        connection.answer()
    assert connection.wire.closed
    assert (connection.answers, protocol._parser._unread) == (answered, b"")
    assert (protocol._pipelined, protocol._exchange, protocol._parser.connection) == (b"", None, None)


def test_a_body_must_come_at_some_rate(loop: Clockwork) -> None:
    """After the first seconds: what comes faster is waited for, what stands still is refused."""
    head = FIRST + b"Host: a\r\nContent-Length: 1000000\r\n\r\n"
    steady, slow = (Connection(loop, Limits(body_rate=1000)) for _ in range(2))
    for each in (steady, slow):
        each.send(head)
    for _ in range(8):
        steady.send(bytes(2500))
        slow.send(bytes(100))
        loop.wait(2.0)
    assert b" 408 " not in steady.wire.written
    assert slow.wire.written.startswith(b"HTTP/1.1 408 ")
    loop.wait(20.0)  # the limit of every body
    assert steady.wire.written.startswith(b"HTTP/1.1 408 ")


def test_memory_for_a_body_is_set_aside_as_it_comes() -> None:
    gate = QuotaTracker(Limits())
    body = RequestBody.from_headers({"content-type": "text/csv", "content-length": str(16 << 20)}, gate, "token")
    held = [gate._memory]
    while body.size < body.expected:
        body.size += min(len(body.free_space()), 100_000)
        held.append(gate._memory)
        assert held[-1] <= 2 * body.size + (2 << 20)
    assert held[0] < 2 << 20
    body.wipe()
    assert gate._memory == 0
