"""Requests in pieces: read the same wherever they are cut, one after the other, with nothing left of them."""

import ast
from collections.abc import Iterator
from pathlib import Path

import h11
import pytest

import panstream.server
from panstream.server.http.request_parser import RequestParser

MAX_HEAD = 200
GET = b"GET /a?b=c HTTP/1.1\r\nHost: h\r\n\r\n"
POST = b"POST /p HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello"
CHUNKED = b"POST /c HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
CHUNKED += b"3\r\nabc\r\n2;x=y\r\nde\r\n0\r\nT: t\r\n\r\n"


def requests(data: bytes, piece: int) -> Iterator[tuple[bytes, bytes]]:
    """Yield target and body of every request."""
    parser = RequestParser(MAX_HEAD)
    target = b""
    body = b""
    for start in range(0, len(data), piece):
        parser.receive(data[start : start + piece])
        while (event := parser.next_event()) not in (h11.NEED_DATA, h11.PAUSED):
            if isinstance(event, h11.Request):
                target = event.target
                body = b""
            elif isinstance(event, h11.Data):
                body += event.data
            elif isinstance(event, h11.EndOfMessage):
                yield target, body
                parser.next_request()
    assert parser.between_requests


@pytest.mark.parametrize("piece", [1, 2, 3, 7, 50, 1000])
def test_requests_are_the_same_in_any_pieces(piece: int) -> None:
    expected = [(b"/a?b=c", b""), (b"/p", b"hello"), (b"/c", b"abcde"), (b"/p", b"hello"), (b"/a?b=c", b"")]
    assert list(requests(GET + POST + CHUNKED + POST + GET, piece)) == expected


@pytest.mark.parametrize("data", [POST, CHUNKED], ids=["length", "chunked"])
def test_what_comes_behind_a_request_waits_for_its_answer(data: bytes) -> None:
    parser = RequestParser(MAX_HEAD)
    parser.receive(data + GET)
    while not isinstance(parser.next_event(), h11.EndOfMessage):
        continue
    assert parser.next_event() is h11.PAUSED
    assert not parser.between_requests
    parser.next_request()
    event = parser.next_event()
    assert isinstance(event, h11.Request) and event.target == b"/a?b=c"


@pytest.mark.parametrize("data", [POST, CHUNKED], ids=["length", "chunked"])
def test_what_comes_behind_a_request_is_checked_like_the_first(data: bytes) -> None:
    parser = RequestParser(MAX_HEAD)
    parser.receive(data + b"GET / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n")
    while not isinstance(parser.next_event(), h11.EndOfMessage):
        continue
    parser.next_request()
    with pytest.raises(h11.RemoteProtocolError):
        parser.next_event()


@pytest.mark.parametrize(
    ("data", "too_long"),
    [
        (b"\x16\x03\x01", False),
        (b" GET / HTTP/1.1", False),
        (b"\r\n" + GET, False),
        (b"GET / HTTP/1.1\r\nHost: h\r\nHost: h\r\n\r\n", False),
        (b"GET / HTTP/1.1\r\nHost: h\r\nX: y\n", False),
        (b"GET / HTTP/2.7.1\r\nHost: h\r\n\r\n", False),
        (b"GET /" + b"a" * MAX_HEAD, True),
        (b"GET / HTTP/1.1\r\nHost: h\r\nX: " + b"a" * MAX_HEAD + b"\r\n\r\n", True),
    ],
)
def test_heads_that_are_refused(data: bytes, too_long: bool) -> None:
    parser = RequestParser(MAX_HEAD)
    parser.receive(data)
    with pytest.raises(h11.RemoteProtocolError):
        parser.next_event()
    assert parser.head_too_long == too_long


def test_nothing_is_left_after_wiping() -> None:
    parser = RequestParser(MAX_HEAD)
    parser.receive(POST[:-2])
    while parser.next_event() is not h11.NEED_DATA:
        continue
    parser.receive(b"lo" + GET[:10])
    unread = parser._unread
    parser.wipe()
    assert (unread, parser.connection, parser.between_requests) == (bytearray(), None, True)


def test_only_documented_parts_of_h11_and_starlette_are_used() -> None:
    """Undocumented names change without notice: using one would require bounds on h11's version."""
    for path in Path(panstream.server.__path__[0]).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module:
                names = [*node.module.split("."), *(alias.name for alias in node.names)]
            elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "h11":
                names = ["h11", node.attr]
            else:
                continue
            if names[0] in ("h11", "starlette", "uvicorn"):
                assert names[0] != "uvicorn" and not [name for name in names if name.startswith("_")], path.name
