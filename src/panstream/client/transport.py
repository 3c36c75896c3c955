"""Connections to a server with retries, and rows as Arrow bodies."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import ssl
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from panstream.errors import (
    InvalidBatch,
    InvalidParameter,
    RequestRejected,
    ServerUnreachable,
    import_optional,
    translate_errors,
)
from panstream.primitives import validation as checks

ARROW = "application/vnd.apache.arrow.stream"
COMPRESSIONS = (None, "gzip", "zstd")
_RETRIED_STATUSES = (408, 425, 429, 500, 502, 503, 504)
LINES = "application/x-ndjson"


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """Retries with exponential backoff; honours Retry-After.

    Attributes:
        max_attempts: Attempts in total.
        initial_delay: Seconds before the second attempt; doubled after each.
        max_delay: Longest delay in seconds, also for Retry-After.
        timeout: Seconds for one response.
        sleep: For tests.
    """

    max_attempts: int = 8
    initial_delay: float = 0.05
    max_delay: float = 5.0
    timeout: float = 30.0
    sleep: Callable[[float], None] = time.sleep

    def delay(self, number: int, retry_after: str | None = None) -> None:
        """Wait before the next attempt, after ``number`` earlier delays; ``retry_after`` is the header's value."""
        server_delay = float(retry_after) if retry_after is not None and retry_after.isdecimal() else 0.0
        self.sleep(min(self.max_delay, max(server_delay, self.initial_delay * 2.0**number)))


_TLS = ": if the server has a certificate, its address begins with https://"
_SCHEME_HINTS = {
    **dict.fromkeys([("http", name) for name in ("RemoteDisconnected", "BadStatusLine", "ConnectionResetError")], _TLS),
    ("https", "SSLError"): ": if the server has no certificate, its address begins with http://",
}


