"""What the server refuses: with one shape of error, and it goes on serving."""

import gzip
import http.client
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from panstream.errors import InvalidParameter
from panstream.server.auth import Authenticator, Limits, create_token
from panstream.server.server import ServerSettings, make_server
from tests.server.server_live import ARROW, CSV, EVENTS, LINES, Live, arrow, lines, served, write_config
from tests.waiting import PATIENCE

LIMITS = Limits(body=200_000, unpacked=400_000, rows=5_000, head=4_000)
HASTY = Limits(head_time=0.3, body_time=0.5)  # a busy machine may be slower, so only those who wait for it ask it


@pytest.fixture(scope="module")
def hasty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    with served(write_config(tmp_path_factory.mktemp("hasty")), HASTY) as server:
        yield server


@pytest.fixture(autouse=True)
def still_serving(live: Live) -> Iterator[None]:
    yield
    assert live.get("/healthz").json["status"] == "ok"
    assert live.post(lines(3)).json["rows"] == 3


ID = "a@0123456789abcdef"
BOMB = gzip.compress(bytes(50_000_000))
DEEP = b'{"user": ' + b"[" * 20_000 + b"\n"
BODIES = {
    "garbage as arrow": (b"\x00" * 1000, ARROW, "bad_body"),
    "cut arrow": (arrow(100)[:-300], ARROW, "bad_body"),
    "arrow of huge size": (struct.pack("<iI", -1, 2**31 - 8) + bytes(64), ARROW, "bad_body"),
    "arrow with negative size": (struct.pack("<ii", -1, -5) + bytes(64), ARROW, "bad_body"),
    "compressed arrow buffers": (arrow(100, compression="zstd"), ARROW, "bad_body"),
    "arrow of another schema": (b"", ARROW, "bad_body"),
    "arrow with too many rows": (arrow(5_001), ARROW, "too_large"),
    "csv without the columns": (b"a,b\n1,2\n", CSV, "bad_body"),
    "csv that is binary": (bytes(range(256)) * 10, CSV, "bad_body"),
    "too many lines": (b"\n" * 6_000, LINES, "too_large"),
    "too many bytes": (b" " * 200_001, LINES, "too_large"),
}


@pytest.mark.parametrize("name", BODIES)
def test_bodies(live: Live, name: str) -> None:
    body, kind, code = BODIES[name]
    assert live.post(body, kind).code == code


@pytest.mark.parametrize("position", range(8, 700, 23))
def test_arrow_with_a_changed_byte_is_taken_or_refused(live: Live, position: int) -> None:
    body = bytearray(arrow(50))
    body[position] ^= 0x81
    answer = live.post(bytes(body), ARROW)
    assert answer.status == 200 or answer.code in ("bad_body", "too_large")


def test_packed_bodies(live: Live) -> None:
    assert live.post(BOMB, LINES, Content_Encoding="gzip").code == "too_large"
    assert live.post(BOMB[:-10], LINES, Content_Encoding="gzip").code in ("too_large", "bad_body")
    assert live.post(gzip.compress(lines(50))[:-12], LINES, Content_Encoding="gzip").code == "bad_body"
    bomb = bytes(pa.Codec("zstd").compress(bytes(50_000_000), asbytes=True))
    assert live.post(bomb, LINES, Content_Encoding="zstd").code == "too_large"
    assert live.post(lines(5), LINES, Content_Encoding="zstd").code == "bad_body"
    assert live.post(lines(5), LINES, Content_Encoding="br").code == "unsupported_media_type"
    assert live.post(lines(5), LINES, Content_Encoding="gzip, gzip").code == "unsupported_media_type"


