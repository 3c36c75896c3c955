"""Admission of clients while another client uses up connections, handshakes and memory."""

import asyncio
import contextlib
import gc
import http.client
import itertools
import re
import socket
import ssl
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from panstream.primitives.certificates import Authority
from panstream.server.auth import Limits, QuotaTracker, create_token
from panstream.server.errors import HttpError
from panstream.server.http.connection_limiter import _POLL_INTERVAL, ConnectionLimiter
from panstream.server.ingest.jobs import Job, _FairQueue
from panstream.server.ingest.request_bodies import RequestBody
from tests.server.server_live import EVENTS, LINES, Live, lines, served, write_config
from tests.waiting import PATIENCE, until


class Line:
    """Stands for a socket."""

    ended = False

    def shutdown(self, how: int) -> None:
        self.ended = True

    def setblocking(self, flag: bool) -> None:
        pass

    def send(self, data: bytes) -> int:
        return len(data)

    def close(self) -> None:
        self.ended = True


def admitted(limiter: ConnectionLimiter, address: str, count: int = 1) -> list[Any]:
    return [limiter.admit(Line(), (address, 1)) for _ in range(count)]  # type: ignore[arg-type]


def test_the_client_with_most_connections_loses_some() -> None:
    limiter = ConnectionLimiter(Limits(connections=10, address_connections=8))
    clients = {
        name: admitted(limiter, name, count) for name, count in {"10.0.0.1": 2, "10.0.0.2": 6, "10.0.0.3": 2}.items()
    }
    new = admitted(limiter, "10.0.0.4", 4)
    assert all(new)
    assert [client.socket.ended for client in clients["10.0.0.2"]] == [True] * 4 + [False] * 2
    assert not any(client.socket.ended for name in ("10.0.0.1", "10.0.0.3") for client in clients[name])


def test_those_that_never_spoke_go_first_and_a_handshake_is_worth_something() -> None:
    now = [0.0]
    limiter = ConnectionLimiter(Limits(address_connections=4), clock=lambda: now[0])
    clients = admitted(limiter, "10.0.0.1", 4)
    for client in clients[:2] + clients[3:]:
        client.request_started()
        client.request_finished()
    (new,) = admitted(limiter, "10.0.0.1")
    assert [client.socket.ended for client in clients] == [False, False, True, False]
    new.request_started()
    new.request_finished()
    assert admitted(limiter, "10.0.0.1") == [None], "all are young"
    now[0] = 1.0
    assert all(admitted(limiter, "10.0.0.1"))
    assert [client.socket.ended for client in clients] == [True, False, True, False]


def test_nobody_makes_room_for_somebody_who_has_more() -> None:
    now = [0.0]
    limiter = ConnectionLimiter(Limits(connections=8), clock=lambda: now[0])
    few = admitted(limiter, "10.0.0.1", 2)
    many = admitted(limiter, "10.0.0.2", 6)
    for client in [*few, *many]:
        client.request_started()
    now[0] = 5.0
    for client in few:
        client.request_finished()
    assert admitted(limiter, "10.0.0.2") == [None]
    assert not any(client.socket.ended for client in few)


def test_busy_connections_stay_and_tokens_are_crowds_too() -> None:
    now = itertools.count(0.0, 2.0)
    limiter = ConnectionLimiter(Limits(connections=6), clock=lambda: next(now))
    hoarder = admitted(limiter, "10.0.0.1", 4)
    sender = admitted(limiter, "10.0.0.1", 2)
    for client in [*hoarder, *sender]:
        client.request_started("hoarder" if client in hoarder else "sender")
    assert admitted(limiter, "10.0.0.2") == [None], "all are busy"
    for client in [*sender, *hoarder]:
        client.request_finished()
    hoarder[0].request_started()
    for _ in range(2):
        (new,) = admitted(limiter, "10.0.0.2")
        new.request_started("another")
        new.request_finished()
    assert [client.socket.ended for client in hoarder] == [False, True, True, False]
    assert not any(client.socket.ended for client in sender)


