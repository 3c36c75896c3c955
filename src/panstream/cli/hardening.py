"""Starting again with an allocator that overwrites what is freed, so that ids do not linger in memory.

Python and Arrow free memory without overwriting it. glibc overwrites it if told to before the process starts, hence the
second start. What this costs: about a tenth of the speed. What is lost without it: ids of past rows may stay readable
in freed memory until it is used again, those of Parquet files among them, which pyarrow decodes; claims about the
*state* are not touched by that.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

from panstream.primitives.interrupts import block_signals
from panstream.primitives.memory.process_hardening import ENVIRONMENT, MARK, disable_core_dumps

__all__ = ["ENVIRONMENT", "lock_memory", "reexec_hardened"]

_CURRENT_AND_FUTURE = 7  # MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT: only what is used
_CAP_IPC_LOCK = 14
_NOT_LOCKED = "note: memory is not locked (no permission), so it may be swapped; encrypt or disable swap"


def reexec_hardened() -> None:
    """Start this command again with a wiping allocator, once, on Linux; and leave no core dumps."""
    if sys.platform != "linux" or not _is_command():
        return
    disable_core_dumps()  # in force until the next start, so it is done again there
    if os.environ.get(MARK) != "1":
        block_signals()  # a signal that Python has noted and not yet handled would be lost with this program
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], {**os.environ, **ENVIRONMENT, MARK: "1"})
    from panstream.primitives.memory.secret_memory import enable_secret_memory

    enable_secret_memory()


def lock_memory() -> None:
    """Keep all memory of this process, now and later, out of swap; say so where that is not permitted."""
    if not _memory_is_locked():
        print(_NOT_LOCKED, file=sys.stderr, flush=True)


def _memory_is_locked() -> bool:
    if sys.platform != "linux":
        return False
    import ctypes
    import resource

    limit = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    held = re.search(r"^CapEff:\s*(\w+)", Path("/proc/self/status").read_text(), re.MULTILINE)
    capable = held is not None and int(held[1], 16) >> _CAP_IPC_LOCK & 1
    if limit != resource.RLIM_INFINITY and not capable:
        return False  # a limit would make later allocations fail
    return bool(ctypes.CDLL(None, use_errno=True).mlockall(_CURRENT_AND_FUTURE) == 0)


def _is_command() -> bool:
    """Return whether this process is the command itself, not a program that calls it."""
    started = Path(sys.argv[0])
    return started.stem == "panstream" or started.parts[-3:] == ("panstream", "cli", "__main__.py")