def test_rows_that_make_no_sense_are_skipped(live: Live) -> None:
    odd = [
        b'{"user": "\xff\xfe", "region": "north", "amount": 1}',
        b'{"user": "a", "region": "north", "amount": 1e400}',
        b'{"user": "a", "region": "north", "amount": ' + b"9" * 5_000 + b"}",
        b'{"user": "a"} {"user": "b"}',
        DEEP.strip(),
        b"null",
        b'"text"',
    ]
    answer = live.post(b"\n".join(odd) + b"\n" + lines(2))
    assert answer.status == 200
    assert answer.json["rows"] >= 2 + len(odd) - 1
    assert answer.json["skipped"]["count"] >= len(odd) - 2


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({"Panstream_Producer": ID}, "bad_request"),
        ({"Panstream_Sequence": "1"}, "bad_request"),
        ({"Panstream_Producer": "a b", "Panstream_Sequence": "1"}, "bad_request"),
        ({"Panstream_Producer": "a" * 65, "Panstream_Sequence": "1"}, "bad_request"),
        ({"Panstream_Producer": "a", "Panstream_Sequence": "1"}, "bad_request"),
        ({"Panstream_Producer": ID, "Panstream_Sequence": "0"}, "bad_request"),
        ({"Panstream_Producer": ID, "Panstream_Sequence": "1"}, "unknown_producer"),
        ({"Panstream_Producer": ID, "Panstream_Sequence": "-1"}, "bad_request"),
        ({"Panstream_Producer": ID, "Panstream_Sequence": "9" * 30}, "bad_request"),
        ({"Panstream_Producer": ID, "Panstream_Sequence": "\u0663".encode().decode("latin-1")}, "bad_request"),
        ({"Origin": "https://elsewhere.example"}, "forbidden"),
        ({"Origin": "null"}, "forbidden"),
        ({"Host": "rebound.example"}, "misdirected"),
        ({"Host": "[::1]evil.example"}, "misdirected"),
        ({"Host": "[::1]:80@evil.example"}, "misdirected"),
        ({"Host": "127.0.0.1:80.evil.example"}, "misdirected"),
    ],
)
def test_headers(live: Live, headers: dict[str, str], code: str) -> None:
    assert live.post(lines(1), **headers).code == code


@pytest.mark.parametrize(
    "path",
    [
        "/v1/streams/other/events",
        "/v1/streams/../events",
        "/v1/streams/%2e%2e/events",
        "/v1/streams/visits%2f..%2fvisits/events",
        "/v1/streams/visits/events/",
        "//v1/streams/visits/events",
        "/v1/streams/%00/events",
        "/v1/streams/%ff/events",
        "/etc/passwd",
        "/static/../../../../etc/passwd",
        "/%2e%2e/%2e%2e/etc/passwd",
    ],
)
def test_paths(live: Live, path: str) -> None:
    answer = live.ask("POST", path, lines(1), Content_Type=LINES)
    assert answer.code in ("not_found", "method_not_allowed")
    assert live.ask("GET", path).status in (404, 405)


def test_methods_and_questions(live: Live) -> None:
    for method in ("PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"):
        assert live.ask(method, EVENTS).code == "method_not_allowed"
    assert live.ask("GET", EVENTS).code == "method_not_allowed"
    for query in ("limit=0", "limit=x", "limit=99999999999999999999", "since=yesterday", "limit=%D9%A3"):
        assert live.get(f"/v1/releases?{query}").code == "bad_request"
    assert live.get("/v1/releases?query=none").code == "not_found"


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00", b"400"),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: x\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 100_000, b"431"),
        (b"GET /" + b"a" * 100_000, b"431"),
        (
            b"POST " + EVENTS.encode() + b" HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/csv\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n" + b"4000\r\n" + b"x" * 0x4000 + b"\r\n" * 1 + b"zz\r\n",
            b"4",
        ),
    ],
    ids=[
        "tls",
        "length",
        "no host",
        "long header",
        "long line",
        "bad chunk",
    ],
)
def test_not_http(live: Live, data: bytes, status: bytes) -> None:
    found = live.raw(data)
    if found:  # a reset may swallow the answer to data that was still being sent
        assert found.startswith(b"HTTP/1.1 " + status), found[:200]
        assert b'{"error":{"code":' in found


HEAD = f"POST {EVENTS} HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/csv\r\n".encode()


@pytest.mark.parametrize("data", [HEAD, b"", HEAD + b"Content-Length: 9\r\n\r\nab"], ids=["head", "silence", "body"])
def test_too_slow(hasty: Live, data: bytes) -> None:
    found = hasty.raw(data)
    assert found.startswith(b"HTTP/1.1 408 "), found[:200]
    assert b'{"error":{"code":"request_timeout"' in found


SMUGGLED = b"0\r\n\r\nGET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
FRAMINGS = {
    "length and coding": b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
    "coding and length": b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
    "two lengths": b"Content-Length: 5\r\nContent-Length: 6\r\n",
    "the same length twice": b"Content-Length: 5\r\nContent-Length: 5\r\n",
    "far apart": b"content-LENGTH: 5\r\nX: " + b"a" * 2_000 + b"\r\nContent-Length: 5\r\n",
    "a list of lengths": b"Content-Length: 5, 5\r\n",
    "a folded length": b"Content-Length: 5\r\n , 5\r\n",
    "a folded coding": b"Content-Length: 5\r\nX: y\r\n\tTransfer-Encoding: chunked\r\n",
    "two codings": b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
    "a list of codings": b"Transfer-Encoding: chunked, chunked\r\n",
    "bare line feeds": b"Content-Length: 5\nTransfer-Encoding: chunked\n",
}


