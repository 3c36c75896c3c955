"""``panstream serve`` and ``token``: the engine over HTTP, and who may talk to it; ``worker``: a hardened process
for shards.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from panstream.cli.hardening import harden
from panstream.cli.outcome import AcceptTime, Cluster, ConfigFile, KeyFile, NoHardening, operator_key, outcome

__all__ = ["serve", "token", "worker"]

_LOST = (
    "warning: not hardened. What is lost: bytes of past requests, and ids in them, may stay readable in freed memory "
    "until it is used again, so a copy of this process's memory can hold them. The claims about the state still hold."
)


def serve(
    config: ConfigFile,
    host: Annotated[str, typer.Option(help="Address to listen on; other than loopback needs --tokens.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 lets the system choose.")] = 8080,
    tokens: Annotated[Path | None, typer.Option(help="File of tokens, made by: panstream token.")] = None,
    certificate: Annotated[Path | None, typer.Option(help="TLS certificate chain, PEM.")] = None,
    private_key: Annotated[Path | None, typer.Option(help="TLS private key, PEM.")] = None,
    cluster: Cluster = None,
    workers: Annotated[
        int | None,
        typer.Option(help="Hold the states in so many processes of this machine; with --cluster, wait for as many."),
    ] = None,
    key_file: KeyFile = None,
    accept_time: AcceptTime = False,
    max_body: Annotated[int, typer.Option(min=1024, help="Bytes of one request's body.")] = 16 << 20,
    rate: Annotated[float, typer.Option(min=0.001, help="Requests a second of one token.")] = 2000.0,
    at_once: Annotated[int, typer.Option(min=1, help="Requests of one token at a time.")] = 64,
    connections: Annotated[int, typer.Option(min=1, help="Connections of all together.")] = 512,
    address_connections: Annotated[
        int, typer.Option(min=1, help="Connections from one address; behind a proxy, as many as --connections.")
    ] = 256,
    no_hardening: NoHardening = False,
) -> None:
    """Serve the queries of CONFIG over HTTP: events in, private answers and a dashboard out.

    Stops on SIGTERM or Ctrl-C, after what is under way is finished and stored. /openapi.json describes the interface.
    """
    if not no_hardening:
        harden()
    with outcome():
        from panstream.engine.config import load_config
        from panstream.server.access import Limits
        from panstream.server.serve import Settings, make_server

        loaded = load_config(config)
        if no_hardening:
            typer.echo(_LOST, err=True)
        elif not _lock_memory():
            typer.echo(
                "note: memory is not locked (no permission), so it may be swapped; encrypt or disable swap", err=True
            )
        if loaded.directory is None:
            typer.echo("note: without [store] directory, what was spent is forgotten when this ends", err=True)
        limits = Limits(
            body=max_body,
            unpacked=4 * max_body,
            memory=max(256 << 20, 16 * max_body),
            rate=rate,
            at_once=at_once,
            connections=connections,
            address_connections=address_connections,
        )
        settings = Settings(
            host=host, port=port, tokens=tokens, certificate=certificate, private_key=private_key, limits=limits
        )

        def started(address: str) -> None:
            typer.echo(f"serving {loaded.stream.name} on {address}")

        key = operator_key(key_file)
        if cluster is None and workers is None:
            server = make_server(loaded, settings, operator_key=key, started=started, accept_time=accept_time)
            server.run_until_stopped()
            return
        from panstream.cluster.session import engines

        with engines(
            loaded,
            address=cluster,
            workers=workers,
            operator_key=key,
            accept_time=accept_time,
            tell=lambda text: typer.echo(text, err=True),
        ) as engine:
            make_server(loaded, settings, started=started, engine=engine).run_until_stopped()


def token(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file of tokens; made if it is not there.")],
    name: Annotated[str, typer.Argument(metavar="NAME", help="What the token is for: names a system, not a person.")],
    scope: Annotated[list[str], typer.Option(help="ingest, read or admin; may be given several times.")] = ["ingest"],  # noqa: B006
) -> None:
    """Make a token and print it once; FILE keeps only its hash."""
    with outcome():
        from panstream.server.access import create_token

        typer.echo(create_token(file, name, scope))


def worker(
    scheduler: Annotated[
        str, typer.Argument(metavar="ADDRESS", help="The scheduler: tls://host:8786, or tcp:// on loopback.")
    ],
    name: Annotated[str | None, typer.Option(help="A name that stays the same over restarts.")] = None,
    scratch: Annotated[
        Path | None, typer.Option(help="Folder for Dask's own files; no rows or states go there.")
    ] = None,
    listen: Annotated[
        str | None, typer.Option(help="Address to listen on; by default that by which the scheduler is reached.")
    ] = None,
    no_hardening: Annotated[bool, typer.Option("--no-hardening", help="Do without the wiping allocator.")] = False,
) -> None:
    """Run a worker of a cluster until its scheduler is gone; let systemd or Kubernetes start it again.

    Whoever can connect to a plain Dask port can run code there, so other machines are reached by TLS only, where both
    sides show a certificate: distributed.comm.tls in ~/.config/dask/distributed.yaml, or
    DASK_DISTRIBUTED__COMM__TLS__... Nothing is spilled to disk, profiled or dumped, and freed memory is overwritten.
    """
    if not no_hardening:
        harden()
    with outcome():
        import asyncio

        from panstream.cluster.dask_setup import serve_worker

        asyncio.run(serve_worker(scheduler, name=name, scratch=scratch, listen=listen))


_CURRENT_AND_FUTURE = 7  # MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT: only what is used


_CAP_IPC_LOCK = 14


def _lock_memory() -> bool:
    """Keep all memory of this process, now and later, out of swap; False where that is not permitted."""
    if sys.platform != "linux":
        return False
    import ctypes
    import resource

    limit = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    if limit != resource.RLIM_INFINITY and not _may_lock():
        return False  # a limit would make later allocations fail
    return bool(ctypes.CDLL(None, use_errno=True).mlockall(_CURRENT_AND_FUTURE) == 0)


def _may_lock() -> bool:
    """Return whether the process has the capability to lock memory without limit."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("CapEff:"):
            return bool(int(line.split()[1], 16) >> _CAP_IPC_LOCK & 1)
    return False
