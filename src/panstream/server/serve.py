"""Running the server: one process, one event loop, one engine."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Protocol, cast

from panstream.engine.config import Config
from panstream.engine.engine import Engine
from panstream.errors import InvalidParameter, MissingExtra, PanstreamError
from panstream.server.limits import Gate, Limits
from panstream.store.releases import Release

if TYPE_CHECKING:
    from panstream.server.worker import Worker

__all__ = ["Running", "Settings", "make_server", "serve"]

OpenEngine = Callable[[Callable[[Release], None]], Engine]  # given what is to be told of every release

_GRACE = 20  # seconds for requests under way when the server stops


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Where and for whom to serve. ``port=0`` lets the system choose."""

    host: str = "127.0.0.1"
    port: int = 8080
    tokens: Path | None = None
    certificate: Path | None = None
    private_key: Path | None = None
    limits: Limits = field(default_factory=Limits)


class Running(Protocol):
    """A server that is ready to run."""

    address: str
    worker: Worker

    def run_until_stopped(self) -> None:
        """Serve until SIGTERM, Ctrl-C or ``stop``; then finish what is under way, commit, and close.

        Raises PanstreamError if the engine's thread ended, which stops the server too.
        """
        ...

    def stop(self) -> None:
        """Ask it to stop, from any thread."""
        ...


def serve(
    config: Config,
    settings: Settings,
    *,
    operator_key: bytes | None = None,
    accept_time: bool = False,
    started: Callable[[str], None] = lambda address: None,
    engine: OpenEngine | None = None,
) -> None:
    """Serve until SIGTERM or Ctrl-C. ``started`` is told the address; ``engine`` opens another engine than that of one process."""
    make_server(
        config, settings, operator_key=operator_key, accept_time=accept_time, started=started, engine=engine
    ).run_until_stopped()


def make_server(
    config: Config,
    settings: Settings,
    *,
    operator_key: bytes | None = None,
    accept_time: bool = False,
    started: Callable[[str], None] = lambda address: None,
    engine: OpenEngine | None = None,
) -> Running:
    """Open the engine and listen; nothing is answered before it runs."""
    try:
        import starlette  # noqa: F401
        import uvicorn
    except ImportError:
        raise MissingExtra("the server", "server") from None
    from panstream.server.access import Access, is_loopback
    from panstream.server.app import application
    from panstream.server.dashboard import routes
    from panstream.server.desk import Desk
    from panstream.server.door import Door, Guest
    from panstream.server.protocol import protocol_with
    from panstream.server.rehearsal import rehearse
    from panstream.server.service import Service
    from panstream.server.sweep import Sweeper
    from panstream.server.tokens import Tokens

    if config.stream.on_bad_row == "stop":
        raise InvalidParameter(
            '[stream] on_bad_row must be "skip" to be served: with "stop" one row decides whether all others of its batch count, '
            "which no claim covers"
        )
    if settings.tokens is None and not is_loopback(settings.host):
        raise InvalidParameter("tokens are needed unless host is a loopback address, got no file of tokens")
    tokens = None if settings.tokens is None else Tokens.load(settings.tokens)
    tls = _tls(settings)
    listening = _listen(settings)
    access, gate, entrance = Access(tokens), Gate(settings.limits), Door(settings.limits)
    try:
        service = Service(
            config,
            engine
            or (lambda publish: Engine(config, operator_key=operator_key, accept_time=accept_time, publish=publish)),
            ended=lambda: server.stop(),
        )
    except BaseException:
        listening.close()
        raise
    logging.getLogger("uvicorn").addHandler(logging.NullHandler())
    logging.getLogger("uvicorn").propagate = False
    web = uvicorn.Config(
        application(service, access, gate, routes()),
        loop="asyncio",
        http=protocol_with(settings.limits, Desk(service, access, gate)),
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=_GRACE,
        h11_max_incomplete_event_size=settings.limits.head,
        **tls,
    )
    host, port = listening.getsockname()[:2]
    place = f"{'https' if settings.certificate else 'http'}://{f'[{host}]' if ':' in host else host}:{port}"

    class Server(uvicorn.Server):
        address, worker = place, service.worker
        door = entrance

        def run_until_stopped(self) -> None:
            with contextlib.closing(listening):
                self.run([listening])
            if service.worker.dead:
                raise PanstreamError("the server's engine failed, so it stopped; what was acknowledged is kept")

        def stop(self) -> None:
            self.should_exit = True

        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            rehearse(config)
            service.start()
            Sweeper.start()
            await super().startup([])
            entrance.open(listening, self._protocol, self.config.ssl)
            started(place)

        def _protocol(self, guest: Guest) -> asyncio.BaseProtocol:
            kind: Any = self.config.http_protocol_class
            made = kind(self.config, self.server_state, {}, asyncio.get_running_loop())
            made.guest = guest
            return cast(asyncio.BaseProtocol, made)

        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            service.begin_stop()
            entrance.close()
            await super().shutdown(sockets)
            await service.stop()
            Sweeper.stop()

        def handle_exit(self, sig: int, frame: FrameType | None) -> None:
            self.force_exit = self.should_exit
            self.should_exit = True

    server = Server(web)
    return server


def _tls(settings: Settings) -> dict[str, Any]:
    if (settings.certificate is None) != (settings.private_key is None):
        raise InvalidParameter("certificate and private key are given together")
    for file in (settings.certificate, settings.private_key):
        if file is not None and not file.is_file():
            raise InvalidParameter(f"there is no file {file.name!r}")
    if settings.certificate is None:
        return {}
    return {"ssl_certfile": str(settings.certificate), "ssl_keyfile": str(settings.private_key)}


def _listen(settings: Settings) -> socket.socket:
    refused: str | None = None
    try:
        kind = socket.getaddrinfo(settings.host, settings.port, type=socket.SOCK_STREAM)[0]
        listening = socket.socket(kind[0], socket.SOCK_STREAM, kind[2])  # without which Nagle's delay stays on
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(kind[4])
        listening.set_inheritable(False)
        return listening
    except OSError as error:
        refused = f"cannot listen on host and port given: {error.strerror or 'unknown name'}"
    raise InvalidParameter(refused)