@pytest.mark.parametrize("first", [f"POST {EVENTS}".encode(), b"GET /healthz", b"POST /nowhere"])
@pytest.mark.parametrize("name", FRAMINGS)
def test_a_body_that_could_be_read_in_two_ways(live: Live, name: str, first: bytes) -> None:
    """One answer, 400, and the connection ends: nothing behind the head is taken for a request, or for rows."""
    head = b" HTTP/1.1\r\nHost: localhost\r\nContent-Type: " + LINES.encode() + b"\r\n" + FRAMINGS[name]
    for before in (b"", b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"):
        found = live.raw(before + first + head + b"\r\n" + SMUGGLED)
        assert found.count(b"HTTP/1.1 ") == (2 if before else 1)
        assert found.count(b"HTTP/1.1 400 ") == 1
        assert b'"code":"bad_request"' in found


HEADS = {
    "origins": (b"Origin: http://localhost\r\nOrigin: https://evil.example\r\n", b"400"),
    "hosts": (b"Host: localhost\r\n", b"400"),
    "tokens": (b"Authorization: Bearer a\r\nAuthorization: Bearer b\r\n", b"400"),
    "numbers": (b"Panstream-Sequence: 1\r\nPanstream-Sequence: 2\r\n", b"400"),
    "a bare line feed": (b"X: y\nZ: z\r\n", b"400"),
    "a bare line feed at the end": (b"X: y\n", b"400"),
    "too long, though it came at once": (b"X: " + b"a" * 5_000 + b"\r\n", b"431"),
    "too long in many lines": (b"X: y\r\n" * 800, b"431"),
}


@pytest.mark.parametrize("first", [f"POST {EVENTS}".encode(), b"GET /healthz"])
@pytest.mark.parametrize("name", HEADS)
def test_heads_that_are_too_long_or_could_be_read_otherwise(live: Live, name: str, first: bytes) -> None:
    lines_, status = HEADS[name]
    head = first + b" HTTP/1.1\r\nHost: localhost\r\nContent-Type: " + LINES.encode() + b"\r\nContent-Length: 0\r\n"
    found = live.raw(head + lines_ + b"\r\n")
    assert found.startswith(b"HTTP/1.1 " + status), found[:200]
    assert found.count(b"HTTP/1.1 ") == 1


def test_only_line_feeds(live: Live) -> None:
    assert live.raw(b"GET /healthz HTTP/1.1\nHost: localhost\n\n").startswith(b"HTTP/1.1 400 ")


def test_a_coding_in_http_1_0(live: Live) -> None:
    head = f"POST {EVENTS} HTTP/1.0\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    assert live.raw(head + SMUGGLED).startswith(b"HTTP/1.1 400 ")


def test_answers_are_not_delayed(live: Live) -> None:
    """Nagle's algorithm waits for acknowledgements that the other side delays: 40 ms for an answer in two packets."""
    with socket.create_connection((live.host, live.port), timeout=PATIENCE) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert connection.recv(15) == b"HTTP/1.1 200 OK"
        (open_connection,) = [each for each in live.running.state.connections if not each.transport.is_closing()]
        accepted = open_connection.transport.get_extra_info("socket")
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_a_chunked_body_is_cut_off_at_the_limit(live: Live) -> None:
    connection = http.client.HTTPConnection(live.host, live.port, timeout=PATIENCE)
    try:
        connection.request(
            "POST", EVENTS, (bytes(10_000) for _ in range(100)), {"Content-Type": CSV}, encode_chunked=True
        )
        assert connection.getresponse().status == 413
    except (BrokenPipeError, ConnectionResetError):
        return  # closed before everything was sent
    finally:
        connection.close()


def test_requests_one_after_the_other_on_a_connection(live: Live) -> None:
    connection = http.client.HTTPConnection(live.host, live.port, timeout=PATIENCE)
    for _ in range(3):
        connection.request("POST", EVENTS, lines(2), {"Content-Type": LINES})
        assert connection.getresponse().read().startswith(b'{"new":true')
        connection.request("POST", EVENTS, b"x", {"Content-Type": "text/plain"})
        assert connection.getresponse().read().startswith(b'{"error"')
    connection.close()


@pytest.mark.slow
def test_tokens_scopes_and_rates(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    tokens = {scope: create_token(file, f"the-{scope}", [scope]) for scope in ("ingest", "read", "admin")}
    assert not any(token in file.read_text() for token in tokens.values())
    assert file.stat().st_mode & 0o077 == 0
    calls = {
        "ingest": ("POST", EVENTS, {"Content_Type": LINES}),
        "read": ("GET", "/v1/ledger", {}),
        "admin": ("POST", "/v1/queries/rows/release", {}),
    }
    with served(write_config(tmp_path), tokens=file) as server:
        for wanted, (method, path, headers) in calls.items():
            for scope, token in tokens.items():
                answer = server.ask(method, path, lines(1), Authorization=f"Bearer {token}", **headers)
                if scope == wanted:
                    assert answer.status == 200
                else:
                    assert answer.code == "forbidden"
            for wrong in ("", "Bearer", "Bearer x", f"Basic {token}", f"Bearer {token}x", "Bearer \xe9"):
                answer = server.ask(method, path, lines(1), Authorization=wrong, **headers)
                assert answer.code == "unauthorized"
                assert answer.headers["WWW-Authenticate"].startswith("Bearer")
        assert server.get("/healthz").status == 200
        assert server.get("/metrics").code == "unauthorized"
        assert server.get("/openapi.json").status == 200
    with served(write_config(tmp_path), Limits(rate=1e-6), tokens=file) as server:
        statuses = [server.get("/v1/ledger", Authorization=f"Bearer {tokens['read']}").status for _ in range(2)]
        assert statuses == [429, 429]
        assert server.get("/healthz").status in (200, 429)


@pytest.mark.slow
def test_rates_are_kept_by_token(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    one, other = (create_token(file, name, ["read"]) for name in ("one", "other"))
    with served(write_config(tmp_path), Limits(rate=1.5), tokens=file) as server:
        statuses = [server.get("/v1/ledger", Authorization=f"Bearer {one}").status for _ in range(60)]
        assert statuses[0] == 200
        assert 429 in statuses
        assert server.get("/v1/ledger", Authorization=f"Bearer {other}").status == 200


@pytest.mark.slow
def test_settings_that_would_be_unsafe(tmp_path: Path) -> None:
    config = write_config(tmp_path)
    with pytest.raises(InvalidParameter, match="tokens are needed"):
        make_server(config, ServerSettings(host="0.0.0.0", port=0))
    with pytest.raises(InvalidParameter, match="given together"):
        make_server(config, ServerSettings(port=0, certificate=tmp_path / "x"))
    (tmp_path / "x").write_text("no certificate")
    with pytest.raises(InvalidParameter, match=r"'x' and 'x' must be a certificate chain and its key"):
        make_server(config, ServerSettings(port=0, certificate=tmp_path / "x", private_key=tmp_path / "x"))
    (tmp_path / "tokens").write_text("gate ingest nothex\n")
    with pytest.raises(InvalidParameter, match="line 1"):
        make_server(config, ServerSettings(port=0, tokens=tmp_path / "tokens"))
    (tmp_path / "tokens").write_text("# none\n")
    with pytest.raises(InvalidParameter, match="holds no token"):
        Authenticator.load(tmp_path / "tokens", "localhost")
    with pytest.raises(InvalidParameter, match="scope must be"):
        create_token(tmp_path / "more", "gate", ["root"])
    create_token(tmp_path / "more", "gate", ["read"])
    with pytest.raises(InvalidParameter, match="already"):
        create_token(tmp_path / "more", "gate", ["read"])


@pytest.mark.slow
@pytest.mark.parametrize(
    "before", ["", "# ours\n", "# ours", "gate read " + "0" * 64, "gate read " + "0" * 64 + "\r\n"]
)
def test_a_token_is_added_to_whatever_an_editor_left(tmp_path: Path, before: str) -> None:
    """Also to a file that is empty, or whose last line has no end."""
    file = tmp_path / "tokens"
    file.write_text(before, newline="")
    token = create_token(file, "limiter", ["ingest"])
    found = Authenticator.load(file, "localhost")
    assert [holder.name for _, holder in found.hashes] == (["gate"] if "gate" in before else []) + ["limiter"]
    assert found.grant(token) is not None
    assert file.read_bytes().startswith(before.encode())
