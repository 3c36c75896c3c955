"""The server: one process with one event loop and one engine."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import socket
import ssl
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import FrameType
from urllib.parse import quote

import numpy as np

from panstream.errors import InvalidParameter, MissingExtra, PanstreamError, translate_errors

try:
    import h11  # noqa: F401
    import starlette  # noqa: F401
except ImportError:
    raise MissingExtra("the server", "server") from None

from panstream.distributed.two_party.session import open_stream
from panstream.engine.arrow import pa, string_array
from panstream.engine.config.config import Config
from panstream.engine.planner.public_facts import ingestion_paths
from panstream.engine.planner.sender_bounds import sender_caps
from panstream.engine.rows.row_batch import RowBatch, RowSchema, arrow_type
from panstream.engine.runtime.engine import Engine
from panstream.engine.runtime.selector import Selector
from panstream.engine.storage.release_log import Release
from panstream.server import website as site
from panstream.server.auth import Authenticator, Limits, QuotaTracker
from panstream.server.dashboard import routes
from panstream.server.errors import HttpError
from panstream.server.http.app import application
from panstream.server.http.connection_limiter import ConnectionLimiter
from panstream.server.http.file_descriptors import files_for_connections
from panstream.server.http.protocol import EventProtocol, ServerState
from panstream.server.ingest.buffer_wiping import GcScheduler
from panstream.server.ingest.jobs import FastPath
from panstream.server.ingest.request_bodies import BEACONS, RequestBody, parse
from panstream.server.ingest.source_reader import open_readers
from panstream.server.service import Service
from panstream.server.website.beacon_buffer import BeaconBuffer
from panstream.server.website.privacy_page import privacy_page

OpenEngine = Callable[..., Engine]  # called with ``publish``, which the engine calls with every release

_GRACE = 20.0  # seconds for current requests when the server stops
_TICK = 0.1  # seconds between checks whether it should
_SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGBREAK") if hasattr(signal, name)]
_SAMPLE_VALUES = {
    "int": 1,
    "double": 1.0,
    "string": "a",
    "binary": "a",
    "bool": True,
    "timestamp": "2000-01-01 00:00:00",
    "date": "2000-01-01",
}
_SAMPLE_BEACON = b'site address\nagent\nen-GB\n{"url": "/", "referrer": "", "event": "view", "value": 1}\n'
_SAMPLE_TIME = 1e9  # seconds since 1970


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """Address, tokens, certificate and limits of a server. With ``port=0`` the system chooses one."""

    host: str = "127.0.0.1"
    port: int = 8080
    tokens: Path | None = None
    certificate: Path | None = None
    private_key: Path | None = None
    limits: Limits = field(default_factory=Limits)
    follow: tuple[str, ...] = ()  # growing files, - for standard input, or addresses of Redis, MQTT and Kafka
    format: str | None = None  # of those files


class _ListeningServer:
    """A server that is ready to run; it calls ``started`` with its address."""

    def __init__(
        self,
        service: Service,
        access: Authenticator,
        settings: ServerSettings,
        tls: ssl.SSLContext | None,
        listening: socket.socket,
        started: Callable[[str], None],
    ) -> None:
        limits = settings.limits
        web = service.config.web
        stream = service.config.stream.name
        quotas = QuotaTracker(limits)
        self._beacons: BeaconBuffer | None = None
        self._readers = open_readers(service.config, settings.follow, service.worker, self.stop, settings.format)
        service.readers = self._readers
        pages = routes()
        if web is not None:
            period = service.worker.engine.step_length
            pages.append(privacy_page(web, service.config, service.worker.engine.plans, period))
            if web.source == "beacon":
                self._beacons = BeaconBuffer(web, quotas, service.worker.submit, service.check_running, period)
                caps = sender_caps(service.config.queries) if web.counter else {}
                pages += site.routes(self._beacons, limits.body_time, caps)
        first = f"POST /v1/streams/{quote(stream, safe='')}/events HTTP/1.1\r\n".encode()
        fast_path = FastPath(first, access, quotas, service.check_running, service.worker.submit)
        app = application(service, access, quotas, pages)
        self.state = ServerState(app, limits, fast_path, self._beacons)
        self.connection_limiter = ConnectionLimiter(limits, files=files_for_connections())
        max_connections = self.connection_limiter.max_connections
        if max_connections < limits.connections:
            print(
                f"panstream: the limit of open files allows {max_connections} connections instead of "
                f"{limits.connections}: raise it (ulimit -n)",
                file=sys.stderr,
            )
        host, port = listening.getsockname()[:2]
        scheme = "http" if tls is None else "https"
        self.address = f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"
        self.worker = service.worker
        self._service = service
        self._tls = tls
        self._listening = listening
        self._started = started
        self._access = access
        self._stop_requested = False
        self._reload_requested = False
        self._skip_grace = False
        self.signal: int | None = None  # that stopped the server

    def run_until_stopped(self) -> None:
        """Serve until SIGTERM, Ctrl-C or ``stop``; then finish current requests, commit, and close.

        Raises:
            PanstreamError: If the engine's thread ended by an error, which stops the server too.
        """
        with contextlib.closing(self._listening):
            asyncio.run(self._serve())
        for error in (reader.error for reader in self._readers):
            if error is not None:
                raise error
        if self.worker.dead:
            raise PanstreamError("the server's engine failed, so it stopped; everything acknowledged is stored")

    def stop(self) -> None:
        """Request a stop, from any thread."""
        self._stop_requested = True

    def reload_tokens(self) -> None:
        """Request that the token file be read again, from any thread."""
        self._reload_requested = True

    def _reload_tokens(self) -> None:
        self._reload_requested = False
        try:
            print(f"panstream: {self._access.reload()} tokens are valid now", file=sys.stderr)
        except InvalidParameter as error:
            print(f"panstream: the tokens stay as they were: {error}", file=sys.stderr)

    async def _serve(self) -> None:
        with self._handling_signals():
            self._start()
            while not self._stop_requested:
                await asyncio.sleep(_TICK)
                if self._reload_requested:
                    self._reload_tokens()
            await self._shut_down()

    def _start(self) -> None:
        _warm_up(self._service.config)
        self._service.start()
        GcScheduler.start()
        if self._beacons is not None:
            self._beacons.start()
        for reader in self._readers:
            reader.start()
        self.connection_limiter.open(
            self._listening, partial(EventProtocol, self.state, asyncio.get_running_loop()), self._tls
        )
        self._started(self.address)

    async def _shut_down(self) -> None:
        """Finish current requests, commit, and close."""
        self._service.begin_stop()
        self.connection_limiter.close()
        await self._finish_requests()
        if self._beacons is not None:
            self._beacons.stop()
        for reader in self._readers:
            await reader.stop()
        await self._service.stop()
        GcScheduler.stop()

    async def _finish_requests(self) -> None:
        for connection in list(self.state.connections):
            connection.shutdown()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _GRACE
        while (self.state.connections or self.state.tasks) and not self._skip_grace and loop.time() < deadline:
            await asyncio.sleep(_TICK)
        for task in self.state.tasks:
            task.cancel()

    @contextlib.contextmanager
    def _handling_signals(self) -> Iterator[None]:
        """Stop the server on signals, for the time of the block; only the main thread can handle them."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        previous_handlers = {number: signal.signal(number, self._on_signal) for number in _SIGNALS}
        if self._access.path is not None and sys.platform != "win32":
            previous_handlers[signal.SIGHUP] = signal.signal(signal.SIGHUP, lambda *_: self.reload_tokens())
        try:
            yield
        finally:
            for number, handler in previous_handlers.items():
                signal.signal(number, handler)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        """Request a stop; a second signal skips the grace time."""
        self.signal = number
        self._skip_grace = self._stop_requested
        self._stop_requested = True


