"""The ASGI exchange: scope, body and response, and applications that send no response."""

import asyncio
import json
import socket
from collections.abc import Callable
from typing import Any

import h11
import pytest

from panstream.server.http.asgi import AsgiExchange, scope_of
from tests.server.server_live import EVENTS, LINES, Live, lines
from tests.waiting import PATIENCE

GET = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"


class Wire(asyncio.Transport):
    """Takes what is written."""

    written = b""
    closed = False

    def write(self, data: Any) -> None:
        self.written += bytes(data)

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def resume_reading(self) -> None:
        return


def exchanged(app: Any, meanwhile: Callable[[AsgiExchange, "asyncio.Task[None]"], None] | None = None) -> Wire:
    """Have an application answer one request, and return what it wrote."""

    async def run() -> Wire:
        wire = Wire()
        writable = asyncio.Event()
        writable.set()
        connection = h11.Connection(h11.SERVER)
        connection.receive_data(GET)
        request = connection.next_event()
        assert isinstance(request, h11.Request)
        exchange = AsgiExchange(connection, request, wire, writable, lambda: None)
        task = asyncio.create_task(exchange.run(app, scope_of(request, wire, None)))
        await asyncio.sleep(0)
        if meanwhile is not None:
            meanwhile(exchange, task)
        await asyncio.wait([task])
        if not task.cancelled() and task.exception() is not None:
            assert isinstance(task.exception(), ZeroDivisionError)
        return wire

    return asyncio.run(run())


async def silent(scope: Any, receive: Any, send: Any) -> None:
    return


async def failing(scope: Any, receive: Any, send: Any) -> None:
    raise ZeroDivisionError


async def failing_halfway(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    raise ZeroDivisionError


async def waiting(scope: Any, receive: Any, send: Any) -> None:
    while (await receive())["type"] != "http.disconnect":
        continue


@pytest.mark.parametrize("app", [silent, failing], ids=["silent", "failing"])
def test_an_application_that_does_not_answer(app: Any) -> None:
    wire = exchanged(app)
    assert wire.written.startswith(b"HTTP/1.1 500 ")
    assert b"connection: close\r\n" in wire.written
    assert json.loads(wire.written.partition(b"\r\n\r\n")[2])["error"]["code"] == "internal"
    assert wire.closed


def test_an_application_that_fails_in_its_answer() -> None:
    wire = exchanged(failing_halfway)
    assert (wire.written.count(b"HTTP/1.1 "), wire.closed) == (1, True)


def test_an_application_that_is_not_done_when_the_server_stops() -> None:
    wire = exchanged(waiting, lambda exchange, task: task.cancel() and None)
    assert wire.written.startswith(b"HTTP/1.1 503 ")
    assert b'"code":"unavailable"' in wire.written


def test_nothing_is_written_to_who_is_gone() -> None:
    wire = exchanged(waiting, lambda exchange, task: exchange.disconnect())
    assert (wire.written, wire.closed) == (b"", False)


def test_head_has_the_head_of_get(live: Live) -> None:
    get = live.ask("GET", "/healthz")
    head = live.ask("HEAD", "/healthz")
    assert (get.status, head.status, head.body) == (200, 200, b"")
    assert get.headers["content-length"] == head.headers["content-length"] == str(len(get.body))
    assert get.headers["date"].endswith(" GMT")


@pytest.mark.parametrize("first", [b"GET /healthz HTTP/1.0\r\n", b"GET /healthz HTTP/1.1\r\nConnection: close\r\n"])
def test_the_connection_ends_where_the_client_wants_it(live: Live, first: bytes) -> None:
    """With what is behind the request, whatever that is."""
    for behind in (b"", GET, b"\x00\x01"):
        found = live.raw(first + b"Host: localhost\r\n\r\n" + behind)
        assert found.startswith(b"HTTP/1.1 200 OK\r\n")
        assert found.count(b"HTTP/1.1 ") == 1
        assert b"connection: close\r\n" in found.lower()


def test_a_client_that_waits_to_be_told_to_continue(live: Live) -> None:
    body = lines(3)
    head = f"POST {EVENTS} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {LINES}\r\nContent-Length: {len(body)}\r\n"
    with socket.create_connection((live.host, live.port), timeout=PATIENCE) as connection:
        connection.sendall(head.encode() + b"Expect: 100-continue\r\n\r\n")
        assert connection.recv(1000) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(body)
        assert connection.recv(15) == b"HTTP/1.1 200 OK"


def test_a_request_behind_one_that_was_refused_before_its_body_came(live: Live) -> None:
    refused = b"POST /nowhere HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n"
    with socket.create_connection((live.host, live.port), timeout=PATIENCE) as connection:
        connection.sendall(refused)
        assert connection.recv(12) == b"HTTP/1.1 404"
        connection.sendall(bytes(100_000) + GET)
        found = b""
        while b'"status":"ok"' not in found:
            piece = connection.recv(65536)
            assert piece, found
            found += piece


def test_an_upgrade_is_not_made(live: Live) -> None:
    upgrade = b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
    with socket.create_connection((live.host, live.port), timeout=PATIENCE) as connection:
        for _ in range(2):
            connection.sendall(GET[:-2] + upgrade)
            found = b""
            while b'"status":"ok"' not in found:
                found += connection.recv(65536)
            assert found.startswith(b"HTTP/1.1 200 OK\r\n")
