"""Holders as processes of their own: HTTPS with certificates on both sides.

A holder listens, an analyst posts the bytes of a question to ``/v1/ask`` and reads the bytes of the answer. TLS 1.3; a
client without a certificate of the holder's authority does not get past the handshake, and one whose name is not on the
holder's list gets 403. Nothing is logged about questions or callers.
"""

from __future__ import annotations

import http.client
import ssl
import threading
from collections.abc import Collection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

from panstream.errors import HolderUnreachable, InvalidParameter
from panstream.federated.certificates import Identity
from panstream.federated.holder import Holder
from panstream.federated.wire import LARGEST_MESSAGE

__all__ = ["HolderServer", "HttpsChannel"]

PATH = "/v1/ask"
_KIND = "application/octet-stream"
_PATIENCE = 60.0  # seconds that a silent connection is kept


class HolderServer:
    """Serves one holder. ``analysts`` are the names (common names of certificates) that may ask."""

    def __init__(
        self,
        holder: Holder,
        identity: Identity,
        analysts: Collection[str],
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        largest: int = 1 << 24,
        at_once: int = 8,
    ) -> None:
        if not analysts:
            raise InvalidParameter("analysts must name at least one certificate that may ask")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.verify_mode = ssl.CERT_REQUIRED
        _load(context, identity)
        slots = threading.BoundedSemaphore(at_once)
        try:
            self._server = _Server((host, port), _handler(holder, frozenset(analysts), largest, slots), context)
        except OSError as error:
            raise InvalidParameter(f"cannot listen on {host}:{port}: {error.strerror}") from None

    @property
    def address(self) -> str:
        """Return where the holder can be reached."""
        host, port = self._server.server_address[:2]
        return f"https://{host!s}:{port}"

    def serve(self) -> None:
        """Answer until :meth:`stop` is called from another thread."""
        self._server.serve_forever(poll_interval=0.1)

    def start(self) -> None:
        """Answer in a thread of its own."""
        threading.Thread(target=self.serve, daemon=True).start()

    def stop(self) -> None:
        """Stop listening, after what is being answered is finished."""
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(
        self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler], context: ssl.SSLContext
    ) -> None:
        super().__init__(address, handler)
        self._context = context

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Shake hands in the connection's own thread, so that a silent client holds nobody up."""
        request.settimeout(_PATIENCE)
        try:
            secured = self._context.wrap_socket(request, server_side=True)
        except (OSError, ssl.SSLError):
            return
        with secured:
            super().finish_request(secured, client_address)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: a broken connection is the caller's business."""


def _handler(
    holder: Holder, analysts: frozenset[str], largest: int, slots: threading.BoundedSemaphore
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
            if int(length) > largest:
                return self._reply(413, b"the question is too long")
            data = self.rfile.read(int(length))  # read in any case: a refusal would be lost with what is left unread
            if len(data) != int(length):
                self.close_connection = True
                return None
            if _name(self.connection) not in analysts:
                return self._reply(403, b"this certificate may not ask")
            with slots:
                answer = holder.answer(data)
            return self._reply(200, answer)

        def _reply(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", _KIND)
            self.send_header("Content-Length", str(len(body)))
            if status != 200:
                self.send_header("Connection", "close")
                self.close_connection = True
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Keep silent about questions and callers."""

    return Handler


class HttpsChannel:
    """A way to a holder that runs elsewhere. ``holder`` is the name its certificate must carry."""

    remote = True

    def __init__(self, holder: str, url: str, identity: Identity, *, timeout: float = 120.0) -> None:
        parts = urlsplit(url)
        if parts.scheme != "https" or not parts.hostname:
            raise InvalidParameter(f"url must be an https address, got url={url!r}")
        self.name = holder
        self._host, self._port = parts.hostname, parts.port or 443
        self._timeout = timeout
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._context.minimum_version = ssl.TLSVersion.TLSv1_3
        _load(self._context, identity)

    def answer(self, data: bytes) -> bytes:
        """Post a question and return the answer's bytes."""
        connection = http.client.HTTPSConnection(self._host, self._port, timeout=self._timeout, context=self._context)
        try:
            connection.connect()
            if _name(connection.sock) != self.name:
                raise HolderUnreachable("the certificate at its address carries another name")
            connection.request("POST", PATH, data, {"Content-Type": _KIND})
            response = connection.getresponse()
            body = response.read(LARGEST_MESSAGE + 1)
        except TimeoutError:
            raise HolderUnreachable(f"it did not answer within {self._timeout:g} s") from None
        except ssl.SSLError as error:
            raise HolderUnreachable(f"no secure connection: {error.reason or 'the handshake failed'}") from None
        except (OSError, http.client.HTTPException) as error:
            raise HolderUnreachable(f"it cannot be reached ({type(error).__name__})") from None
        finally:
            connection.close()
        if response.status != 200:
            raise HolderUnreachable(f"it sent HTTP status {response.status}")
        return body


def _load(context: ssl.SSLContext, identity: Identity) -> None:
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
