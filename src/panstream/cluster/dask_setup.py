"""Settings under which Dask keeps nothing: no spilling, no profiles, no long logs, workers with a wiping allocator."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from panstream.cluster.access import host_of, is_loopback, security_of
from panstream.errors import InvalidParameter, MissingExtra
from panstream.hardened import ENVIRONMENT, MARK, forbid_dumps

__all__ = ["SETTINGS", "local_cluster", "quieten", "serve_worker"]

SETTINGS: dict[str, Any] = {
    "distributed.worker.memory.target": False,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.pause": False,
    "distributed.worker.memory.terminate": False,
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
    "distributed.scheduler.allowed-failures": 1000,
    "distributed.nanny.pre-spawn-environ": {**ENVIRONMENT, MARK: "1", "OMP_NUM_THREADS": "1"},
    "distributed.worker.preload": ["panstream.hardened"],
    "distributed.comm.compression": None,
    "distributed.diagnostics.nvml": False,
}


def quieten() -> None:
    """Put the settings into force in this process, and write no core dumps."""
    try:
        import dask
    except ImportError:
        raise MissingExtra("a cluster", "dask") from None
    dask.config.set(SETTINGS)
    forbid_dumps()


async def serve_worker(scheduler: str, *, name: str | None, scratch: Path | None, listen: str | None) -> None:
    """Be a worker until the scheduler is gone.

    It listens on the one address by which it reaches the scheduler, or on ``listen``; there is no other port, not even a
    dashboard's. Without TLS both must be loopback.
    """
    quieten()
    from distributed import Worker
    from distributed.utils import get_ip

    security = security_of(scheduler, "worker")
    host = listen or (host_of(scheduler) if security is None else get_ip(host_of(scheduler)))  # type: ignore[no-untyped-call]
    if security is None and not is_loopback(host):
        raise InvalidParameter(
            f"listen must be a loopback address without TLS, got {host!r}: whoever can connect to a plain Dask port can run "
            "code there"
        )

    class Quiet(Worker):
        def start_http_server(self, *arguments: Any, **options: Any) -> None:
            """Start none."""

    options: dict[str, Any] = {} if security is None else {"security": security, "protocol": "tls"}
    if scratch is not None:
        options["local_directory"] = str(scratch)
    async with Quiet(scheduler, nthreads=1, name=name, memory_limit=0, dashboard=False, host=host, **options) as worker:
        await worker.finished()


def local_cluster(workers: int, *, security: bool = True, **options: Any) -> Any:
    """Return a Dask cluster on this machine: hardened processes, TLS between them, no dashboard."""
    quieten()
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