def test_one_address_and_one_network_have_a_limit_of_their_own() -> None:
    limiter = ConnectionLimiter(Limits(address_connections=2))
    for addresses in (["10.0.0.1"] * 3, ["2001:db8::1", "2001:db8::2", "2001:db8::ffff:3"], ["::ffff:10.9.9.9"] * 3):
        clients = [admitted(limiter, address)[0] for address in addresses]
        assert [client.socket.ended for client in clients] == [True, False, False]
    assert not admitted(limiter, "2001:db8:0:1::1")[0].socket.ended
    busy = admitted(limiter, "10.0.0.7", 2)
    for client in busy:
        client.request_started()
    assert admitted(limiter, "10.0.0.7") == [None]


def test_nothing_is_kept_of_connections_that_are_closed() -> None:
    limiter = ConnectionLimiter(Limits())
    clients = [client for number in range(50) for client in admitted(limiter, f"10.0.0.{number}", 3)]
    for client in clients[:70]:
        client.request_started("token")
    assert limiter._open.sum() == 150
    for client in clients * 2:
        client.close()
        client.request_finished()  # too late
    assert not limiter._open.any()
    assert not limiter._connections
    assert not limiter._idle
    assert not limiter._silent
    assert not limiter._counts
    assert not any(client.bucket for client in clients)