def make_server(
    config: Config,
    settings: ServerSettings,
    *,
    operator_key: bytes | None = None,
    accept_time: bool = False,
    on_started: Callable[[str], None] = lambda address: None,
    engine: OpenEngine | None = None,
) -> _ListeningServer:
    """Open the stream, with ``engine`` if given, and bind the socket; no request is answered before the server runs.

    Raises:
        InvalidParameter: If the configuration or the settings cannot be served.
    """
    if config.stream.on_bad_row == "stop":
        raise InvalidParameter(
            '[stream] on_bad_row must be "skip" to be served: with "stop" one row decides whether all others '
            "of its batch count, which no claim covers"
        )

    def open_engine(publish: Callable[[Release], None]) -> Engine:
        if engine is not None:
            opened = engine(publish=publish)
        else:
            opened = open_stream(config, operator_key=operator_key, accept_time=accept_time, publish=publish)
        opened.declare(*ingestion_paths(settings.follow, follow=True))
        return opened

    server: _ListeningServer
    access = Authenticator.load(settings.tokens, settings.host)
    tls = _tls_context(settings)
    listening = _listen(settings)
    try:
        service = Service(config, open_engine, ended=lambda: server.stop(), limits=settings.limits)
        server = _ListeningServer(service, access, settings, tls, listening, on_started)
    except BaseException:
        listening.close()
        raise
    return server


