"""HTTPS with certificates on both sides: a server that answers messages, and connections that send them.

A client posts the bytes of a message to ``/v1/ask`` and reads the bytes of the answer. TLS 1.3; a client without a
certificate of the server's authority does not get past the handshake, and one whose name is not on the server's list
gets 403. Nothing is logged about messages or callers.
"""

from __future__ import annotations

import http.client
import ssl
import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

from panstream.errors import InvalidParameter, PeerUnreachable
from panstream.primitives.memory.scratch import clears_registers, wipe

PATH = "/v1/ask"
_KIND = "application/octet-stream"
_TIMEOUT = 60.0  # seconds after which an idle connection is closed
_CLEANSE_PLAINTEXT = 2  # OpenSSL 3 overwrites plaintext in its buffers after reading; other versions ignore the option

Answer = Callable[[bytearray, str], bytearray]
"""Maps a message's bytes and the sender's name to the answer; both are overwritten when the answer is sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Files of one party: its certificate, its private key, and the authority it trusts (PEM)."""

    certificate: Path
    key: Path
    authority: Path


class MutualTlsServer:
    """Answers messages of clients whose certificates carry one of ``names`` as common name."""

    def __init__(
        self,
        answer: Answer,
        identity: Identity,
        names: Collection[str],
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        max_bytes: int = 1 << 24,
        max_concurrent: int = 8,
    ) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.verify_mode = ssl.CERT_REQUIRED
        context.num_tickets = 0  # no session resumption: the keys of one session decrypt no other
        _load(context, identity)
        slots = threading.BoundedSemaphore(max_concurrent)
        try:
            self._server = _TlsServer((host, port), _handler(answer, frozenset(names), max_bytes, slots), context)
        except OSError as error:
            raise InvalidParameter(f"cannot listen on {host}:{port}: {error.strerror}") from None

    @property
    def address(self) -> str:
        """Return the URL of the server."""
        host, port = self._server.server_address[:2]
        return f"https://{host!s}:{port}"

    def serve(self) -> None:
        """Answer until `stop` is called from another thread."""
        self._server.serve_forever(poll_interval=0.1)

    def start(self) -> None:
        """Serve in a new daemon thread."""
        threading.Thread(target=self.serve, daemon=True).start()

    def stop(self) -> None:
        """Stop listening, after the current request."""
        self._server.shutdown()
        self._server.server_close()


class _TlsServer(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(
        self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler], context: ssl.SSLContext
    ) -> None:
        super().__init__(address, handler)
        self._context = context

    @clears_registers
    def finish_request(self, request: Any, client_address: Any) -> None:
        """Do the handshake in the connection's own thread, so that a silent client does not block others."""
        request.settimeout(_TIMEOUT)
        try:
            secured = self._context.wrap_socket(request, server_side=True)
        except (OSError, ssl.SSLError):
            return
        with secured:
            super().finish_request(secured, client_address)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log nothing about a broken connection."""


def _handler(
    answer: Answer, names: frozenset[str], max_bytes: int, slots: threading.BoundedSemaphore
) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        server_version = "panstream"
        sys_version = ""
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            if self.path != PATH:
                return self._reply(404, b"not found")
            lengths = self.headers.get_all("Content-Length", [])
            length = lengths[0] if len(lengths) == 1 and "Transfer-Encoding" not in self.headers else ""
            if not (length.isascii() and length.isdecimal()) or len(length) > 12:
                return self._reply(411, b"Content-Length is needed")
            if int(length) > max_bytes:
                return self._reply(413, b"the message is too long")
            data = bytearray(int(length))
            try:
                return self._take(data)
            finally:
                wipe(data)

        def _take(self, data: bytearray) -> None:
            if not _filled(self.rfile, data):  # before any rejection: closing with unread data would lose the reply
                self.close_connection = True
                return None
            name = _name(self.connection)
            if name not in names:
                return self._reply(403, b"this certificate may not ask")
            with slots:
                reply = answer(data, name)
            try:
                return self._reply(200, reply)
            finally:
                wipe(reply)

        def _reply(self, status: int, body: bytes | bytearray) -> None:
            self.send_response(status)
            self.send_header("Content-Type", _KIND)
            self.send_header("Content-Length", str(len(body)))
            if status != 200:
                self.send_header("Connection", "close")
                self.close_connection = True
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Log nothing about messages and callers."""

    return Handler


class MutualTlsClient:
    """Opens connections to the server at ``url``; ``peer`` is the name that its certificate must carry."""

    def __init__(self, peer: str, url: str, identity: Identity, *, timeout: float, max_bytes: int) -> None:
        parts = urlsplit(url)
        if parts.scheme != "https" or not parts.hostname:
            raise InvalidParameter(f"url must be an https address, got url={url!r}")
        self.name = peer
        self._host = parts.hostname
        self._port = parts.port or 443
        self._timeout = timeout
        self._max_bytes = max_bytes
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._context.minimum_version = ssl.TLSVersion.TLSv1_3
        _load(self._context, identity)

    def session(self) -> Session:
        """Return a session for several messages, which connects at the first."""
        connection = http.client.HTTPSConnection(self._host, self._port, timeout=self._timeout, context=self._context)
        return Session(connection, self.name, self._timeout, self._max_bytes)


class Session:
    """One connection to a server, whose certificate is checked to carry the server's name."""

    def __init__(self, connection: http.client.HTTPSConnection, name: str, timeout: float, max_bytes: int) -> None:
        self._connection = connection
        self._name = name
        self._timeout = timeout
        self._max_bytes = max_bytes

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; the next `ask` opens a new one."""
        self._connection.close()

    def ask(self, data: bytes | bytearray) -> bytearray:
        """Post a message and return the answer's bytes, which belong to the caller."""
        connection = self._connection
        try:
            if connection.sock is None:
                connection.connect()
                if _name(connection.sock) != self._name:
                    raise PeerUnreachable("the certificate at its address carries another name")
            connection.request("POST", PATH, data, {"Content-Type": _KIND})
            response = connection.getresponse()
            body = bytearray(min(response.length or 0, self._max_bytes))
            if not _filled(response, body):
                raise http.client.IncompleteRead(b"")
        except PeerUnreachable:
            connection.close()
            raise
        except TimeoutError:
            refused = f"it did not answer within {self._timeout:g} s"
        except ssl.SSLError as error:
            refused = f"no secure connection: {error.reason or 'the handshake failed'}"
        except (OSError, http.client.HTTPException) as error:
            refused = f"it cannot be reached ({type(error).__name__})"
        else:
            if response.status == 200:
                return body
            refused = f"it sent HTTP status {response.status}"
        connection.close()
        raise PeerUnreachable(refused)


def _filled(source: Any, data: bytearray) -> bool:
    """Fill a buffer from a stream; return whether there were enough bytes."""
    remaining = memoryview(data)
    while remaining and (got := source.readinto(remaining)):
        remaining = remaining[got:]
    return not remaining


def _load(context: ssl.SSLContext, identity: Identity) -> None:
    context.options |= _CLEANSE_PLAINTEXT
    try:
        context.load_cert_chain(identity.certificate, identity.key)
        context.load_verify_locations(identity.authority)
    except (OSError, ssl.SSLError):
        raise InvalidParameter("a certificate, key or authority file cannot be read or does not fit") from None


def _name(connection: Any) -> str:
    """Return the common name of the certificate at the other end."""
    for part in (connection.getpeercert() or {}).get("subject", ()):
        for key, value in part:
            if key == "commonName":
                return str(value)
    return ""
