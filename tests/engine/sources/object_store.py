"""An object store that speaks as much of S3 as reading needs; tests change its objects, and count its requests."""

import contextlib
import hashlib
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

_PAGE = 7  # keys of an answer: listings take several


@dataclass
class ObjectStore:
    """Buckets and keys with their bytes. Every change moves the store's clock by a second."""

    objects: dict[str, tuple[bytes, int]] = field(default_factory=dict)
    requests: list[tuple[str, str, str]] = field(default_factory=list)  # method, path, range
    clock: int = 0
    port: int = 0

    def put(self, key: str, data: bytes) -> None:
        self.clock += 1
        self.objects[key] = data, self.clock

    def put_directory(self, directory: Path, key: str) -> None:
        for file in sorted(directory.rglob("*")):
            if file.is_file():
                self.put(f"{key}/{file.relative_to(directory).as_posix()}", file.read_bytes())

    def address(self, path: str) -> str:
        return f"s3://{path}?endpoint=http://127.0.0.1:{self.port}"

    def gets(self) -> list[tuple[str, str]]:
        return [(path, span) for method, path, span in self.requests if method == "GET" and "list-type" not in path]


@contextlib.contextmanager
def object_store() -> Iterator[ObjectStore]:
    store = ObjectStore()
    server = ThreadingHTTPServer(("127.0.0.1", 0), lambda *args: _Handler(store, *args))
    server.daemon_threads = True
    store.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield store
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = (
        -1
    )  # head and body in one packet: otherwise each answer waits for the delayed acknowledgement of its head

    def __init__(self, store: ObjectStore, *args: Any) -> None:
        self.store = store
        super().__init__(*args)

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_HEAD(self) -> None:
        self._answer(send_body=False)

    def do_GET(self) -> None:
        self._answer(send_body=True)

    def _answer(self, *, send_body: bool) -> None:
        parts = urlsplit(self.path)
        span = self.headers.get("Range", "")
        self.store.requests.append((self.command, self.path, span))
        query = parse_qs(parts.query)
        key = unquote(parts.path).strip("/")
        if "list-type" in query:
            self._reply(200, self._listing(key, query), {"Content-Type": "application/xml"}, send_body)
            return
        if key not in self.store.objects:
            is_bucket = any(name.startswith(f"{key}/") for name in self.store.objects) and "/" not in key
            self._reply(200 if is_bucket else 404, b"", {}, send_body)
            return
        data, changed = self.store.objects[key]
        headers = {
            "ETag": f'"{hashlib.md5(data).hexdigest()}"',
            "Last-Modified": f"Thu, 19 Nov 2026 {_clock_time(changed)} GMT",
        }
        if match := re.fullmatch(r"bytes=(\d+)-(\d+)", span):
            start = int(match[1])
            stop = min(int(match[2]) + 1, len(data))
            headers["Content-Range"] = f"bytes {start}-{stop - 1}/{len(data)}"
            self._reply(206, data[start:stop], headers, send_body)
        else:
            self._reply(200, data, headers, send_body)

    def _listing(self, bucket: str, query: dict[str, list[str]]) -> bytes:
        prefix = query.get("prefix", [""])[0]
        after = query.get("continuation-token", [""])[0]
        delimiter = query.get("delimiter", [""])[0]
        keys = sorted(
            key.removeprefix(f"{bucket}/")
            for key in self.store.objects
            if key.startswith(f"{bucket}/{prefix}") and key.removeprefix(f"{bucket}/") > after
        )
        below = set()
        if delimiter:
            deep = {key for key in keys if delimiter in key.removeprefix(prefix)}
            below = {prefix + key.removeprefix(prefix).split(delimiter)[0] + delimiter for key in deep}
            keys = [key for key in keys if key not in deep]
        page = keys[: min(_PAGE, int(query.get("max-keys", ["1000"])[0]))]
        more = len(page) < len(keys)
        entries = "".join(
            f"<Contents><Key>{escape(key)}</Key><Size>{len(data)}</Size>"
            f"<LastModified>2026-11-19T{_clock_time(changed)}.000Z</LastModified></Contents>"
            for key in page
            for data, changed in [self.store.objects[f"{bucket}/{key}"]]
        )
        entries += "".join(
            f"<CommonPrefixes><Prefix>{escape(name)}</Prefix></CommonPrefixes>" for name in sorted(below)
        )
        token = f"<NextContinuationToken>{escape(page[-1])}</NextContinuationToken>" if more else ""
        return (
            f'<?xml version="1.0"?><ListBucketResult><KeyCount>{len(page) + len(below)}</KeyCount>'
            f"<IsTruncated>{str(more).lower()}</IsTruncated>{token}{entries}</ListBucketResult>"
        ).encode()

    def _reply(self, status: int, data: bytes, headers: dict[str, str], send_body: bool) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if send_body:
            self.wfile.write(data)


def _clock_time(seconds: int) -> str:
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
