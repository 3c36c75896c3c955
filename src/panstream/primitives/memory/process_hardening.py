"""Process hardening: a wiping allocator by environment variables, and no core dumps (Linux, glibc)."""

from __future__ import annotations

import ctypes
import sys
from typing import Any

# glibc overwrites small freed chunks only without its per-thread cache. Large ones are overwritten too, so they need
# not be returned to the system: unmapping them at every commit would cost more than the commit's own work.
_TUNABLES = {"tcache_count": 0, "mmap_threshold": 1 << 25, "trim_threshold": 1 << 26}
ENVIRONMENT = {
    "PYTHONMALLOC": "malloc",
    "MALLOC_PERTURB_": "165",
    "MALLOC_ARENA_MAX": "1",
    "GLIBC_TUNABLES": ":".join(f"glibc.malloc.{name}={value}" for name, value in _TUNABLES.items()),
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "LD_BIND_NOW": "1",  # lazy binding would make the linker store all registers on the stack
}
MARK = "PANSTREAM_HARDENED"  # set to 1 in a process that was started with this environment

_PR_SET_DUMPABLE = 4
_readable = False


def disable_core_dumps() -> None:
    """Disable core dumps of this process and memory reads by other processes of the same user.

    RLIMIT_CORE = 0 does not stop dumps that are piped to a program such as systemd-coredump, hence PR_SET_DUMPABLE,
    which stops both kinds.
    """
    if sys.platform != "linux":
        return
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    if not _readable:
        _set_dumpable(False)


def allow_memory_reads() -> None:
    """Let processes of the same user read this one's memory, even after `disable_core_dumps`: for memory audits."""
    global _readable
    _readable = True
    _set_dumpable(True)


def dask_setup(worker: Any) -> None:
    """Harden a Dask worker that preloads this module: no dumps, states in secret memory."""
    from panstream.primitives.fast_import import import_without_gc
    from panstream.primitives.memory.secret_memory import enable_secret_memory

    disable_core_dumps()
    enable_secret_memory()
    import_without_gc()


def _set_dumpable(dumpable: bool) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_DUMPABLE, ctypes.c_ulong(dumpable), 0, 0, 0)