class HttpConnection:
    """An HTTP connection that is opened when needed, and reopened when lost. Not thread-safe."""

    def __init__(self, url: str, token: str | None, ca_file: str | None, retry: RetryPolicy) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.username:
            raise InvalidParameter("url must look like https://host:port, with nothing after the port")
        if ca_file is not None and not os.path.isfile(ca_file):
            raise InvalidParameter(
                f"ca_file must be a file of certificates, and there is no {os.path.basename(ca_file)!r}"
            )
        self._url = url
        self._token = token
        self._ca_file = ca_file
        self._retry = retry
        self._base = parts.path.rstrip("/")
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._connection: http.client.HTTPConnection | None = None
        self.unanswered = False  # whether an attempt of the last request may have been processed without an answer

    def clone(self, *, once: bool = False) -> HttpConnection:
        """Return another connection to the same server; with ``once``, without retries."""
        retry = RetryPolicy(max_attempts=1, timeout=self._retry.timeout) if once else self._retry
        return HttpConnection(self._url, self._token, self._ca_file, retry)

    def request(self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None) -> Any:
        """Send a request, again while the server cannot be reached or is busy; return the response's JSON.

        Without `clone(once=True)` only for requests that may be repeated.

        Raises:
            RequestRejected: If the server refuses the request.
            ServerUnreachable: If no attempt was answered, or the certificate is not trusted.
        """
        reason = ""
        self.unanswered = False
        for number in range(self._retry.max_attempts):
            wait: str | None = None
            try:
                status, answer, wait = self._exchange(method, path, body, headers or {})
            except ssl.SSLCertVerificationError as error:
                self.close()
                raise ServerUnreachable(
                    f"the server's certificate is not trusted ({error.verify_message}): name the certificate that "
                    "signed it, by ca_file or --ca-file"
                ) from None
            except (OSError, http.client.HTTPException) as error:
                self.close()
                reason = type(error).__name__
                self.unanswered |= not isinstance(error, ConnectionRefusedError)
            else:
                if status == 200:
                    return answer
                code, message = _error(answer, status)
                if status not in _RETRIED_STATUSES:
                    raise RequestRejected(message, code=code, status=status)
                reason = code
                self.unanswered |= status != 429
            if number + 1 < self._retry.max_attempts:
                self._retry.delay(number, wait)
        hint = _SCHEME_HINTS.get((urlsplit(self._url).scheme, reason), "")
        raise ServerUnreachable(
            f"no answer after {self._retry.max_attempts} tries; the last one ended with {reason}{hint}"
        )

    def _exchange(self, method: str, path: str, body: Any, headers: Mapping[str, str]) -> tuple[int, Any, str | None]:
        connection = self._open()
        connection.request(method, self._base + path, body, {**self._headers, "Accept": "application/json", **headers})
        response = connection.getresponse()
        data = response.read()
        if response.will_close:
            self.close()
        return response.status, _json(data), response.headers.get("Retry-After")

    def events(self, path: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield kind and data of server-sent events, until the server closes the connection."""
        connection = self._open()
        connection.request("GET", self._base + path, headers={**self._headers, "Accept": "text/event-stream"})
        response = connection.getresponse()
        if response.status != 200:
            code, message = _error(_json(response.read()), response.status)
            self.close()
            raise RequestRejected(message, code=code, status=response.status)
        kind = "message"
        data = ""
        try:
            for raw in response:
                line = raw.decode().rstrip("\r\n")
                name, _, value = line.partition(":")
                if not line:
                    if data:
                        yield kind, json.loads(data)
                    kind = "message"
                    data = ""
                elif name == "event":
                    kind = value.strip()
                elif name == "data":
                    data += value.strip()
        finally:
            self.close()

    def _open(self) -> http.client.HTTPConnection:
        if self._connection is None:
            parts = urlsplit(self._url)
            kind: Callable[..., http.client.HTTPConnection] = http.client.HTTPConnection
            if parts.scheme == "https":
                kind = partial(http.client.HTTPSConnection, context=ssl.create_default_context(cafile=self._ca_file))
            self._connection = kind(parts.hostname or "", parts.port, timeout=self._retry.timeout)
        return self._connection

    def close(self) -> None:
        """Close the connection; the next request opens a new one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _json(data: bytes) -> Any:
    with contextlib.suppress(ValueError):
        return json.loads(data)
    return None


def _error(answer: Any, status: int) -> tuple[str, str]:
    details = answer.get("error") if isinstance(answer, dict) else None
    if isinstance(details, dict):
        return str(details.get("code")), str(details.get("message"))
    return "http", f"the server answered with status {status}"


def as_batches(rows: Any) -> list[Any]:
    """Convert rows to record batches: a mapping of columns, a sequence of dicts, or an Arrow, pandas or polars table.

    Raises:
        InvalidBatch: For anything else; without the library's message, which may quote values.
    """
    pa = import_optional("pyarrow", "the client", "arrow")
    with contextlib.suppress(pa.ArrowException, TypeError, AttributeError):
        if isinstance(rows, pa.RecordBatch):
            return [rows]
        if isinstance(rows, pa.Table):
            return list(rows.to_batches())
        if isinstance(rows, Mapping):
            return [pa.RecordBatch.from_pydict({name: pa.array(column) for name, column in rows.items()})]
        if hasattr(rows, "__arrow_c_stream__"):
            return list(pa.table(rows).to_batches())
        if isinstance(rows, Sequence) and not isinstance(rows, str | bytes):
            return [pa.RecordBatch.from_pylist(list(rows))]
        if type(rows).__module__.partition(".")[0] == "pandas":
            return list(pa.Table.from_pandas(rows, preserve_index=False).to_batches())
    raise InvalidBatch("rows must be a mapping of columns, a list of dicts, or an Arrow, pandas or polars table")


def check_options(
    batch_rows: int, connections: int, pace: float | None, compression: str | None, *, stores: bool, counts: object
) -> None:
    """Raise InvalidParameter if an option of a client is out of range; ``stores`` says whether it has a counts_file."""
    if batch_rows < 1 or connections < 1:
        raise InvalidParameter(f"batch_rows and connections must be positive, got {batch_rows} and {connections}")
    if pace is not None:
        checks.require_positive(pace=pace)
    if compression not in COMPRESSIONS:
        raise InvalidParameter(f"compression must be one of {', '.join(map(str, COMPRESSIONS))}")
    if stores and counts is None:
        raise InvalidParameter('counts_file needs contributions, such as {"1 day": 8}')


def take_rows(pending: list[Any], most: int) -> list[Any]:
    """Remove and return the first ``most`` rows of record batches, all if there are fewer."""
    taken = list[Any]()
    rows = 0
    while pending and rows < most:
        batch = pending.pop(0)
        part = batch.slice(0, most - rows)
        if part.num_rows < batch.num_rows:
            pending.insert(0, batch.slice(part.num_rows))
        taken.append(part)
        rows += part.num_rows
    return taken


def encode(batches: list[Any], compression: str | None) -> Any:
    """Serialize rows as one Arrow IPC stream with one record batch.

    Raises:
        InvalidBatch: If the batches have different schemas.
    """
    pa = import_optional("pyarrow", "the client", "arrow")
    table = translate_errors(
        lambda: pa.Table.from_batches(batches).combine_chunks() if len(batches) > 1 else None,
        pa.ArrowException,
        lambda _: InvalidBatch("all rows of a batch must have the same columns and types"),
    )
    sink = pa.BufferOutputStream()
    out = sink if compression is None else pa.CompressedOutputStream(sink, compression)
    schema = batches[0].schema if table is None else table.schema
    with pa.ipc.new_stream(out, schema) as writer:
        if table is None:
            writer.write_batch(batches[0])
        else:
            writer.write_table(table)
    if out is not sink:
        out.close()
    return memoryview(sink.getvalue())
