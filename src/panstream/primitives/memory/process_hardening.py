"""What makes a process keep its memory to itself: an environment set before the start, and no dumps afterwards
(Linux, glibc).
"""

from __future__ import annotations

import ctypes
import sys
from typing import Any

# Small freed chunks are overwritten only without the cache of each thread. Large ones are overwritten too, so they may
# as well stay: given back to the system at every commit, they cost more than the commit's own work.
_TUNABLES = {"tcache_count": 0, "mmap_threshold": 1 << 25, "trim_threshold": 1 << 26}
ENVIRONMENT = {
    "PYTHONMALLOC": "malloc",
    "MALLOC_PERTURB_": "165",
    "MALLOC_ARENA_MAX": "1",
    "GLIBC_TUNABLES": ":".join(f"glibc.malloc.{name}={value}" for name, value in _TUNABLES.items()),
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "LD_BIND_NOW": "1",  # a function bound at its first call has the linker store all registers on the stack
}
MARK = "PANSTREAM_HARDENED"  # set to 1 in a process that was started so

_PR_SET_DUMPABLE = 4
_readable = False


def disable_core_dumps() -> None:
    """Have no core dump written of this process, and let no other process of the same user read its memory.

    A limit of 0 does not stop a dump that is piped to a program, as systemd-coredump has it; a process that is not
    dumpable has none of either kind.
    """
    if sys.platform != "linux":
        return
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    if not _readable:
        _set_dumpable(False)


def allow_memory_reads() -> None:
    """Let processes of the same user read this one's memory, now and after `disable_core_dumps`: for the memory
    drill.
    """
    global _readable
    _readable = True
    _set_dumpable(True)


def dask_setup(worker: Any) -> None:
    """Forbid dumps in a Dask worker that loads this module before anything else, and keep its states secret."""
    from panstream.primitives.fast_import import import_without_gc
    from panstream.primitives.memory.secret_memory import enable_secret_memory

    disable_core_dumps()
    enable_secret_memory()
    import_without_gc()


def _set_dumpable(dumpable: bool) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_DUMPABLE, ctypes.c_ulong(dumpable), 0, 0, 0)