def test_a_token_holds_half_of_what_others_leave() -> None:
    gate = QuotaTracker(Limits(memory=1024))
    for name, most in (("a", 512), ("b", 256), ("c", 128)):
        for _ in range(most // 64):
            gate.reserve(64, name)
        with pytest.raises(HttpError) as refused:
            gate.reserve(64, name)
        assert (refused.value.code, refused.value.retry_after) == ("rate_limited", 1)
    gate.release_memory(512, "a")
    gate.reserve(64, "c")


def test_tokens_take_turns() -> None:
    turns = _FairQueue()
    gate = QuotaTracker(Limits())
    for token, count in (("flood", 5), ("one", 2), ("other", 1)):
        for number in range(count):
            turns.put(Job(RequestBody(gate, "csv", "identity", token=token), sequence=number))
    turns.end()
    found = [
        (job.body.token, job.sequence) for job in iter(turns.get, None) if job is not None and job.body is not None
    ]
    assert [token for token, _ in found] == ["flood", "one", "other", "flood", "one", "flood", "flood", "flood"]
    assert [number for token, number in found if token == "flood"] == [0, 1, 2, 3, 4]


# With a flood held open, another token's posts are all accepted.


LIMITS = Limits(connections=48, address_connections=40, handshake_time=60.0, head_time=60.0)


def ask(server: Live, tls: ssl.SSLContext | None, token: str, body: bytes) -> int:
    if tls is None:
        connection = http.client.HTTPConnection(server.host, server.port, timeout=PATIENCE)
    else:
        connection = http.client.HTTPSConnection(server.host, server.port, timeout=PATIENCE, context=tls)
    with contextlib.closing(connection):
        connection.request("POST", EVENTS, body, {"Content-Type": LINES, "Authorization": f"Bearer {token}"})
        return connection.getresponse().status


@pytest.mark.slow
@pytest.mark.parametrize("secured", [False, True], ids=["plain", "tls"])
def test_with_a_flood_held_open_another_token_is_served(tmp_path: Path, secured: bool) -> None:
    """Half requests, idle and half-open connections and bad rows of one token; nothing is refused to the other."""
    identity = Authority(tmp_path).issue("localhost") if secured else None
    tls = ssl._create_unverified_context() if secured else None
    file = tmp_path / "tokens"
    flooding, honest = (create_token(file, name, ["ingest"]) for name in ("flooding", "honest"))
    head = f"POST {EVENTS} HTTP/1.1\r\nHost: a\r\nContent-Type: {LINES}\r\nAuthorization: Bearer {flooding}\r\n"
    half = f"{head}Content-Length: {16 << 20}\r\n\r\n".encode() + lines(3)
    bad = b'{"user": 1\n' * 500
    settings: dict[str, Any] = {"tokens": file}
    if identity is not None:
        settings |= {"certificate": identity.certificate, "private_key": identity.key}
    with served(write_config(tmp_path), LIMITS, **settings) as server, contextlib.ExitStack() as held:

        def connected() -> socket.socket:
            return held.enter_context(socket.create_connection((server.host, server.port), timeout=PATIENCE))

        def secure(connection: socket.socket) -> socket.socket:
            return connection if tls is None else held.enter_context(tls.wrap_socket(connection))

        for _ in range(20):
            secure(connected()).sendall(half)
        statuses = []
        for number in range(60):
            connected()  # in TLS, a handshake that is never finished
            statuses.append(ask(server, tls, honest, lines(2)))
            if number % 5 == 0:
                idle = secure(connected())
                idle.sendall(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
                assert idle.recv(15) == b"HTTP/1.1 200 OK"
                ask(server, tls, flooding, bad)
        assert statuses == [200] * 60
        assert len(server.running.state.connections) <= LIMITS.connections


@pytest.mark.slow
def test_a_handshake_has_a_deadline(tmp_path: Path) -> None:
    identity = Authority(tmp_path).issue("localhost")
    limits = Limits(handshake_time=0.2)
    with served(write_config(tmp_path), limits, certificate=identity.certificate, private_key=identity.key) as server:
        assert server.raw(b"") == b""
        assert server.raw(b"\x16\x03\x01") == b""


@pytest.mark.slow
def test_turned_away_when_all_are_busy(tmp_path: Path) -> None:
    with served(write_config(tmp_path), Limits(connections=2, body_time=60.0, body_rate=1)) as server:
        head = f"POST {EVENTS} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {LINES}\r\nContent-Length: 9999\r\n\r\n"
        with contextlib.ExitStack() as held:
            for _ in range(2):
                busy = held.enter_context(socket.create_connection((server.host, server.port), timeout=PATIENCE))
                busy.sendall(head.encode() + b"x")
            until(
                lambda: (
                    not (server.running.connection_limiter._idle or server.running.connection_limiter._silent)
                    and len(server.running.connection_limiter._connections) == 2
                )
            )
            answer = server.raw(b"")
            assert answer.startswith(b"HTTP/1.1 503 ")
            assert b"connection: close" in answer
        until(lambda: not server.running.connection_limiter._connections)
        assert server.get("/healthz").status == 200


@pytest.mark.slow
def test_whoever_finds_no_room_is_let_in_when_somebody_leaves(tmp_path: Path) -> None:
    with served(write_config(tmp_path), Limits(address_connections=2, body_time=60.0, body_rate=1)) as server:
        limiter = server.running.connection_limiter
        head = f"POST {EVENTS} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {LINES}\r\nContent-Length: 9999\r\n\r\n"
        where = (server.host, server.port)
        with contextlib.ExitStack() as held:
            busy = [held.enter_context(socket.create_connection(where, timeout=PATIENCE)) for _ in range(2)]
            for connection in busy:
                connection.sendall(head.encode() + b"x")
            until(lambda: not (limiter._idle or limiter._silent) and len(limiter._connections) == 2)
            waiting = held.enter_context(socket.create_connection(where, timeout=PATIENCE))
            waiting.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            until(lambda: bool(limiter._waiting))
            busy[0].close()
            assert waiting.recv(15) == b"HTTP/1.1 200 OK"
            assert len(limiter._connections) <= 2
        until(lambda: not (limiter._connections or limiter._waiting or limiter._replacements))


def test_an_address_that_comes_again_and_again_replaces_few_of_its_own() -> None:
    now = [0.0]
    limiter = ConnectionLimiter(Limits(address_connections=4), clock=lambda: now[0])
    admitted(limiter, "10.0.0.1", 4)
    assert sum(map(bool, admitted(limiter, "10.0.0.1", 100))) == 32
    now[0] = 1.0
    assert sum(map(bool, admitted(limiter, "10.0.0.1", 100))) == 32
    assert all(admitted(limiter, "10.0.0.2", 4))


@pytest.mark.parametrize(("flooders_speak", "looks"), [(False, 1), (True, 11)], ids=["silent", "half a handshake"])
def test_one_that_speaks_does_not_wait_for_silent_ones(flooders_speak: bool, looks: int) -> None:
    """Five hundred connections of its own address are open or wait; it is let in at the next look that can be.

    If the others spoke too, that is when the youngest handshake was worth its time. Time is the test's own.
    """
    now = [0.0]
    limiter = ConnectionLimiter(Limits(connections=512, address_connections=256), clock=lambda: now[0])
    let_in: list[Any] = []

    async def scene() -> int:
        limiter._start_handshake = lambda client: let_in.append(client.socket)  # type: ignore[method-assign]
        with contextlib.ExitStack() as held:

            def came(*, speaks: bool) -> socket.socket:
                near, far = socket.socketpair()
                held.enter_context(near)
                held.enter_context(far)
                if speaks:
                    far.send(b"x")
                limiter._receive(near, ("10.0.0.1", 1))
                return near

            for _ in range(500):
                came(speaks=flooders_speak)
            if flooders_speak:
                for client in list(limiter._connections):
                    client.request_started()
                    client.request_finished()
            assert len(limiter._connections) == 256
            newcomer = came(speaks=True)
            assert newcomer not in let_in
            count = 0
            while newcomer not in let_in:
                count += 1
                now[0] += _POLL_INTERVAL
                limiter._admit_readable()
            assert len(limiter._connections) == 256, "one went for it"
            limiter.close()
            return count

    assert asyncio.run(scene()) <= looks


def test_connections_are_limited_by_the_files_that_can_be_opened() -> None:
    for files, connections, waiting in ((None, 512, 2048), (984, 512, 280), (38, 19, 7), (2, 1, 1)):
        limiter = ConnectionLimiter(Limits(), files=files)
        assert (limiter.max_connections, limiter._max_waiting) == (connections, waiting)
        if files is not None and files > 2:
            assert limiter.max_connections + limiter._max_waiting + 3 * limiter._max_accepts <= files
    limiter = ConnectionLimiter(Limits(), files=38)
    admitted(limiter, "10.0.0.1", 60)
    assert len(limiter._connections) == 19


@pytest.mark.slow
def test_with_few_files_newcomers_are_served_and_the_log_says_why(tmp_path: Path) -> None:
    write_config(tmp_path)
    command = f"ulimit -n 64; exec {sys.executable} -m panstream.cli serve panstream.toml --port 0"
    with (tmp_path / "errors").open("w") as errors:
        process = subprocess.Popen(
            ["bash", "-c", command], cwd=tmp_path, stdout=subprocess.PIPE, stderr=errors, text=True
        )
    try:
        assert process.stdout is not None
        found = re.search(r"http://(.*):(\d+)", process.stdout.readline())
        assert found
        with contextlib.ExitStack() as held:
            for _ in range(120):
                held.enter_context(socket.create_connection((found[1], int(found[2])), timeout=PATIENCE))
            assert Live(found[1], int(found[2]), None).get("/healthz").status == 200
    finally:
        process.terminate()
        process.communicate()
    logged = (tmp_path / "errors").read_text().splitlines()
    assert len([line for line in logged if "the limit of open files allows" in line]) == 1


def test_whoever_waits_with_the_fewest_connections_is_let_in_first() -> None:
    limiter = ConnectionLimiter(Limits(connections=6, address_connections=4))
    let_in: list[str] = []
    limiter._start_handshake = lambda client: let_in.append(client.socket.name)  # type: ignore[attr-defined]
    many = admitted(limiter, "10.0.0.1", 4)
    few = admitted(limiter, "10.0.0.2", 2)
    for client in [*many, *few]:
        client.request_started()

    async def scene() -> None:
        for name, address in (("crowded", "10.0.0.1"), ("second", "10.0.0.2"), ("first", "10.0.0.3")):
            waiting = Line()
            waiting.name = name  # type: ignore[attr-defined]
            limiter._receive(waiting, (address, 1))  # type: ignore[arg-type]
        few[0].close()
        many[0].close()
        limiter.close()

    asyncio.run(scene())
    assert let_in == ["first", "second"]
    assert not limiter._waiting


@pytest.mark.parametrize("turns", range(5))
def test_no_connection_is_left_open_by_closing_the_door(turns: int) -> None:
    """Whatever the event loop has done so far with one that has just come."""

    async def ends(listening: socket.socket, caller: socket.socket) -> None:
        limiter = ConnectionLimiter(Limits())
        limiter.open(listening, lambda client: asyncio.Protocol(), None)
        await asyncio.sleep(0)
        caller.connect(listening.getsockname())
        for _ in range(turns):
            await asyncio.sleep(0)
        limiter.close()
        for client in list(limiter._connections):
            client.socket.close()  # a connection that was let in is the server's to close
        listening.close()
        await asyncio.sleep(0)

    with socket.create_server(("127.0.0.1", 0)) as listening, socket.socket() as caller:
        caller.settimeout(PATIENCE)
        asyncio.run(ends(listening, caller))
        gc.collect()
        with contextlib.suppress(ConnectionResetError):
            assert caller.recv(1) == b""  # its other end is closed
