"""The fast path of events: it reads the same requests as the general parser, and leaves the rest to that."""

import contextlib
import json
import socket
from dataclasses import replace
from pathlib import Path

import h11
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from panstream.engine.rows.row_batch import BatchResult
from panstream.server.auth import Limits
from panstream.server.ingest.buffer_wiping import RequestBufferPool
from panstream.server.ingest.jobs import BatchOutcome, read_head
from tests.server.server_live import ARROW, EVENTS, LINES, Live, arrow, lines, served, write_config
from tests.waiting import PATIENCE

FIRST = f"POST {EVENTS} HTTP/1.1\r\n".encode()
LIMITS = Limits(body=200_000, head=4_000, max_concurrent=4)


def request(body: bytes, kind: str = LINES, *more: str, length: int | None = None) -> bytes:
    size = len(body) if length is None else length
    head = ["Host: localhost", f"Content-Type: {kind}", f"Content-Length: {size}", *more]
    return FIRST + "".join(f"{line}\r\n" for line in head).encode() + b"\r\n" + body


def answers(live: Live, *pieces: bytes, count: int) -> list[tuple[int, bytes]]:
    """Send the pieces, one packet each, and return status and body of so many answers."""
    found: list[tuple[int, bytes]] = []
    with socket.create_connection((live.host, live.port), timeout=PATIENCE) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        client = h11.Connection(h11.CLIENT)
        for piece in pieces:
            connection.sendall(piece)
        trailing = b""
        while len(found) < count:
            client = h11.Connection(h11.CLIENT)
            client.send(h11.Request(method="POST", target="/", headers=[("host", "a")]))
            client.send(h11.EndOfMessage())
            client.receive_data(trailing) if trailing else None
            status = 0
            body = b""
            while True:
                event = client.next_event()
                if event is h11.NEED_DATA:
                    data = connection.recv(65536)
                    client.receive_data(data)
                elif isinstance(event, h11.Response):
                    status = event.status_code
                elif isinstance(event, h11.Data):
                    body += bytes(event.data)
                elif isinstance(event, h11.EndOfMessage):
                    break
            trailing = bytes(client.trailing_data[0])
            found.append((status, body))
    return found


WORDS = st.sampled_from(
    ["Host", "host", "Content-Length", "Transfer-Encoding", "Expect", "Connection", "Content-Type", "X y", "X", ""]
)
VALUES = st.sampled_from(
    ["a", "3", "03", "+3", "3, 3", "", "keep-alive", "close", "chunked", " 3 ", "a\tb", "\x7f", "é"]
)


@given(
    st.lists(st.tuples(WORDS, VALUES), max_size=5),
    st.sampled_from(["\r\n", "\n", "\r", "\r\n ", "\0\r\n"]),
    st.sampled_from([": ", ":", " : "]),
)
@example([("Host", "a"), ("Content-Length", "3")], "\r\n", ": ")
@settings(max_examples=400, deadline=None)
def test_a_head_is_read_as_the_general_parser_reads_it_or_left_to_it(
    pairs: list[tuple[str, str]], end: str, colon: str
) -> None:
    text = "".join(f"{name}{colon}{value}{end}" for name, value in pairs) + "\r\n"
    data = FIRST + text.encode("latin-1") + b"abc"
    found = read_head(bytearray(data), 0, len(data), FIRST)
    if found is None:
        return
    parser = h11.Connection(h11.SERVER)
    parser.receive_data(data)
    event = parser.next_event()
    assert isinstance(event, h11.Request)
    assert {name.decode(): value.decode() for name, value in event.headers} == found[0]
    assert len(event.headers) == len(found[0])
    left = data[found[1] :]
    expected = int(found[0]["content-length"])
    body = parser.next_event()
    given_up = bytes(body.data) if isinstance(body, h11.Data) else b""
    assert given_up == left[:expected]


@given(st.binary(max_size=80))
@settings(max_examples=300, deadline=None)
def test_any_bytes_are_left_to_the_general_parser_or_read(noise: bytes) -> None:
    data = bytearray(FIRST + noise + b"\r\n\r\n")
    found = read_head(data, 0, len(data), FIRST)
    assert found is None or found[1] <= len(data)


def test_usual_heads_are_read() -> None:
    data = bytearray(request(b"", ARROW, "Connection: keep-alive", "Panstream-Producer: a/1", "X-Other: b:c"))
    found = read_head(data, 0, len(data), FIRST)
    assert found is not None
    assert found[0]["panstream-producer"] == "a/1"
    assert found[0]["x-other"] == "b:c"


