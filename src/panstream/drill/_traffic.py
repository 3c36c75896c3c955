"""Traffic for the memory drill: the same unguessable ids through every way in, and through every way to be refused."""

from __future__ import annotations

import contextlib
import gzip
import http.client
import io
import json
import socket
import ssl
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from panstream.engine.arrow import pa

_TYPES = {"csv": "text/csv", "json": "application/x-ndjson", "arrow": "application/vnd.apache.arrow.stream"}
_BATCH = 1_000
_CROWD = 16

_TOGETHER = "arrow, many at a time"  # which the server joins
ACCEPTED = (*(f"{kind}, {packing}" for kind in _TYPES for packing in ("plain", "gzip", "zstd")), _TOGETHER)
REFUSED = (
    "wrong token",
    "wrong content type",
    "wrong stream",
    "not the format it says",
    "a column is missing",
    "bad rows",
    "cut gzip",
    "cut arrow",
    "too large",
    "too large when unpacked",
    "not HTTP",
    "in the query string",
    "in headers",
    "sender goes away",
)


@dataclass(slots=True)
class Peer:
    """The server as its clients see it. Connections stay open, so that what they hold stays too."""

    host: str
    port: int
    stream: str
    token: str
    context: ssl.SSLContext
    limit: int  # bytes of a body
    kept: list[Any]

    def connect(self) -> http.client.HTTPSConnection:
        """Return a connection that is kept open until the end."""
        connection = http.client.HTTPSConnection(self.host, self.port, context=self.context, timeout=60)
        self.kept.append(connection)
        return connection

    def post(self, body: bytes, kind: str, **more: str) -> int:
        """Send a body; return the status of the answer."""
        headers = {"Content-Type": kind, "Authorization": f"Bearer {self.token}"}
        path = more.pop("path", f"/v1/streams/{self.stream}/events")
        connection = self.connect()
        try:
            connection.request("POST", path, body, {**headers, **{n.replace("_", "-"): v for n, v in more.items()}})
            response = connection.getresponse()
            response.read()
            return response.status
        except (OSError, http.client.HTTPException):
            return 0  # refused before everything was sent

    def memory(self) -> str:
        """Ask where the server keeps its states."""
        connection = self.connect()
        connection.request("GET", "/healthz")
        return str(json.loads(connection.getresponse().read())["memory"])

    def raw(self, data: bytes) -> None:
        """Send bytes that need not be HTTP."""
        plain = socket.create_connection((self.host, self.port), timeout=60)
        wrapped = self.context.wrap_socket(plain, server_hostname=self.host)
        self.kept.append(wrapped)
        with contextlib.suppress(OSError):
            wrapped.sendall(data)
            wrapped.recv(4096)

    def close(self) -> None:
        """Close all connections."""
        for each in self.kept:
            each.close()
        self.kept.clear()


def body(kind: str, ids: Sequence[str]) -> bytes:
    """Return a body with one row an id, which is the name of a page too."""
    if kind == "csv":
        return ("id,kind,page\n" + "".join(f"{one},a,{one}\n" for one in ids)).encode()
    if kind == "json":
        return "".join(json.dumps({"id": one, "kind": "a", "page": one}) + "\n" for one in ids).encode()
    batch = pa.RecordBatch.from_pydict({"id": list(ids), "kind": ["a"] * len(ids), "page": list(ids)})
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


def _packed(data: bytes, packing: str) -> bytes:
    """Return the bytes compressed."""
    if packing == "gzip":
        return gzip.compress(data, 1)
    return bytes(pa.Codec("zstd").compress(data, asbytes=True)) if packing == "zstd" else data


def ways() -> dict[str, Callable[[Peer, Sequence[str]], None]]:
    """Return every way to send ids; each raises AssertionError if the server does not do as expected."""
    found: dict[str, Callable[[Peer, Sequence[str]], None]] = {}
    for way in ACCEPTED:
        kind, packing = way.split(", ")
        found[way] = _crowd if way == _TOGETHER else _accepted(kind, packing)
    return found | dict(zip(REFUSED, _refusals(), strict=True))


def _accepted(kind: str, packing: str) -> Callable[[Peer, Sequence[str]], None]:
    def send(peer: Peer, ids: Sequence[str]) -> None:
        more = {} if packing == "plain" else {"Content_Encoding": packing}
        for start in range(0, len(ids), _BATCH):
            status = peer.post(_packed(body(kind, ids[start : start + _BATCH]), packing), _TYPES[kind], **more)
            assert status == 200, f"{kind}, {packing}: status {status}"

    return send


