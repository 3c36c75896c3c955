"""Traffic of the memory audit: random ids through every ingest path, and through every kind of rejected request."""

from __future__ import annotations

import contextlib
import gzip
import http.client
import io
import json
import socket
import ssl
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from panstream.engine.arrow import pa

_TYPES = {"csv": "text/csv", "json": "application/x-ndjson", "arrow": "application/vnd.apache.arrow.stream"}
_BATCH = 1_000
_CONCURRENT_BODIES = 16

_CONCURRENT = "arrow, many at a time"  # which the server applies as one batch
ACCEPTED = (*(f"{kind}, {packing}" for kind in _TYPES for packing in ("plain", "gzip", "zstd")), _CONCURRENT)


@dataclass(slots=True)
class DrillClient:
    """A client of the audited server. Connections remain open, so that their buffers are in memory during a scan."""

    host: str
    port: int
    stream: str
    token: str
    context: ssl.SSLContext
    limit: int  # bytes of a body
    open_connections: list[Any]

    def connect(self) -> http.client.HTTPSConnection:
        """Return a connection that remains open until `close`."""
        connection = http.client.HTTPSConnection(self.host, self.port, context=self.context, timeout=60)
        self.open_connections.append(connection)
        return connection

    def post(
        self,
        body: bytes | Iterator[bytes],
        kind: str,
        connection: http.client.HTTPSConnection | None = None,
        /,
        **more: str,
    ) -> int:
        """Send a body, or its chunks, on a new connection unless one is given; return the status, 0 if cut off."""
        headers = {"Content-Type": kind, "Authorization": f"Bearer {self.token}"}
        path = more.pop("path", f"/v1/streams/{self.stream}/events")
        connection = connection or self.connect()
        try:
            connection.request("POST", path, body, {**headers, **{n.replace("_", "-"): v for n, v in more.items()}})
            response = connection.getresponse()
            response.read()
            return response.status
        except (OSError, http.client.HTTPException):
            return 0  # rejected before the complete body was sent

    def memory(self) -> str:
        """Return the kind of memory that the server reports for its states."""
        connection = self.connect()
        connection.request("GET", "/healthz")
        return str(json.loads(connection.getresponse().read())["memory"])

    def dial(self) -> ssl.SSLSocket:
        """Return a TLS connection for bytes that need not be HTTP."""
        plain = socket.create_connection((self.host, self.port), timeout=60)
        return self.context.wrap_socket(plain, server_hostname=self.host)

    def raw(self, data: bytes) -> None:
        """Send bytes that need not be HTTP, and ignore the answer."""
        wrapped = self.dial()
        self.open_connections.append(wrapped)
        with contextlib.suppress(OSError):
            wrapped.sendall(data)
            wrapped.recv(4096)

    def close(self) -> None:
        """Close all connections."""
        for connection in self.open_connections:
            connection.close()
        self.open_connections.clear()


def body(kind: str, ids: Sequence[str]) -> bytes:
    """Return a body with one row per id, in which the id is also the name of the page."""
    if kind == "csv":
        return ("id,kind,page\n" + "".join(f"{user},a,{user}\n" for user in ids)).encode()
    if kind == "json":
        return "".join(json.dumps({"id": user, "kind": "a", "page": user}) + "\n" for user in ids).encode()
    batch = pa.RecordBatch.from_pydict({"id": list(ids), "kind": ["a"] * len(ids), "page": list(ids)})
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


def _packed(data: bytes, packing: str) -> bytes:
    if packing == "gzip":
        return gzip.compress(data, 1)
    return bytes(pa.Codec("zstd").compress(data, asbytes=True)) if packing == "zstd" else data


_Send = Callable[[DrillClient, Sequence[str]], None]


def send_paths() -> dict[str, _Send]:
    """Return a sender per ingest path and kind of rejection; each raises AssertionError on an unexpected status."""
    senders = {path: _accepted(*path.split(", ")) for path in ACCEPTED}
    return senders | {_CONCURRENT: _send_concurrently} | _refused()


def _accepted(kind: str, packing: str) -> _Send:
    def send(peer: DrillClient, ids: Sequence[str]) -> None:
        more = {} if packing == "plain" else {"Content_Encoding": packing}
        for start in range(0, len(ids), _BATCH):
            status = peer.post(_packed(body(kind, ids[start : start + _BATCH]), packing), _TYPES[kind], **more)
            assert status == 200, f"{kind}, {packing}: status {status}"

    return send