def test_requests_cut_anywhere(live: Live) -> None:
    """Cut at any place, a request is the same request: a whole head takes the fast path, half a one the other."""
    whole = request(lines(4))
    for cut in range(1, len(whole), 7):
        ((status, body),) = answers(live, whole[:cut], whole[cut:], count=1)
        assert (status, b'"rows":4' in body) == (200, True)


def test_requests_sent_before_the_answer_to_the_last(live: Live) -> None:
    """Several in one packet, by either way, are answered one after the other."""
    general = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    chunked = FIRST + f"Host: localhost\r\nContent-Type: {LINES}\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    body = lines(5)
    chunked += f"{len(body):x}\r\n".encode() + body + b"\r\n0\r\n\r\n"
    pieces = [request(lines(1)), request(lines(2)), general, chunked, request(lines(3)), request(arrow(9), ARROW)]
    found = answers(live, b"".join(pieces), count=6)
    assert [status for status, _ in found] == [200] * 6
    rows = [f'"rows":{n},'.encode() in body for n, (_, body) in zip((1, 2, 0, 5, 3, 9), found, strict=True)]
    assert rows == [True, True, False, True, True, True]
    late = answers(live, request(arrow(9), ARROW), request(lines(2)), general, count=3)
    assert [status for status, _ in late] == [200] * 3


def test_refusals_on_the_fast_path_keep_the_connection(live: Live) -> None:
    found = answers(live, request(b"\0" * 99, ARROW) + request(lines(2)), count=2)
    assert [status for status, _ in found] == [400, 200]
    assert b'"code":"bad_body"' in found[0][1]


@pytest.mark.slow
def test_a_body_that_does_not_come(tmp_path: Path) -> None:
    """It is refused after a while, its sender may go on to send it, and places and memory are free again."""
    with served(write_config(tmp_path), replace(LIMITS, body_time=0.5)) as hasty:
        for _ in range(LIMITS.max_concurrent + 1):
            answer = hasty.raw(request(lines(2), length=5_000), end=False)
            assert answer.startswith(b"HTTP/1.1 408 ")
            assert b"connection: close" in answer
        whole = request(lines(2))  # in one packet: a busy machine would be too slow for the body of another
        assert answers(hasty, whole, count=1)[0][0] == 200


def test_a_sender_that_goes_away(live: Live) -> None:
    for _ in range(LIMITS.max_concurrent + 1):
        with socket.create_connection((live.host, live.port), timeout=PATIENCE) as connection:
            connection.sendall(request(lines(2), length=5_000))
    with contextlib.closing(socket.create_connection((live.host, live.port), timeout=PATIENCE)) as connection:
        connection.sendall(request(arrow(50), ARROW))  # and does not wait for the answer
    for _ in range(200):
        if live.post(lines(2)).status == 200:
            break
    else:
        raise AssertionError("places were not given back")


def test_more_than_may_be_under_way_is_refused(tmp_path: Path) -> None:
    with served(write_config(tmp_path), Limits(max_concurrent=1)) as server:
        with socket.create_connection((server.host, server.port), timeout=PATIENCE) as connection:
            connection.sendall(request(lines(2), length=5_000))
            for _ in range(200):
                answer = server.post(lines(2))
                if answer.status == 429:
                    break
            assert answer.code == "rate_limited"
        for _ in range(200):
            if (answer := server.post(lines(2))).status == 200:
                break
        assert answer.status == 200


def test_buffers_are_used_again() -> None:
    buffers = RequestBufferPool()
    first = buffers.take(200_000)
    assert len(first) >= 200_000
    buffers.give_back(first)
    assert buffers.take(150_000) is first
    assert buffers.take(150_000) is not first
    large = buffers.take(1 << 24)
    buffers.give_back(large)
    assert buffers.take(1 << 24) is not large


@pytest.mark.parametrize("rows", [0, 1, 12_345])
@pytest.mark.parametrize("new", [True, False])
@pytest.mark.parametrize(("skipped", "late"), [([], []), ([1, 2], []), ([], [7])])
def test_the_usual_answer_says_what_the_general_one_does(
    rows: int, new: bool, skipped: list[int], late: list[int]
) -> None:
    applied = BatchResult(new=new, skipped=np.array(skipped, np.int64), late=np.array(late, np.int64))
    outcome = BatchOutcome(applied=applied, rows=rows)
    head, _, body = outcome.to_http_response().partition(b"\r\n\r\n")
    assert json.loads(body) == outcome.to_json()
    assert f"content-length: {len(body)}".encode() in head
