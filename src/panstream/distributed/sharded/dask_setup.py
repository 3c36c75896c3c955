"""Dask settings for private streams: authenticated connections, and no copies of data outside of the state.

A Dask port executes what it is sent: messages are pickles and calls are functions. It therefore accepts only holders
of a certificate or, on loopback, processes of this machine. Workers spill, profile and log nothing, and have a wiping
allocator.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from panstream.errors import InvalidParameter, import_optional
from panstream.primitives.memory.process_hardening import ENVIRONMENT, MARK, disable_core_dumps
from panstream.primitives.validation import is_loopback

Role = Literal["client", "worker"]


def security_for(address: str, role: Role) -> Any:
    """Return Dask's security for an address: with certificates for tls://, None for tcp:// on loopback.

    Raises:
        InvalidParameter: For any other address, and where a certificate is missing.
    """
    scheme = urlsplit(address).scheme
    if scheme == "tcp" and is_loopback(_host_of(address)):
        return None
    if scheme != "tls":
        raise InvalidParameter(
            f"address must be tls://host:port, or tcp:// on loopback, got {address!r}: whoever can connect to a plain "
            f"Dask port can run code there. Use tls:// and give {_settings(role)} (docs/howto/cluster.md)"
        )
    from distributed import Security

    security = Security(require_encryption=True)  # type: ignore[no-untyped-call]
    tls_config = security.get_tls_config_for_role(role)  # type: ignore[no-untyped-call]
    for name in ("ca_file", "cert"):
        if not tls_config[name]:
            raise InvalidParameter(f"tls:// needs certificates: give {_settings(role)} (docs/howto/cluster.md)")
    for name in ("ca_file", "cert", "key"):
        if tls_config[name] and "\n" not in tls_config[name] and not Path(tls_config[name]).is_file():
            raise InvalidParameter(f"distributed.comm.tls: there is no {name.replace('_', '-')} {tls_config[name]!r}")
    return security


def check_client(client: Any) -> None:
    """Raise InvalidParameter unless a Dask client reaches its cluster by TLS, on loopback, or within this process."""
    for address in (client.scheduler.address, *client.ncores()):
        parts = urlsplit(address)
        if parts.scheme not in ("tls", "inproc") and not (parts.scheme == "tcp" and is_loopback(_host_of(address))):
            raise InvalidParameter(
                "client must be of a cluster on this machine or one with TLS (Client(..., security=Security(...))): "
                "cells in flight are exact, and whoever can connect to a plain Dask port can run code there"
            )


def _host_of(address: str) -> str:
    return urlsplit(address).hostname or ""


def _settings(role: Role) -> str:
    return f"distributed.comm.tls.ca-file, {role}.cert and {role}.key in ~/.config/dask/distributed.yaml"


SETTINGS: dict[str, Any] = {
    # No copies of data on disk, and no workers that are killed for using memory.
    "distributed.worker.memory.target": False,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.pause": False,
    "distributed.worker.memory.terminate": False,
    # No stacks, logs, error texts or pages, which could contain data.
    "distributed.worker.profile.enabled": False,
    "distributed.admin.log-length": 0,
    "distributed.admin.low-level-log-length": 0,
    "distributed.admin.max-error-length": 200,
    "distributed.admin.tick.interval": "1s",  # by default every process wakes up fifty times a second
    "distributed.admin.tick.limit": "60s",
    "distributed.admin.system-monitor.interval": "5s",
    "distributed.scheduler.active-memory-manager.start": False,
    "distributed.scheduler.http.routes": [],
    "distributed.worker.http.routes": [],
    # Workers lost in a task before it is given up; shards apply a repeated task once.
    "distributed.scheduler.allowed-failures": 1000,
    "distributed.nanny.pre-spawn-environ": {**ENVIRONMENT, MARK: "1", "OMP_NUM_THREADS": "1"},
    "distributed.worker.preload": ["panstream.primitives.memory.process_hardening"],
    "distributed.comm.compression": None,  # the size of a message would depend on its content
    "distributed.diagnostics.nvml": False,
}


def apply_hardened_config() -> None:
    """Apply the settings to Dask in this process, and disable core dumps."""
    import_optional("dask", "a cluster", "dask").config.set(SETTINGS)
    disable_core_dumps()


async def serve_worker(scheduler: str, *, name: str | None, scratch: Path | None, listen: str | None) -> None:
    """Run a worker until the scheduler closes it.

    Args:
        scheduler: The scheduler's address.
        name: The worker's name in the cluster.
        scratch: Directory for Dask's files.
        listen: Address to listen on; by default the one from which the scheduler is reached. Loopback without TLS.
    """
    apply_hardened_config()
    from distributed import Worker
    from distributed.utils import get_ip

    security = security_for(scheduler, "worker")
    local_host = _host_of(scheduler)
    host = listen or (local_host if security is None else get_ip(local_host))  # type: ignore[no-untyped-call]
    if security is None and not is_loopback(host):
        raise InvalidParameter(
            f"listen must be a loopback address without TLS, got {host!r}: whoever can connect to a plain Dask port "
            "can run code there"
        )

    class WorkerWithoutHttp(Worker):
        def start_http_server(self, *arguments: Any, **options: Any) -> None:
            """Open no second port: ``dashboard=False`` alone would leave one."""

    options: dict[str, Any] = {} if security is None else {"security": security, "protocol": "tls"}
    if scratch is not None:
        options["local_directory"] = str(scratch)
    options |= {"nthreads": 1, "name": name, "memory_limit": 0, "dashboard": False, "host": host}
    async with WorkerWithoutHttp(scheduler, **options) as worker:
        await worker.finished()


def local_cluster(workers: int, *, security: bool = True, **options: Any) -> Any:
    """Start a Dask cluster on this machine: hardened processes, TLS between them, no dashboard.

    Args:
        workers: Number of worker processes.
        security: Whether connections are encrypted, with certificates for this cluster only.
        options: Passed on to ``dask.distributed.LocalCluster``.
    """
    apply_hardened_config()
    from distributed import LocalCluster

    settings: dict[str, Any] = {
        "n_workers": workers,
        "threads_per_worker": 1,
        "processes": True,
        "memory_limit": 0,
        "dashboard_address": "127.0.0.1:0",
        "scheduler_kwargs": {"dashboard": False},
        "security": True if security else None,
        "silence_logs": 50,
        **options,
    }
    return LocalCluster(**settings)  # type: ignore[no-untyped-call]