def _crowd(peer: Peer, ids: Sequence[str]) -> None:
    """Send bodies at the same moment, so that the server takes several in one step."""
    size = -(-len(ids) // _CROWD)
    parts = [ids[start : start + size] for start in range(0, len(ids), size)]
    connections = [peer.connect() for _ in parts]
    for connection in connections:
        connection.connect()

    def send(connection: http.client.HTTPSConnection, part: Sequence[str]) -> int:
        headers = {"Content-Type": _TYPES["arrow"], "Authorization": f"Bearer {peer.token}"}
        connection.request("POST", f"/v1/streams/{peer.stream}/events", body("arrow", part), headers)
        response = connection.getresponse()
        response.read()
        return response.status

    with ThreadPoolExecutor(_CROWD) as pool:
        statuses = set(pool.map(send, connections, parts))
    assert statuses == {200}, f"{_TOGETHER}: status {max(statuses)}"


def _refusals() -> list[Callable[[Peer, Sequence[str]], None]]:
    csv, lines, arrow = _TYPES["csv"], _TYPES["json"], _TYPES["arrow"]

    def expect(found: int, *statuses: int) -> None:
        assert found in statuses, f"status {found} instead of {statuses}"

    def token(peer: Peer, ids: Sequence[str]) -> None:
        expect(peer.post(body("json", ids), lines, Authorization="Bearer pan_wrong"), 401, 0)

    def content_type(peer: Peer, ids: Sequence[str]) -> None:
        expect(peer.post(body("csv", ids), "text/plain"), 415, 0)

    def stream(peer: Peer, ids: Sequence[str]) -> None:
        expect(peer.post(body("csv", ids), csv, path="/v1/streams/other/events"), 404, 0)

    def wrong_format(peer: Peer, ids: Sequence[str]) -> None:
        expect(peer.post(body("json", ids), arrow), 400)
        expect(peer.post(body("arrow", ids), csv), 400)
        expect(peer.post(body("csv", ids), csv, Content_Encoding="zstd"), 400)

    def column(peer: Peer, ids: Sequence[str]) -> None:
        expect(peer.post(body("csv", ids).replace(b"id,kind", b"user,kind"), csv), 400)
        expect(peer.post(body("arrow", ids).replace(b"kind", b"type"), arrow), 400)

    def bad_rows(peer: Peer, ids: Sequence[str]) -> None:
        half = len(ids) // 2
        expect(peer.post(("id,kind,page\n" + "".join(f"{one},a,b,c\n" for one in ids[:half])).encode(), csv), 200)
        expect(peer.post("".join(f'{{"id": "{one}", "kind": [1\n' for one in ids[half:]).encode(), lines), 200)

    def cut_gzip(peer: Peer, ids: Sequence[str]) -> None:
        expect(peer.post(_packed(body("json", ids), "gzip")[:-20], lines, Content_Encoding="gzip"), 400)

    def cut_arrow(peer: Peer, ids: Sequence[str]) -> None:
        expect(peer.post(body("arrow", ids)[:-400], arrow), 400)

    def too_large(peer: Peer, ids: Sequence[str]) -> None:
        data = body("csv", ids)
        expect(peer.post(data + b"\n" * peer.limit, csv), 413, 0)

    def too_large_unpacked(peer: Peer, ids: Sequence[str]) -> None:
        data = body("csv", ids) + b"\n" * (8 * peer.limit)
        expect(peer.post(_packed(data, "gzip"), csv, Content_Encoding="gzip"), 413)

    def not_http(peer: Peer, ids: Sequence[str]) -> None:
        for start in range(0, len(ids), 100):
            peer.raw(" ".join(ids[start : start + 100]).encode() + b"\r\n\r\n")

    def query_string(peer: Peer, ids: Sequence[str]) -> None:
        for start in range(0, len(ids), 50):
            expect(peer.post(b"", csv, path=f"/v1/{ids[start]}/?q=" + "&".join(ids[start + 1 : start + 50])), 404)

    def headers(peer: Peer, ids: Sequence[str]) -> None:
        for start in range(0, len(ids), 50):
            expect(peer.post(b"", csv, Panstream_Producer=" ".join(ids[start : start + 50])), 400)

    def goes_away(peer: Peer, ids: Sequence[str]) -> None:
        data = body("json", ids)
        head = f"POST /v1/streams/{peer.stream}/events HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {peer.token}\r\n"
        head += f"Content-Type: {lines}\r\nContent-Length: {len(data) + 10}\r\n\r\n"
        plain = socket.create_connection((peer.host, peer.port), timeout=60)
        with peer.context.wrap_socket(plain, server_hostname=peer.host) as wrapped:
            wrapped.sendall(head.encode() + data)

    return [
        token,
        content_type,
        stream,
        wrong_format,
        column,
        bad_rows,
        cut_gzip,
        cut_arrow,
        too_large,
        too_large_unpacked,
        not_http,
        query_string,
        headers,
        goes_away,
    ]
