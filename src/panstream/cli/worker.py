"""``panstream worker``: a hardened Dask worker that may hold shards."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from panstream.cli.hardening import harden
from panstream.cli.outcome import outcome

__all__ = ["worker"]


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

    Whoever can connect to a plain Dask port can run code there, so other machines are reached by TLS only, where both sides
    show a certificate: distributed.comm.tls in ~/.config/dask/distributed.yaml, or DASK_DISTRIBUTED__COMM__TLS__...
    Nothing is spilled to disk, profiled or dumped, and freed memory is overwritten.
    """
    if not no_hardening:
        harden()
    with outcome():
        import asyncio

        from panstream.cluster.dask_setup import serve_worker

        asyncio.run(serve_worker(scheduler, name=name, scratch=scratch, listen=listen))