def _send_concurrently(peer: DrillClient, ids: Sequence[str]) -> None:
    """Send bodies concurrently, so that the server applies several in one step."""
    size = -(-len(ids) // _CONCURRENT_BODIES)
    parts = [ids[start : start + size] for start in range(0, len(ids), size)]
    connections = [peer.connect() for _ in parts]
    for connection in connections:
        connection.connect()

    def send(connection: http.client.HTTPSConnection, part: Sequence[str]) -> int:
        return peer.post(body("arrow", part), _TYPES["arrow"], connection)

    with ThreadPoolExecutor(_CONCURRENT_BODIES) as pool:
        statuses = set(pool.map(send, connections, parts))
    assert statuses == {200}, f"{_CONCURRENT}: status {max(statuses)}"


def _refused() -> dict[str, _Send]:
    csv = _TYPES["csv"]
    lines = _TYPES["json"]
    arrow = _TYPES["arrow"]

    def post(peer: DrillClient, data: bytes | Iterator[bytes], kind: str, *statuses: int, **more: str) -> None:
        status = peer.post(data, kind, **more)
        assert status in statuses, f"status {status} instead of {statuses}"

    def wrong_format(peer: DrillClient, ids: Sequence[str]) -> None:
        post(peer, body("json", ids), arrow, 400)
        post(peer, body("arrow", ids), csv, 400)
        post(peer, body("csv", ids), csv, 400, Content_Encoding="zstd")

    def column(peer: DrillClient, ids: Sequence[str]) -> None:
        post(peer, body("csv", ids).replace(b"id,kind", b"user,kind"), csv, 400)
        post(peer, body("arrow", ids).replace(b"kind", b"type"), arrow, 400)

    def bad_rows(peer: DrillClient, ids: Sequence[str]) -> None:
        half = len(ids) // 2
        post(peer, ("id,kind,page\n" + "".join(f"{user},a,b,c\n" for user in ids[:half])).encode(), csv, 200)
        post(peer, "".join(f'{{"id": "{user}", "kind": [1\n' for user in ids[half:]).encode(), lines, 200)

    def too_large_unpacked(peer: DrillClient, ids: Sequence[str]) -> None:
        data = body("csv", ids) + b"\n" * (8 * peer.limit)
        post(peer, _packed(data, "gzip"), csv, 413, Content_Encoding="gzip")

    def not_http(peer: DrillClient, ids: Sequence[str]) -> None:
        for start in range(0, len(ids), 100):
            peer.raw(" ".join(ids[start : start + 100]).encode() + b"\r\n\r\n")

    def query_string(peer: DrillClient, ids: Sequence[str]) -> None:
        for start in range(0, len(ids), 50):
            post(peer, b"", csv, 404, path=f"/v1/{ids[start]}/?q=" + "&".join(ids[start + 1 : start + 50]))

    def headers(peer: DrillClient, ids: Sequence[str]) -> None:
        for start in range(0, len(ids), 50):
            post(peer, b"", csv, 400, Panstream_Producer=" ".join(ids[start : start + 50]))

    def head(peer: DrillClient, kind: str, length: str) -> bytes:
        start = f"POST /v1/streams/{peer.stream}/events HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {peer.token}\r\n"
        return f"{start}Content-Type: {kind}\r\n{length}\r\n\r\n".encode()

    def disconnects(peer: DrillClient, ids: Sequence[str]) -> None:
        data = body("json", ids)
        with peer.dial() as wrapped:
            wrapped.sendall(head(peer, lines, f"Content-Length: {len(data) + 10}") + data)

    def in_chunks(peer: DrillClient, ids: Sequence[str]) -> None:
        data = body("json", ids)
        post(peer, (data[start : start + 5_000] for start in range(0, len(data), 5_000)), lines, 200)

    def cut_chunk(peer: DrillClient, ids: Sequence[str]) -> None:
        data = body("csv", ids)
        chunked = head(peer, csv, "Transfer-Encoding: chunked") + f"{len(data):x}\r\n".encode()
        peer.raw(chunked + data + f"\r\n{ids[0]}\r\n".encode())

    def behind_the_last(peer: DrillClient, ids: Sequence[str]) -> None:
        peer.raw(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n" + body("csv", ids))

    return {
        "in chunks": in_chunks,
        "not in chunks as it says": cut_chunk,
        "behind the last request": behind_the_last,
        "wrong token": lambda peer, ids: post(peer, body("json", ids), lines, 401, 0, Authorization="Bearer pan_wrong"),
        "wrong content type": lambda peer, ids: post(peer, body("csv", ids), "text/plain", 415, 0),
        "wrong stream": lambda peer, ids: post(peer, body("csv", ids), csv, 404, 0, path="/v1/streams/other/events"),
        "not the format it says": wrong_format,
        "a column is missing": column,
        "bad rows": bad_rows,
        "cut gzip": lambda peer, ids: post(
            peer, _packed(body("json", ids), "gzip")[:-20], lines, 400, Content_Encoding="gzip"
        ),
        "cut arrow": lambda peer, ids: post(peer, body("arrow", ids)[:-400], arrow, 400),
        "too large": lambda peer, ids: post(peer, body("csv", ids) + b"\n" * peer.limit, csv, 413, 0),
        "too large when unpacked": too_large_unpacked,
        "not HTTP": not_http,
        "in the query string": query_string,
        "in headers": headers,
        "sender goes away": disconnects,
    }
