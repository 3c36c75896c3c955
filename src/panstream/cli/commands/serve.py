"""``panstream serve`` and ``token``: the engine over HTTP, and its tokens; ``worker``: a hardened shard process."""

from __future__ import annotations

import contextlib
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from panstream.cli.common import (
    AcceptTime,
    Cluster,
    ConfigFile,
    Format,
    KeyFile,
    NoHardening,
    Workers,
    exit_codes,
    operator_key,
)
from panstream.cli.hardening import lock_memory, reexec_hardened
from panstream.errors import ConfigError, InvalidParameter

_LOST = (
    "warning: not hardened. What is lost: bytes of past requests, and ids in them, may stay readable in freed memory "
    "until it is used again, so a copy of this process's memory can hold them. The claims about the state still hold."
)


def serve(
    config: ConfigFile,
    host: Annotated[str, typer.Option(help="Address to listen on; other than loopback needs --tokens.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 lets the system choose.")] = 8080,
    tokens: Annotated[Path | None, typer.Option(help="Token file, written by: panstream token.")] = None,
    certificate: Annotated[Path | None, typer.Option(help="TLS certificate chain, PEM.")] = None,
    private_key: Annotated[Path | None, typer.Option(help="TLS private key, PEM.")] = None,
    follow: Annotated[
        list[str] | None,
        typer.Option(
            metavar="INPUT",
            help="Read rows from there too: a growing file, redis://host/db#stream, mqtt://host/topic, "
            "kafka://host/topic, or - for standard input. Repeatable.",
        ),
    ] = None,
    format: Format = None,
    cluster: Cluster = None,
    workers: Workers = None,
    key_file: KeyFile = None,
    accept_time: AcceptTime = False,
    max_body: Annotated[int, typer.Option(min=1024, help="Largest request body, in bytes.")] = 16 << 20,
    max_staged: Annotated[
        int, typer.Option(min=1024, help="Memory for batches in parts that wait for their commit, in bytes.")
    ] = 64 << 20,
    rate: Annotated[float, typer.Option(min=0.001, help="Requests per second and token.")] = 2000.0,
    max_concurrent: Annotated[int, typer.Option(min=1, help="Simultaneous requests per token.")] = 64,
    connections: Annotated[int, typer.Option(min=1, help="Connections in total.")] = 512,
    address_connections: Annotated[
        int, typer.Option(min=1, help="Most connections per address; behind a proxy, the same number as --connections.")
    ] = 256,
    no_hardening: NoHardening = False,
) -> None:
    """Serve the queries of CONFIG over HTTP: events in, private answers and a dashboard out.

    With --follow, events also come from files as they grow, such as logs, and from Redis, MQTT and Kafka.
    Stops on SIGTERM or Ctrl-C, after what is under way is finished and stored. /openapi.json describes the interface.
    """
    if not no_hardening:
        reexec_hardened()
    with exit_codes(compiles=True):
        from panstream.engine.planner.person_division import load_divided_config
        from panstream.engine.reporting.person_table import dropped_lines
        from panstream.engine.sinks.sink import open_sink
        from panstream.server.auth import Limits
        from panstream.server.server import ServerSettings, make_server

        loaded = load_divided_config(config)
        if no_hardening:
            typer.echo(_LOST, err=True)
        else:
            lock_memory()
        if loaded.directory is None:
            typer.echo("note: without [store] directory, what was spent is forgotten when this ends", err=True)
        limits = Limits(
            body=max_body,
            unpacked=4 * max_body,
            memory=max(256 << 20, 16 * max_body, 6 * max_staged),
            staged=max_staged,
            rate=rate,
            max_concurrent=max_concurrent,
            connections=connections,
            address_connections=address_connections,
        )
        settings = ServerSettings(
            host=host,
            port=port,
            tokens=tokens,
            certificate=certificate,
            private_key=private_key,
            limits=limits,
            follow=tuple(follow or ()),
            format=format,
        )

        def started(address: str) -> None:
            typer.echo(f"serving {loaded.stream.name} on {address}")

        tell = partial(typer.echo, err=True)
        for text in dropped_lines(loaded):
            tell(f"note: {text}")
        options: dict[str, Any] = {"operator_key": operator_key(key_file), "accept_time": accept_time}
        with contextlib.ExitStack() as stack:
            engine = None
            if cluster is not None or workers is not None:
                from panstream.distributed.sharded.session import open_engines

                if loaded.two_party is not None:
                    raise ConfigError("[stream] machines cannot be combined with a cluster")
                if follow:
                    raise ConfigError("--follow cannot be combined with a cluster; use panstream run")
                engine = stack.enter_context(
                    open_engines(loaded, address=cluster, workers=workers, on_wait=tell, **options)
                )
            server = make_server(loaded, settings, on_started=started, engine=engine, **options)
            stack.enter_context(open_sink(server.worker.engine, tell))
            server.run_until_stopped()
        if server.signal is not None:
            raise typer.Exit(128 + server.signal)


def token(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The token file; created if it does not exist.")],
    name: Annotated[str, typer.Argument(metavar="NAME", help="What the token is for: a system, not a person.")],
    scope: Annotated[list[str], typer.Option(help="ingest, read or admin; may be repeated.")] = ["ingest"],  # noqa: B006
    link: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Print a link to the dashboard at this address, to share its answers."),
    ] = None,
) -> None:
    """Create a token and print it once; FILE keeps only its hash."""
    with exit_codes():
        from panstream.server.auth import create_token

        if link is not None and scope != ["read"]:
            raise InvalidParameter("a link to share contains its token, which may only read: give --scope read alone")
        if link is not None and not link.startswith(("http://", "https://")):
            raise InvalidParameter(f"link must be the server's address, as https://stats.example.org, got {link!r}")
        secret = create_token(file, name, scope)
        typer.echo(secret if link is None else f"{link.rstrip('/')}/#/?token={secret}")


def worker(
    scheduler: Annotated[
        str, typer.Argument(metavar="ADDRESS", help="The scheduler: tls://host:8786, or tcp:// on loopback.")
    ],
    name: Annotated[str | None, typer.Option(help="A name that stays the same across restarts.")] = None,
    scratch: Annotated[
        Path | None, typer.Option(help="Folder for Dask's own files; no rows or states go there.")
    ] = None,
    listen: Annotated[
        str | None, typer.Option(help="Address to listen on; by default the one that reaches the scheduler.")
    ] = None,
    no_hardening: Annotated[bool, typer.Option("--no-hardening", help="Run without the wiping allocator.")] = False,
) -> None:
    """Run a cluster worker until its scheduler is gone; let systemd or Kubernetes restart it.

    Whoever can connect to a plain Dask port can run code there, so other machines are reached by TLS only, where both
    sides show a certificate: distributed.comm.tls in ~/.config/dask/distributed.yaml, or
    DASK_DISTRIBUTED__COMM__TLS__... Nothing is spilled to disk, profiled or dumped, and freed memory is overwritten.
    """
    if not no_hardening:
        reexec_hardened()
    with exit_codes():
        import asyncio

        from panstream.distributed.sharded.dask_setup import serve_worker

        asyncio.run(serve_worker(scheduler, name=name, scratch=scratch, listen=listen))