def _tls_context(settings: ServerSettings) -> ssl.SSLContext | None:
    certificate = settings.certificate
    key = settings.private_key
    if (certificate is None) != (key is None):
        raise InvalidParameter("certificate and private key are given together")
    if certificate is None or key is None:
        return None
    for file in (certificate, key):
        if not file.is_file():
            raise InvalidParameter(f"there is no file {file.name!r}")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(certificate, key)
    except (OSError, ValueError) as error:
        raise InvalidParameter(
            f"{certificate.name!r} and {key.name!r} must be a certificate chain and its key, in PEM: {error}"
        ) from None
    return context


def _listen(settings: ServerSettings) -> socket.socket:
    def opened() -> socket.socket:
        kind = socket.getaddrinfo(settings.host, settings.port, type=socket.SOCK_STREAM)[0]
        listening = socket.socket(kind[0], socket.SOCK_STREAM, kind[2])  # protocol 0 would leave Nagle's delay on
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(kind[4])
        listening.set_inheritable(False)
        return listening

    return translate_errors(
        opened,
        OSError,
        lambda error: InvalidParameter(f"cannot listen on host and port given: {error.strerror or 'unknown name'}"),
    )


def _warm_up(config: Config) -> None:
    """Parse, select, apply and answer sample rows in every format, with a temporary state in memory.

    Kernels are compiled or loaded when they are first used, which takes seconds where nothing is cached: without this
    the first senders would wait for it.
    """
    config = replace(config, directory=None)
    schema = RowSchema.of(config.stream, config.needed_columns)
    bodies = _sample_bodies(schema)
    if config.web is not None and config.web.source == "beacon":
        bodies[BEACONS] = _SAMPLE_BEACON
    with contextlib.suppress(PanstreamError, HttpError), Selector(config) as select:
        for kind, text in bodies.items():
            body = RequestBody(QuotaTracker(Limits()), kind, "identity")
            body.append(text)
            with contextlib.ExitStack() as cleanup:
                cleanup.callback(body.wipe)
                batch = parse(body, schema)
                cleanup.callback(batch.wipe)
                cleanup.callback(select.wipe)
                rows = select(batch)
                if kind == "arrow":
                    _apply(config, rows)


def _apply(config: Config, rows: RowBatch) -> None:
    """Apply rows to a temporary engine as if every query selected them, and answer all queries."""
    every = np.ones(len(rows), bool)
    first = np.zeros(len(rows), np.int64)
    rows.queries = {
        name: replace(selection, rows=every, unusable=~every, groups=None if selection.groups is None else first)
        for name, selection in rows.queries.items()
    }
    one = [replace(query, groups={key: keys[:1] for key, keys in query.groups.items()}) for query in config.queries]
    config = replace(config, queries=tuple(one))  # thousands of groups would take as long as their first answers
    with contextlib.suppress(PanstreamError), Engine(config, clock=lambda: _SAMPLE_TIME) as engine:
        engine.apply(rows)
        engine.finish()


def _sample_bodies(schema: RowSchema) -> dict[str, bytes]:
    """Return a body of one row in every format."""
    row = {name: _SAMPLE_VALUES[kind] for name, kind in schema.columns.items()}
    words = [json.dumps(value).strip('"') for value in row.values()]
    kinds = map(arrow_type, schema.columns.values())
    arrays = [string_array([word]).cast(kind) for word, kind in zip(words, kinds, strict=True)]
    batch = pa.RecordBatch.from_arrays(arrays, list(row))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    text = f"{','.join(row)}\n{','.join(words)}\n"
    return {"json": json.dumps(row).encode() + b"\n", "csv": text.encode(), "arrow": sink.getvalue().to_pybytes()}
